//! Stores that fail, lie, answer late or not at all, and writers that meet.

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Entry, Error, Failure, FailureKind, Head, Listed, Memory, Metadata, Page,
    Patience, SPAN, Store, Upload, UploadOffer, Version,
};
use tokio::runtime::Runtime;
use tokio::time::sleep;

const MIB: usize = 1 << 20;

/// What goes wrong with one request.
#[derive(Clone, Debug)]
enum Fault {
    /// It fails.
    Fails(FailureKind),
    /// It takes an hour.
    Late,
    /// It is done, and its answer is lost.
    Lost,
    /// Half of the content arrives.
    Cut,
    /// The listing has this page.
    Answers(Page),
    /// The answer is of this version.
    Wrong(Version),
}

/// A store in memory to whose next requests of a kind this happens.
#[derive(Debug, Default)]
struct Faulty {
    memory: Memory,
    faults: Mutex<Vec<(&'static str, Fault)>>,
    /// How far its clock is behind.
    behind: Mutex<Duration>,
}

impl Faulty {
    fn will(&self, call: &'static str, faults: impl IntoIterator<Item = Fault>) {
        let mut all = self.faults.lock().expect("not poisoned");
        all.extend(faults.into_iter().map(|fault| (call, fault)));
    }

    fn next(&self, call: &str) -> Option<Fault> {
        let mut all = self.faults.lock().expect("not poisoned");
        let index = all.iter().position(|(of, _)| *of == call)?;
        Some(all.remove(index).1)
    }

    fn with_its_time(&self, head: Head) -> Head {
        let behind = *self.behind.lock().expect("not poisoned");
        Head { modified: head.modified - behind, ..head }
    }

    async fn meddle<T: Send>(
        &self,
        call: &str,
        request: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<T, Failure> {
        match self.next(call) {
            None | Some(Fault::Cut | Fault::Answers(_) | Fault::Wrong(_)) => request.await,
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
}

#[async_trait]
impl Backend for Faulty {
    async fn list(&self, prefix: &str, page: Option<&str>) -> Result<Page, Failure> {
        match self.next("list") {
            Some(Fault::Answers(page)) => Ok(page),
            Some(Fault::Fails(kind)) => Err(Failure::new(kind, "HTTP 500 from the test")),
            _ => {
                let mut page = self.memory.list(prefix, page).await?;
                let behind = *self.behind.lock().expect("not poisoned");
                for listed in &mut page.objects {
                    listed.modified -= behind;
                }
                Ok(page)
            }
        }
    }

    async fn head(&self, key: &str) -> Result<Head, Failure> {
        let head = self.meddle("head", self.memory.head(key)).await?;
        Ok(self.with_its_time(head))
    }

    async fn get(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Failure> {
        let (head, content) = match self.next("get") {
            Some(Fault::Cut) => {
                let (head, content) = self.memory.get(key, range, version).await?;
                (head, content.slice(..content.len() / 2))
            }
            Some(Fault::Wrong(wrong)) => {
                let (head, content) = self.memory.get(key, range, None).await?;
                (Head { version: wrong, ..head }, content)
            }
            Some(Fault::Fails(kind)) => {
                return Err(Failure::new(kind, "HTTP 500 from the test"));
            }
            _ => self.memory.get(key, range, version).await?,
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
        self.meddle("put", self.memory.put(key, content, metadata, condition)).await
    }

    async fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
        self.meddle("copy", self.memory.copy(from, to, replace)).await
    }

    async fn delete(&self, key: &str) -> Result<(), Failure> {
        self.meddle("delete", self.memory.delete(key)).await
    }

    async fn create_upload(&self, key: &str, metadata: &Metadata) -> Result<String, Failure> {
        self.meddle("create", self.memory.create_upload(key, metadata)).await
    }

    async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, Failure> {
        self.meddle("part", self.memory.put_part(key, upload, part, content)).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure> {
        let request = self.memory.complete_upload(key, upload, parts, metadata, condition);
        self.meddle("complete", request).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure> {
        self.meddle("abort", self.memory.abort_upload(key, upload)).await
    }
}

/// A store in memory that may ignore a kind of condition.
#[derive(Debug)]
struct Careless {
    memory: Memory,
    ignored: &'static str,
}

#[async_trait]
impl Backend for Careless {
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
        let condition = match (condition, self.ignored) {
            (Condition::New, "new") | (Condition::Is(_), "is") => &Condition::Any,
            (condition, _) => condition,
        };
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
        self.memory.complete_upload(key, upload, parts, metadata, condition).await
    }

    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure> {
        self.memory.abort_upload(key, upload).await
    }

    fn honours_conditions(&self) -> bool {
        false
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("it is possible")
}

/// Pauses that a test does not notice.
fn brisk() -> Patience {
    Patience {
        attempts: 4,
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(2),
        ..Patience::default()
    }
}

fn open(runtime: &Runtime) -> (Arc<Faulty>, Store) {
    let faulty = Arc::new(Faulty::default());
    let backend = Arc::clone(&faulty) as Arc<dyn Backend>;
    let store = Store::of(backend, "memory://", runtime.handle().clone());
    (faulty, store.with_patience(brisk()))
}

fn hashed(hash: &str) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("headroom-blake3", hash).expect("metadata");
    metadata
}

fn put(store: &Store, key: &str) -> Result<Version, Error> {
    store.put(key, Bytes::from_static(b"content"), &Metadata::new(), Condition::Any)
}

fn names(entries: impl Iterator<Item = Result<Entry, Error>>) -> Vec<String> {
    entries
        .map(|entry| match entry.expect("an entry") {
            Entry::Object(object) => object.name,
            Entry::Directory(name) => format!("{name}/"),
        })
        .collect()
}

/// An object of two parts, of 8 MiB and 1 MiB + 1.
const SIZE: u64 = (9 << 20) + 1;

fn offer(tag: u8) -> UploadOffer {
    UploadOffer { size: SIZE, tag: [tag; 16], metadata: hashed("later") }
}

fn part(number: u32) -> (Bytes, Vec<[u8; 32]>) {
    let bytes = [8 * MIB, MIB + 1][number as usize];
    let fill = number as u8 + 1;
    let values = vec![[fill; 32]; bytes.div_ceil(SPAN as usize)];
    (Bytes::from(vec![fill; bytes]), values)
}

fn put_part(upload: &Upload, number: u32) -> Result<(), Error> {
    let (content, values) = part(number);
    upload.put_part(number, content, values)
}

/// Continues the only upload, of `a`, as if its writer had been silent for long: as soon as that
/// does not write just now.
fn take_over(faulty: &Faulty, store: &Store) -> Upload {
    let journal = faulty.memory.keys().remove(0);
    loop {
        let long_ago = SystemTime::now() - Duration::from_secs(61);
        faulty.memory.set_modified(&journal, long_ago);
        match store.begin_upload("a", &offer(1)) {
            Ok(upload) => return upload,
            Err(error) => assert!(matches!(error, Error::Busy(_)), "{error}"),
        }
    }
}

fn is_whole(store: &Store, key: &str) -> bool {
    let content = store.read(key, 0..SIZE, None).expect("the store does it");
    content == [part(0).0, part(1).0].concat()
}

#[test]
fn errors_of_the_store_are_repeated_and_counted() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", [Fault::Fails(FailureKind::Passing), Fault::Fails(FailureKind::Slow)]);
    put(&store, "a").expect("the store does it");
    let requests = store.requests();
    assert_eq!((requests.put, requests.retried, requests.slowed), (3, 2, 1));
    assert_eq!(requests.total(), 3);
}

#[test]
fn a_store_that_only_fails_is_unavailable() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", vec![Fault::Fails(FailureKind::Passing); 4]);
    let error = put(&store, "a").expect_err("it is refused");
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(error.is_passing());
    assert_eq!(
        error.to_string(),
        "cannot store \"a\" in memory://: HTTP 500 from the test, after 4 attempts. Repeat it later"
    );
    assert_eq!(store.requests().put, 4);
}

#[test]
fn a_refusal_is_final() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", [Fault::Fails(FailureKind::Refused)]);
    assert!(matches!(put(&store, "a"), Err(Error::Refused(_))));
    assert_eq!(store.requests().put, 1);
}

#[test]
fn a_late_answer_is_not_waited_for() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let store = store.with_patience(Patience { attempt: Duration::from_millis(200), ..brisk() });
    faulty.will("put", [Fault::Late]);
    put(&store, "a").expect("the store does it");
    assert_eq!(store.requests().retried, 1);
}

#[test]
fn a_truncated_content_is_read_again() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    put(&store, "a").expect("the store does it");
    faulty.will("get", [Fault::Cut]);
    assert_eq!(store.read("a", 1..7, None).expect("the store does it"), &b"ontent"[..]);
    faulty.will("get", vec![Fault::Cut; 4]);
    assert!(matches!(store.read("a", 0..7, None), Err(Error::Unavailable(_))));
    assert_eq!(store.read("a", 3..3, None).expect("the store does it"), Bytes::new());
}

#[test]
fn another_version_and_another_length_are_noticed() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let first = put(&store, "a").expect("the store does it");
    assert!(matches!(store.read("a", 0..8, None), Err(Error::Changed(_))));
    assert!(matches!(store.read("a", 8..9, None), Err(Error::Changed(_))));
    let wrong = Version::new(Some("\"wrong\"".to_owned()), None);
    faulty.will("get", [Fault::Wrong(wrong)]);
    assert!(matches!(store.read("a", 0..7, Some(&first)), Err(Error::Changed(_))));
    let second = put(&store, "a").expect("the store does it");
    assert!(matches!(store.read("a", 0..7, Some(&first)), Err(Error::Changed(_))));
    store.read("a", 0..7, Some(&second)).expect("the store does it");
    assert!(matches!(store.read("b", 0..7, None), Err(Error::NotFound(_))));
}

#[test]
fn conditions_keep_writers_apart() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let content = Bytes::from_static(b"x");
    let write = |condition| store.put("a", content.clone(), &Metadata::new(), condition);
    let first = write(Condition::New).expect("the store does it");
    assert!(matches!(write(Condition::New), Err(Error::Changed(_))));
    let second = write(Condition::Is(first.clone())).expect("the store does it");
    assert!(matches!(write(Condition::Is(first)), Err(Error::Changed(_))));
    write(Condition::Is(second)).expect("the store does it");
}

#[test]
fn a_lost_answer_to_a_put_counts_when_the_hash_is_there() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let content = Bytes::from_static(b"x");
    faulty.will("put", [Fault::Lost]);
    store.put("a", content.clone(), &hashed("1"), Condition::New).expect("the store does it");
    faulty.will("put", [Fault::Lost]);
    let unsure = store.put("b", content.clone(), &Metadata::new(), Condition::New);
    assert!(matches!(unsure, Err(Error::Changed(_))));
    // somebody else's
    store.put("c", content.clone(), &hashed("2"), Condition::Any).expect("the store does it");
    faulty.will("put", [Fault::Fails(FailureKind::Passing)]);
    let others = store.put("c", content, &hashed("1"), Condition::New);
    assert!(matches!(others, Err(Error::Changed(_))));
}

#[test]
fn names_of_its_own_are_neither_shown_nor_taken() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    for name in [".headroom/records/x", ".headroom", "a/../b", "", "a//b"] {
        assert!(matches!(put(&store, name), Err(Error::Name(_))), "{name}");
        assert!(matches!(store.look(name), Err(Error::Name(_))), "{name}");
        assert!(matches!(store.remove(name), Err(Error::Name(_))), "{name}");
    }
    assert!(matches!(store.list(".headroom").next(), Some(Err(Error::Name(_)))));
    assert!(matches!(store.below(".headroom").list("").next(), Some(Err(Error::Name(_)))));
    assert_eq!(store.requests().total(), 0);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(names(store.list("")), Vec::<String>::new());
    drop(upload);
}

#[test]
fn lists_page_by_page_in_order_of_keys() {
    let runtime = runtime();
    let memory = Arc::new(Memory::with_page(3));
    let backend = Arc::clone(&memory) as Arc<dyn Backend>;
    let store = Store::of(backend, "memory://", runtime.handle().clone());
    for key in ["d/x/1", "d-1", "d0", "d/a", "d", "e/", "f", "ü", "d/x/2", "d/"] {
        let metadata = Metadata::new();
        store.put(key, Bytes::new(), &metadata, Condition::New).expect("the store does it");
    }
    assert_eq!(names(store.list("")), ["d", "d-1", "d/", "d0", "e/", "f", "ü"]);
    assert_eq!(names(store.list("d")), ["a", "x/"]);
    assert_eq!(names(store.list("d/")), ["a", "x/"]);
    assert_eq!(names(store.below("d").list("x")), ["1", "2"]);
    assert_eq!(names(store.list("e")), Vec::<String>::new());
    assert_eq!(names(store.list("nothing")), Vec::<String>::new());
    assert_eq!(
        names(store.list_all("")),
        ["d", "d-1", "d/", "d/a", "d/x/", "d/x/1", "d/x/2", "d0", "e/", "f", "ü"]
    );
    assert_eq!(names(store.below("d").list_all("")), ["a", "x/", "x/1", "x/2"]);
    assert_eq!(store.below("d").url(), "memory://d");
    let requests = store.requests();
    assert!(requests.list > 10, "{requests:?}");
    assert_eq!(store.look("d/").expect("an answer").expect("it is there").name, "d");
}

fn listed(key: &str) -> Listed {
    Listed {
        key: key.to_owned(),
        size: 1,
        modified: SystemTime::UNIX_EPOCH,
        version: Version::unknown(),
    }
}

fn page(keys: &[&str], next: Option<&str>) -> Page {
    Page {
        objects: keys.iter().map(|key| listed(key)).collect(),
        prefixes: Vec::new(),
        next: next.map(str::to_owned),
    }
}

#[test]
fn endless_listings_end_with_an_error() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("list", [page(&["a"], Some("1")), page(&["a"], Some("2"))].map(Fault::Answers));
    let entries: Vec<_> = store.list("").collect();
    assert!(matches!(entries[..], [Ok(_), Err(Error::Reply(_))]), "{entries:?}");
    faulty.will("list", [page(&["a"], Some("1")), page(&["b"], Some("1"))].map(Fault::Answers));
    let last = store.list("").last().expect("an item");
    assert!(matches!(last, Err(Error::Reply(_))), "{last:?}");
    faulty.will("list", [page(&["b"], Some("1")), page(&["a"], None)].map(Fault::Answers));
    let last = store.list("").last().expect("an item");
    assert!(matches!(last, Err(Error::Reply(_))), "{last:?}");
    let journals = [".headroom/uploads/x"];
    let pages = [page(&journals, Some("1")), page(&journals, Some("2"))];
    faulty.will("list", pages.map(Fault::Answers));
    let error = store.abort_uploads(Duration::ZERO).expect_err("it is refused");
    assert!(matches!(error, Error::Reply(_)), "{error}");
    let empty = (0..2000).map(|number| Fault::Answers(page(&[], Some(&number.to_string()))));
    faulty.will("list", empty);
    let entries: Vec<_> = store.list("").collect();
    assert!(matches!(entries[..], [Err(Error::Reply(_))]), "{entries:?}");
}

#[test]
fn foreign_names_in_a_listing_are_refused() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    for key in ["x", "e/x", "d/x/y", "../d/x"] {
        faulty.will("list", [Fault::Answers(page(&[key], None))]);
        let entries: Vec<_> = store.list("d").collect();
        assert!(matches!(entries[..], [Err(Error::Reply(_))]), "{key}: {entries:?}");
    }
    // a name that no path has concerns one entry
    faulty.will("list", [Fault::Answers(page(&["d/..", "d/x"], None))]);
    let entries: Vec<_> = store.list("d").collect();
    assert!(matches!(entries[..], [Err(Error::Name(_)), Ok(_)]), "{entries:?}");
}

#[test]
fn a_listing_goes_on_after_an_error_that_passes() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    put(&store, "a").expect("the store does it");
    faulty.will("list", [Fault::Fails(FailureKind::Slow)]);
    assert_eq!(names(store.list("")), ["a"]);
}

#[test]
fn uploads_are_complete_only_when_whole() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("d/a", &offer(1)).expect("the store does it");
    assert_eq!((upload.parts(), upload.part_bytes(), upload.size()), (2, 8 << 20, SIZE));
    put_part(&upload, 1).expect("the store does it");
    let error = upload.complete([7; 32], Condition::Any).expect_err("it is refused");
    assert!(matches!(error, Error::Misuse(_)), "{error}");
    assert_eq!(store.look("d/a").expect("the store does it"), None);
    assert!(upload.put_part(0, Bytes::from_static(b"x"), vec![[0; 32]]).is_err());
    put_part(&upload, 0).expect("the store does it");
    let version = upload.complete([7; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert!(is_whole(&store, "d/a"));
    let object = store.look("d/a").expect("an answer").expect("it is there");
    assert_eq!((object.size, &object.version), (SIZE, &version));
    assert_eq!(object.metadata.expect("metadata").get("headroom-blake3"), Some("later"));
    let record = store.record("d/a", &version).expect("an answer").expect("it is there");
    assert_eq!((record.size, record.root), (SIZE, [7; 32]));
    assert_eq!(record.values, [part(0).1, part(1).1].concat());
    // the object and its record
    assert_eq!(faulty.memory.keys().len(), 2, "{:?}", faulty.memory.keys());
    assert_eq!(faulty.memory.uploads(), 0);
}

#[test]
fn a_record_holds_for_one_version_and_goes_with_its_object() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let mut plain = offer(1);
    plain.metadata = Metadata::new();
    let upload = store.begin_upload("a", &plain).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    let version = upload.complete([7; 32], Condition::Any).expect("the store does it");
    drop(upload);
    store.copy("a", "b", false).expect("the store does it");
    assert!(matches!(store.copy("a", "b", false), Err(Error::Changed(_))));
    let copied = store.look("b").expect("an answer").expect("it is there").version;
    assert_eq!(store.record("b", &copied).expect("an answer").expect("it is there").root, [7; 32]);
    assert_eq!(store.record("b", &version).expect("the store does it"), None);
    let changed = put(&store, "a").expect("the store does it");
    assert_eq!(store.record("a", &changed).expect("the store does it"), None);
    store.remove("a").expect("the store does it");
    store.remove("b").expect("the store does it");
    store.remove("b").expect("the store does it");
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
    assert!(matches!(store.copy("a", "b", true), Err(Error::NotFound(_))));
}

#[test]
fn an_upload_is_continued_where_it_was_left() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    drop(upload);
    // another content of the same name
    let other = store.begin_upload("a", &offer(2)).expect("the store does it");
    assert_eq!(other.values(1), None);
    other.abandon().expect("the store does it");
    drop(other);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(upload.values(0), None);
    assert_eq!(upload.values(1), Some(part(1).1));
    assert_eq!(upload.values(2), None);
    put_part(&upload, 0).expect("the store does it");
    upload.complete([7; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert!(is_whole(&store, "a"));
    assert_eq!(store.requests().part, 2);
    assert_eq!(store.requests().create, 2);
}

#[test]
fn a_lost_answer_to_a_completion_is_a_completion() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    for (key, condition) in [("a", Condition::Any), ("b", Condition::New)] {
        let upload = store.begin_upload(key, &offer(1)).expect("the store does it");
        put_part(&upload, 0).expect("the store does it");
        put_part(&upload, 1).expect("the store does it");
        faulty.will("complete", [Fault::Lost]);
        let version = upload.complete([7; 32], condition).expect("the store does it");
        assert!(is_whole(&store, key));
        assert_eq!(store.look(key).expect("an answer").expect("it is there").version, version);
    }
    assert_eq!(store.requests().complete, 4);
}

#[test]
fn a_completion_that_nobody_saw_is_found_by_who_continues() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    faulty.will("complete", [Fault::Lost]);
    faulty.will("complete", vec![Fault::Fails(FailureKind::Passing); 3]);
    faulty.will("head", vec![Fault::Fails(FailureKind::Passing); 4]);
    let error = upload.complete([7; 32], Condition::Any).expect_err("it is refused");
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    drop(upload);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(upload.values(0), Some(part(0).1));
    upload.complete([7; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert!(is_whole(&store, "a"));
    assert_eq!(faulty.memory.keys().len(), 2, "{:?}", faulty.memory.keys());
}

#[test]
fn the_condition_of_a_completion_is_checked() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    let there = put(&store, "a").expect("the store does it");
    let error = upload.complete([7; 32], Condition::New).expect_err("it is refused");
    assert!(matches!(error, Error::Changed(_)), "{error}");
    upload.complete([7; 32], Condition::Is(there)).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn one_of_two_writers_is_told_that_the_other_is_busy() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let first = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&first, 0).expect("the store does it");
    let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert!(error.is_passing());
    let second = take_over(&faulty, &store);
    // it replaces a part, and sees its journal in other hands
    let error = put_part(&first, 0).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert!(matches!(put_part(&first, 1), Err(Error::Busy(_))));
    assert!(matches!(first.complete([7; 32], Condition::Any), Err(Error::Busy(_))));
    put_part(&second, 0).expect("the store does it");
    put_part(&second, 1).expect("the store does it");
    second.complete([7; 32], Condition::Any).expect("the store does it");
    drop(first);
    drop(second);
    assert!(is_whole(&store, "a"));
    assert_eq!(faulty.memory.keys().len(), 2, "{:?}", faulty.memory.keys());
}

#[test]
fn a_writer_is_not_taken_for_dead_because_the_clock_of_the_store_is_behind() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    *faulty.behind.lock().expect("not poisoned") = Duration::from_secs(600);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
    // what told the time is gone
    assert_eq!(faulty.memory.keys().len(), 1, "{:?}", faulty.memory.keys());
    drop(upload);
}

#[test]
fn an_upload_is_not_given_up_early_because_the_clock_of_the_store_is_behind() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    *faulty.behind.lock().expect("not poisoned") = Duration::from_secs(7200);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    drop(upload);
    assert_eq!(store.abort_uploads(Duration::from_secs(3600)).expect("the store does it"), 0);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

#[test]
fn a_store_that_ignores_conditions_takes_no_uploads_in_parts() {
    let runtime = runtime();
    for (ignored, found) in [("new", "ignores If-None-Match"), ("is", "ignores If-Match")] {
        let careless = Arc::new(Careless { memory: Memory::default(), ignored });
        let backend = Arc::clone(&careless) as Arc<dyn Backend>;
        let store = Store::of(backend, "memory://", runtime.handle().clone());
        for _ in 0..2 {
            let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
            assert!(matches!(&error, Error::Refused(why) if why.contains(found)), "{error}");
        }
        assert_eq!(careless.memory.keys(), Vec::<String>::new());
        assert_eq!(careless.memory.uploads(), 0);
        // what has no other writer to fear is stored
        put(&store, "small").expect("the store does it");
    }
    let careful = Arc::new(Careless { memory: Memory::default(), ignored: "" });
    let backend = Arc::clone(&careful) as Arc<dyn Backend>;
    let store = Store::of(backend, "memory://", runtime.handle().clone());
    drop(store.begin_upload("a", &offer(1)).expect("the store does it"));
    let before = store.requests();
    drop(store.begin_upload("b", &offer(1)).expect("the store does it"));
    // a trial alone stores four
    assert!(store.requests().put - before.put < 4, "it is tried once");
}

#[test]
fn a_writer_that_lost_its_upload_leaves_the_next_one_alone() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let first = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&first, 0).expect("the store does it");
    let second = take_over(&faulty, &store);
    faulty.will("part", [Fault::Fails(FailureKind::NotFound)]);
    assert!(matches!(put_part(&second, 1), Err(Error::Gone(_))));
    let third = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert!(matches!(put_part(&first, 1), Err(Error::Busy(_))));
    assert!(matches!(first.abandon(), Err(Error::Busy(_))));
    drop(first);
    drop(second);
    put_part(&third, 0).expect("the store does it");
    put_part(&third, 1).expect("the store does it");
    third.complete([7; 32], Condition::New).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn an_upload_may_outlive_the_runtime() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    drop(runtime);
    drop(upload);
}

#[test]
fn a_lost_answer_to_a_journal_stops_nobody() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", [Fault::Lost]);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    faulty.will("put", [Fault::Lost]);
    // this writes the journal first
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    upload.complete([7; 32], Condition::New).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn an_upload_that_the_store_has_dropped_begins_again() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    faulty.will("part", [Fault::Fails(FailureKind::NotFound)]);
    assert!(matches!(put_part(&upload, 1), Err(Error::Gone(_))));
    assert!(matches!(put_part(&upload, 1), Err(Error::Gone(_))));
    drop(upload);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(upload.values(0), None);
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    faulty.will("complete", [Fault::Fails(FailureKind::Invalid)]);
    let error = upload.complete([7; 32], Condition::Any).expect_err("it is refused");
    assert!(matches!(error, Error::Gone(_)), "{error}");
    drop(upload);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

#[test]
fn a_damaged_journal_is_replaced() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    let journal = faulty.memory.keys().remove(0);
    drop(upload);
    let damaged = Bytes::from_static(b"\x9f\xff\x00damaged");
    runtime
        .block_on(faulty.memory.put(&journal, damaged, &Metadata::new(), &Condition::Any))
        .expect("the store does it");
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    upload.complete([7; 32], Condition::New).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn uploads_that_nobody_continues_are_given_up() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let left = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&left, 0).expect("the store does it");
    drop(left);
    let living = store.begin_upload("b", &offer(1)).expect("the store does it");
    assert_eq!(store.abort_uploads(Duration::from_secs(3600)).expect("the store does it"), 0);
    assert_eq!(faulty.memory.uploads(), 2);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(faulty.memory.uploads(), 1);
    living.abandon().expect("the store does it");
    drop(living);
    assert_eq!(faulty.memory.uploads(), 0);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_uploaded_is_refused() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let empty = UploadOffer { size: 0, ..offer(1) };
    assert!(matches!(store.begin_upload("a", &empty), Err(Error::Misuse(_))));
    let vast = UploadOffer { size: 1 << 60, ..offer(1) };
    assert!(matches!(store.begin_upload("a", &vast), Err(Error::TooLarge(_))));
    assert!(matches!(store.begin_upload("a/", &offer(1)), Err(Error::Misuse(_))));
    assert!(matches!(store.begin_upload("a//", &offer(1)), Err(Error::Name(_))));
    let marker = store.put("d/", Bytes::from_static(b"x"), &Metadata::new(), Condition::Any);
    assert!(matches!(marker, Err(Error::Misuse(_))));
    let unknown = Condition::Is(Version::unknown());
    let put = store.put("a", Bytes::from_static(b"x"), &Metadata::new(), unknown);
    assert!(matches!(put, Err(Error::Misuse(_))));
    assert_eq!(store.requests().total(), 0);
}
