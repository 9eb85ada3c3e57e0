//! Compares what is to be stored with what a store has.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headroom_store::{Condition, Object};
use headroom_transfer_proto::message::Time;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Hash;

use super::reader::SourceFile;
use super::root::{Root, key, written_key};
use super::tags;
use super::whole::{MAX_AT_ONCE, Over, Read, Whole};
use crate::files::compare::{Sent, Status, is_time};
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::kept_mode;

impl Root {
    pub(in crate::files) fn compare(
        &self,
        path: &RelPath,
        sent: &Sent<'_>,
    ) -> Result<Status, Error> {
        // what a store cannot hold is not there: storing it fails
        let Ok(key) = key(path) else { return Ok(Status::Missing) };
        let error = |kind: ErrorKind| Error::new(path.as_bytes(), "read", kind);
        let sealed = |same| if same { Status::Same } else { Status::MetadataDiffers };
        if self.is_in_new_directory(key) {
            return Ok(Status::Missing);
        }
        if let Sent::Directory { mode } = sent {
            // most are: one request less
            if let Some(here) = self.directory(key).map_err(error)? {
                self.known.is_there(key);
                return Ok(sealed(mode & kept_mode(FileType::Directory) == here.mode));
            }
        }
        let Some(object) = self.object(key).map_err(error)? else {
            return Ok(match self.is_directory(key).map_err(error)? {
                true => Status::TypeDiffers(FileType::Directory),
                false => Status::Missing,
            });
        };
        let here = tags::metadata(key, &object);
        let version = object.version.clone();
        let status = match (sent, here.file_type) {
            (Sent::Symlink { target }, FileType::Symlink) => {
                match tags::target(&object).as_deref() == Some(*target) {
                    true => Status::Same,
                    false => Status::ContentDiffers,
                }
            }
            (Sent::File { size, .. }, FileType::File) if *size != here.size => {
                Status::ContentDiffers
            }
            (Sent::File { mode, mtime, hash, .. }, FileType::File) => {
                let is_time = is_time(here.mtime, *mtime);
                let is_same = match hash {
                    Some(hash) => self.hash_of(path, key, object)? == *hash,
                    None => is_time,
                };
                match is_same {
                    true => sealed(is_time && mode & 0o777 == here.mode),
                    false => Status::ContentDiffers,
                }
            }
            (_, file_type) => Status::TypeDiffers(file_type),
        };
        // a small one is stored in one request, which requires this version
        if let (Status::ContentDiffers, Sent::File { size, .. }) = (status, sent)
            && *size <= MAX_AT_ONCE
        {
            self.known.saw(key, &version);
        }
        Ok(status)
    }

    /// Sets permissions and time of a file, by storing it again: the metadata of an object is part
    /// of it.
    pub(in crate::files) fn update_metadata(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
    ) -> Result<(), Error> {
        let update = || {
            let key = written_key(path)?;
            let object = self.object(key)?.ok_or(ErrorKind::Missing)?;
            let here = tags::metadata(key, &object);
            if here.file_type != FileType::File {
                return Err(ErrorKind::Clash { here: here.file_type });
            }
            let known = self.recorded_hash(key, &object)?;
            let (size, version) = (object.size, object.version);
            let (store, name, of) = (self.store.clone(), key.to_owned(), version.clone());
            let read: Arc<Read> = Arc::new(move |range: Range<u64>| -> Result<Bytes, ErrorKind> {
                Ok(store.read(&name, range, Some(&of))?)
            });
            let whole = Whole { size, mode, mtime };
            let over = Over::Only(Condition::over(Some(&version)));
            match self.store_whole(key, whole, &read, known.as_ref(), over) {
                Err(ErrorKind::Changed) => Err(ErrorKind::Replaced),
                stored => stored,
            }
        };
        update().map_err(|kind| Error::new(path.as_bytes(), "given its mode and time", kind))
    }

    /// Returns the hash that was recorded when the object was stored, if there is one.
    fn recorded_hash(&self, key: &str, object: &Object) -> Result<Option<Hash>, ErrorKind> {
        if !tags::has_record(object) {
            return Ok(tags::hash(object));
        }
        let record = self.store.record(key, &object.version)?;
        let record = record.filter(|record| record.size == object.size);
        Ok(record.map(|record| Hash::from_bytes(record.root)))
    }

    /// Returns the hash of a file, from its metadata or its record if it is there.
    pub(in crate::files) fn hash(&self, path: &RelPath) -> Result<Hash, Error> {
        let error = |kind: ErrorKind| Error::new(path.as_bytes(), "read", kind);
        let key = key(path).map_err(error)?;
        let object = self.object(key).and_then(|object| object.ok_or(ErrorKind::Missing));
        let object = object.map_err(error)?;
        match tags::metadata(key, &object).file_type {
            FileType::File => self.hash_of(path, key, object),
            here => Err(error(ErrorKind::Clash { here })),
        }
    }

    fn hash_of(&self, path: &RelPath, key: &str, object: Object) -> Result<Hash, Error> {
        match tags::hash(&object) {
            Some(hash) => Ok(hash),
            None => SourceFile::new(self.clone(), key, path.clone(), object).open()?.hash(),
        }
    }
}
