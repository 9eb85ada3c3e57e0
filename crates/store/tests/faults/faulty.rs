//! A store in memory that does what a test says.

use std::future::{Future, pending};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Failure, FailureKind, Head, Memory, Metadata, Page, Version,
};
use tokio::task::yield_now;
use tokio::time::sleep;

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It fails.
    Fails(FailureKind),
    /// It takes an hour.
    Late,
    /// It is done, and its answer is lost.
    Lost,
    /// It is on its way until the test lets it [arrive](Faulty::arrive), and is never answered. For
    /// `put` and `complete`.
    Held,
    /// Half of the content arrives.
    Cut,
    /// The listing has this page.
    Answers(Page),
    /// The answer is of this version.
    Wrong(Version),
    /// Another writer removes this object just before. For `put`.
    Removes(String),
    /// Another writer copies the first object to the second name just before. For `put`.
    Copies(String, String),
}

/// What a store makes of the conditions of a `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    /// It is known to honour them.
    Known,
    /// It honours them, which nobody knows.
    Honoured,
    /// It ignores `If-None-Match`.
    IgnoresNew,
    /// It ignores `If-Match`.
    IgnoresIs,
}

/// A request that is still on its way.
#[derive(Debug)]
enum Request {
    Put(String, Bytes, Metadata, Condition),
    Complete(String, String, Vec<String>, Metadata, Condition),
}

/// A store in memory to whose next requests of a kind this happens.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) memory: Memory,
    conditions: Conditions,
    faults: Mutex<Vec<(&'static str, Fault)>>,
    /// How far its clock is behind.
    behind: Mutex<Duration>,
    held: Mutex<Option<Request>>,
    /// How many objects are being read, and the most that were.
    reading: AtomicUsize,
    most_reading: AtomicUsize,
}

impl Faulty {
    pub(crate) fn new(conditions: Conditions) -> Self {
        Self {
            memory: Memory::new(),
            conditions,
            faults: Mutex::default(),
            behind: Mutex::default(),
            held: Mutex::default(),
            reading: AtomicUsize::default(),
            most_reading: AtomicUsize::default(),
        }
    }

    /// Sets what goes wrong with the next requests of a kind.
    pub(crate) fn will(&self, call: &'static str, faults: impl IntoIterator<Item = Fault>) {
        let mut all = self.faults.lock().expect("not poisoned");
        all.extend(faults.into_iter().map(|fault| (call, fault)));
    }

    /// Sets how far its clock is behind.
    pub(crate) fn set_behind(&self, behind: Duration) {
        *self.behind.lock().expect("not poisoned") = behind;
    }

    /// What was held arrives now.
    pub(crate) async fn arrive(&self) -> Result<Version, Failure> {
        let held = self.held.lock().expect("not poisoned").take();
        match held.expect("a request was held") {
            Request::Put(key, content, metadata, condition) => {
                self.memory.put(&key, content, &metadata, &condition).await
            }
            Request::Complete(key, upload, parts, metadata, condition) => {
                self.memory.complete_upload(&key, &upload, parts, &metadata, &condition).await
            }
        }
    }

    /// Returns the most objects that were being read at once.
    pub(crate) fn most_reading(&self) -> usize {
        self.most_reading.load(Ordering::Relaxed)
    }

    /// Lets other reads begin before one is answered, and counts them.
    async fn begin_read(&self) {
        let reading = self.reading.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_reading.fetch_max(reading, Ordering::Relaxed);
        yield_now().await;
        self.reading.fetch_sub(1, Ordering::Relaxed);
    }

    fn next(&self, call: &str) -> Option<Fault> {
        let mut all = self.faults.lock().expect("not poisoned");
        let index = all.iter().position(|(of, _)| *of == call)?;
        Some(all.remove(index).1)
    }

    async fn hold<T>(&self, request: Request) -> T {
        *self.held.lock().expect("not poisoned") = Some(request);
        pending().await
    }

    /// The condition that it looks at.
    fn heeded<'a>(&self, condition: &'a Condition) -> &'a Condition {
        match (self.conditions, condition) {
            (Conditions::IgnoresNew, Condition::New)
            | (Conditions::IgnoresIs, Condition::Is(_)) => &Condition::Any,
            _ => condition,
        }
    }

    fn behind(&self) -> Duration {
        *self.behind.lock().expect("not poisoned")
    }

    fn with_its_time(&self, head: Head) -> Head {
        Head { modified: head.modified - self.behind(), ..head }
    }
}

/// Makes a request to which this happens.
async fn meddle<T: Send>(
    fault: Option<Fault>,
    request: impl Future<Output = Result<T, Failure>> + Send,
) -> Result<T, Failure> {
    match fault {
        None
        | Some(
            Fault::Cut
            | Fault::Held
            | Fault::Answers(_)
            | Fault::Wrong(_)
            | Fault::Removes(_)
            | Fault::Copies(..),
        ) => request.await,
        Some(Fault::Fails(kind)) => Err(Failure::new(kind, "HTTP 500 from the test")),
        Some(Fault::Late) => {
            sleep(Duration::from_secs(3600)).await;
            request.await
        }
        Some(Fault::Lost) => {
            request.await?;
            Err(Failure::new(FailureKind::Passing, "the answer was lost"))
        }
    }
}

#[async_trait]
impl Backend for Faulty {
    async fn list(&self, prefix: &str, page: Option<&str>) -> Result<Page, Failure> {
        match self.next("list") {
            Some(Fault::Answers(page)) => Ok(page),
            fault => {
                let mut page = meddle(fault, self.memory.list(prefix, page)).await?;
                for listed in &mut page.objects {
                    listed.modified -= self.behind();
                }
                Ok(page)
            }
        }
    }

    async fn head(&self, key: &str) -> Result<Head, Failure> {
        let head = meddle(self.next("head"), self.memory.head(key)).await?;
        Ok(self.with_its_time(head))
    }

    async fn get(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Failure> {
        self.begin_read().await;
        let (head, content) = match self.next("get") {
            Some(Fault::Cut) => {
                let (head, content) = self.memory.get(key, range, version).await?;
                (head, content.slice(..content.len() / 2))
            }
            Some(Fault::Wrong(wrong)) => {
                let (head, content) = self.memory.get(key, range, None).await?;
                (Head { version: wrong, ..head }, content)
            }
            fault => meddle(fault, self.memory.get(key, range, version)).await?,
        };
        Ok((self.with_its_time(head), content))
    }

    async fn put(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let condition = self.heeded(condition);
        let fault = self.next("put");
        match &fault {
            Some(Fault::Removes(other)) => self.memory.delete(other).await?,
            Some(Fault::Copies(from, to)) => self.memory.copy(from, to, true).await?,
            _ => {}
        }
        match fault {
            Some(Fault::Held) => {
                let (metadata, condition) = (metadata.clone(), condition.clone());
                self.hold(Request::Put(key.to_owned(), content, metadata, condition)).await
            }
            fault => meddle(fault, self.memory.put(key, content, metadata, condition)).await,
        }
    }

    async fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
        meddle(self.next("copy"), self.memory.copy(from, to, replace)).await
    }

    async fn delete(&self, key: &str) -> Result<(), Failure> {
        meddle(self.next("delete"), self.memory.delete(key)).await
    }

    async fn create_upload(&self, key: &str, metadata: &Metadata) -> Result<String, Failure> {
        meddle(self.next("create"), self.memory.create_upload(key, metadata)).await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, Failure> {
        meddle(self.next("part"), self.memory.put_part(key, upload, part, content)).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        match self.next("complete") {
            Some(Fault::Held) => {
                let (key, upload) = (key.to_owned(), upload.to_owned());
                let (metadata, condition) = (metadata.clone(), condition.clone());
                self.hold(Request::Complete(key, upload, parts, metadata, condition)).await
            }
            fault => {
                let request = self.memory.complete_upload(key, upload, parts, metadata, condition);
                meddle(fault, request).await
            }
        }
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure> {
        meddle(self.next("abort"), self.memory.abort_upload(key, upload)).await
    }

    fn honours_conditions(&self) -> bool {
        self.conditions == Conditions::Known
    }
}
