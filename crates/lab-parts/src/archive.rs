//! The archive of Debian that this machine's own packages come from (sources.list(5)).

use std::fs;
use std::path::{Path, PathBuf};

/// Finds it by the sources of apt; none where they name no archive of Debian that answers plain HTTP.
pub fn archive_of_this_machine() -> Option<String> {
    archive_in(Path::new("/etc/apt"))
}

fn archive_in(apt: &Path) -> Option<String> {
    let more = fs::read_dir(apt.join("sources.list.d")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = more.map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, apt.join("sources.list"));
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| archive_of(&text))
}

/// Finds the archive in one file, of either format: the address ahead of `/debian`.
fn archive_of(sources: &str) -> Option<String> {
    let lines = sources.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    words.find_map(|word| {
        let archive = word.trim_end_matches('/').strip_suffix("/debian")?;
        archive.starts_with("http://").then(|| archive.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_found_in_both_formats() {
        let one_line = "# deb http://old.example/debian x main\n\
                        deb [signed-by=/k] http://a.example/debian trixie main\n";
        let fields = "Types: deb\n# http://old.example/debian\nURIs: http://b.example/x/debian/\n";
        for (sources, archive) in [
            (one_line, Some("http://a.example")),
            (fields, Some("http://b.example/x")),
            ("deb https://a.example/debian trixie main", None),
            ("deb http://a.example/ubuntu noble main", None),
            ("", None),
        ] {
            assert_eq!(archive_of(sources).as_deref(), archive, "{sources}");
        }
        let apt = tempfile::tempdir().expect("a folder");
        assert_eq!(archive_in(apt.path()), None);
        fs::create_dir(apt.path().join("sources.list.d")).expect("a folder");
        fs::write(apt.path().join("sources.list.d/debian.sources"), fields).expect("a file");
        assert_eq!(archive_in(apt.path()).as_deref(), Some("http://b.example/x"));
    }
}
