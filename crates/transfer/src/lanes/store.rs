//! What comes on lanes, gathered into chunks of files, which another thread writes.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use headroom_transfer_proto::lane::LaneId;

use super::Dropped;
use crate::files::Ranges;

/// Octets of a chunk, at a multiple of it.
const CHUNK: u64 = 256 << 10;
/// Chunks of one engine in memory.
const CHUNKS: usize = 256;
/// Chunks of one lane of which a part came.
const MOST_OPEN: usize = 512;
/// Ranges of a chunk that do not join: what comes in more is written as it is.
const MOST_RANGES: usize = 256;
/// Chunks that are remembered when they are whole: what comes late again is not
/// taken for a new one.
const WHOLE: usize = 256;
/// What came of a chunk is written when nothing more came for so long: it may be
/// that the rest of it was written before.
const IDLE: Duration = Duration::from_millis(500);

/// Who takes in files that come on a lane.
pub(crate) trait Sink: Send + Sync {
    /// Where octets of a file go; none where it is not taken in.
    fn target(&self, file: u32) -> Option<Arc<dyn Target>>;
}

/// A file that is taken in. It deals with its errors itself.
pub(crate) trait Target: Send + Sync {
    /// Octets of the whole file.
    fn size(&self) -> u64;
    /// Writes octets, in whatever order they come; some may come again.
    fn write(&self, offset: u64, octets: &[u8]);
}

/// Chunks that are being filled. One thread has it.
pub(super) struct Store {
    chunks: Vec<Chunk>,
    /// The one that the last octets belonged to.
    last: usize,
    /// The one used last is used first: it is in the cache.
    free: Vec<Vec<u8>>,
    made: usize,
    whole: Vec<Key>,
    oldest_whole: usize,
    to_write: mpsc::Sender<Job>,
    written: mpsc::Receiver<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    lane: LaneId,
    file: u32,
    chunk: u64,
}

struct Chunk {
    key: Key,
    target: Arc<dyn Target>,
    len: u64,
    touched: Duration,
    /// What of it is in memory.
    held: Option<(Vec<u8>, Ranges)>,
    /// What of it was written before it was whole.
    before: Option<Ranges>,
}

struct Job {
    target: Arc<dyn Target>,
    start: u64,
    octets: Vec<u8>,
    ranges: Ranges,
}

impl Store {
    /// Starts its thread, which ends when this is dropped.
    pub(super) fn new() -> std::io::Result<Self> {
        let (to_write, jobs) = mpsc::channel::<Job>();
        let (done, written) = mpsc::channel();
        std::thread::Builder::new().name("lane-writer".to_owned()).spawn(move || {
            for job in jobs {
                let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
                for range in job.ranges.iter() {
                    let octets = &job.octets[at(range.start)..at(range.end)];
                    job.target.write(job.start + range.start, octets);
                }
                // who holds the file sees it closed before its room is used again
                drop(job.target);
                let _ = done.send(job.octets);
            }
        })?;
        Ok(Self {
            chunks: Vec::new(),
            last: 0,
            free: Vec::new(),
            made: 0,
            whole: Vec::new(),
            oldest_whole: 0,
            to_write,
            written,
        })
    }

    /// Takes in octets of a file.
    #[inline]
    pub(super) fn place(
        &mut self,
        now: Duration,
        (lane, sink): (LaneId, &dyn Sink),
        (file, offset): (u32, u64),
        octets: &[u8],
        dropped: &Dropped,
    ) {
        let (mut at, mut rest) = (offset, octets);
        while !rest.is_empty() {
            let key = Key { lane, file, chunk: at / CHUNK };
            let within = at % CHUNK;
            let len = rest.len().min((CHUNK - within) as usize);
            let is_last = self.chunks.get(self.last).is_some_and(|chunk| chunk.key == key);
            if !is_last {
                match self.find(now, key, sink) {
                    Ok(Some(found)) => self.last = found,
                    Ok(None) => return,
                    Err(NotTaken::File) => {
                        return Dropped::count(&dropped.unknown_file, rest.len());
                    }
                    Err(NotTaken::BeyondEnd) => {
                        return Dropped::count(&dropped.beyond_end, rest.len());
                    }
                }
            }
            let end = within + len as u64;
            if end > self.chunks[self.last].len {
                return Dropped::count(&dropped.beyond_end, rest.len());
            }
            let held = match &mut self.chunks[self.last].held {
                Some(held) => held,
                None => {
                    let room = self.room();
                    self.chunks[self.last].held.insert((room, Ranges::default()))
                }
            };
            held.0[within as usize..end as usize].copy_from_slice(&rest[..len]);
            held.1.insert(&(within..end));
            let chunk = &mut self.chunks[self.last];
            chunk.touched = now;
            if chunk.is_whole() {
                self.finish(self.last);
            } else if chunk.ranges() > MOST_RANGES {
                let chunk = self.chunks.swap_remove(self.last);
                self.write(chunk);
            }
            at += len as u64;
            rest = &rest[len..];
        }
    }

    /// Gives up what a lane has not finished.
    pub(super) fn forget(&mut self, lane: LaneId) {
        let mut at = 0;
        while at < self.chunks.len() {
            if self.chunks[at].key.lane == lane {
                let chunk = self.chunks.swap_remove(at);
                self.free.extend(chunk.held.map(|(room, _)| room));
            } else {
                at += 1;
            }
        }
    }

    /// Writes what has waited for the rest of its chunk for long.
    pub(super) fn flush_idle(&mut self, now: Duration) {
        let mut at = 0;
        while at < self.chunks.len() {
            if self.chunks[at].touched + IDLE <= now {
                let chunk = self.chunks.swap_remove(at);
                self.write(chunk);
            } else {
                at += 1;
            }
        }
    }

    /// Whether nothing waits for the rest of its chunk.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// A chunk that is there or may be begun; none if it is whole already.
    fn find(
        &mut self,
        now: Duration,
        key: Key,
        sink: &dyn Sink,
    ) -> Result<Option<usize>, NotTaken> {
        if let Some(found) = self.chunks.iter().position(|chunk| chunk.key == key) {
            return Ok(Some(found));
        }
        if self.whole.contains(&key) {
            return Ok(None);
        }
        let target = sink.target(key.file).ok_or(NotTaken::File)?;
        let len = target.size().saturating_sub(key.chunk * CHUNK).min(CHUNK);
        if len == 0 {
            return Err(NotTaken::BeyondEnd);
        }
        let of_lane = self.chunks.iter().filter(|chunk| chunk.key.lane == key.lane).count();
        if of_lane >= MOST_OPEN
            && let Some(oldest) = self.oldest(|chunk| chunk.key.lane == key.lane)
        {
            let chunk = self.chunks.swap_remove(oldest);
            self.write(chunk);
        }
        let (held, before) = (None, None);
        self.chunks.push(Chunk { key, target, len, touched: now, held, before });
        Ok(Some(self.chunks.len() - 1))
    }

    fn finish(&mut self, at: usize) {
        let chunk = self.chunks.swap_remove(at);
        if self.whole.len() < WHOLE {
            self.whole.push(chunk.key);
        } else {
            self.whole[self.oldest_whole] = chunk.key;
            self.oldest_whole = (self.oldest_whole + 1) % WHOLE;
        }
        self.write(chunk);
    }

    fn write(&mut self, chunk: Chunk) {
        if let Some((octets, ranges)) = chunk.held {
            let start = chunk.key.chunk * CHUNK;
            let job = Job { target: chunk.target, start, octets, ranges };
            if let Err(mpsc::SendError(job)) = self.to_write.send(job) {
                self.free.push(job.octets);
            }
        }
    }

    /// Memory for a chunk; waits for the disk where there is none.
    fn room(&mut self) -> Vec<u8> {
        self.free.extend(self.written.try_iter());
        if let Some(room) = self.free.pop() {
            return room;
        }
        if self.made < CHUNKS {
            self.made += 1;
            return vec![0; CHUNK as usize];
        }
        if let Some(oldest) = self.oldest(|chunk| chunk.held.is_some()) {
            let chunk = &mut self.chunks[oldest];
            if let Some((octets, ranges)) = chunk.held.take() {
                let before = chunk.before.get_or_insert_default();
                ranges.iter().for_each(|range| before.insert(range));
                let (target, start) = (Arc::clone(&chunk.target), chunk.key.chunk * CHUNK);
                if let Err(mpsc::SendError(job)) =
                    self.to_write.send(Job { target, start, octets, ranges })
                {
                    return job.octets;
                }
            }
        }
        // all rooms are on their way to the disk, or will be
        self.written.recv().unwrap_or_else(|_| vec![0; CHUNK as usize])
    }

    fn oldest(&self, of: impl Fn(&Chunk) -> bool) -> Option<usize> {
        let chunks = self.chunks.iter().enumerate().filter(|(_, chunk)| of(chunk));
        chunks.min_by_key(|(_, chunk)| chunk.touched).map(|(at, _)| at)
    }
}

/// Why octets are not taken in.
enum NotTaken {
    File,
    BeyondEnd,
}

impl Chunk {
    /// Ranges that are kept in mind.
    #[inline]
    fn ranges(&self) -> usize {
        self.held.as_ref().map_or(0, |(_, ranges)| ranges.len())
            + self.before.as_ref().map_or(0, Ranges::len)
    }

    #[inline]
    fn is_whole(&self) -> bool {
        let Some((_, ranges)) = &self.held else { return false };
        match &self.before {
            None => ranges.covers(self.len),
            Some(before) => {
                let mut all = before.clone();
                ranges.iter().for_each(|range| all.insert(range));
                all.covers(self.len)
            }
        }
    }
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

        fn write(&self, offset: u64, octets: &[u8]) {
            assert!(octets.iter().all(|octet| *octet == 7), "other octets");
            let range = offset..offset + octets.len() as u64;
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
    fn scattered_octets_are_written_and_take_little_memory() {
        let (file, dropped) = (Arc::new(File::default()), Dropped::default());
        let files = Files(Arc::clone(&file));
        let mut store = Store::new().expect("a thread");
        let odd: Vec<u64> = (0..CHUNK).filter(|offset| offset % 2 == 1).collect();
        for offset in &odd {
            store.place(Duration::ZERO, (LaneId(1), &files), (1, *offset), &[7], &dropped);
            assert!(store.chunks.iter().all(|chunk| chunk.ranges() <= MOST_RANGES));
        }
        for offset in 0..CHUNK / 2 {
            store.place(Duration::ZERO, (LaneId(1), &files), (1, offset * 2), &[7], &dropped);
        }
        store.flush_idle(IDLE);
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
            2 * CHUNKS as u64 * CHUNK
        }

        fn write(&self, _: u64, octets: &[u8]) {
            let is_free = self.is_free.lock().expect("nobody panicked");
            let _free = self.freed.wait_while(is_free, |is_free| !*is_free);
            self.written.fetch_add(octets.len() as u64, Ordering::SeqCst);
        }
    }

    struct OnStuck(Arc<Stuck>);

    impl Sink for OnStuck {
        fn target(&self, _: u32) -> Option<Arc<dyn Target>> {
            Some(Arc::clone(&self.0) as Arc<dyn Target>)
        }
    }

    #[test]
    fn a_disk_that_is_slow_is_waited_for_with_bounded_memory() {
        let (disk, dropped) = (Arc::new(Stuck::default()), Dropped::default());
        let files = OnStuck(Arc::clone(&disk));
        let placed = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&placed);
        let placing = std::thread::spawn(move || {
            let mut store = Store::new().expect("a thread");
            let octets = vec![7; CHUNK as usize];
            for n in 0..2 * CHUNKS as u64 {
                store.place(Duration::ZERO, (LaneId(1), &files), (1, n * CHUNK), &octets, &dropped);
                counter.store(n + 1, Ordering::SeqCst);
            }
            assert_eq!(store.made, CHUNKS);
        });
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let wait = |until: &dyn Fn() -> bool| {
            while !until() {
                assert!(std::time::Instant::now() < deadline, "it does not go on");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&|| placed.load(Ordering::SeqCst) == CHUNKS as u64);
        // it waits with the next, whoever looks when
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(placed.load(Ordering::SeqCst), CHUNKS as u64, "more than may be in memory");
        *disk.is_free.lock().expect("nobody panicked") = true;
        disk.freed.notify_all();
        placing.join().expect("it goes on");
        wait(&|| disk.written.load(Ordering::SeqCst) == disk.size());
    }
}
