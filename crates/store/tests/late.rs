//! Requests that arrive after they were repeated, and after others have stored something newer.

use std::future::pending;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Error, Expected, Failure, FailureKind, Head, Memory, Metadata, Page,
    Patience, Store, UploadOffer, Version,
};
use tokio::runtime::Runtime;

/// A request that is still on its way.
#[derive(Debug)]
enum Held {
    Put(String, Bytes, Metadata, Condition),
    Complete(String, String, Vec<String>, Metadata, Condition),
}

/// A store in memory that is reached by the next write only when the test says so.
#[derive(Debug, Default)]
struct Late {
    memory: Memory,
    /// Whether the next write is held.
    holds: Mutex<bool>,
    held: Mutex<Option<Held>>,
}

impl Late {
    fn hold(&self) {
        *self.holds.lock().expect("not poisoned") = true;
    }

    fn is_held(&self, request: impl FnOnce() -> Held) -> bool {
        let holds = std::mem::take(&mut *self.holds.lock().expect("not poisoned"));
        if holds {
            *self.held.lock().expect("not poisoned") = Some(request());
        }
        holds
    }

    /// What was held arrives now.
    async fn arrive(&self) -> Result<Version, Failure> {
        let held = self.held.lock().expect("not poisoned").take();
        match held.expect("a request was held") {
            Held::Put(key, content, metadata, condition) => {
                self.memory.put(&key, content, &metadata, &condition).await
            }
            Held::Complete(key, upload, parts, metadata, condition) => {
                self.memory.complete_upload(&key, &upload, parts, &metadata, &condition).await
            }
        }
    }
}

#[async_trait]
impl Backend for Late {
    async fn list(&self, prefix: &str, page: Option<&str>) -> Result<Page, Failure> {
        self.memory.list(prefix, page).await
    }

    async fn head(&self, key: &str) -> Result<Head, Failure> {
        self.memory.head(key).await
    }

    async fn get(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Failure> {
        self.memory.get(key, range, version).await
    }

    async fn put(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let request =
            || Held::Put(key.to_owned(), content.clone(), metadata.clone(), condition.clone());
        // journals and records are not what is tested
        if !key.starts_with(".headroom/") && self.is_held(request) {
            return pending().await;
        }
        self.memory.put(key, content, metadata, condition).await
    }

    async fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
        self.memory.copy(from, to, replace).await
    }

    async fn delete(&self, key: &str) -> Result<(), Failure> {
        self.memory.delete(key).await
    }

    async fn create_upload(&self, key: &str, metadata: &Metadata) -> Result<String, Failure> {
        self.memory.create_upload(key, metadata).await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, Failure> {
        self.memory.put_part(key, upload, part, content).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let request = || {
            Held::Complete(
                key.to_owned(),
                upload.to_owned(),
                parts.clone(),
                metadata.clone(),
                condition.clone(),
            )
        };
        if self.is_held(request) {
            return pending().await;
        }
        self.memory.complete_upload(key, upload, parts, metadata, condition).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure> {
        self.memory.abort_upload(key, upload).await
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("it is possible")
}

fn open(runtime: &Runtime, attempts: u32) -> (Arc<Late>, Store) {
    let late = Arc::new(Late::default());
    let backend = Arc::clone(&late) as Arc<dyn Backend>;
    let store = Store::of(backend, "memory://", runtime.handle().clone());
    let patience = Patience {
        attempts,
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        attempt: Duration::from_millis(500),
        ..Patience::default()
    };
    (late, store.with_patience(patience))
}

fn hashed(hash: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("headroom-blake3", hash).expect("metadata");
    metadata
}

/// Stores a text in place of what is there.
fn replace(store: &Store, text: &'static str) -> Result<bool, Error> {
    let content = Bytes::from_static(text.as_bytes());
    let replaced = store.replace("a", content, &hashed(text), &Expected::Nothing)?;
    Ok(replaced.was_there)
}

fn content(store: &Store) -> Bytes {
    let size = store.look("a").expect("an answer").expect("an object").size;
    store.read_object("a", size, None).expect("its content").1
}

#[test]
fn a_late_put_of_a_new_object_replaces_nothing() {
    let runtime = runtime();
    let (late, store) = open(&runtime, 4);
    late.hold();
    assert!(!replace(&store, "old").expect("stored"), "nothing was there");
    assert!(replace(&store, "newer").expect("stored"));
    let arrived = runtime.block_on(late.arrive());
    assert_eq!(arrived.expect_err("it is too late").kind, FailureKind::Changed);
    assert_eq!(content(&store), "newer");
}

#[test]
fn a_late_put_in_place_of_an_object_replaces_no_newer_one() {
    let runtime = runtime();
    let (late, store) = open(&runtime, 4);
    replace(&store, "first").expect("stored");
    let expected = Expected::Version(store.look("a").expect("an answer").expect("a").version);
    late.hold();
    let second = Bytes::from_static(b"second");
    let stored = store.replace("a", second, &hashed("second"), &expected).expect("stored");
    assert!(stored.was_there);
    replace(&store, "third").expect("stored");
    let arrived = runtime.block_on(late.arrive());
    assert_eq!(arrived.expect_err("it is too late").kind, FailureKind::Changed);
    assert_eq!(content(&store), "third");
}

#[test]
fn a_put_that_failed_and_arrives_late_replaces_no_newer_object() {
    let runtime = runtime();
    let (late, store) = open(&runtime, 1);
    late.hold();
    assert!(matches!(replace(&store, "old"), Err(Error::Unavailable(_))));
    replace(&store, "newer").expect("stored");
    assert!(runtime.block_on(late.arrive()).is_err());
    assert_eq!(content(&store), "newer");
}

#[test]
fn what_is_believed_to_be_there_costs_requests_and_nothing_else() {
    let runtime = runtime();
    let (_, store) = open(&runtime, 4);
    let put = |text: &'static str, expected: &Expected| {
        let before = store.requests();
        let content = Bytes::from_static(text.as_bytes());
        let stored = store.replace("a", content, &hashed(text), expected).expect("stored");
        let requests = store.requests().since(&before);
        (stored.was_there, requests.put, requests.head)
    };
    let stale = Expected::Version(Version::new(Some("\"stale\"".to_owned()), None));
    assert_eq!(put("1", &Expected::Something), (false, 1, 1));
    assert_eq!(put("2", &Expected::Something), (true, 1, 1));
    assert_eq!(put("3", &Expected::Nothing), (true, 2, 1));
    assert_eq!(put("4", &stale), (true, 2, 1));
    assert_eq!(put("4", &Expected::Nothing), (true, 2, 1), "the same file is stored again");
    store.remove("a").expect("removed");
    assert_eq!(put("5", &stale), (false, 2, 1));
    store.remove("a").expect("removed");
    assert_eq!(put("6", &Expected::Nothing), (false, 1, 0));
    assert_eq!(content(&store), "6");
    let unknown = Expected::Version(Version::unknown());
    assert_eq!(put("7", &unknown), (true, 1, 0));
}

#[test]
fn a_late_completion_replaces_no_newer_object() {
    let runtime = runtime();
    let (late, store) = open(&runtime, 1);
    let offer = UploadOffer { size: 3, tag: [1; 16], metadata: Metadata::new() };
    let upload = store.begin_upload("a", &offer).expect("begun");
    let value = vec![[1; 32]];
    upload.put_part(0, Bytes::from_static(b"old"), value).expect("stored");
    late.hold();
    assert!(matches!(upload.complete_over([1; 32]), Err(Error::Unavailable(_))));
    replace(&store, "newer").expect("stored");
    assert!(runtime.block_on(late.arrive()).is_err());
    assert_eq!(content(&store), "newer");
    // who asks once more replaces it
    upload.complete_over([1; 32]).expect("complete");
    assert_eq!(content(&store), "old");
}

#[test]
fn requests_of_one_user_are_counted_apart() {
    let runtime = runtime();
    let (_, store) = open(&runtime, 4);
    let (one, other) = (store.counted(), store.counted().below("d"));
    replace(&one, "text").expect("stored");
    assert_eq!(other.list("").count(), 0);
    let offer = UploadOffer { size: 1, tag: [0; 16], metadata: Metadata::new() };
    drop(other.begin_upload("b", &offer).expect("begun"));
    let (ones, others) = (one.own_requests(), other.own_requests());
    assert_eq!((ones.put, ones.total()), (1, 1), "{ones:?}");
    assert_eq!((others.list, others.create), (1, 1), "{others:?}");
    assert_eq!(store.requests().total(), ones.total() + others.total());
    assert_eq!(store.own_requests(), store.requests(), "it counts nothing apart");
}
