//! The files of the page, which are part of the program.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;

/// A file of the page.
#[derive(Debug)]
pub struct File {
    /// Its name; there are no folders.
    pub name: &'static str,
    /// Its content type.
    pub content_type: &'static str,
    /// The beginning of its BLAKE3 hash, in hexadecimal digits.
    pub tag: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
    /// The same, compressed.
    pub(crate) gzipped: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Finds the file of a path.
#[must_use]
pub fn file(path: &str) -> Option<&'static File> {
    let name = path.strip_prefix('/')?;
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.name == name)
}

/// Returns what admits the script inside of `index.html` in the `script-src` of a policy:
/// `'sha256-…'` (Content Security Policy Level 3, section 2.3.1).
#[must_use]
pub fn inline_script() -> &'static str {
    static SOURCE: LazyLock<String> = LazyLock::new(|| {
        let page = file("/").map_or("", |file| std::str::from_utf8(file.bytes).unwrap_or_default());
        let after = page.split_once("<script>").map_or("", |(_, after)| after);
        let script = after.split_once("</script>").map_or("", |(script, _)| script);
        format!("'sha256-{}'", BASE64.encode(digest(&SHA256, script.as_bytes()).as_ref()))
    });
    &SOURCE
}
