//! Sends only what changed within the spans of a file: the receiver describes its old file by
//! chunks, and copies those that the new one has, too. What lies between them is sent.
//!
//! Blocks at their place are tried first: they find what did not change beside what did. Where they
//! do not suffice, content has moved, and chunks whose ends the content determines find it; of much
//! content groups of them first.
//!
//! A wrong match, of two chunks whose hashes begin with the same 16 bytes, gives another hash of
//! the whole file, which the receiver compares as always.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use headroom_transfer_proto::message::{
    ChunkHash, ChunkKind, ChunkSize, MAX_COPY, MAX_DESCRIBED, MAX_INLINE, Message,
};
use tokio::sync::mpsc;

use super::content::blocking;
use super::copies::{Copies, CopyRange};
use super::open_file::{OpenFile, changed};
use super::search::{MIN_OLD, Position, Search, first, match_groups, most_known, sample, total};
use super::shared::{Described, Offering, Shared};
use crate::delivery::event::Event;
use crate::error::Error;
use crate::failure::Failure;
use crate::files::{self, Ranges};

/// Bytes of either file that are searched first if no group of chunks was found.
const PROBE: u64 = 16 << 20;
/// How many times as many bytes as were found may be left of these, if all is to be searched.
const PROBE_WORTH: u64 = 32;
/// Chunks between two looks whether the file is still sent.
const CHUNKS_AT_ONCE: u32 = 256;
/// Copies that need as much memory as one chunk of an old file.
const COPIES_OF_A_CHUNK: usize = 4;

/// Chunks, or groups of them, and their offsets.
type Found = Vec<(u64, ChunkHash)>;

impl Shared {
    /// Notes a part of a description that was requested.
    pub(super) fn note_described(
        &self,
        id: u64,
        chunks: Vec<ChunkHash>,
        last: bool,
    ) -> Result<(), Error> {
        let mut offered = self.offered();
        // it may have been withdrawn meanwhile
        let Some(entry) = offered.get_mut(&id) else { return Ok(()) };
        let Some(described) = &mut entry.described else {
            return Err(Error::Protocol("it describes a file without being asked".to_owned()));
        };
        match described.left.checked_sub(chunks.len()) {
            Some(left) if last || !chunks.is_empty() => described.left = left,
            _ => {
                return Err(Error::Protocol(
                    "it describes a file by more chunks than it has".to_owned(),
                ));
            }
        }
        let _ = described.parts.send(chunks);
        if last {
            entry.described = None;
        }
        Ok(())
    }

    /// Searches what the receiver lacks of a file for content of its old one, and sends the spans
    /// that have some. Returns their bytes, or why the file cannot be sent.
    pub(super) async fn send_delta(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<u64, Failure>, Error> {
        // what may change is read once
        let is_wanted = self.offering != Offering::Content
            && !self.tree.changing
            && self.delta.covers(opened.size());
        let old = self.offered().get(&id).and_then(|entry| entry.old);
        let Some(old) = old.filter(|_| is_wanted) else { return Ok(Ok(0)) };
        let looking = Arc::clone(opened);
        let search = match blocking(move || Search::new(&looking, old)).await? {
            Ok(Some(search)) => search,
            Ok(None) => return Ok(Ok(0)),
            Err(error) => return Ok(Err(error.into())),
        };
        // this semaphore is never closed
        let Ok(mut permits) = self.known_chunks.acquire_many(search.chunks()).await else {
            return Ok(Ok(0));
        };
        let copies = match self.find_copies(id, opened, &search, messages).await? {
            Ok(copies) => copies,
            Err(error) => return Ok(Err(error.into())),
        };
        if copies.is_empty() {
            return Ok(Ok(0));
        }
        let left = permits.num_permits().min(copies.len() / COPIES_OF_A_CHUNK);
        let _permits_of_copies = permits.split(left);
        drop(permits);
        // each has a thread that waits for the peer; this semaphore is never closed
        let Ok(_piece) = self.pieces.acquire().await else { return Ok(Ok(0)) };
        let (shared, opened) = (Arc::clone(self), Arc::clone(opened));
        let messages = messages.clone();
        blocking(move || shared.send_copies(id, &opened, &copies, &messages)).await
    }

    async fn find_copies(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        search: &Search,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<Copies, files::Error>, Error> {
        let (size, mut place) = (search.fine(), search.place());
        let sampled = sample(&place);
        let block = (ChunkKind::Block, size);
        let mut copies =
            match self.find_chunks(id, opened, block, &sampled, &sampled, messages).await? {
                Ok(copies) => copies,
                Err(error) => return Ok(Err(error)),
            };
        // what did not change is where it was
        if 2 * copies.bytes() >= total(&sampled) {
            sampled.iter().for_each(|range| place.remove(range));
            match self.find_chunks(id, opened, block, &place, &place, messages).await? {
                Ok(found) => copies = copies.and(found),
                Err(error) => return Ok(Err(error)),
            }
        }
        let left = search.left(&copies);
        if total(&left.own) == 0 || total(&left.old) < MIN_OLD {
            return Ok(Ok(copies));
        }
        let found = self.find_moved(id, opened, &left, messages).await?;
        Ok(found.map(|found| copies.and(found)))
    }

    /// Finds content at any offset.
    async fn find_moved(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        search: &Search,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<Copies, files::Error>, Error> {
        let Search { own, old } = search;
        if !search.is_large() {
            let chunk = (ChunkKind::Chunk, search.fine());
            return self.find_chunks(id, opened, chunk, own, old, messages).await;
        }
        let size = search.coarse();
        let (chunk, group) = ((ChunkKind::Chunk, size), (ChunkKind::Group, size));
        let (theirs, ours) = tokio::try_join!(
            self.describe(id, group, old, messages),
            self.own_groups(id, opened, size, own)
        )?;
        let ours = match ours {
            Ok(ours) => ours,
            Err(error) => return Ok(Err(error)),
        };
        let matched = match_groups(&theirs, &ours);
        drop((theirs, ours));
        let (own, old) = (matched.own, matched.old);
        if matched.copies.is_empty() && total(&old) > PROBE {
            let (some_own, some_old) = (first(&own, PROBE), first(&old, PROBE));
            match self.find_chunks(id, opened, chunk, &some_own, &some_old, messages).await? {
                // it is another file
                Ok(found) if found.bytes() < total(&some_own) / PROBE_WORTH => {
                    return Ok(Ok(Copies::default()));
                }
                Ok(_) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        let found = self.find_chunks(id, opened, chunk, &own, &old, messages).await?;
        Ok(found.map(|found| matched.copies.and(found)))
    }

    /// Finds chunks of parts of the old file in parts of the new one.
    async fn find_chunks(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        (kind, size): (ChunkKind, ChunkSize),
        own: &Ranges,
        old: &Ranges,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<Copies, files::Error>, Error> {
        if total(own) == 0 || total(old) == 0 {
            return Ok(Ok(Copies::default()));
        }
        let theirs = self.describe(id, (kind, size), old, messages).await?;
        let (shared, opened, own) = (Arc::clone(self), Arc::clone(opened), listed(own));
        blocking(move || {
            let known = theirs.iter().filter(|(_, chunk)| chunk.has_hash());
            let places: HashMap<_, _> = known.map(|(offset, chunk)| (*chunk, *offset)).collect();
            let (mut copies, mut chunks) = (Copies::default(), 0_u32);
            opened.reader().describe(&own, size, kind, |to, chunk| {
                // of equal chunks the one at the same place, so that copies are few and long
                let from = match theirs.binary_search_by_key(&to, |(offset, _)| *offset) {
                    Ok(at) if theirs[at].1 == chunk && chunk.has_hash() => Some(to),
                    _ => places.get(&chunk).copied(),
                };
                if let Some(from) = from {
                    copies.add(CopyRange { from, to, len: chunk.len.into() });
                }
                chunks = chunks.wrapping_add(1);
                !chunks.is_multiple_of(CHUNKS_AT_ONCE) || shared.is_sending(id)
            })?;
            Ok::<_, files::Error>(copies)
        })
        .await
    }

    /// Describes parts of the new file by groups of chunks.
    async fn own_groups(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        size: ChunkSize,
        own: &Ranges,
    ) -> Result<Result<Found, files::Error>, Error> {
        let (shared, opened, own) = (Arc::clone(self), Arc::clone(opened), listed(own));
        blocking(move || {
            let mut found = Vec::new();
            opened.reader().describe(&own, size, ChunkKind::Group, |offset, group| {
                found.push((offset, group));
                shared.is_sending(id)
            })?;
            Ok::<_, files::Error>(found)
        })
        .await
    }

    /// Lets the receiver describe parts of its old file. If it fails meanwhile, or cannot read all
    /// of them, there are fewer; and of content that gives far more chunks than others, as what
    /// repeats may, the first.
    async fn describe(
        &self,
        id: u64,
        (kind, size): (ChunkKind, ChunkSize),
        old: &Ranges,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Found, Error> {
        let (mut found, most, old) = (Vec::new(), most_known(old, size), listed(old));
        for ranges in old.chunks(MAX_DESCRIBED) {
            let Some(mut described) = self.await_description(id, size, ranges) else { break };
            let request = Message::Describe { id, size, kind, ranges: ranges.to_vec() };
            if messages.send(request).await.is_err() {
                break;
            }
            let mut position = Position::new(ranges);
            while let Some(chunks) = described.recv().await {
                for chunk in chunks {
                    let offset = position.next(chunk.len).ok_or_else(|| {
                        Error::Protocol("it describes more of a file than was asked".to_owned())
                    })?;
                    if found.len() < most {
                        found.push((offset, chunk));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Prepares for a description of these ranges; `None` if the file has failed. All chunks but
    /// the last of a range have a least length.
    fn await_description(
        &self,
        id: u64,
        size: ChunkSize,
        ranges: &[Range<u64>],
    ) -> Option<mpsc::UnboundedReceiver<Vec<ChunkHash>>> {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let most = bytes / u64::from(size.least_bytes()) + ranges.len() as u64;
        let left = usize::try_from(most).unwrap_or(usize::MAX);
        let (parts, described) = mpsc::unbounded_channel();
        self.offered().get_mut(&id)?.described = Some(Described { parts, left });
        Some(described)
    }

    /// Sends the spans that have a part in copies: these, and what lies between them. Returns
    /// their bytes.
    fn send_copies(
        &self,
        id: u64,
        opened: &OpenFile,
        copies: &Copies,
        messages: &mpsc::Sender<Message>,
    ) -> Result<u64, Failure> {
        let mut spans = Ranges::default();
        for copy in copies.iter() {
            spans.insert(&opened.spans().touched(copy.to..copy.to + copy.len));
        }
        let mut left = copies.iter().peekable();
        for run in spans.iter() {
            let (start, len) = opened.bytes(run);
            let (mut at, end) = (start, start + len);
            while at < end {
                match left.peek().copied().filter(|copy| copy.to < end) {
                    Some(copy) if copy.to <= at => {
                        self.send_copy(id, copy, messages)?;
                        at = copy.to + copy.len;
                        left.next();
                    }
                    next => {
                        let until = next.map_or(end, |copy| copy.to);
                        self.send_literals(id, opened, at..until, messages)?;
                        at = until;
                    }
                }
            }
            for span in run.clone() {
                if !self.is_sending(id) {
                    return Err(given_up());
                }
                opened.hash_span(span)?;
            }
        }
        let sent = spans.iter().map(|run| opened.bytes(run).1).sum();
        opened.note_patched(spans);
        Ok(sent)
    }

    fn send_copy(
        &self,
        id: u64,
        copy: &CopyRange,
        messages: &mpsc::Sender<Message>,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < copy.len {
            let (from, to) = (copy.from + done, copy.to + done);
            let len = MAX_COPY.min(copy.len - done);
            self.send_part(id, Message::Copy { id, from, to, len }, messages)?;
            self.counts.add(|counts| {
                counts.kept += len;
                counts.reused += len;
            });
            self.observer.event(Event::Kept { bytes: len });
            done += len;
        }
        Ok(())
    }

    fn send_literals(
        &self,
        id: u64,
        opened: &OpenFile,
        range: Range<u64>,
        messages: &mpsc::Sender<Message>,
    ) -> Result<(), Failure> {
        let mut offset = range.start;
        while offset < range.end {
            let most = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
            let mut content = vec![0; MAX_INLINE.min(most)];
            if opened.reader().read_at(offset, &mut content)? < content.len() {
                return Err(changed(opened.reader().path()));
            }
            let bytes = content.len() as u64;
            let zstd = self.compressor.should_try();
            if let Some(frame) = zstd.then(|| self.compressor.compress(&content)).flatten() {
                content = frame;
            }
            let saved = bytes - content.len() as u64;
            self.limits()
                .take_blocking(content.len(), &self.stop)
                .map_err(|_| Failure::from("the transfer has ended".to_owned()))?;
            let len = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.send_part(id, Message::Literal { id, offset, len, content }, messages)?;
            self.counts.add(|counts| {
                counts.moved += bytes;
                counts.saved += saved;
            });
            self.observer.event(Event::Moved { bytes });
            if saved > 0 {
                self.observer.event(Event::Saved { bytes: saved });
            }
            offset += bytes;
        }
        Ok(())
    }

    fn send_part(
        &self,
        id: u64,
        part: Message,
        messages: &mpsc::Sender<Message>,
    ) -> Result<(), Failure> {
        match self.is_sending(id) && messages.blocking_send(part).is_ok() {
            true => Ok(()),
            false => Err(given_up()),
        }
    }
}

fn given_up() -> Failure {
    "it was given up".to_owned().into()
}

fn listed(ranges: &Ranges) -> Vec<Range<u64>> {
    ranges.iter().cloned().collect()
}
