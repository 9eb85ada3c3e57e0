//! A store in memory, for tests.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use headroom_mutex::lock;

use crate::backend::{Backend, Failure, FailureKind, Head, Listed, Page};
use crate::metadata::Metadata;
use crate::version::{Condition, Version};

/// Entries of a page, as those of S3.
const PAGE: usize = 1000;

/// A store in memory that behaves as S3 does: pages of 1000 entries, conditional writes, uploads
/// in parts that end with their completion.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
    page: usize,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    uploads: BTreeMap<String, Unfinished>,
    /// How many versions and uploads there were.
    count: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    content: Bytes,
    metadata: Metadata,
    modified: SystemTime,
    number: u64,
}

#[derive(Debug)]
struct Unfinished {
    key: String,
    metadata: Metadata,
    parts: BTreeMap<u32, (Bytes, u64)>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_page(PAGE)
    }
}

impl Memory {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty store whose pages have `page` entries.
    pub fn with_page(page: usize) -> Self {
        Self { state: Mutex::default(), page: page.max(1) }
    }

    /// The keys that it has, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// How many uploads are unfinished.
    pub fn uploads(&self) -> usize {
        self.state().uploads.len()
    }

    /// Changes when an object was stored: a test need not wait.
    pub fn set_modified(&self, key: &str, modified: SystemTime) {
        if let Some(stored) = self.state().objects.get_mut(key) {
            stored.modified = modified;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Stored {
    fn version(&self) -> Version {
        Version::new(Some(format!("\"{}\"", self.number)), None)
    }

    fn head(&self) -> Head {
        Head {
            size: self.content.len() as u64,
            modified: self.modified,
            version: self.version(),
            metadata: self.metadata.clone(),
        }
    }
}

impl State {
    fn object(&self, key: &str) -> Result<&Stored, Failure> {
        self.objects.get(key).ok_or_else(|| Failure::new(FailureKind::NotFound, "no such key"))
    }

    fn check(&self, key: &str, condition: &Condition) -> Result<(), Failure> {
        let stored = self.objects.get(key);
        let is_met = match condition {
            Condition::Any => true,
            Condition::New => stored.is_none(),
            Condition::Is(version) => stored.is_some_and(|stored| stored.version() == *version),
        };
        if is_met {
            return Ok(());
        }
        Err(Failure::new(FailureKind::Changed, "the condition is not met"))
    }

    fn insert(&mut self, key: &str, content: Bytes, metadata: Metadata) -> Version {
        self.count += 1;
        let stored = Stored { content, metadata, modified: SystemTime::now(), number: self.count };
        let version = stored.version();
        self.objects.insert(key.to_owned(), stored);
        version
    }

    fn upload(&mut self, key: &str, upload: &str) -> Result<&mut Unfinished, Failure> {
        self.uploads
            .get_mut(upload)
            .filter(|unfinished| unfinished.key == key)
            .ok_or_else(|| Failure::new(FailureKind::NotFound, "no such upload"))
    }
}

#[async_trait]
impl Backend for Memory {
    async fn list(&self, prefix: &str, page: Option<&str>) -> Result<Page, Failure> {
        let state = self.state();
        let mut answer = Page::default();
        // the last entry of this page, by which the next one begins
        let mut last = page.unwrap_or_default().to_owned();
        let mut count = 0;
        // all entries of the pages before are less than their last one
        let from = if last.is_empty() { prefix.to_owned() } else { last.clone() };
        for (key, stored) in state.objects.range(from..) {
            let Some(rest) = key.strip_prefix(prefix) else {
                break;
            };
            let entry = match rest.split_once('/') {
                Some((first, _)) => format!("{prefix}{first}/"),
                None => key.clone(),
            };
            // what is below a prefix of the page before, or the marker of the directory itself
            if rest.is_empty() || (!last.is_empty() && entry <= last) {
                continue;
            }
            if count == self.page {
                answer.next = Some(last);
                break;
            }
            count += 1;
            if entry.ends_with('/') {
                answer.prefixes.push(entry.clone());
            } else {
                answer.objects.push(Listed {
                    key: entry.clone(),
                    size: stored.content.len() as u64,
                    modified: stored.modified,
                    version: stored.version(),
                });
            }
            last = entry;
        }
        Ok(answer)
    }

    async fn head(&self, key: &str) -> Result<Head, Failure> {
        self.state().object(key).map(Stored::head)
    }

    async fn get(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Failure> {
        let state = self.state();
        let stored = state.object(key)?;
        if version.is_some_and(|version| stored.version() != *version) {
            return Err(Failure::new(FailureKind::Changed, "the object has another version"));
        }
        let size = stored.content.len() as u64;
        if range.start >= size {
            return Err(Failure::new(FailureKind::Changed, format!("the object has {size} bytes")));
        }
        // both are at most the size, which is a usize
        let (start, end) = (range.start as usize, range.end.min(size) as usize);
        Ok((stored.head(), stored.content.slice(start..end.max(start))))
    }

    async fn put(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let mut state = self.state();
        state.check(key, condition)?;
        Ok(state.insert(key, content, metadata.clone()))
    }

    async fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
        let mut state = self.state();
        let stored = state.object(from)?.clone();
        if !replace {
            state.check(to, &Condition::New)?;
        }
        state.insert(to, stored.content, stored.metadata);
        Ok(())
    }

    async fn delete(&self, key: &str) -> Result<(), Failure> {
        self.state().objects.remove(key);
        Ok(())
    }

    async fn create_upload(&self, key: &str, metadata: &Metadata) -> Result<String, Failure> {
        let mut state = self.state();
        state.count += 1;
        let name = format!("upload-{}", state.count);
        let unfinished =
            Unfinished { key: key.to_owned(), metadata: metadata.clone(), parts: BTreeMap::new() };
        state.uploads.insert(name.clone(), unfinished);
        Ok(name)
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, Failure> {
        let mut state = self.state();
        state.count += 1;
        let number = state.count;
        let unfinished = state.upload(key, upload)?;
        unfinished.parts.insert(part, (content, number));
        Ok(format!("part-{number}"))
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        _metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let mut state = self.state();
        state.upload(key, upload)?;
        state.check(key, condition)?;
        let unfinished = state.upload(key, upload)?;
        let mut content = BytesMut::new();
        for (number, id) in (0u32..).zip(&parts) {
            match unfinished.parts.get(&number) {
                Some((bytes, count)) if format!("part-{count}") == *id => {
                    content.extend_from_slice(bytes);
                }
                _ => {
                    return Err(Failure::new(
                        FailureKind::Invalid,
                        format!("part {number} is not {id}"),
                    ));
                }
            }
        }
        let metadata = unfinished.metadata.clone();
        state.uploads.remove(upload);
        Ok(state.insert(key, content.freeze(), metadata))
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure> {
        let mut state = self.state();
        state.upload(key, upload)?;
        state.uploads.remove(upload);
        Ok(())
    }
}
