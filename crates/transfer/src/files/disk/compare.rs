//! Compares what is to be stored with what is there, by metadata or by hash.

use std::os::unix::ffi::OsStringExt;

use headroom_transfer_proto::message::Attributes;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Hash;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::Mode;

use super::attributes;
use super::open::open_ordinary;
use super::root::Root;
use crate::files::compare::{Sent, Status, is_time};
use crate::files::content;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::{kept_mode, set_mtime};
use headroom_transfer_proto::message::Time;

impl Root {
    /// Compares what has a name with a sender's entry.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn compare(&self, path: &RelPath, sent: &Sent<'_>) -> Result<Status, Error> {
        let here = match self.look(path) {
            Ok(Some(here)) => here,
            Ok(None) => return Ok(Status::Missing),
            // in a dry run its parent may be missing
            Err(error) if matches!(error.kind(), ErrorKind::Missing) => return Ok(Status::Missing),
            Err(error) => return Err(error),
        };
        let sealed = |same| if same { Status::Same } else { Status::MetadataDiffers };
        Ok(match (sent, here.file_type) {
            (Sent::Directory { mode }, FileType::Directory) => {
                sealed(mode & kept_mode(FileType::Directory) == here.mode)
            }
            (Sent::Symlink { target }, FileType::Symlink) => {
                let held = self.held_by_link(path)?;
                if held == *target { Status::Same } else { Status::ContentDiffers }
            }
            (Sent::File { size, .. }, FileType::File) if *size != here.size => {
                Status::ContentDiffers
            }
            (Sent::File { mode, mtime, hash, attributes, .. }, FileType::File) => {
                let is_time = is_time(here.mtime, *mtime);
                let is_same = match hash {
                    Some(hash) => self.hash(path)? == *hash,
                    None => is_time,
                };
                if !is_same {
                    return Ok(Status::ContentDiffers);
                }
                let is_sealed = is_time && mode & 0o777 == here.mode;
                sealed(is_sealed && self.has_attributes(path, *attributes)?)
            }
            (_, file_type) => Status::TypeDiffers(file_type),
        })
    }

    /// Sets permissions, time and attributes of an existing file.
    ///
    /// # Errors
    /// It is not a file, or not this user's.
    pub fn update_metadata(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
        attributes: Option<&Attributes>,
    ) -> Result<(), Error> {
        let update_metadata = || -> Result<(), ErrorKind> {
            let directory = self.parent(path)?;
            let (file, _) = open_ordinary(&directory, path.name(), OFlag::O_RDONLY)?;
            attributes::set(&file, Mode::from_bits_truncate(mode & 0o777), attributes)?;
            Ok(set_mtime(&file, mtime)?)
        };
        update_metadata()
            .map_err(|kind| Error::new(path.as_bytes(), "given its mode and time", kind))
    }

    fn has_attributes(
        &self,
        path: &RelPath,
        attributes: Option<&Attributes>,
    ) -> Result<bool, Error> {
        let Some(attributes) = attributes else { return Ok(true) };
        let are_set = || {
            let directory = self.parent(path)?;
            let (file, metadata) = open_ordinary(&directory, path.name(), OFlag::O_RDONLY)?;
            attributes::are_set(&metadata, &file, attributes)
        };
        are_set().map_err(|kind| Error::new(path.as_bytes(), "read", kind))
    }

    fn held_by_link(&self, path: &RelPath) -> Result<Vec<u8>, Error> {
        let read = || Ok::<_, ErrorKind>(readlinkat(self.parent(path)?, path.name())?.into_vec());
        read().map_err(|kind| Error::new(path.as_bytes(), "read", kind))
    }

    /// Reads a file, and returns its hash.
    ///
    /// # Errors
    /// It is missing, not a file, or cannot be read.
    pub fn hash(&self, path: &RelPath) -> Result<Hash, Error> {
        let hash = || {
            let directory = self.parent(path)?;
            let (file, metadata) = open_ordinary(&directory, path.name(), OFlag::O_RDONLY)?;
            content::whole_hash(&file, metadata.size).map_err(ErrorKind::of)
        };
        hash().map_err(|kind| Error::new(path.as_bytes(), "read", kind))
    }
}
