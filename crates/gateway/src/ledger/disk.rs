//! What a ledger asks of a disk, so that a test can pull the plug between any
//! two steps.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The few operations whose order makes a ledger safe.
pub trait Disk {
    /// The whole file; none where there is no such file.
    ///
    /// # Errors
    /// The file cannot be read, or has more than `most` octets.
    fn read(&self, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>>;
    /// Makes the file, or makes it anew, readable by its owner alone. Nothing
    /// of it is durable yet.
    ///
    /// # Errors
    /// The file cannot be written; what is there then is anything.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Makes the file's content durable.
    ///
    /// # Errors
    /// The disk refused; nothing is known of the content.
    fn sync(&self, path: &Path) -> io::Result<()>;
    /// Gives the file another name, in place of what has it. The content under
    /// the name is the old or the new one at any time, after a crash as well.
    ///
    /// # Errors
    /// Nothing was renamed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The disk refused; nothing is known of the names.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Makes a folder, for its owner alone, where there is none.
    ///
    /// # Errors
    /// The folder cannot be made.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// The files of a folder; none where there is no such folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn files(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
}

/// The disk of this machine.
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
            return Err(io::Error::other(format!("it has more than {most} octets")));
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
