//! The disk operations of a ledger, as a trait: tests simulate a power failure between any two.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The disk operations whose order makes a ledger safe.
pub trait Disk {
    /// Reads the whole file; None if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or has more than `most` bytes.
    fn read(&self, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>>;
    /// Creates or truncates the file, readable only by its owner, and writes it. The content is not
    /// durable yet.
    ///
    /// # Errors
    /// The file cannot be written; its content is undefined.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Makes the file's content durable.
    ///
    /// # Errors
    /// The disk refused; the content may be lost.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Renames the file and replaces an existing one. At any time, also after a crash, the name
    /// refers to the old or the new content.
    ///
    /// # Errors
    /// Nothing was renamed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The disk refused; the renames may be lost.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Creates a folder for its owner only, if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Lists the files of a folder; empty if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn files(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
}

/// The disk of this host.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn read(&self, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > most {
            return Err(io::Error::other(format!("it has more than {most} bytes")));
        }
        Ok(Some(content))
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(content)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    fn files(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        entries.map(|entry| Ok(entry?.path())).collect()
    }
}
