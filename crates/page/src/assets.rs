//! The files of the page, which are part of the program.

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
