//! Files of a store that are sent.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headroom_store::{Object, Version};
use headroom_transfer_proto::message::{ChunkHash, ChunkKind, ChunkSize};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Hash, Spans, Tree};

use super::root::Root;
use super::tags;
use super::windows::Windows;
use crate::files::chunks;
use crate::files::error::{Error, ErrorKind};
use crate::files::metadata::Metadata;

/// A file that was found, and is not open yet.
#[derive(Debug, Clone)]
pub struct SourceFile {
    root: Root,
    key: String,
    path: RelPath,
    metadata: Metadata,
    version: Version,
    /// Its hash, if it was stored in one request.
    hash: Option<Hash>,
    has_record: bool,
    /// Its content, if that was read ahead.
    content: Option<Bytes>,
}

impl SourceFile {
    pub(super) fn new(root: Root, key: &str, path: RelPath, object: Object) -> Self {
        let metadata = tags::metadata(key, &object);
        let (hash, has_record) = (tags::hash(&object), tags::has_record(&object));
        let (key, version, content) = (key.to_owned(), object.version, None);
        Self { root, key, path, metadata, version, hash, has_record, content }
    }

    /// Reads the content, unless it was read with the metadata, for a caller who opens the file
    /// later. If it cannot be read, that is reported then.
    pub(super) fn read_ahead(&mut self, content: Option<Bytes>) {
        let content = match content {
            Some(content) => self.verified(content),
            None => self.read_whole(),
        };
        self.content = content.ok();
    }

    pub(in crate::files) fn path(&self) -> &RelPath {
        &self.path
    }

    pub(in crate::files) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(in crate::files) fn open(&self) -> Result<Reader, Error> {
        let open = || {
            let (store, shared) = (&self.root.store, &self.root.shared);
            let record = match self.has_record {
                true => store.record(&self.key, &self.version)?,
                false => None,
            };
            // one of another size is none of this object
            let size = self.metadata.size;
            let record = record.filter(|record| {
                record.size == size && record.values.len() as u64 == Spans::new(size).count()
            });
            let of = (size, self.version.clone());
            let key = self.key.clone();
            let lent = (shared.threads.clone(), Arc::clone(&shared.ahead));
            let windows = Windows::new(store.clone(), lent, key, of, record);
            Ok(Reader { source: self.clone(), windows })
        };
        open().map_err(|kind: ErrorKind| self.error(kind))
    }

    /// Reads the whole content in one request, and compares its hash.
    fn read_whole(&self) -> Result<Bytes, ErrorKind> {
        let size = self.metadata.size;
        if size == 0 {
            return Ok(Bytes::new());
        }
        self.verified(self.root.store.read(&self.key, 0..size, Some(&self.version))?)
    }

    /// Compares the whole content with the hash that was stored with it.
    fn verified(&self, content: Bytes) -> Result<Bytes, ErrorKind> {
        match self.hash {
            Some(hash) if hash != blake3::hash(&content) => Err(ErrorKind::Store(
                "the store returns other bytes than were stored; store it again".into(),
            )),
            _ => Ok(content),
        }
    }

    fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(self.path.as_bytes(), "read", kind)
    }
}

/// A file that is being sent. Several threads may read it at once.
#[derive(Debug)]
pub struct Reader {
    source: SourceFile,
    windows: Windows,
}

impl Reader {
    pub(in crate::files) fn size(&self) -> u64 {
        self.source.metadata.size
    }

    pub(in crate::files) fn source(&self) -> &SourceFile {
        &self.source
    }

    pub(in crate::files) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let content = self.source.content.as_ref();
        match content.and_then(|content| content.get(start..)?.get(..len)) {
            Some(content) => buffer[..len].copy_from_slice(content),
            None => {
                let read = self.windows.read(offset, &mut buffer[..len]);
                read.map_err(|error| self.source.error(error))?;
            }
        }
        Ok(len)
    }

    pub(in crate::files) fn read_to_end(&self, most: usize) -> Result<Vec<u8>, Error> {
        if self.size() > most as u64 {
            let mut content = vec![0; most];
            self.read_at(0, &mut content)?;
            return Ok(content);
        }
        match &self.source.content {
            Some(content) => Ok(content.to_vec()),
            None => {
                let content = self.source.read_whole();
                content.map(Vec::from).map_err(|kind| self.source.error(kind))
            }
        }
    }

    pub(in crate::files) fn span_value(&self, span: u64) -> Result<Option<ChainingValue>, Error> {
        let spans = Spans::new(self.size());
        let Some(range) = spans.range(span) else { return Ok(None) };
        if let Some(record) = self.windows.record() {
            let value = usize::try_from(span).ok().and_then(|span| record.values.get(span));
            return Ok(value.copied().map(ChainingValue));
        }
        let mut content = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        self.read_at(range.start, &mut content)?;
        Ok(spans.value(span, &content))
    }

    pub(in crate::files) fn describe(
        &self,
        ranges: &[Range<u64>],
        size: ChunkSize,
        kind: ChunkKind,
        each: impl FnMut(u64, ChunkHash) -> bool,
    ) -> Result<(), Error> {
        let read =
            |offset, into: &mut [u8]| self.windows.read(offset, into).map_err(io::Error::from);
        chunks::describe(read, ranges, size, kind, each)
            .map_err(|error| self.source.error(ErrorKind::of(error)))
    }

    /// Returns the hash of the whole file: the recorded one if there is one.
    pub(in crate::files) fn hash(&self) -> Result<Hash, Error> {
        if let Some(hash) = self.source.hash {
            return Ok(hash);
        }
        if let Some(record) = self.windows.record() {
            return Ok(Hash::from_bytes(record.root));
        }
        let spans = Spans::new(self.size());
        let mut tree = Tree::new(spans);
        for span in 0..spans.count() {
            if let Some(value) = self.span_value(span)? {
                tree.insert(span, value);
            }
        }
        tree.root().ok_or_else(|| self.source.error(ErrorKind::Shorter))
    }
}
