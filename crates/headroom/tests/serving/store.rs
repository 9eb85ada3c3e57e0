//! `headroom serve --store` over S3 servers of other people, those of `bucket.rs`. Where one is
//! missing its tests are skipped, unless `HEADROOM_TESTS=required`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use headroom_testing::{FaultyProxy, WireFault, exposition};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bucket::{Bucket, SECRET, introduce};
use crate::common::{Ground, wait_for};
use crate::server::{Server, command, public_key};

const MIB: usize = 1 << 20;
/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A bucket, and a client.
struct Store {
    // it ends before its folder is removed
    bucket: Bucket,
    ground: Ground,
    address: SocketAddr,
}

/// A server over the bucket.
struct Serving {
    server: Server,
    metrics: String,
}

impl Store {
    /// Makes one at `s3s-fs`.
    fn new(name: &str) -> Self {
        let ground = ground(name);
        Self::of(Bucket::in_process(&ground.path("")), ground)
    }

    /// Makes one at versitygw, where that is.
    fn at_versitygw(name: &str) -> Option<Self> {
        let ground = ground(name);
        Some(Self::of(Bucket::at_versitygw(&ground.path(""))?, ground))
    }

    /// Makes one at moto, where that is.
    fn at_moto(name: &str) -> Option<Self> {
        let ground = ground(name);
        Some(Self::of(Bucket::at_moto(&ground.path(""))?, ground))
    }

    fn of(bucket: Bucket, ground: Ground) -> Self {
        let address = bucket.address();
        Self { bucket, ground, address }
    }

    /// Puts a proxy before the bucket, which makes faults.
    fn behind_proxy(mut self) -> (Self, FaultyProxy) {
        let proxy = FaultyProxy::start(self.address);
        self.address = proxy.address();
        (self, proxy)
    }

    /// `headroom serve` with the credentials of the bucket.
    fn serve(&self, url: &str, secret: &str, options: &[&str]) -> Command {
        let words = ["serve", "--json", "--listen", "127.0.0.1:0", "--store", url];
        let mut serve = command(&self.ground, "server", &words);
        serve.args(["--metrics", "127.0.0.1:0", "--spool"]).arg(self.ground.path("spool"));
        serve.arg("--authorized-keys").arg(self.ground.path("authorized_keys"));
        serve.arg("--log").arg(self.ground.path("log")).args(options);
        introduce(&mut serve, self.address, secret);
        serve
    }

    fn start(&self, options: &[&str]) -> Serving {
        let mut server = Server::start(self.serve("s3://bucket/some/prefix", SECRET, options));
        let metrics = server.event("metrics")["address"].as_str().expect("one").to_owned();
        Serving { server, metrics }
    }

    /// A file of the client.
    fn here(&self, name: &str) -> PathBuf {
        self.ground.path("here").join(name)
    }

    /// The file of an object.
    fn object(&self, key: &str) -> PathBuf {
        self.bucket.file(&format!("some/prefix/{key}"))
    }

    /// What an object has, if it is there.
    fn stored(&self, key: &str) -> Option<Vec<u8>> {
        self.bucket.object(&format!("some/prefix/{key}"))
    }

    /// The bytes of the largest journal of an upload.
    fn journal(&self) -> u64 {
        let objects = self.bucket.objects("some/prefix/.headroom/uploads").into_iter();
        // what only tries the store has a shorter name
        let journals = objects.filter(|(name, _)| name.len() == 2 * 32 + 1);
        journals.map(|(_, bytes)| bytes).max().unwrap_or(0)
    }

    /// A command of the client; words that begin with `:` are places at the server.
    fn client(&self, Serving { server, .. }: &Serving, words: &[&str]) -> Command {
        let mut client = command(&self.ground, "client", &[]);
        client.current_dir(self.here(""));
        for word in words {
            match word.strip_prefix(':') {
                Some(place) => client.arg(server.place(place)),
                None => client.arg(word),
            };
        }
        client.args(["--fingerprint", &server.fingerprint]);
        client
    }

    fn run(&self, server: &Serving, words: &[&str]) -> Output {
        self.client(server, words).output().expect("it starts")
    }

    fn succeed(&self, server: &Serving, words: &[&str]) -> String {
        let output = self.run(server, words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).expect("a text")
    }
}

/// Makes the folders of a test, and the key of its client.
fn ground(name: &str) -> Ground {
    let ground = Ground::new(name);
    for folder in ["store/bucket", "spool", "here"] {
        fs::create_dir_all(ground.path(folder)).expect("a folder");
    }
    let key = public_key(&ground, "client");
    ground.write("authorized_keys", &format!("{key} client\n"));
    ground
}

impl Serving {
    /// A count of requests to the store.
    fn requests(&self, kind: &str) -> f64 {
        let mut stream = TcpStream::connect(&self.metrics).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", self.metrics);
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it ends");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        let name = "headroom_serve_store_requests_total";
        exposition::value(&exposition::metrics(body), name, &[("kind", kind)])
    }

    /// Ends as a power failure would end it.
    fn kill(mut self) {
        self.server.signal(Signal::SIGKILL);
        wait_for("the end of the server", || self.server.ended().is_some());
    }
}

/// Bytes that do not repeat.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_be_bytes()).finalize_xof().fill(&mut content);
    content
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    fs::write(path, content).expect("a file");
}

#[test]
fn a_bucket_is_served_like_a_directory() {
    let store = Store::new("bucket");
    let server = store.start(&["--read-back"]);
    write(&store.here("tree/small"), b"small");
    write(&store.here("tree/a/large"), &content(20 * MIB));
    write(&store.here("tree/a-b"), b"after the directory a");
    for n in 0..300 {
        write(&store.here(&format!("tree/many/{n}")), format!("content of {n}").as_bytes());
    }
    store.succeed(&server, &["put", "tree", ":"]);
    assert_eq!(fs::read(store.object("tree/small")).expect("an object"), b"small");
    assert!(fs::read(store.object("tree/a/large")).expect("an object") == content(20 * MIB));
    assert_eq!(store.succeed(&server, &["ls", ":tree"]).lines().count(), 4);

    // objects of another program are files, too
    write(&store.object("tree/other/file"), b"not ours");
    store.succeed(&server, &["get", ":tree", "back"]);
    assert_eq!(fs::read(store.here("back/other/file")).expect("a file"), b"not ours");
    assert!(fs::read(store.here("back/a/large")).expect("a file") == content(20 * MIB));
    for n in 0..300 {
        let path = store.here(&format!("back/many/{n}"));
        assert_eq!(fs::read(path).expect("a file"), format!("content of {n}").as_bytes());
    }

    // what is the same is neither sent nor stored again
    let [puts, parts] = ["put", "part"].map(|kind| server.requests(kind));
    fs::remove_file(store.here("tree/a-b")).expect("removed");
    store.succeed(&server, &["sync", "--delete", "tree", ":tree"]);
    assert!(!store.object("tree/a-b").exists() && !store.object("tree/other/file").exists());
    assert!(store.object("tree/small").exists());
    assert_eq!(server.requests("part"), parts);
    // but for the markers of directories, of which this S3 server keeps none
    assert!(server.requests("put") < puts + 10.0);

    store.succeed(&server, &["mv", ":tree/small", ":tree/moved"]);
    store.succeed(&server, &["rm", "-r", ":tree"]);
    assert_eq!(store.succeed(&server, &["ls", ":"]), "");
    let log = fs::read_to_string(store.ground.path("log")).expect("a log");
    assert!(log.lines().any(|line| line.contains("store_put=")), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn a_bucket_of_versitygw_is_served_like_a_directory() {
    if let Some(store) = Store::at_versitygw("versitygw") {
        is_served_like_a_directory(&store);
    }
}

#[test]
fn a_bucket_of_moto_is_served_like_a_directory() {
    if let Some(store) = Store::at_moto("moto") {
        is_served_like_a_directory(&store);
    }
}

fn is_served_like_a_directory(store: &Store) {
    let server = store.start(&["--read-back"]);
    let mode = |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode();
    let set_mode = |name: &str, mode: u32| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(store.here(name), permissions).expect("a mode");
    };
    write(&store.here("tree/a/large"), &content(20 * MIB + 5));
    write(&store.here("tree/a-b"), b"before the directory a in a listing");
    write(&store.here("tree/\u{fc} +%2F?&="), b"a name that needs care in a URL");
    write(&store.here("tree/none"), b"");
    for n in 0..1100 {
        write(&store.here(&format!("tree/many/{n}")), format!("content of {n}").as_bytes());
    }
    fs::create_dir(store.here("tree/empty")).expect("a folder");
    set_mode("tree/empty", 0o750);
    set_mode("tree/a-b", 0o600);
    std::os::unix::fs::symlink("a/large", store.here("tree/link")).expect("a link");
    store.succeed(&server, &["put", "tree", ":"]);
    assert!(store.stored("tree/a/large").expect("an object") == content(20 * MIB + 5));
    assert_eq!(store.succeed(&server, &["ls", ":tree"]).lines().count(), 7);
    assert_eq!(store.succeed(&server, &["ls", ":tree/many"]).lines().count(), 1100);

    store.succeed(&server, &["get", ":tree", "back"]);
    for name in ["a/large", "a-b", "\u{fc} +%2F?&=", "none", "many/0", "many/1099"] {
        let read = |tree: &str| fs::read(store.here(tree).join(name)).expect("a file");
        assert!(read("tree") == read("back"), "{name}");
    }
    assert_eq!(fs::read_dir(store.here("back/many")).expect("a folder").count(), 1100);
    assert_eq!(mode(store.here("back/empty")) & 0o777, 0o750);
    assert_eq!(mode(store.here("back/a-b")) & 0o777, 0o600);
    assert_eq!(fs::read_link(store.here("back/link")).expect("a link"), Path::new("a/large"));

    // what is the same is neither sent nor stored again, and what is gone is removed
    let [puts, parts] = ["put", "part"].map(|kind| server.requests(kind));
    fs::remove_file(store.here("tree/none")).expect("removed");
    fs::remove_dir(store.here("tree/empty")).expect("removed");
    store.succeed(&server, &["sync", "--delete", "tree", ":tree"]);
    assert_eq!(server.requests("part"), parts);
    // but for the time of the directory that has changed
    assert!(server.requests("put") <= puts + 2.0);
    assert_eq!(store.succeed(&server, &["ls", ":tree"]).lines().count(), 5);

    store.succeed(&server, &["mv", ":tree/a/large", ":tree/moved"]);
    store.succeed(&server, &["get", ":tree/moved", "moved"]);
    assert!(fs::read(store.here("moved")).expect("a file") == content(20 * MIB + 5));
    store.succeed(&server, &["rm", "-r", ":tree"]);
    assert_eq!(store.succeed(&server, &["ls", ":"]), "");
    let log = fs::read_to_string(store.ground.path("log")).expect("a log");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn a_store_that_fails_again_and_again_loses_nothing() {
    let (store, proxy) = Store::new("failing").behind_proxy();
    let server = store.start(&["--read-back"]);
    let error = WireFault::Answers(500, "InternalError");
    let slow = WireFault::Answers(503, "SlowDown");
    let large = content(20 * MIB + 77);
    write(&store.here("tree/large"), &large);
    for n in 0..10 {
        write(&store.here(&format!("tree/{n}")), format!("content of {n}").as_bytes());
    }
    // the first one makes the directory
    proxy.will("put", [WireFault::Nothing, error, slow, WireFault::Lost, error]);
    proxy.will("create", [slow]);
    proxy.will("part", [WireFault::Lost, slow, error]);
    proxy.will("complete", [WireFault::Lost]);
    proxy.will("head", [slow, WireFault::Lost]);
    proxy.will("get", [error, slow, WireFault::Lost]);
    store.succeed(&server, &["put", "tree", ":"]);
    assert!(proxy.left().is_empty(), "{:?} did not happen", proxy.left());
    assert!(fs::read(store.object("tree/large")).expect("an object") == large);

    proxy.will("list", [slow, WireFault::Cut]);
    proxy.will("get", [WireFault::Cut, error, WireFault::Lost]);
    store.succeed(&server, &["get", ":tree", "back"]);
    assert!(proxy.left().is_empty(), "{:?} did not happen", proxy.left());
    assert!(fs::read(store.here("back/large")).expect("a file") == large);
    for n in 0..10 {
        let path = store.here(&format!("back/{n}"));
        assert_eq!(fs::read(path).expect("a file"), format!("content of {n}").as_bytes());
    }

    // a store that refuses for good: the file is reported, and what was there stays
    write(&store.here("small"), b"another content");
    proxy.will("put", [WireFault::Answers(403, "AccessDenied")]);
    let put = store.run(&server, &["put", "small", ":tree/0"]);
    let told = String::from_utf8_lossy(&put.stderr);
    assert_eq!(put.status.code(), Some(1), "{put:?}");
    assert!(told.contains("AccessDenied"), "{told}");
    assert_eq!(fs::read(store.object("tree/0")).expect("an object"), b"content of 0");
}

#[test]
fn a_killed_server_s_upload_goes_on_at_another_one() {
    resumes_at_another_server(&Store::new("killed"));
}

#[test]
fn a_killed_server_s_upload_to_versitygw_goes_on_at_another_one() {
    if let Some(store) = Store::at_versitygw("killed-versitygw") {
        resumes_at_another_server(&store);
    }
}

#[test]
fn a_killed_server_s_upload_to_moto_goes_on_at_another_one() {
    if let Some(store) = Store::at_moto("killed-moto") {
        resumes_at_another_server(&store);
    }
}

fn resumes_at_another_server(store: &Store) {
    let large = content(96 * MIB + 4321);
    write(&store.here("large"), &large);
    // three parts arrive at a time, so the journal has one after a quarter of the minute that all
    // of it takes
    let slow = store.start(&["--rate", "16mbit"]);
    let mut put = store.client(&slow, &["put", "large", ":large"]);
    let mut put = put.stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("the journal", || store.journal() > 0);
    let empty = store.journal();
    // a part has eight values of 32 bytes
    wait_for("a part in the journal", || store.journal() >= empty + 8 * 32);
    slow.kill();
    let _ = put.kill();
    let _ = put.wait();
    assert!(store.stored("large").is_none(), "no half of it has the name");

    let server = store.start(&[]);
    assert_eq!(store.succeed(&server, &["ls", ":"]), "");
    let told = store.succeed(&server, &["put", "--json", "large", ":large"]);
    let end: Value = serde_json::from_str(told.lines().last().expect("an end")).expect("JSON");
    assert!(end["kept"].as_u64() >= Some(8 * MIB as u64), "{end}");
    assert!(store.stored("large").expect("an object") == large);
    assert!(server.requests("part") <= 12.0, "13 parts, one of them is kept");
    assert_eq!(store.journal(), 0, "it is complete");
}

#[test]
fn names_that_a_store_cannot_hold_fail_alone() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let store = Store::new("names");
    let server = store.start(&[]);
    write(&store.here("tree/good"), b"good");
    write(&store.here("tree").join(OsStr::from_bytes(b"not \xff text")), b"bad");
    write(&store.here("tree/line\nbreak"), b"bad");
    let put = store.run(&server, &["put", "tree", ":"]);
    assert_eq!(put.status.code(), Some(1), "{put:?}");
    let told = String::from_utf8_lossy(&put.stderr);
    assert!(told.contains("its name is not UTF-8") && told.contains("control character"), "{told}");
    assert_eq!(fs::read(store.object("tree/good")).expect("an object"), b"good");
    let names = store.succeed(&server, &["ls", ":tree"]);
    assert!(names.contains("good") && names.lines().count() == 1, "{names}");

    // longer than 1024 bytes with the prefix, and a name of the server's own
    let long = ["n".repeat(200).as_str(); 5].join("/");
    let put = store.run(&server, &["put", "tree/good", &format!(":{long}/file-of-a-long-name")]);
    let told = String::from_utf8_lossy(&put.stderr);
    assert!(put.status.code() != Some(0) && told.contains("1024 are possible"), "{put:?}");
    let put = store.run(&server, &["put", "tree/good", ":.headroom/records/x"]);
    let told = String::from_utf8_lossy(&put.stderr);
    assert!(put.status.code() != Some(0) && told.contains("headroom's own"), "{put:?}");
    assert!(!store.object(".headroom/records/x").exists());
}

#[test]
fn a_store_that_refuses_is_said_so_without_a_secret() {
    let store = Store::new("refused");
    for (url, secret, expected) in [
        ("s3://bucket", "hush-wrong", "403"),
        ("s3://nowhere/x", SECRET, "NoSuchBucket"),
        ("ftp://bucket", SECRET, "ftp"),
    ] {
        let output = store.serve(url, secret, &[]).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(expected), "{url}: {output:?}");
        assert!(!told.contains("hush"), "{told}");
    }
    let both = store.serve("s3://bucket", SECRET, &["--root", "."]).output().expect("it starts");
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}
