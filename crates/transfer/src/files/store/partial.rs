//! Files that are received into a store.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Error as StoreError, Upload, UploadOffer};
use headroom_transfer_proto::message::UPLOAD_BYTES;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans};

use super::parts::Parts;
use super::root::{Root, written_key};
use super::spool::unnamed_file;
use super::whole::{MAX_AT_ONCE, Whole};
use crate::files::disk;
use crate::files::error::{Error, ErrorKind};
use crate::files::offer::{Offer, PartialRole, Seal, Stored};
use crate::files::progress::KnownSpan;

/// A partial file. Several threads may write to it at once.
///
/// When this is dropped, the parts of a large file stay for the next transfer of the same offer.
/// What lies in the spool does not.
#[derive(Debug)]
pub struct Partial {
    root: Root,
    key: String,
    spool: Arc<disk::Partial>,
    /// `None` of a file that is stored in one request.
    parts: Option<Arc<Parts>>,
}

/// How often, and how many times, to look again while another process begins an upload.
const BEGINNING: (Duration, u32) = (Duration::from_millis(200), 50);

impl Root {
    pub(in crate::files) fn begin(
        &self,
        path: &RelPath,
        offer: &Offer,
        mode: u32,
    ) -> Result<Partial, Error> {
        self.begin_partial(path, offer, mode, None)
    }

    pub(in crate::files) fn begin_shared(
        &self,
        path: &RelPath,
        offer: &Offer,
        mode: u32,
        role: PartialRole,
    ) -> Result<Option<Partial>, Error> {
        // a file may have become small before somebody takes it over
        if offer.size <= MAX_AT_ONCE && !role.finishes() {
            return Ok(None);
        }
        self.begin_partial(path, offer, mode, Some(role)).map(Some)
    }

    fn begin_partial(
        &self,
        path: &RelPath,
        offer: &Offer,
        mode: u32,
        role: Option<PartialRole>,
    ) -> Result<Partial, Error> {
        let begin = || {
            let key = written_key(path)?;
            let size = offer.size;
            if i64::try_from(size).is_err() {
                return Err(ErrorKind::TooLarge(size));
            }
            let file = unnamed_file(&self.shared.spool)?;
            let spool = Arc::new(disk::Partial::spooled(path, size, file)?);
            let parts = match size <= MAX_AT_ONCE {
                true => None,
                false => {
                    self.check_place(key)?;
                    let whole = Whole { size, mode, mtime: offer.mtime };
                    if role.is_some_and(|role| !role.finishes()) {
                        spool.remember();
                    }
                    let how = (offer.reuse, role);
                    Some(Parts::begin(self, key, whole, how, Arc::clone(&spool))?)
                }
            };
            Ok(Partial { root: self.clone(), key: key.to_owned(), spool, parts })
        };
        begin().map_err(|kind| Error::new(path.as_bytes(), "stored", kind))
    }

    /// Begins the upload of a file, or takes part in it.
    pub(super) fn upload(
        &self,
        key: &str,
        offer: &UploadOffer,
        role: Option<PartialRole>,
    ) -> Result<Upload, StoreError> {
        match role {
            None => self.store.begin_upload(key, offer),
            Some(PartialRole::TakeOver(name)) => self.store.take_over_upload(key, offer, name),
            Some(PartialRole::TakeOverAny) => match self.store.find_released_upload(key, offer)? {
                Some(name) => self.store.take_over_upload(key, offer, name),
                None => self.store.begin_upload(key, offer),
            },
            Some(PartialRole::Join(name)) => self.store.join_upload(key, offer, name),
            Some(PartialRole::Begin) => self.begin_and_join(key, offer),
            Some(PartialRole::JoinOrBegin) => self.join_or_begin(key, offer),
        }
    }

    /// Begins an upload with what earlier ones have stored, and takes part in it as others do.
    fn begin_and_join(&self, key: &str, offer: &UploadOffer) -> Result<Upload, StoreError> {
        let begun = self.store.begin_upload(key, offer)?;
        begun.release()?;
        self.store.join_upload(key, offer, begun.nonce())
    }

    fn join_or_begin(&self, key: &str, offer: &UploadOffer) -> Result<Upload, StoreError> {
        let (pause, mut waits) = BEGINNING;
        loop {
            let joined = match self.store.find_released_upload(key, offer)? {
                Some(name) => self.store.join_upload(key, offer, name),
                None => self.begin_and_join(key, offer),
            };
            match joined {
                // another one may take the upload over in the moment in which this one finds it
                Err(StoreError::Busy(_) | StoreError::Gone(_)) if waits > 0 => {
                    waits -= 1;
                    std::thread::sleep(pause);
                }
                joined => return joined,
            }
        }
    }
}

impl Partial {
    pub(in crate::files) fn path(&self) -> &RelPath {
        self.spool.path()
    }

    pub(in crate::files) fn spans(&self) -> Spans {
        self.spool.spans()
    }

    pub(in crate::files) fn present(&self, span: u64) -> Option<ChainingValue> {
        let value = self.parts.as_ref()?.value(span)?;
        self.spool.claim(span, value);
        Some(value)
    }

    pub(in crate::files) fn next_present(&self, from: u64) -> Option<u64> {
        let parts = self.parts.as_ref()?;
        (from..self.spans().count()).find(|span| parts.has_value(*span))
    }

    pub(in crate::files) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        self.wait_for_room()?;
        let written = self.spool.write_at(offset, bytes)?;
        self.arrived(offset, bytes.len() as u64, written);
        Ok(written)
    }

    pub(in crate::files) fn write_zeros(&self, offset: u64, len: u64) -> Result<u64, Error> {
        self.wait_for_room()?;
        let written = self.spool.write_zeros(offset, len)?;
        self.arrived(offset, len, written);
        Ok(written)
    }

    pub(in crate::files) fn came(&self) -> u64 {
        self.spool.came()
    }

    pub(in crate::files) fn whole_spans(&self) -> u64 {
        self.spool.whole_spans()
    }

    pub(in crate::files) fn known(&self, span: u64) -> Option<KnownSpan> {
        self.spool.known(span)
    }

    pub(in crate::files) fn part_spans(&self) -> Option<u64> {
        self.parts.as_ref().map(|parts| parts.part_spans())
    }

    pub(in crate::files) fn upload(&self) -> Option<[u8; UPLOAD_BYTES]> {
        self.parts.as_ref().map(|parts| parts.upload())
    }

    pub(in crate::files) fn store_range(
        &self,
        spans: &Range<u64>,
        values: &[ChainingValue],
    ) -> Result<(), Error> {
        match &self.parts {
            Some(parts) => {
                parts.store_range(spans, values).map_err(|kind| self.error("stored", kind))
            }
            None => Ok(()),
        }
    }

    pub(in crate::files) fn leave(&self) -> Result<(), Error> {
        match &self.parts {
            Some(parts) => parts.leave().map_err(|kind| self.error("stored", kind)),
            None => Ok(()),
        }
    }

    pub(in crate::files) fn finish(&self, seal: &Seal) -> Result<Stored, Error> {
        self.store(seal).map_err(|kind| self.error("stored", kind))
    }

    pub(in crate::files) fn abandon(&self) -> Result<(), Error> {
        match &self.parts {
            Some(parts) => parts.abandon().map_err(|kind| self.error("removed", kind)),
            None => Ok(()),
        }
    }

    fn wait_for_room(&self) -> Result<(), Error> {
        match &self.parts {
            Some(parts) => parts.wait_for_room().map_err(|kind| self.error("written", kind)),
            None => Ok(()),
        }
    }

    fn arrived(&self, offset: u64, len: u64, written: u64) {
        if let Some(parts) = self.parts.as_ref().filter(|_| written > 0) {
            let bytes: Range<u64> = offset..offset.saturating_add(len);
            parts.arrived(self.spans().touched(bytes));
        }
    }

    fn store(&self, seal: &Seal) -> Result<Stored, ErrorKind> {
        let size = self.spans().size();
        let Some(parts) = &self.parts else {
            if self.spool.root()? != seal.root {
                return Err(ErrorKind::Mismatch);
            }
            let _memory = self.root.shared.memory.take(size);
            let mut content = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
            self.spool.read_at(0, &mut content)?;
            // of what the spool returns, not of what was written to it
            if blake3::hash(&content) != seal.root {
                return Err(ErrorKind::Mismatch);
            }
            return self.root.put(&self.key, Bytes::from(content), seal);
        };
        let (all, here) = (self.spans().count(), self.whole_spans());
        if here < all {
            return Err(ErrorKind::Incomplete { missing: all - here, all });
        }
        let replaced = parts.replaces();
        let version = parts.finish(&seal.root)?;
        self.root.read_back(&self.key, size, &version, &seal.root)?;
        Ok(Stored { replaced })
    }

    fn error(&self, done: &'static str, kind: ErrorKind) -> Error {
        Error::new(self.path().as_bytes(), done, kind)
    }
}
