//! Collects received data into chunks of files, which another thread writes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headroom_transfer_proto::lane::LaneId;

use super::chunk_pool::{CHUNK, ChunkPool, Job, POOL_CHUNKS};
use super::dropped::Dropped;
use super::sink::{Sink, Target};
use crate::files::Ranges;

/// The most incomplete chunks of one lane.
const MAX_OPEN: usize = 512;
/// The most separate ranges of a chunk; with more it is written as it is.
const MAX_RANGES: usize = 256;
/// Complete chunks of one lane that are remembered, so that late duplicates do not start them
/// again.
const WHOLE: usize = 256;
/// Chunks that the data of one packet may touch.
const OF_PACKET: usize = 2;
/// A chunk is written incomplete when nothing more arrived for this long: the rest of it may
/// have been written before. Memory that was not used for this long is returned.
const IDLE: Duration = Duration::from_millis(500);

/// Chunks that are being filled, by one thread.
pub(super) struct Store {
    /// The chunk of the last data.
    current: Option<(Key, Chunk)>,
    /// The others.
    lanes: HashMap<LaneId, OfLane>,
    /// Chunks that got a buffer, in order; some have returned it.
    holders: VecDeque<(Key, u64)>,
    /// How many buffers were assigned.
    given: u64,
    pool: ChunkPool,
    touched: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    lane: LaneId,
    chunk: ChunkId,
}

/// The ID of a chunk of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ChunkId {
    file: u32,
    chunk: u64,
}

#[derive(Default)]
struct OfLane {
    chunks: HashMap<ChunkId, Chunk>,
    whole: VecDeque<ChunkId>,
}

struct Chunk {
    target: Arc<dyn Target>,
    len: u64,
    touched: Duration,
    /// The part of it in memory.
    held: Option<Held>,
    /// The part of it that was written before it was complete.
    before: Option<Ranges>,
}

struct Held {
    buffer: Vec<u8>,
    ranges: Ranges,
    /// Its number among the assigned buffers.
    given: u64,
}

impl Store {
    /// Starts its thread, which ends when this is dropped.
    pub(super) fn new() -> std::io::Result<Self> {
        let pool = ChunkPool::new()?;
        let (current, lanes, holders) = (None, HashMap::new(), VecDeque::new());
        Ok(Self { current, lanes, holders, given: 0, pool, touched: Duration::ZERO })
    }

    /// Whether there are buffers for a packet. Packets are decrypted (and so acknowledged) only
    /// then. Waits 50 ms for a slow disk, then drops.
    #[inline]
    pub(super) fn has_buffer(&mut self) -> bool {
        self.pool.available() >= OF_PACKET || self.free_buffers()
    }

    /// Stores the data of one packet; there must be a buffer.
    #[inline]
    pub(super) fn insert(
        &mut self,
        now: Duration,
        (lane, sink): (LaneId, &dyn Sink),
        (file, offset): (u32, u64),
        bytes: &[u8],
        dropped: &Dropped,
    ) {
        self.touched = now;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let key = Key { lane, chunk: ChunkId { file, chunk: at / CHUNK } };
            let within = at % CHUNK;
            let len = rest.len().min((CHUNK - within) as usize);
            if self.current.as_ref().is_none_or(|(current, _)| *current != key) {
                match self.turn_to(now, key, sink) {
                    Ok(true) => {}
                    Ok(false) => {
                        // the packet's data for the next chunk may be new
                        at += len as u64;
                        rest = &rest[len..];
                        continue;
                    }
                    Err(NotTaken::File) => {
                        return Dropped::count(&dropped.unknown_file, rest.len());
                    }
                    Err(NotTaken::BeyondEnd) => {
                        return Dropped::count(&dropped.beyond_end, rest.len());
                    }
                }
            }
            let Some((_, chunk)) = &mut self.current else { return };
            let end = within + len as u64;
            if end > chunk.len {
                return Dropped::count(&dropped.beyond_end, rest.len());
            }
            let held = chunk.held.get_or_insert_with(|| {
                self.given += 1;
                self.holders.push_back((key, self.given));
                Held { buffer: self.pool.take(), ranges: Ranges::default(), given: self.given }
            });
            held.buffer[within as usize..end as usize].copy_from_slice(&rest[..len]);
            held.ranges.insert(&(within..end));
            chunk.touched = now;
            let is_whole = chunk.is_whole();
            if (is_whole || chunk.ranges() > MAX_RANGES)
                && let Some((_, chunk)) = self.current.take()
            {
                if is_whole {
                    let whole = &mut self.lanes.entry(lane).or_default().whole;
                    whole.truncate(WHOLE - 1);
                    whole.push_front(key.chunk);
                }
                write(&mut self.pool, key.chunk, chunk);
            }
            at += len as u64;
            rest = &rest[len..];
        }
    }

    /// Drops the incomplete chunks of a lane.
    pub(super) fn forget(&mut self, lane: LaneId) {
        let current = self.current.take_if(|(key, _)| key.lane == lane);
        let others = self.lanes.remove(&lane).into_iter().flat_map(|lane| lane.chunks);
        for chunk in others.map(|(_, chunk)| chunk).chain(current.map(|(_, chunk)| chunk)) {
            if let Some(held) = chunk.held {
                self.pool.recycle(held.buffer);
            }
        }
    }

    /// Writes chunks that have waited long for the rest, and returns unused memory.
    pub(super) fn sweep(&mut self, now: Duration) {
        self.lay_aside();
        for lane in self.lanes.values_mut() {
            for (id, chunk) in lane.chunks.extract_if(|_, chunk| chunk.touched + IDLE <= now) {
                write(&mut self.pool, id, chunk);
            }
        }
        if self.touched + IDLE <= now {
            self.pool.release();
        }
    }

    /// Whether there is nothing to sweep.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |lane: &OfLane| lane.chunks.is_empty();
        self.current.is_none() && self.lanes.values().all(is_empty) && self.pool.is_empty()
    }

    fn lay_aside(&mut self) {
        if let Some((key, chunk)) = self.current.take() {
            self.lanes.entry(key.lane).or_default().chunks.insert(key.chunk, chunk);
        }
    }

    /// Makes a chunk the current one, and begins it if necessary; returns false if it is complete
    /// already.
    fn turn_to(&mut self, now: Duration, key: Key, sink: &dyn Sink) -> Result<bool, NotTaken> {
        self.lay_aside();
        if self.holders.len() > 4 * POOL_CHUNKS {
            self.holders.retain(|(key, given)| held(&mut self.lanes, *key, *given).is_some());
        }
        let lane = self.lanes.entry(key.lane).or_default();
        let chunk = match lane.chunks.remove(&key.chunk) {
            Some(chunk) => chunk,
            None if lane.whole.contains(&key.chunk) => return Ok(false),
            None => {
                let target = sink.target(key.chunk.file).ok_or(NotTaken::File)?;
                let len = target.size().saturating_sub(key.chunk.chunk * CHUNK).min(CHUNK);
                if len == 0 {
                    return Err(NotTaken::BeyondEnd);
                }
                if lane.chunks.len() >= MAX_OPEN {
                    lane.write_older_half(&mut self.pool);
                }
                Chunk { target, len, touched: now, held: None, before: None }
            }
        };
        self.current = Some((key, chunk));
        Ok(true)
    }

    /// Writes incomplete chunks, and waits until their buffers are free.
    fn free_buffers(&mut self) -> bool {
        while self.pool.available() < OF_PACKET {
            if self.pool.collect() {
                continue;
            }
            if self.pool.is_stuck() {
                return false;
            }
            self.write_oldest_part();
            if !self.pool.wait() {
                return false;
            }
        }
        true
    }

    /// Writes the chunk that got its buffer first.
    fn write_oldest_part(&mut self) {
        self.lay_aside();
        while let Some((key, given)) = self.holders.pop_front() {
            let Some(chunk) = held(&mut self.lanes, key, given) else { continue };
            let Some(Held { buffer, ranges, .. }) = chunk.held.take() else { continue };
            let before = chunk.before.get_or_insert_default();
            ranges.iter().for_each(|range| before.insert(range));
            let (target, start) = (Arc::clone(&chunk.target), key.chunk.chunk * CHUNK);
            return self.pool.write(Job { target, start, bytes: buffer, ranges });
        }
    }
}

impl OfLane {
    /// Writes half of them, so that it happens rarely.
    fn write_older_half(&mut self, pool: &mut ChunkPool) {
        let mut touched: Vec<Duration> = self.chunks.values().map(|chunk| chunk.touched).collect();
        let middle = touched.len() / 2;
        let (_, &mut median, _) = touched.select_nth_unstable(middle);
        let mut left = middle + 1;
        let older = |_: &ChunkId, chunk: &mut Chunk| {
            let goes = left > 0 && chunk.touched <= median;
            left -= usize::from(goes);
            goes
        };
        for (id, chunk) in self.chunks.extract_if(older) {
            write(pool, id, chunk);
        }
    }
}

/// Why data is not stored.
enum NotTaken {
    File,
    BeyondEnd,
}

impl Chunk {
    /// Returns the number of stored ranges.
    #[inline]
    fn ranges(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.ranges.len())
            + self.before.as_ref().map_or(0, Ranges::len)
    }

    #[inline]
    fn is_whole(&self) -> bool {
        let Some(held) = &self.held else { return false };
        match &self.before {
            None => held.ranges.covers(self.len),
            Some(before) => {
                let mut all = before.clone();
                held.ranges.iter().for_each(|range| all.insert(range));
                all.covers(self.len)
            }
        }
    }
}

/// Queues the part of a chunk in memory for writing.
fn write(pool: &mut ChunkPool, id: ChunkId, chunk: Chunk) {
    if let Some(Held { buffer, ranges, .. }) = chunk.held {
        let start = id.chunk * CHUNK;
        pool.write(Job { target: chunk.target, start, bytes: buffer, ranges });
    }
}

/// Returns the chunk, if it still has the buffer of that assignment.
fn held(lanes: &mut HashMap<LaneId, OfLane>, key: Key, given: u64) -> Option<&mut Chunk> {
    let chunk = lanes.get_mut(&key.lane)?.chunks.get_mut(&key.chunk)?;
    chunk.held.as_ref().is_some_and(|held| held.given == given).then_some(chunk)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Takes in one file, and notes what is written.
    #[derive(Default)]
    struct File(Mutex<Ranges>);

    impl Target for File {
        fn size(&self) -> u64 {
            CHUNK
        }

        fn write(&self, offset: u64, bytes: &[u8]) {
            assert!(bytes.iter().all(|byte| *byte == 7), "other bytes");
            let range = offset..offset + bytes.len() as u64;
            self.0.lock().expect("nobody panicked").insert(&range);
        }
    }

    struct Files(Arc<File>);

    impl Sink for Files {
        fn target(&self, file: u32) -> Option<Arc<dyn Target>> {
            (file == 1).then(|| Arc::clone(&self.0) as Arc<dyn Target>)
        }
    }

    #[test]
    fn scattered_bytes_are_written_and_take_little_memory() {
        let (file, dropped) = (Arc::new(File::default()), Dropped::default());
        let files = Files(Arc::clone(&file));
        let mut store = Store::new().expect("a thread");
        let odd: Vec<u64> = (0..CHUNK).filter(|offset| offset % 2 == 1).collect();
        for offset in &odd {
            assert!(store.has_buffer());
            store.insert(Duration::ZERO, (LaneId(1), &files), (1, *offset), &[7], &dropped);
            let chunk = store.current.as_ref().map(|(_, chunk)| chunk);
            assert!(chunk.is_none_or(|chunk| chunk.ranges() <= MAX_RANGES));
        }
        for offset in 0..CHUNK / 2 {
            store.insert(Duration::ZERO, (LaneId(1), &files), (1, offset * 2), &[7], &dropped);
        }
        store.sweep(IDLE);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !file.0.lock().expect("nobody panicked").covers(CHUNK) {
            assert!(std::time::Instant::now() < deadline, "something is missing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A disk that takes nothing until it is let.
    #[derive(Default)]
    struct Stuck {
        is_free: Mutex<bool>,
        freed: Condvar,
        written: AtomicU64,
    }

    impl Target for Stuck {
        fn size(&self) -> u64 {
            2 * POOL_CHUNKS as u64 * CHUNK
        }

        fn write(&self, _: u64, bytes: &[u8]) {
            let is_free = self.is_free.lock().expect("nobody panicked");
            let _free = self.freed.wait_while(is_free, |is_free| !*is_free);
            self.written.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        }
    }

    struct OnStuck(Arc<Stuck>);

    impl Sink for OnStuck {
        fn target(&self, _: u32) -> Option<Arc<dyn Target>> {
            Some(Arc::clone(&self.0) as Arc<dyn Target>)
        }
    }

    #[test]
    fn a_blocked_disk_delays_no_other_lane_and_memory_is_bounded_and_released() {
        let (disk, dropped) = (Arc::new(Stuck::default()), Dropped::default());
        let files = OnStuck(Arc::clone(&disk));
        let mut store = Store::new().expect("a thread");
        let bytes = vec![7; CHUNK as usize];
        let id = |store: &mut Store, chunk| {
            let (lane, at) = ((LaneId(1), &files as &dyn Sink), (1, chunk * CHUNK));
            store.insert(Duration::ZERO, lane, at, &bytes, &dropped);
        };
        let mut chunks = 0..2 * POOL_CHUNKS as u64;
        while store.has_buffer() {
            id(&mut store, chunks.next().expect("there is room for all of them"));
        }
        assert_eq!(chunks.start, (POOL_CHUNKS - OF_PACKET + 1) as u64, "more or less than may be");
        // it says so at once from now on: lanes that need no room go on
        assert!(store.pool.is_stuck() && !store.has_buffer());
        *disk.is_free.lock().expect("nobody panicked") = true;
        disk.freed.notify_all();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let wait = |so: &mut dyn FnMut() -> bool| {
            while !so() {
                assert!(std::time::Instant::now() < deadline, "it does not go on");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for chunk in chunks {
            wait(&mut || store.has_buffer());
            id(&mut store, chunk);
        }
        wait(&mut || disk.written.load(Ordering::SeqCst) == disk.size());
        assert!(!store.is_empty());
        wait(&mut || {
            store.sweep(IDLE);
            store.is_empty()
        });
    }

    #[test]
    fn a_packet_that_repeats_the_end_of_a_whole_chunk_brings_the_next_one() {
        let (disk, dropped) = (Arc::new(Stuck::default()), Dropped::default());
        *disk.is_free.lock().expect("nobody panicked") = true;
        let files = OnStuck(Arc::clone(&disk));
        let mut store = Store::new().expect("a thread");
        let bytes = vec![7; CHUNK as usize];
        for (offset, len) in [(0, bytes.len()), (CHUNK - 500, 1000)] {
            let (lane, at) = ((LaneId(1), &files as &dyn Sink), (1, offset));
            store.insert(Duration::ZERO, lane, at, &bytes[..len], &dropped);
        }
        let (key, chunk) = store.current.as_ref().expect("the next chunk");
        assert_eq!(key.chunk.chunk, 1);
        assert!(chunk.held.as_ref().is_some_and(|held| held.ranges.covers(500)));
    }

    #[test]
    fn a_lane_that_begins_many_chunks_uses_little_memory_and_none_of_others() {
        let (disk, dropped) = (Arc::new(Stuck::default()), Dropped::default());
        *disk.is_free.lock().expect("nobody panicked") = true;
        let files = OnStuck(Arc::clone(&disk));
        let mut store = Store::new().expect("a thread");
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let id = |store: &mut Store, lane, chunk: u64| {
            while !store.has_buffer() {
                assert!(std::time::Instant::now() < deadline, "the disk is not stuck");
            }
            let at = (chunk as u32 / 500, chunk % 500 * CHUNK + 5);
            store.insert(Duration::ZERO, (LaneId(lane), &files), at, &[7], &dropped);
        };
        id(&mut store, 2, 0);
        for chunk in 0..20_000 {
            id(&mut store, 1, chunk);
            assert!(store.lanes.values().all(|lane| lane.chunks.len() <= MAX_OPEN));
            assert!(store.holders.len() <= 4 * POOL_CHUNKS + 1);
        }
        assert!(store.lanes.get(&LaneId(2)).is_some_and(|lane| lane.chunks.len() == 1));
        store.forget(LaneId(1));
        store.sweep(IDLE);
        let wait = || disk.written.load(Ordering::SeqCst);
        while wait() < 1 {
            assert!(std::time::Instant::now() < deadline, "the other's is not written");
        }
        assert!(store.current.is_none() && store.lanes.values().all(|lane| lane.chunks.is_empty()));
    }
}
