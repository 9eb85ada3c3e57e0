//! The file that a page stored: Chromium keeps files of OPFS as files of its profile, with
//! names of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Doing, Error, Result};

/// The folder of a profile with the files of all sites.
const FOLDER: &str = "data/Default/File System";
/// How deep they lie in it.
const MAX_DEPTH: usize = 6;

/// Takes the file of that size out of a browser's profile, to a path where nothing is yet. The
/// browser has ended, or its page has closed the file.
pub(crate) fn take(profile: &Path, bytes: u64, to: &Path) -> Result<()> {
    let mut found = Vec::new();
    files(&profile.join(FOLDER), MAX_DEPTH, &mut found);
    let file = found.into_iter().find(|path| {
        fs::metadata(path).is_ok_and(|meta| meta.len() == bytes)
            // 00000000, 00000001, …; the others are the browser's data bases
            && path.file_name().is_some_and(|name| name.len() == 8)
            && path.file_name().is_some_and(|name| {
                name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
            })
    });
    let file = file.ok_or(Error::NoFile(bytes))?;
    // a browser that runs knows the file by this name, and removes it itself
    fs::hard_link(&file, to)
        .or_else(|_| fs::copy(&file, to).map(drop))
        .doing(|| format!("link {} as {}", file.display(), to.display()))
}

fn files(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 0 => files(&entry.path(), depth - 1, found),
            _ => {}
        }
    }
}
