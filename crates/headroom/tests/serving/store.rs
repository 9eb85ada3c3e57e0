//! `headroom serve --store` over an S3 server of other people (`s3s-fs`) on the loopback interface.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use headroom_testing::exposition;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::common::{Ground, wait_for};
use crate::server::{Server, command, public_key};

pub(crate) const SECRET: &str = "hush-hush";
const MIB: usize = 1 << 20;
/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// An S3 server. The folders of its folder are its buckets.
pub(crate) struct S3 {
    _runtime: Runtime,
    address: SocketAddr,
}

impl S3 {
    pub(crate) fn start(folder: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads");
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
        Self { _runtime: runtime, address }
    }

    /// Gives a command the address and credentials.
    pub(crate) fn introduce(&self, command: &mut Command, secret: &str) {
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.address));
        command.env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "eu-west-1");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", secret);
        command.env_remove("AWS_PROFILE").env_remove("AWS_SESSION_TOKEN");
    }
}

/// A bucket, and a client.
struct Store {
    ground: Ground,
    /// Has the bucket.
    s3: S3,
}

/// A server over the bucket.
struct Serving {
    server: Server,
    metrics: String,
}

impl Store {
    fn new(name: &str) -> Self {
        let ground = Ground::new(name);
        for folder in ["store/bucket", "spool", "here"] {
            fs::create_dir_all(ground.path(folder)).expect("a folder");
        }
        let s3 = S3::start(&ground.path("store"));
        let store = Self { ground, s3 };
        let key = public_key(&store.ground, "client");
        store.ground.write("authorized_keys", &format!("{key} client\n"));
        store
    }

    /// `headroom serve` with the credentials of the bucket.
    fn serve(&self, url: &str, secret: &str, options: &[&str]) -> Command {
        let words = ["serve", "--json", "--listen", "127.0.0.1:0", "--store", url];
        let mut serve = command(&self.ground, "server", &words);
        serve.args(["--metrics", "127.0.0.1:0", "--spool"]).arg(self.ground.path("spool"));
        serve.arg("--authorized-keys").arg(self.ground.path("authorized_keys"));
        serve.arg("--log").arg(self.ground.path("log")).args(options);
        self.s3.introduce(&mut serve, secret);
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
        self.ground.path("store/bucket/some/prefix").join(key)
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
fn content(bytes: usize) -> Vec<u8> {
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
fn a_killed_server_s_upload_goes_on_at_another_one() {
    let store = Store::new("killed");
    let large = content(96 * MIB + 4321);
    write(&store.here("large"), &large);
    // three parts arrive at a time, so the journal has one after a quarter of the minute that all
    // of it takes
    let slow = store.start(&["--rate", "16mbit"]);
    let mut put = store.client(&slow, &["put", "large", ":large"]);
    let mut put = put.stderr(Stdio::null()).spawn().expect("it starts");
    let uploads = store.object(".headroom/uploads");
    let journal = || -> u64 {
        let entries = fs::read_dir(&uploads).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).max().unwrap_or(0)
    };
    wait_for("the journal", || journal() > 0);
    let empty = journal();
    // a part has eight values of 32 bytes
    wait_for("a part in the journal", || journal() >= empty + 8 * 32);
    slow.kill();
    let _ = put.kill();
    let _ = put.wait();
    assert!(!store.object("large").exists(), "no half of it has the name");

    let server = store.start(&[]);
    assert_eq!(store.succeed(&server, &["ls", ":"]), "");
    let told = store.succeed(&server, &["put", "--json", "large", ":large"]);
    let end: Value = serde_json::from_str(told.lines().last().expect("an end")).expect("JSON");
    assert!(end["kept"].as_u64() >= Some(8 * MIB as u64), "{end}");
    assert!(fs::read(store.object("large")).expect("an object") == large);
    assert!(server.requests("part") <= 12.0, "13 parts, one of them is kept");
    assert_eq!(journal(), 0, "it is complete");
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
