//! Requests with repetition, counts, limits and checks of their answers.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::backend::{Backend, Failure, FailureKind, Head, Page};
use crate::error::Error;
use crate::key::Key;
use crate::metadata::Metadata;
use crate::requests::{Counts, Kind, Requests};
use crate::slots::Slots;
use crate::version::{Condition, Version};

/// Bytes of names of uploads, of parts and of pages that are accepted at most: they go into URLs,
/// which cannot be longer than 64 KiB.
const LONGEST_NAME: usize = 8 << 10;

/// Entries of a page that are accepted at most: twice as many as Azure lists, which lists most.
const MAX_ENTRIES: usize = 10_000;

/// How often and how long a request is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Attempts in all.
    pub attempts: u32,
    /// The pause after the first attempt; it doubles from one to the next.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How long an attempt may take, and how many bytes a second it moves at least beyond that.
    pub attempt: Duration,
    /// Bytes a second that a store is expected to take and give at least.
    pub slowest: u64,
}

impl Default for Patience {
    /// 8 attempts within about 13 s of pauses, 30 s for each and 64 KiB/s.
    fn default() -> Self {
        Self {
            attempts: 8,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            attempt: Duration::from_secs(30),
            slowest: 64 << 10,
        }
    }
}

/// A store's backend and what all its users share.
pub(crate) struct Client {
    backend: Arc<dyn Backend>,
    prefix: String,
    url: String,
    runtime: Handle,
    patience: Patience,
    slots: Arc<Slots>,
    counts: Arc<Counts>,
    /// What one user of the store counts beside that.
    own: Option<Arc<Counts>>,
    /// Set when the store was seen to honour the conditions of writes, for all clients of it.
    conditions: Arc<OnceCell<()>>,
}

/// A failure after the last attempt.
#[derive(Debug)]
pub(crate) struct RequestError {
    /// The kind of the last failure.
    pub(crate) kind: FailureKind,
    /// An attempt before the last may have had an effect, unknown to us.
    pub(crate) is_repeated: bool,
    error: Error,
}

impl From<RequestError> for Error {
    fn from(trouble: RequestError) -> Self {
        trouble.error
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the backend may know credentials
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client of the keys below `prefix`.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        prefix: String,
        url: String,
        runtime: Handle,
        patience: Patience,
    ) -> Self {
        Self {
            backend,
            prefix,
            url,
            runtime,
            patience,
            slots: Arc::new(Slots::new()),
            counts: Arc::default(),
            own: None,
            conditions: Arc::default(),
        }
    }

    /// The same with other patience and new counts.
    pub(crate) fn with_patience(&self, patience: Patience) -> Self {
        let client = Self::new(
            Arc::clone(&self.backend),
            self.prefix.clone(),
            self.url.clone(),
            self.runtime.clone(),
            patience,
        );
        Self { conditions: Arc::clone(&self.conditions), ..client }
    }

    /// The same, with counts of its own beside those of all.
    pub(crate) fn counted(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            prefix: self.prefix.clone(),
            url: self.url.clone(),
            runtime: self.runtime.clone(),
            patience: self.patience,
            slots: Arc::clone(&self.slots),
            counts: Arc::clone(&self.counts),
            own: Some(Arc::default()),
            conditions: Arc::clone(&self.conditions),
        }
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The store's URL, for errors.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The runtime that drives requests.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The requests up to now.
    pub(crate) fn requests(&self) -> Requests {
        self.counts.read()
    }

    /// Those of this client alone, if they are counted.
    pub(crate) fn own_requests(&self) -> Requests {
        self.own.as_ref().unwrap_or(&self.counts).read()
    }

    /// Counts for all, and for itself.
    fn count(&self, count: impl Fn(&Counts)) {
        count(&self.counts);
        if let Some(own) = &self.own {
            count(own);
        }
    }

    /// The store can hold markers of directories.
    pub(crate) fn keeps_directories(&self) -> bool {
        self.backend.keeps_directories()
    }

    /// The store is known to honour the conditions of writes.
    pub(crate) fn honours_conditions(&self) -> bool {
        self.backend.honours_conditions()
    }

    /// Set once the store was seen to honour them.
    pub(crate) fn conditions(&self) -> &OnceCell<()> {
        &self.conditions
    }

    /// Waits for requests on the calling thread.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The key of a name with the prefix.
    fn whole(&self, key: &Key) -> String {
        format!("{}{}", self.prefix, key.as_str())
    }

    /// Asks for size, version and metadata, `None` when the object is not there.
    pub(crate) async fn head(&self, key: &Key) -> Result<Option<Head>, Error> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        let answer = self.call(Kind::Head, 0, ("look at", key), || backend.head(target)).await;
        match answer {
            Ok(head) => Ok(Some(head)),
            Err(trouble) if trouble.kind == FailureKind::NotFound => Ok(None),
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// Reads exactly a range, which is not empty.
    pub(crate) async fn get(
        &self,
        key: &Key,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<Bytes, Error> {
        let wanted = range.end.saturating_sub(range.start);
        let (head, content) = self.get_up_to(key, range.clone(), version, true).await?;
        if content.len() as u64 == wanted {
            return Ok(content);
        }
        Err(Error::Changed(format!(
            "cannot read {} from {}: it ends at byte {}, before {}. It was changed: begin again",
            key.as_str(),
            self.url,
            head.size,
            range.end
        )))
    }

    /// Reads a whole object that has `size` bytes, which is not 0, and its metadata.
    pub(crate) async fn get_with_metadata(
        &self,
        key: &Key,
        size: u64,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Error> {
        let (head, content) = self.get_up_to(key, 0..size, version, true).await?;
        if head.size == size {
            return Ok((head, content));
        }
        Err(Error::Changed(format!(
            "cannot read {} from {}: it has {} bytes, and had {size}. It was changed: begin again",
            key.as_str(),
            self.url,
            head.size
        )))
    }

    /// Reads a whole object of at most `most` bytes, `None` when it is not there.
    pub(crate) async fn get_whole(
        &self,
        key: &Key,
        most: u64,
    ) -> Result<Option<(Head, Bytes)>, Error> {
        match self.get_up_to(key, 0..most, None, false).await {
            Ok((head, content)) if content.len() as u64 == head.size => Ok(Some((head, content))),
            Ok((head, _)) => Err(Error::Reply(format!(
                "{} in {} has {} bytes, and {most} are expected at most: remove it",
                key.as_str(),
                self.url,
                head.size
            ))),
            Err(trouble) if trouble.kind == FailureKind::NotFound => Ok(None),
            // an empty object has no range
            Err(trouble) if trouble.kind == FailureKind::Changed => match self.head(key).await? {
                Some(head) if head.size > 0 => Err(trouble.into()),
                head => Ok(head.map(|head| (head, Bytes::new()))),
            },
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn get_up_to(
        &self,
        key: &Key,
        range: Range<u64>,
        version: Option<&Version>,
        is_content: bool,
    ) -> Result<(Head, Bytes), RequestError> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        let wanted = range.end.saturating_sub(range.start);
        let version = version.filter(|version| version.is_known());
        // of small objects of our own, the limit says nothing about how long they take
        let bytes = if is_content { wanted } else { 0 };
        self.call(Kind::Get, bytes, ("read", key), || {
            let range = range.clone();
            async move {
                let (head, content) = backend.get(target, range.clone(), version).await?;
                if let Some(version) = version
                    && head.version != *version
                {
                    return Err(Failure::new(
                        FailureKind::Changed,
                        "the answer is of another version",
                    ));
                }
                let there = head.size.min(range.end).saturating_sub(range.start);
                if content.len() as u64 != there {
                    return Err(Failure::new(
                        FailureKind::Passing,
                        format!("{} of {there} bytes arrived", content.len()),
                    ));
                }
                Ok((head, content))
            }
        })
        .await
    }

    /// Stores an object. When an answer was lost, what is stored says whether it was this.
    pub(crate) async fn put(
        &self,
        key: &Key,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Error> {
        let size = content.len() as u64;
        match self.try_put(key, content, metadata, condition).await {
            Ok(version) => Ok(version),
            Err(trouble) if trouble.kind == FailureKind::Changed && trouble.is_repeated => {
                let stored = self.head(key).await?;
                match stored {
                    Some(head) if is_surely(&head, size, metadata) => Ok(head.version),
                    _ => Err(trouble.into()),
                }
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// Stores an object, without a look at what a lost answer might have said.
    pub(crate) async fn try_put(
        &self,
        key: &Key,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, RequestError> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        let version = self
            .call(Kind::Put, content.len() as u64, ("store", key), || {
                backend.put(target, content.clone(), metadata, condition)
            })
            .await?;
        // not every store says which version it made
        if !version.is_known()
            && !key.is_directory()
            && let Ok(Some(head)) = self.head(key).await
        {
            return Ok(head.version);
        }
        Ok(version)
    }

    /// Copies an object.
    pub(crate) async fn copy(
        &self,
        from: &Key,
        to: &Key,
        replace: bool,
    ) -> Result<(), RequestError> {
        let (from_whole, to_whole) = (self.whole(from), self.whole(to));
        let (backend, source, target) = (&self.backend, from_whole.as_str(), to_whole.as_str());
        self.call(Kind::Copy, 0, ("copy", from), || backend.copy(source, target, replace)).await
    }

    /// Deletes an object, which need not be there.
    pub(crate) async fn delete(&self, key: &Key) -> Result<(), Error> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        let answer = self.call(Kind::Delete, 0, ("remove", key), || backend.delete(target)).await;
        match answer {
            Err(trouble) if trouble.kind != FailureKind::NotFound => Err(trouble.into()),
            _ => Ok(()),
        }
    }

    /// Begins an upload.
    pub(crate) async fn create_upload(
        &self,
        key: &Key,
        metadata: &Metadata,
    ) -> Result<String, Error> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        let upload = self
            .call(Kind::Create, 0, ("begin the upload of", key), || {
                backend.create_upload(target, metadata)
            })
            .await?;
        self.checked_name(key, upload)
    }

    /// Stores a part.
    pub(crate) async fn put_part(
        &self,
        key: &Key,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, RequestError> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        self.call(Kind::Part, content.len() as u64, ("store a part of", key), || {
            let content = content.clone();
            async move {
                let id = backend.put_part(target, upload, part, content).await?;
                if id.len() > LONGEST_NAME {
                    return Err(Failure::new(
                        FailureKind::Invalid,
                        "the name of the part is too long",
                    ));
                }
                Ok(id)
            }
        })
        .await
    }

    /// Makes an object of parts.
    pub(crate) async fn complete_upload(
        &self,
        key: &Key,
        upload: &str,
        parts: &[String],
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, RequestError> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        // a store may copy what it puts together: 16 MiB a second, at the limit of 64 KiB
        let work = parts.len() as u64 * (64 << 10);
        self.call(Kind::Complete, work, ("complete", key), || {
            backend.complete_upload(target, upload, parts.to_vec(), metadata, condition)
        })
        .await
    }

    /// Gives an upload up, which need not be there.
    pub(crate) async fn abort_upload(&self, key: &Key, upload: &str) -> Result<(), Error> {
        let whole = self.whole(key);
        let (backend, target) = (&self.backend, whole.as_str());
        let answer = self
            .call(Kind::Abort, 0, ("give up the upload of", key), || {
                backend.abort_upload(target, upload)
            })
            .await;
        match answer {
            Err(trouble) if trouble.kind != FailureKind::NotFound => Err(trouble.into()),
            _ => Ok(()),
        }
    }

    /// Lists one page below a directory, `""` or with a `/` at its end.
    pub(crate) async fn list(&self, directory: &str, page: Option<&str>) -> Result<Page, Error> {
        let whole = format!("{}{directory}", self.prefix);
        let (backend, target) = (&self.backend, whole.as_str());
        let mut answer = self
            .call_named(Kind::List, 0, ("list", directory), || backend.list(target, page))
            .await?;
        answer.next = answer.next.filter(|next| !next.is_empty());
        let entries = answer.objects.len() + answer.prefixes.len();
        if entries > MAX_ENTRIES {
            return Err(Error::Reply(format!(
                "cannot list {directory:?} in {}: a page has {entries} entries",
                self.url
            )));
        }
        match &answer.next {
            Some(next) if next.len() > LONGEST_NAME => Err(Error::Reply(format!(
                "cannot list {directory:?} in {}: the name of the next page has {} bytes",
                self.url,
                next.len()
            ))),
            _ => Ok(answer),
        }
    }

    fn checked_name(&self, key: &Key, name: String) -> Result<String, Error> {
        if name.len() <= LONGEST_NAME {
            return Ok(name);
        }
        Err(Error::Reply(format!(
            "cannot begin the upload of {} to {}: the store names it with {} bytes",
            key.as_str(),
            self.url,
            name.len()
        )))
    }

    async fn call<T, F>(
        &self,
        kind: Kind,
        bytes: u64,
        (doing, key): (&str, &Key),
        attempt: impl Fn() -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        self.call_named(kind, bytes, (doing, key.as_str()), attempt).await
    }

    /// Makes a request until it succeeds, fails for good, or was tried often enough.
    async fn call_named<T, F>(
        &self,
        kind: Kind,
        bytes: u64,
        (doing, name): (&str, &str),
        attempt: impl Fn() -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let moving = Duration::from_secs(bytes / self.patience.slowest.max(1));
        let limit = self.patience.attempt.saturating_add(moving);
        let mut pause = self.patience.first_pause;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let answer = {
                let _slot = self.slots.acquire().await;
                self.count(|counts| counts.add(kind));
                timeout(limit, attempt()).await
            };
            let failure = match answer {
                Ok(Ok(result)) => {
                    self.slots.answered();
                    return Ok(result);
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::new(
                    FailureKind::Passing,
                    format!("no answer within {} s", limit.as_secs_f32()),
                ),
            };
            if failure.kind == FailureKind::Slow {
                self.count(Counts::add_slowed);
                self.slots.slowed(Instant::now());
            }
            if !failure.kind.is_passing() || attempts >= self.patience.attempts {
                return Err(RequestError {
                    kind: failure.kind,
                    is_repeated: attempts > 1,
                    error: self.explain(&failure, attempts, doing, name),
                });
            }
            tracing::debug!(doing, name, attempts, found = failure.text, "request repeated");
            self.count(Counts::add_retried);
            // half of the pause is random, so that those who failed together do not return
            // together
            let part = rand::random::<f64>().mul_add(0.5, 0.5);
            sleep(pause.mul_f64(part)).await;
            pause = pause.saturating_mul(2).min(self.patience.longest_pause);
        }
    }

    fn explain(&self, failure: &Failure, attempts: u32, doing: &str, name: &str) -> Error {
        let url = &self.url;
        let found = &failure.text;
        let what = format!("cannot {doing} {name:?} in {url}");
        match failure.kind {
            FailureKind::NotFound => Error::NotFound(format!("{what}: it is not there ({found})")),
            FailureKind::Changed => Error::Changed(format!(
                "{what}: it is there already, or was changed meanwhile ({found}). Look again, then repeat"
            )),
            FailureKind::Conflict => Error::Changed(format!(
                "{what}: others write it at the same time ({found}). Repeat it later"
            )),
            FailureKind::Refused => Error::Refused(format!(
                "{what}: the store refuses ({found}). Check the credentials and what they permit"
            )),
            FailureKind::Slow => Error::Unavailable(format!(
                "{what}: the store asks for fewer requests ({found}), {attempts} times. Repeat it later"
            )),
            FailureKind::Passing => Error::Unavailable(format!(
                "{what}: {found}, after {attempts} attempts. Repeat it later"
            )),
            FailureKind::Unsupported => Error::Refused(format!(
                "{what}: the store cannot do this ({found}). Conditional writes, metadata and uploads in parts are needed"
            )),
            FailureKind::Invalid => {
                Error::Reply(format!("{what}: its answer makes no sense ({found})"))
            }
        }
    }
}

/// What is stored is what was to be stored: nothing, or what has its hash in its metadata.
pub(crate) fn is_surely(head: &Head, size: u64, metadata: &Metadata) -> bool {
    head.size == size
        && head.metadata == *metadata
        && (size == 0 || metadata.get("headroom-blake3").is_some())
}
