//! Reads a file that is being sent at any offset, hashes its spans, and detects changes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Hash, Spans, Verification};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::beneath::Parent;
use super::open::{HARMLESS, open_ordinary};
use crate::files::content;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::Metadata;

/// A file that was found, and is not open yet.
#[derive(Debug, Clone)]
pub struct SourceFile {
    pub(super) path: RelPath,
    pub(super) parent: Parent,
    pub(super) name: Box<[u8]>,
    pub(super) metadata: Metadata,
}

impl SourceFile {
    /// Returns the name under which it is sent.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// Returns its metadata when it was found.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be read, or has changed.
    pub fn open(&self) -> Result<Reader, Error> {
        self.reader(self.open_ordinary(), false)
    }

    /// Opens the file, even if its content has changed since.
    ///
    /// # Errors
    /// It cannot be read, is another file, or is shorter than it was.
    pub fn open_changed(&self) -> Result<Reader, Error> {
        self.reader(self.open_ordinary(), true)
    }

    /// Opens the file that a walk has found just now, as [`Self::open`] or, if it is `changing`, as
    /// [`Self::open_changed`], in the directory that the walk has open. Its name is not looked up
    /// first: that would be the walk's look-up again.
    ///
    /// # Errors
    /// Those of these methods.
    pub fn open_found(&self, changing: bool) -> Result<Reader, Error> {
        let opened = match self.parent.follows() {
            // the link may lead elsewhere by now
            true => self.open_ordinary(),
            false => self.open_harmless(),
        };
        self.reader(opened, changing)
    }

    /// Opens what has the name, if it is an ordinary file.
    fn open_ordinary(&self) -> Result<(File, Metadata), ErrorKind> {
        let directory = self.parent.open_by_path()?;
        if !self.parent.follows() {
            return match open_ordinary(&directory, &self.name, OFlag::O_RDONLY) {
                Err(ErrorKind::Clash { .. }) => Err(ErrorKind::Replaced),
                outcome => outcome,
            };
        }
        if Metadata::at(&directory, &self.name, true)?.file_type != FileType::File {
            return Err(ErrorKind::Replaced);
        }
        let flags = (OFlag::O_RDONLY | HARMLESS).difference(OFlag::O_NOFOLLOW);
        let file = File::from(openat(&directory, &*self.name, flags, Mode::empty())?);
        let metadata = Metadata::of(&file)?;
        Ok((file, metadata))
    }

    /// Opens what has the name, without following a link or waiting for the other end of a pipe.
    fn open_harmless(&self) -> Result<(File, Metadata), ErrorKind> {
        let directory = self.parent.open()?;
        let flags = OFlag::O_RDONLY | HARMLESS;
        let file = match openat(&directory, &*self.name, flags, Mode::empty()) {
            // a link or a socket
            Err(Errno::ELOOP | Errno::ENXIO) => return Err(ErrorKind::Replaced),
            opened => File::from(opened?),
        };
        let metadata = Metadata::of(&file)?;
        match metadata.file_type {
            FileType::File => Ok((file, metadata)),
            _ => Err(ErrorKind::Replaced),
        }
    }

    /// Returns a reader of what was opened, if that is what was found.
    fn reader(
        &self,
        opened: Result<(File, Metadata), ErrorKind>,
        changing: bool,
    ) -> Result<Reader, Error> {
        let checked = opened.and_then(|(file, now)| match changing {
            false if !self.metadata.is_unchanged(&now) => Err(ErrorKind::Changed),
            true if self.metadata.identity != now.identity => Err(ErrorKind::Replaced),
            true if now.size < self.metadata.size => Err(ErrorKind::Shorter),
            _ => Ok(file),
        });
        let file = checked.map_err(|kind| self.error(kind))?;
        Ok(Reader { source: self.clone(), file, verification: Verification::Blake3 })
    }

    fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(self.path.as_bytes(), "read", kind)
    }
}

/// A file that is being sent. Several threads may read it at once.
#[derive(Debug)]
pub struct Reader {
    source: SourceFile,
    file: File,
    verification: Verification,
}

impl Reader {
    /// Sets how its spans are verified.
    pub(in crate::files) fn verified_by(self, verification: Verification) -> Self {
        Self { verification, ..self }
    }

    /// Returns its size in bytes when it was found.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.source.metadata.size
    }

    /// Returns its spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        Spans::new(self.size()).verified_by(self.verification)
    }

    /// Returns its metadata when it was found.
    #[must_use]
    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// Reads until `buffer` is full or the file ends; returns how many bytes.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        self.file.read_exact_at(&mut buffer[..len], offset).map_err(|error| self.error(error))?;
        Ok(len)
    }

    /// Reads the whole file, whatever size it reports, but no more than `most` bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_to_end(&self, most: usize) -> Result<Vec<u8>, Error> {
        let (mut content, mut len) = (Vec::new(), 0);
        loop {
            // one byte more than an ordinary file has, which so takes one read
            let size = usize::try_from(self.size()).unwrap_or(most);
            content.resize((len + 4096).max(size + 1).min(most), 0);
            if len == content.len() {
                return Ok(content);
            }
            match self.file.read_at(&mut content[len..], len as u64) {
                Ok(0) => break,
                Ok(read) => {
                    len += read;
                    // there was room for more
                    if len == size && len < content.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        content.truncate(len);
        Ok(content)
    }

    /// Finds the next range of data at `from` or later; `None` up to the end.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn next_data(&self, from: u64) -> Result<Option<Range<u64>>, Error> {
        // a fully allocated file has no holes: the kernel need not inspect its pages
        let now = Metadata::of(&self.file).map_err(|error| self.source.error(error))?;
        if now.allocated >= self.size() {
            return Ok((from < self.size()).then(|| from..self.size()));
        }
        let data = content::next_data_range(&self.file, from).map_err(|error| self.error(error))?;
        // what was appended since is not sent
        Ok(data.map(|data| data.start..data.end.min(self.size())).filter(|data| !data.is_empty()))
    }

    /// Hashes a span; `None` if the file has no such span.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn span_value(&self, span: u64) -> Result<Option<ChainingValue>, Error> {
        content::value(&self.file, self.spans(), span).map_err(|error| self.error(error))
    }

    /// Hashes the whole file by BLAKE3.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn hash(&self) -> Result<Hash, Error> {
        content::whole_hash(&self.file, self.size()).map_err(|error| self.error(error))
    }

    /// Whether the file is still as it was found: size, modification time and change time, and no
    /// fewer links. So this also notices that another file replaced it, or that it was removed, but
    /// not that a directory of its path or a link to it now leads elsewhere.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn is_as_found(&self) -> Result<bool, Error> {
        let now = Metadata::of(&self.file).map_err(|error| self.source.error(error))?;
        Ok(self.source.metadata.is_unchanged(&now))
    }

    /// Whether the file is still as it was found, and its path still leads to it.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn is_unchanged(&self) -> Result<bool, Error> {
        let SourceFile { parent, name, metadata, .. } = &self.source;
        let is_as_found = self.is_as_found()?;
        let named = parent
            .open_by_path()
            .and_then(|directory| Metadata::at(&directory, name, parent.follows()));
        Ok(is_as_found && named.is_ok_and(|named| metadata.is_unchanged(&named)))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn error(&self, error: std::io::Error) -> Error {
        self.source.error(match error.kind() {
            std::io::ErrorKind::UnexpectedEof => ErrorKind::Shorter,
            _ => ErrorKind::of(error),
        })
    }
}
