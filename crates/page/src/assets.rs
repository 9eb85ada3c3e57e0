//! The files of the page, which are part of the program.

/// A file of the page.
pub(crate) struct File {
    /// Its name; there are no folders.
    pub(crate) name: &'static str,
    pub(crate) content_type: &'static str,
    /// The beginning of its BLAKE3 hash, in hexadecimal digits.
    pub(crate) tag: &'static str,
    pub(crate) bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Finds the file of a path.
pub(crate) fn file(path: &str) -> Option<&'static File> {
    let name = path.strip_prefix('/')?;
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.name == name)
}
