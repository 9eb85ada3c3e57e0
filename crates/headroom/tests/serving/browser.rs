//! The page of `headroom serve --web`, and that of `headroom ui`, in a real browser, by the scripts in `tests/page`.
//!
//! `scripts/fetch-parts --with-browser` fetches what they need: Chromium, Node.js, and the packages
//! of `tests/page/package-lock.json`. Where one is missing the tests are skipped, unless
//! `HEADROOM_TESTS=required`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};

use headroom_mutex::lock;

use crate::common::browser::{QuietNetwork, browser};
use crate::common::parts;

/// A session without a server, so that the page can be shown whatever is rare in a real one.
#[test]
fn the_page_shows_transfers_names_and_errors_and_has_no_barriers() {
    run("ui.test.js");
}

/// The protocol module of the page alone, without a browser.
#[test]
fn the_page_believes_no_server_that_lies() {
    run("download.test.js");
}

#[test]
fn the_page_uploads_on_as_many_connections_as_help() {
    run("upload-links.test.js");
}

/// Other modules of the page alone.
#[test]
fn the_page_paces_and_saves_transfers() {
    run("modules.test.js");
}

#[test]
fn the_page_keeps_its_queue_over_a_reload() {
    run("queue.test.js");
}

#[test]
fn the_page_moves_files_from_and_to_a_real_server() {
    run("page.test.js");
}

#[test]
fn the_page_of_ui_copies_between_this_machine_and_a_real_server() {
    run("command.test.js");
}

#[test]
fn the_page_serves_share_links() {
    run("shares.test.js");
}

#[test]
fn the_page_is_enough_for_somebody_without_a_terminal() {
    run("walk.test.js");
}

#[test]
fn the_page_continues_after_an_outage_of_the_network() {
    run("outage.test.js");
}

#[test]
fn the_page_moves_a_large_file_in_little_memory() {
    run("large.test.js");
}

/// Firefox is not among what all tests need: `scripts/fetch-parts firefox-esr` fetches it.
#[test]
fn the_page_works_in_firefox() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let firefox = std::env::split_paths(&path)
        .chain([parts().join("bin")])
        .map(|folder| folder.join("firefox-esr"))
        .find(|path| runs(path));
    match firefox {
        Some(firefox) => run_in("firefox.test.js", &[("FIREFOX", &firefox)]),
        None => eprintln!("skipped: no firefox-esr: run scripts/fetch-parts firefox-esr"),
    }
}

/// Whether the program runs: the cache may have its start script without its package.
fn runs(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a script with the tests of one kind; what fails is in its output.
fn run(script: &str) {
    run_in(script, &[]);
}

/// One of the browsers that run at once: at most two. With more, on two cores, pages wait longer
/// than a test does.
struct Turn;

static FREE_TURNS: Mutex<usize> = Mutex::new(2);
static TURN_ENDED: Condvar = Condvar::new();

impl Turn {
    fn take() -> Self {
        let free = lock(&FREE_TURNS);
        let free = TURN_ENDED.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *lock(&FREE_TURNS) += 1;
        TURN_ENDED.notify_one();
    }
}

fn run_in(script: &str, environment: &[(&str, &Path)]) {
    let _turn = Turn::take();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let Some(chromium) = browser() else { return };
    let Some((node, modules)) = node(&folder) else { return };
    let mut command = Command::new(node);
    command
        .args(["--test", "--test-reporter=spec"])
        .arg(folder.join(script))
        .env("HEADROOM", env!("CARGO_BIN_EXE_headroom"))
        .env("CHROMIUM", chromium)
        .env("PAGE_MODULES", modules)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = QuietNetwork::new().spawn(command).wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{printed}\n{errors}", output.status);
}

/// Node.js, of the cache or the system, and the packages beside the scripts or in the cache. Where
/// tests are required, none is a failure.
fn node(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let node = std::iter::once(parts().join("bin"))
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("node"))
        .find(|path| path.is_file());
    let modules = [parts().join("page/node_modules"), folder.join("node_modules")]
        .into_iter()
        .find(|modules| modules.join("playwright-core/package.json").is_file());
    let found = node.zip(modules);
    if found.is_none() {
        let required = std::env::var_os("CI").is_some()
            || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
        let how = "no Node.js or none of the packages of tests/page/package-lock.json: run scripts/fetch-parts --with-browser";
        assert!(!required, "{how}");
        eprintln!("skipped: {how}");
    }
    found
}
