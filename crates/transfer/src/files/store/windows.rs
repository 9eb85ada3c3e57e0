//! Reads an object in large ranges, ahead of those who want its bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use headroom_store::{Error, Record, Store, Version};
use headroom_transfer_proto::span::{SPAN_BYTES, Spans};

use super::root::READ_BYTES;
use super::threads::Threads;

/// Ranges that are read ahead.
const AHEAD: u64 = 2;
/// The most ranges of one file in memory.
const MOST: usize = 6;

/// The ranges of an object that are read, or wait to be used.
#[derive(Debug)]
pub(super) struct Windows {
    object: Arc<Object>,
    threads: Threads,
    open: Mutex<BTreeMap<u64, Arc<Window>>>,
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
}

impl Windows {
    pub(super) fn new(
        store: Store,
        threads: Threads,
        key: String,
        (size, version): (u64, Version),
        record: Option<Record>,
    ) -> Self {
        let object = Arc::new(Object { store, key, size, version, record });
        Self { object, threads, open: Mutex::default() }
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
            let at = offset + done as u64;
            let (number, skip) = (at / READ_BYTES, (at % READ_BYTES) as usize);
            let window = self.window(number);
            let content = match window.wait() {
                Ok(content) => content,
                Err(error) => {
                    // whoever tries again makes another request
                    self.forget(number);
                    return Err(error);
                }
            };
            let Some(here) = content.get(skip..).filter(|here| !here.is_empty()) else {
                return Err(Error::Misuse("bytes beyond the object's end are wanted".to_owned()));
            };
            let len = here.len().min(into.len() - done);
            into[done..done + len].copy_from_slice(&here[..len]);
            done += len;
            if window.left.fetch_sub(len as u64, Ordering::Relaxed) <= len as u64 {
                self.forget(number);
            }
        }
        Ok(())
    }

    /// Returns a window, and has it and the next ones read.
    fn window(&self, number: u64) -> Arc<Window> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.object.size.div_ceil(READ_BYTES);
        for next in number..count.min(number + 1 + AHEAD) {
            open.entry(next).or_insert_with(|| self.begin(next));
        }
        let window = open.entry(number).or_insert_with(|| self.begin(number));
        let window = Arc::clone(window);
        while open.len() > MOST {
            // those that nobody came for lie behind, or were read twice
            let Some(other) = open.keys().copied().find(|other| *other != number) else { break };
            open.remove(&other);
        }
        window
    }

    fn begin(&self, number: u64) -> Arc<Window> {
        let start = number * READ_BYTES;
        let end = self.object.size.min(start.saturating_add(READ_BYTES)).max(start);
        let left = AtomicU64::new(end - start);
        let window = Window { content: Mutex::new(None), is_read: Condvar::new(), left };
        let window = Arc::new(window);
        let (object, reading) = (Arc::clone(&self.object), Arc::clone(&window));
        let filling = Filling(reading);
        drop(self.threads.run(move || filling.0.fill(object.read(start, end))));
        window
    }

    fn forget(&self, number: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
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
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if content.is_none() {
            *content = Some(read);
        }
        drop(content);
        self.is_read.notify_all();
    }

    fn wait(&self) -> Result<Bytes, Error> {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
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
