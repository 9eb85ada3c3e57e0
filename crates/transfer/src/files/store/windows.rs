//! Reads an object in large ranges, ahead of those who want its bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use headroom_mutex::lock;
use headroom_store::{Error, Record, Store, Version};
use headroom_transfer_proto::span::{SPAN_BYTES, Spans};

use super::budget::{Budget, Taken};
use super::root::READ_BYTES;
use super::threads::Threads;

/// Ranges that are read ahead at first: a reader may want no more than some.
const FIRST_AHEAD: u64 = 2;
/// Ranges that are read ahead of one who reads in order: with the one that is read, 72 MiB are on
/// their way, what a connection of 10 Gbit/s needs at a round trip of 50 ms.
const MAX_AHEAD: u64 = 8;
/// The most ranges of one file in memory.
const MAX: usize = MAX_AHEAD as usize + 4;

/// The ranges of an object that are read, or wait to be used.
#[derive(Debug)]
pub(super) struct Windows {
    object: Arc<Object>,
    threads: Threads,
    memory: Arc<Budget>,
    open: Mutex<Open>,
}

/// The ranges of an object in memory.
#[derive(Debug)]
struct Open {
    windows: BTreeMap<u64, Arc<Window>>,
    /// The greatest one that was wanted, while it is read in order.
    last: u64,
    /// How many are read ahead.
    ahead: u64,
}

/// What is read.
#[derive(Debug)]
struct Object {
    store: Store,
    key: String,
    size: u64,
    version: Version,
    /// The values of its spans, if they were recorded.
    record: Option<Record>,
}

/// One range.
#[derive(Debug)]
struct Window {
    /// `None` until it is read.
    content: Mutex<Option<Result<Bytes, Error>>>,
    is_read: Condvar,
    /// Bytes that nobody has used.
    left: AtomicU64,
    _memory: Taken,
}

impl Windows {
    pub(super) fn new(
        store: Store,
        (threads, memory): (Threads, Arc<Budget>),
        key: String,
        (size, version): (u64, Version),
        record: Option<Record>,
    ) -> Self {
        let object = Arc::new(Object { store, key, size, version, record });
        let open = Open { windows: BTreeMap::new(), last: 0, ahead: FIRST_AHEAD };
        Self { object, threads, memory, open: Mutex::new(open) }
    }

    /// Returns the recorded values of the object's spans.
    pub(super) fn record(&self) -> Option<&Record> {
        self.object.record.as_ref()
    }

    /// Fills a buffer with bytes that the object has.
    ///
    /// # Errors
    /// The store refuses or has another version; the bytes are not what was stored.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < into.len() {
            let (at, into) = (offset + done as u64, &mut into[done..]);
            let len = match self.window(at / READ_BYTES) {
                Some(window) => self.read_window(&window, at, into)?,
                None => self.object.read_alone(at, into)?,
            };
            if len == 0 {
                return Err(Error::Misuse("bytes beyond the object's end are wanted".to_owned()));
            }
            done += len;
        }
        Ok(())
    }

    /// Copies bytes of a window; returns how many.
    fn read_window(&self, window: &Window, at: u64, into: &mut [u8]) -> Result<usize, Error> {
        let number = at / READ_BYTES;
        // whoever tries again makes another request
        let content = window.wait().inspect_err(|_| self.forget(number))?;
        let len = copy(&content, at % READ_BYTES, into);
        if window.left.fetch_sub(len as u64, Ordering::Relaxed) <= len as u64 {
            self.forget(number);
        }
        Ok(len)
    }

    /// Returns a window, and has it and the next ones read; `None` if there is no memory for it.
    fn window(&self, number: u64) -> Option<Arc<Window>> {
        let mut open = lock(&self.open);
        open.want(number);
        let count = self.object.size.div_ceil(READ_BYTES);
        let ahead = open.ahead;
        for next in number..count.min(number + 1 + ahead) {
            if let Entry::Vacant(place) = open.windows.entry(next) {
                // the last half of the memory is for what every file needs
                let needs_half = next > number + FIRST_AHEAD;
                let Some(window) = self.begin(next, needs_half) else { break };
                place.insert(window);
            }
        }
        let windows = &mut open.windows;
        let window = windows.get(&number).cloned()?;
        while windows.len() > MAX {
            // those that nobody came for lie behind, or were read twice
            let Some(other) = windows.keys().copied().find(|other| *other != number) else {
                break;
            };
            windows.remove(&other);
        }
        Some(window)
    }

    /// Has a window read, if there is memory for it; with `needs_half`, if half of that is free
    /// afterwards.
    fn begin(&self, number: u64, needs_half: bool) -> Option<Arc<Window>> {
        let start = number * READ_BYTES;
        let end = self.object.size.min(start.saturating_add(READ_BYTES)).max(start);
        let _memory = match needs_half {
            true => self.memory.try_take_of_half(end - start)?,
            false => self.memory.try_take(end - start)?,
        };
        let left = AtomicU64::new(end - start);
        let window = Window { content: Mutex::new(None), is_read: Condvar::new(), left, _memory };
        let window = Arc::new(window);
        let (object, filling) = (Arc::clone(&self.object), Filling(Arc::clone(&window)));
        drop(self.threads.run(move || filling.0.fill(object.read(start, end))));
        Some(window)
    }

    fn forget(&self, number: u64) {
        lock(&self.open).windows.remove(&number);
    }
}

impl Open {
    /// Notes which window is wanted: the further somebody reads in order, the more are read ahead.
    fn want(&mut self, number: u64) {
        // several threads read windows that are neighbours
        if number > self.last && number - self.last <= FIRST_AHEAD {
            self.ahead = (2 * self.ahead).min(MAX_AHEAD);
            self.last = number;
        } else if number > self.last || self.last - number > FIRST_AHEAD {
            self.ahead = FIRST_AHEAD;
            self.last = number;
        }
    }
}

/// A window whose request is under way. If that never comes to its end, nobody waits for it.
struct Filling(Arc<Window>);

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.fill(Err(Error::Misuse("the request was not carried out".to_owned())));
    }
}

impl Window {
    /// Notes what was read, once.
    fn fill(&self, read: Result<Bytes, Error>) {
        let mut content = lock(&self.content);
        if content.is_none() {
            *content = Some(read);
        }
        drop(content);
        self.is_read.notify_all();
    }

    fn wait(&self) -> Result<Bytes, Error> {
        let content = lock(&self.content);
        let content = self
            .is_read
            .wait_while(content, |content| content.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        match &*content {
            Some(read) => read.clone(),
            None => Err(Error::Misuse("the request was not carried out".to_owned())),
        }
    }
}

impl Object {
    /// Reads bytes for which there is no window; returns how many.
    fn read_alone(&self, at: u64, into: &mut [u8]) -> Result<usize, Error> {
        let wanted = at.saturating_add(into.len() as u64);
        let (start, end) = match &self.record {
            // only whole spans can be compared
            Some(_) => {
                let end = wanted.div_ceil(SPAN_BYTES).saturating_mul(SPAN_BYTES);
                (at / SPAN_BYTES * SPAN_BYTES, end)
            }
            None => (at, wanted),
        };
        let end = end.min(start.saturating_add(READ_BYTES)).min(self.size).max(start);
        let content = self.read(start, end)?;
        Ok(copy(&content, at - start, into))
    }

    /// Reads a range, and compares it with the recorded values.
    fn read(&self, start: u64, end: u64) -> Result<Bytes, Error> {
        let content = self.store.read(&self.key, start..end, Some(&self.version))?;
        let Some(record) = &self.record else { return Ok(content) };
        let spans = Spans::new(self.size);
        for (n, bytes) in content.chunks(SPAN_BYTES as usize).enumerate() {
            let span = start / SPAN_BYTES + n as u64;
            let recorded = usize::try_from(span).ok().and_then(|span| record.values.get(span));
            if spans.value(span, bytes).map(|value| value.0).as_ref() != recorded {
                return Err(Error::Reply(format!(
                    "the store returns other bytes of `{}` than were stored, from {} on; store it again",
                    self.key,
                    span * SPAN_BYTES
                )));
            }
        }
        Ok(content)
    }
}

/// Copies bytes from an offset on, as many as there are and fit; returns how many.
fn copy(from: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let here = usize::try_from(offset).ok().and_then(|offset| from.get(offset..));
    let here = here.unwrap_or_default();
    let len = here.len().min(into.len());
    into[..len].copy_from_slice(&here[..len]);
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_further_ahead_the_longer_it_is_read_in_order() {
        let mut open = Open { windows: BTreeMap::new(), last: 0, ahead: FIRST_AHEAD };
        let mut after = |number| {
            open.want(number);
            open.ahead
        };
        assert_eq!([0, 0, 1, 2, 2, 1, 3].map(&mut after), [2, 2, 4, 8, 8, 8, 8]);
        assert_eq!([9, 10, 11].map(&mut after), [2, 4, 8], "it goes on elsewhere");
        assert_eq!([3, 5].map(&mut after), [2, 4], "and before");
        assert_eq!(after(u64::MAX), 2);
    }
}
