//! The page of `headroom serve --web` in a real browser, by the scripts in `tests/page`.
//!
//! `scripts/fetch-parts --with-browser` fetches what they need: Chromium, Node.js, and the packages
//! of `tests/page/package-lock.json`. Where one is missing the tests are skipped, unless
//! `HEADROOM_TESTS=required`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A session without a server, so that the page can be shown whatever is rare in a real one.
#[test]
fn the_page_shows_transfers_names_and_errors_and_has_no_barriers() {
    run("ui.test.js");
}

#[test]
fn the_page_moves_files_from_and_to_a_real_server() {
    run("page.test.js");
}

/// Runs a script with the tests of one kind; what fails is in its output.
fn run(script: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let Some((node, chromium, modules)) = tools(&folder) else { return };
    let mut command = Command::new(&node);
    command
        .arg("--test")
        .arg("--test-reporter=spec")
        .arg(folder.join(script))
        .env("HEADROOM", env!("CARGO_BIN_EXE_headroom"))
        .env("CHROMIUM", chromium)
        .env("PAGE_MODULES", modules);
    let output = command.output().expect("node starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{printed}\n{errors}", output.status);
}

/// Node.js, Chromium and the folder of the packages, or none with a message.
fn tools(folder: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let parts = parts();
    let node = program("node", &parts.join("bin/node"));
    let chromium = program("chromium", &parts.join("bin/chromium"));
    let modules = [folder.join("node_modules"), parts.join("page/node_modules")]
        .into_iter()
        .find(|modules| modules.join("playwright-core/package.json").is_file());
    match (node, chromium, modules) {
        (Some(node), Some(chromium), Some(modules)) => Some((node, chromium, modules)),
        (node, chromium, _) => {
            let missing = if node.is_none() {
                "Node.js"
            } else if chromium.is_none() {
                "Chromium"
            } else {
                "the packages of tests/page/package-lock.json"
            };
            let how = format!("no {missing}: run scripts/fetch-parts --with-browser");
            let required = std::env::var_os("CI").is_some()
                || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
            assert!(!required, "{how}");
            eprintln!("skipped: {how}");
            None
        }
    }
}

/// A program of the cache, else of the system.
fn program(name: &str, cached: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(cached.to_owned())
        .chain(std::env::split_paths(&path).map(|folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// The cache of `fetch-parts`.
fn parts() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    variable("HEADROOM_PARTS").unwrap_or_else(|| {
        variable("XDG_CACHE_HOME")
            .or_else(|| Some(variable("HOME")?.join(".cache")))
            .unwrap_or_default()
            .join("headroom/parts")
    })
}
