//! The report in a real browser, and what it says there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use headroom_testing::Host;

use super::{Ground, parts};

/// The page of a folder's report as the browser has made it.
pub(crate) fn rendered(ground: &Ground, browser: &Path, folder: &str) -> String {
    rendered_for(ground, browser, folder, 10)
}

/// The same after so many seconds of the page's own time, which passes at once while the page
/// waits for nothing that the browser knows of.
pub(crate) fn rendered_for(ground: &Ground, browser: &Path, folder: &str, seconds: u32) -> String {
    let page = ground.path(folder).join("report.html");
    let home = ground.path(&format!("browser-{folder}"));
    std::fs::create_dir_all(&home).expect("a home for the browser");
    let mut command = ground.command(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .arg(format!("--virtual-time-budget={}", seconds * 1000))
        .args(["--hide-scrollbars", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .env("HOME", &home)
        .stderr(Stdio::piped());
    let output = command.output().expect("the browser starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("a page in UTF-8")
}

/// An attribute of the page's first element.
pub(crate) fn attribute(page: &str, name: &str) -> Option<String> {
    let html = &page[page.find("<html")?..];
    let tag = &html[..html.find('>')?];
    let value = &tag[tag.find(&format!(" {name}=\""))? + name.len() + 3..];
    Some(value[..value.find('"')?].to_owned())
}

/// A number among the attributes of the page's first element.
pub(crate) fn count(page: &str, name: &str) -> usize {
    let value = attribute(page, name).unwrap_or_else(|| panic!("no {name}"));
    value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
}

pub(crate) fn title(page: &str) -> &str {
    let start = page.find("<title>").expect("a title") + "<title>".len();
    &page[start..start + page[start..].find("</title>").expect("its end")]
}

/// One section of the page, without the places where names may break.
pub(crate) fn section(page: &str, id: &str) -> String {
    let start = page.find(&format!("<section id=\"{id}\"")).expect("the section");
    let end = page[start..].find("</section>").expect("its end");
    page[start..start + end].replace("<wbr>", "")
}

/// Where programs of a test with a browser run: in a network of their own, if the tests may make
/// one. A browser gives up what it is fetching when addresses or links of its host change, and
/// other tests make links.
pub(crate) struct QuietNetwork(Option<Host>);

impl QuietNetwork {
    pub(crate) fn new() -> Self {
        Self(nix::unistd::geteuid().is_root().then(Host::alone))
    }

    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        let mut start = move || command.spawn();
        match &self.0 {
            Some(host) => host.run(start),
            None => start(),
        }
        .expect("it starts")
    }
}

/// A Chromium of the system or of the cache. Where tests are required, none is
/// a failure.
pub(crate) fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("chromium"))
        .chain([parts().join("bin/chromium")])
        .find(|path| path.is_file());
    if found.is_none() {
        let required = std::env::var_os("CI").is_some()
            || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
        let how = "no chromium: run scripts/fetch-parts --with-browser";
        assert!(!required, "{how}");
        eprintln!("skipped: {how}");
    }
    found
}
