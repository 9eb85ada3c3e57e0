//! Programs that `scripts/fetch-parts` fetches or builds.

use std::path::PathBuf;

/// Returns the program that `scripts/fetch-parts NAME` puts at this place of its cache, or nothing
/// where it is missing: the test is skipped then.
///
/// # Panics
/// It is missing, and tests are required (`CI`, `HEADROOM_TESTS=required`).
pub(crate) fn program(name: &str, place: &str) -> Option<PathBuf> {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let parts = path("HEADROOM_PARTS").or_else(|| {
        let cache = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        Some(cache?.join("headroom/parts"))
    });
    let found = parts.map(|parts| parts.join(place)).filter(|path| path.is_file());
    if found.is_none() {
        let required = std::env::var_os("CI").is_some()
            || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
        let how = format!("no {name}: run scripts/fetch-parts {name}");
        assert!(!required, "{how}");
        eprintln!("skipped: {how}");
    }
    found
}
