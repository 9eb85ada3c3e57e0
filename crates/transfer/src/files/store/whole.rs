//! Stores a file of which every byte can be read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headroom_store::{Condition, Expected, Upload, UploadOffer, Version};
use headroom_transfer_proto::message::Time;
use headroom_transfer_proto::span::{ChainingValue, Hash, SPAN_BYTES, Spans, Tree};

use super::error::of_write;
use super::root::Root;
use super::tags;
use super::threads::Running;
use crate::files::error::ErrorKind;

/// The size up to which a file is stored in one request.
pub(super) const MAX_AT_ONCE: u64 = 8 * SPAN_BYTES;
/// Parts that are stored at once, of one file: 64 MiB on their way, if they have 8 MiB.
pub(super) const MAX_PARTS: usize = 8;

/// The largest file: its parts, of which there are at most 10 000, are hashed and stored from
/// memory.
const LARGEST: u64 = 10_000 << 30;

/// Reads a range of what is to be stored.
pub(super) type Read = dyn Fn(Range<u64>) -> Result<Bytes, ErrorKind> + Send + Sync;

/// In place of what a file is stored.
#[derive(Debug)]
pub(super) enum Over {
    /// Of anything; this is expected.
    Any(Expected),
    /// Of this alone.
    Only(Condition),
}

/// A file, and what the store is told of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) mtime: Time,
}

impl Whole {
    /// Names an upload: what is offered again with the same name is the same file.
    ///
    /// # Errors
    /// The file is too large.
    pub(super) fn offer(&self) -> Result<UploadOffer, ErrorKind> {
        let Self { size, mode, mtime } = *self;
        if size > LARGEST {
            return Err(ErrorKind::Store(
                "its parts would need more memory than 1 GiB each; divide it".into(),
            ));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&size.to_le_bytes()).update(&(mode & 0o777).to_le_bytes());
        hasher.update(&mtime.seconds.to_le_bytes()).update(&mtime.nanoseconds.to_le_bytes());
        let mut tag = [0; 16];
        hasher.finalize_xof().fill(&mut tag);
        Ok(UploadOffer { size, tag, metadata: tags::of_file(mode, mtime, None)? })
    }
}

impl Root {
    /// Stores a file under a key, in one request or in parts. Where its hash is `known`, what is
    /// read must have it.
    ///
    /// # Errors
    /// It cannot be read, has another hash, or the store refuses: nothing is stored.
    pub(super) fn store_whole(
        &self,
        key: &str,
        whole: Whole,
        read: &Arc<Read>,
        known: Option<&Hash>,
        over: Over,
    ) -> Result<(), ErrorKind> {
        let size = whole.size;
        if size <= MAX_AT_ONCE {
            let _memory = self.shared.memory.take(size);
            let content = read(0..size)?;
            let root = blake3::hash(&content);
            check(&root, known)?;
            let tags = tags::of_file(whole.mode, whole.mtime, Some(&root))?;
            let version = match over {
                Over::Any(expected) => {
                    let replaced = self.store.replace(key, content, &tags, &expected);
                    replaced.map_err(of_write)?.version
                }
                Over::Only(condition) => self.store.put(key, content, &tags, condition)?,
            };
            return self.read_back(key, size, &version, &root);
        }
        let upload = Arc::new(self.store.begin_upload(key, &whole.offer()?)?);
        let stored = self.store_parts(&upload, read, known, over);
        if stored.is_err() {
            // the first error is the one to report
            let _ = upload.abandon();
        }
        let (version, root) = stored?;
        self.read_back(key, size, &version, &root)
    }

    fn store_parts(
        &self,
        upload: &Arc<Upload>,
        read: &Arc<Read>,
        known: Option<&Hash>,
        over: Over,
    ) -> Result<(Version, Hash), ErrorKind> {
        let spans = Spans::new(upload.size());
        let mut tree = Tree::new(spans);
        let mut running: VecDeque<Running<Result<Vec<[u8; 32]>, ErrorKind>>> = VecDeque::new();
        let (mut next, mut span) = (0, 0);
        while next < upload.parts() || !running.is_empty() {
            if next < upload.parts() && running.len() < MAX_PARTS {
                let (upload, read) = (Arc::clone(upload), Arc::clone(read));
                let memory = Arc::clone(&self.shared.memory);
                let part = next;
                running.push_back(self.shared.threads.run(move || {
                    let range = part_range(&upload, part);
                    let _memory = memory.take(range.end - range.start);
                    let content = read(range.clone())?;
                    let values = span_values(spans, range.start, &content);
                    upload.put_part(part, content, values.clone())?;
                    Ok(values)
                }));
                next += 1;
                continue;
            }
            let Some(first) = running.pop_front() else { break };
            for value in first.wait()?? {
                tree.insert(span, ChainingValue(value));
                span += 1;
            }
        }
        let root = tree.root().ok_or(ErrorKind::Changed)?;
        check(&root, known)?;
        let version = match over {
            Over::Any(_) => upload.complete_over(*root.as_bytes()).map_err(of_write)?,
            Over::Only(condition) => upload.complete(*root.as_bytes(), condition)?,
        };
        Ok((version, root))
    }
}

/// Fails if what was read does not have the known hash.
fn check(root: &Hash, known: Option<&Hash>) -> Result<(), ErrorKind> {
    match known.is_none_or(|known| known == root) {
        true => Ok(()),
        false => Err(ErrorKind::Store(
            "what the store returns does not have the recorded hash; send the file again".into(),
        )),
    }
}

/// Returns the bytes of a part.
pub(super) fn part_range(upload: &Upload, part: u32) -> Range<u64> {
    let start = u64::from(part) * upload.part_bytes();
    start..upload.size().min(start + upload.part_bytes())
}

/// Returns the values of the spans of bytes that begin where a span does.
pub(super) fn span_values(spans: Spans, offset: u64, content: &[u8]) -> Vec<[u8; 32]> {
    let first = offset / SPAN_BYTES;
    let value = |(n, bytes): (usize, &[u8])| {
        spans.value(first + n as u64, bytes).map_or([0; 32], |value| value.0)
    };
    content.chunks(SPAN_BYTES as usize).enumerate().map(value).collect()
}
