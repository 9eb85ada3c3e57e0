//! Names and contents of files on this machine, below `/`, as the user who runs the command.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::names::{decode_below, encode};

/// Entries in one part of a listing.
const PART: usize = 500;

/// Reads a path of this machine as the page writes it, without the first slash.
pub(crate) fn path_of(text: &str) -> Result<PathBuf, ApiError> {
    let below = decode_below(text)?;
    Ok(Path::new("/").join(OsStr::from_bytes(&below)))
}

/// Writes a path of this machine as the page reads it.
pub(crate) fn text_of(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    encode(bytes.strip_prefix(b"/").unwrap_or(bytes))
}

/// Lists a directory in parts; `each` returns whether to go on.
pub(crate) fn list(path: &Path, mut each: impl FnMut(Vec<Value>) -> bool) -> Result<(), ApiError> {
    let failed = |error| ApiError::system("the folder cannot be read", &error);
    let mut part = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // removed meanwhile
        let Ok(meta) = entry.metadata() else { continue };
        part.push(entry_of(&entry.file_name(), &entry.path(), &meta));
        if part.len() == PART && !each(std::mem::take(&mut part)) {
            return Ok(());
        }
    }
    each(part);
    Ok(())
}

fn entry_of(name: &OsStr, path: &Path, meta: &Metadata) -> Value {
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "link",
        () => "other",
    };
    let modified = meta.mtime() * 1000 + meta.mtime_nsec() / 1_000_000;
    let mut entry = json!({"name": encode(name.as_bytes()), "type": kind, "size": meta.len(), "mode": meta.mode() & 0o7777, "modified": modified});
    if kind == "link" {
        let target = fs::read_link(path).ok();
        entry["target"] = target.map(|target| encode(target.as_os_str().as_bytes())).into();
    }
    entry
}

/// Makes a directory.
pub(crate) fn make_directory(path: &Path) -> Result<(), ApiError> {
    fs::create_dir(path).map_err(|error| ApiError::system("the folder cannot be made", &error))
}

/// Gives something another name; nothing is replaced.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), ApiError> {
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
        .map_err(|errno| ApiError::system("it cannot be renamed", &errno.into()))
}

/// Removes a file or link, or with `recursive` a directory and everything in it. Links are not
/// followed.
pub(crate) fn remove(path: &Path, recursive: bool) -> Result<(), ApiError> {
    if path.parent().is_none() {
        return Err(ApiError::new("refused", "the root cannot be removed"));
    }
    let removed = match (fs::symlink_metadata(path), recursive) {
        (Err(error), _) => Err(error),
        (Ok(meta), true) if meta.is_dir() => fs::remove_dir_all(path),
        (Ok(meta), false) if meta.is_dir() => fs::remove_dir(path),
        (Ok(_), _) => fs::remove_file(path),
    };
    removed.map_err(|error| ApiError::system("it cannot be removed", &error))
}

/// Reads a part of a file. What is no file (a pipe, a device) is refused, and does not block.
pub(crate) fn read(path: &Path, offset: u64, length: usize) -> Result<Vec<u8>, ApiError> {
    let failed = |error: io::Error| ApiError::system("the file cannot be read", &error);
    let mut options = fs::OpenOptions::new();
    let mut file =
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ApiError::new("refused", "it is not a file"));
    }
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut content = Vec::new();
    file.take(length as u64).read_to_end(&mut content).map_err(failed)?;
    Ok(content)
}
