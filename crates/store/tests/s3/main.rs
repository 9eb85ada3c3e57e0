//! The store against S3 servers of other people on the loopback interface: `s3s-fs` in this
//! process, and versitygw, which `scripts/fetch-parts versitygw` builds. Where that is missing its
//! tests are skipped, unless `HEADROOM_TESTS=required`.
//!
//! A store reads its server and its credentials from the environment, so each test starts this
//! program again with another one, and with the name of an ignored test.

mod faults;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Condition, Entry, Error, Metadata, Patience, SPAN, Store, UploadOffer};
use headroom_testing::{Versitygw, versitygw};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const SECRET: &str = "hush-hush";
const REGION: &str = "eu-west-1";
const MIB: usize = 1 << 20;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("it is possible")
}

/// Serves the folders in `folder` as buckets.
fn serve(runtime: &Runtime, folder: &Path) -> SocketAddr {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(folder).expect("a folder"));
    builder.set_auth(SimpleAuth::from_single("key", SECRET));
    let service = builder.build();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("an address");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(socket), service.clone());
            tokio::spawn(connection);
        }
    });
    address
}

/// The credentials that the server knows, in the environment.
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", SECRET)];

/// Runs an ignored test of this program over `s3s-fs`.
fn run(test: &str, environment: &[(&str, &str)]) {
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("bucket")).expect("a folder");
    let server = serve(&runtime, folder.path());
    run_at(server, folder.path(), test, environment);
}

/// Runs an ignored test of this program over versitygw, where that is.
fn run_over_versitygw(test: &str) {
    let Some(program) = versitygw() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("store/bucket")).expect("a folder");
    let server = Versitygw::start(&program, folder.path(), "key", SECRET, REGION);
    run_at(server.address(), folder.path(), test, &KEYS);
}

/// Runs an ignored test of this program in a process that knows the server.
fn run_at(server: SocketAddr, home: &Path, test: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env_clear()
        .env("HOME", home)
        .env("AWS_ENDPOINT_URL", format!("http://{server}"))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", REGION)
        .envs(environment.iter().copied());
    if let Some(folder) = std::env::var_os("TMPDIR") {
        command.env("TMPDIR", folder);
    }
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
    assert!(!text.contains(SECRET) && !errors.contains(SECRET), "{text}\n{errors}");
}

/// Opens the store of which the environment speaks. A slow machine is no reason to repeat.
fn open(runtime: &Runtime) -> Store {
    let store = Store::open("s3://bucket/a/prefix", runtime.handle().clone());
    store
        .expect("the store does it")
        .with_patience(Patience { attempt: Duration::from_secs(3600), ..Patience::default() })
}

fn names(entries: impl Iterator<Item = Result<Entry, Error>>) -> Vec<String> {
    entries
        .map(|entry| match entry.expect("an entry") {
            Entry::Object(object) => object.name,
            Entry::Directory(name) => format!("{name}/"),
        })
        .collect()
}

#[test]
fn objects_are_stored_read_and_removed() {
    run("inside_objects", &KEYS);
}

#[test]
fn versitygw_stores_reads_and_removes_objects() {
    run_over_versitygw("inside_objects");
}

#[test]
#[ignore = "run by objects_are_stored_read_and_removed"]
fn inside_objects() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mtime", "1700000000.5").expect("metadata");
    metadata.set("mtime", "1700000000.5").expect("metadata");
    let content = Bytes::from((0..=255u8).cycle().take(3 * MIB).collect::<Vec<u8>>());
    let key = "d/ü %2F+?.txt";
    let first =
        store.put(key, content.clone(), &metadata, Condition::New).expect("the store does it");
    assert!(first.is_known());
    let object = store.look(key).expect("an answer").expect("it is there");
    assert_eq!(object.name, "ü %2F+?.txt");
    assert_eq!((object.size, &object.version), (content.len() as u64, &first));
    assert_eq!(object.metadata.as_ref(), Some(&metadata));
    assert_eq!(
        store.read(key, 5..MIB as u64, Some(&first)).expect("the store does it"),
        content.slice(5..MIB)
    );
    assert!(matches!(store.read(key, 0..4 << 20, None), Err(Error::Changed(_))));
    assert!(matches!(store.read(key, 4 << 20..5 << 20, None), Err(Error::Changed(_))));

    let write = |condition| store.put(key, Bytes::from_static(b"2"), &Metadata::new(), condition);
    assert!(matches!(write(Condition::New), Err(Error::Changed(_))));
    let second = write(Condition::Is(first.clone())).expect("the store does it");
    assert!(matches!(write(Condition::Is(first.clone())), Err(Error::Changed(_))));
    assert!(matches!(store.read(key, 0..1, Some(&first)), Err(Error::Changed(_))));
    assert_eq!(
        store.read(key, 0..1, Some(&second)).expect("the store does it"),
        Bytes::from_static(b"2")
    );

    store.copy(key, "d/copy", false).expect("the store does it");
    assert!(matches!(store.copy(key, "d/copy", false), Err(Error::Changed(_))));
    store.copy(key, "d/copy", true).expect("the store does it");
    assert_eq!(names(store.list("d")), ["copy", "ü %2F+?.txt"]);
    store.remove(key).expect("the store does it");
    store.remove(key).expect("the store does it");
    assert_eq!(store.look(key).expect("the store does it"), None);
    assert!(matches!(store.read(key, 0..1, None), Err(Error::NotFound(_))));
    assert_eq!(names(store.list_all("")), ["d/", "d/copy"]);
}

#[test]
fn large_objects_are_stored_in_parts() {
    run("inside_parts", &KEYS);
}

#[test]
fn versitygw_stores_large_objects_in_parts() {
    run_over_versitygw("inside_parts");
}

#[test]
#[ignore = "run by large_objects_are_stored_in_parts"]
fn inside_parts() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mode", "640").expect("metadata");
    let content = Bytes::from((0..=250u8).cycle().take(9 * MIB + 5).collect::<Vec<u8>>());
    let offer = UploadOffer { size: content.len() as u64, tag: [3; 16], metadata };
    let values = |part: &Bytes, fill| vec![[fill; 32]; part.len().div_ceil(SPAN as usize)];
    let (head, tail) = (content.slice(..8 * MIB), content.slice(8 * MIB..));
    let upload = store.begin_upload("big", &offer).expect("the store does it");
    upload.put_part(1, tail.clone(), values(&tail, 2)).expect("the store does it");
    drop(upload);
    assert_eq!(store.look("big").expect("the store does it"), None);

    let upload = store.begin_upload("big", &offer).expect("the store does it");
    assert_eq!(upload.values(1), Some(values(&tail, 2)));
    upload.put_part(0, head.clone(), values(&head, 1)).expect("the store does it");
    let version = upload.complete([9; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert_eq!(
        store.read("big", 0..offer.size, Some(&version)).expect("the store does it"),
        content
    );
    let object = store.look("big").expect("an answer").expect("it is there");
    assert_eq!(object.metadata.expect("metadata").get("headroom-mode"), Some("640"));
    let record = store.record("big", &version).expect("an answer").expect("it is there");
    assert_eq!(record.values, [values(&head, 1), values(&tail, 2)].concat());
    assert_eq!(names(store.list("")), ["big"]);

    let upload = store.begin_upload("big", &offer).expect("the store does it");
    upload.put_part(0, head.clone(), values(&head, 1)).expect("the store does it");
    upload.put_part(1, tail.clone(), values(&tail, 2)).expect("the store does it");
    assert!(matches!(upload.complete([9; 32], Condition::New), Err(Error::Changed(_))));
    drop(upload);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
    store.remove("big").expect("the store does it");
    assert_eq!(names(store.list("")), Vec::<String>::new());
}

#[test]
fn markers_of_directories_are_taken() {
    run("inside_markers", &KEYS);
}

#[test]
#[ignore = "run by markers_of_directories_are_taken"]
fn inside_markers() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mode", "755").expect("metadata");
    store.put("e/", Bytes::new(), &metadata, Condition::Any).expect("the store does it");
    store.put("f/x", Bytes::new(), &metadata, Condition::Any).expect("the store does it");
    // this server makes directories of markers, and neither lists them nor keeps their metadata
    assert_eq!(store.look("e/").expect("an answer"), None);
    assert_eq!(store.look("f/").expect("an answer"), None);
    assert_eq!(store.look("g/").expect("an answer"), None);
    assert_eq!(store.look("e").expect("an answer"), None);
    assert_eq!(store.look("f").expect("an answer"), None);
    assert_eq!(store.requests().retried, 0);
    assert_eq!(names(store.list("")), ["f/"]);
    store.remove("e/").expect("the store does it");
    store.remove("f/").expect("the store does it");
    assert_eq!(names(store.list_all("")), ["f/", "f/x"]);
}

#[test]
fn versitygw_keeps_markers_of_directories_and_their_metadata() {
    run_over_versitygw("inside_kept_markers");
}

#[test]
#[ignore = "run by versitygw_keeps_markers_of_directories_and_their_metadata"]
fn inside_kept_markers() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mode", "755").expect("metadata");
    store.put("e/", Bytes::new(), &metadata, Condition::New).expect("the store does it");
    store.put("f/x", Bytes::new(), &metadata, Condition::Any).expect("the store does it");
    let again = store.put("e/", Bytes::new(), &metadata, Condition::New);
    assert!(matches!(again, Err(Error::Changed(_))), "{again:?}");
    let marker = store.look("e/").expect("an answer").expect("it is there");
    assert_eq!((marker.size, marker.metadata.as_ref()), (0, Some(&metadata)));
    for missing in ["e", "f", "g/", "f/x/"] {
        assert_eq!(store.look(missing).expect("an answer"), None, "{missing}");
    }
    assert_eq!(names(store.list("")), ["e/", "f/"]);
    assert_eq!(names(store.list("e")), Vec::<String>::new());
    store.remove("e/").expect("the store does it");
    store.remove("f/x").expect("the store does it");
    assert_eq!(names(store.list_all("")), Vec::<String>::new());
    assert_eq!(store.requests().retried, 0);
}

#[test]
fn many_objects_are_listed_in_pages() {
    run("inside_pages", &KEYS);
}

#[test]
fn versitygw_lists_many_objects_in_pages() {
    run_over_versitygw("inside_pages");
}

#[test]
#[ignore = "run by many_objects_are_listed_in_pages"]
fn inside_pages() {
    const MANY: usize = 1003;
    let runtime = runtime();
    let store = open(&runtime);
    thread::scope(|scope| {
        for first in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for number in (first..MANY).step_by(8) {
                    let key = format!("many/{number:04}");
                    let metadata = Metadata::new();
                    store
                        .put(&key, Bytes::from_static(b"x"), &metadata, Condition::New)
                        .expect("the store does it");
                }
            });
        }
    });
    let expected: Vec<String> = (0..MANY).map(|number| format!("{number:04}")).collect();
    assert_eq!(names(store.list("many")), expected);
    assert_eq!(store.requests().put, MANY as u64);
    assert_eq!(store.requests().retried, 0);
}

#[test]
fn a_refusal_names_no_secret() {
    let [key, secret] = KEYS;
    run("inside_refusal", &[("AWS_ACCESS_KEY_ID", "other"), secret]);
    run("inside_refusal", &[key, ("AWS_SECRET_ACCESS_KEY", "hush-wrong")]);
}

#[test]
#[ignore = "run by a_refusal_names_no_secret"]
fn inside_refusal() {
    let runtime = runtime();
    let error = Store::open("s3://bucket", runtime.handle().clone()).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("hush"), "{text}");
        assert!(text.contains("403"), "{text}");
    }
}

#[test]
fn a_profile_gives_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("credentials");
    let text = format!("[work]\naws_access_key_id = key\naws_secret_access_key = {SECRET}\n");
    std::fs::write(&file, text).expect("a folder");
    let file = file.to_str().expect("UTF-8");
    run("inside_profile", &[("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "work")]);
}

#[test]
#[ignore = "run by a_profile_gives_credentials"]
fn inside_profile() {
    let runtime = runtime();
    let store = Store::open("s3://bucket", runtime.handle().clone()).expect("the store does it");
    assert_eq!(names(store.list("")), Vec::<String>::new());
    assert!(!format!("{store:?}").contains(SECRET));
}

#[test]
fn a_bucket_that_is_not_there_is_said_so() {
    run("inside_nowhere", &KEYS);
}

#[test]
#[ignore = "run by a_bucket_that_is_not_there_is_said_so"]
fn inside_nowhere() {
    let runtime = runtime();
    let error = Store::open("s3://nowhere/x", runtime.handle().clone()).expect_err("it is refused");
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
}

#[test]
fn clear_text_has_to_be_allowed() {
    let [key, secret] = KEYS;
    run("inside_clear_text", &[key, secret, ("AWS_ALLOW_HTTP", "false")]);
}

#[test]
#[ignore = "run by clear_text_has_to_be_allowed"]
fn inside_clear_text() {
    let runtime = runtime();
    let error = Store::open("s3://bucket", runtime.handle().clone()).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("AWS_ALLOW_HTTP"), "{error}");
}
