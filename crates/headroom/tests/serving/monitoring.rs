//! What watches a server sees (metrics and health), and how a server ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use headroom_testing::exposition::{self, Sample};
use headroom_testing::retried;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Ground, wait_for};
use crate::server::{Server, command, public_key, serve};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with metrics, and a client that it accepts.
struct Watched {
    server: Server,
    ground: Ground,
    /// Where its metrics are.
    metrics: String,
}

impl Watched {
    fn start(name: &str, options: &[&str]) -> Self {
        let ground = Ground::new(name);
        fs::create_dir(ground.path("served")).expect("a folder");
        let key = public_key(&ground, "client");
        ground.write("authorized_keys", &format!("{key} a-comment\n"));
        let mut command = serve(&ground, &["--metrics", "127.0.0.1:0"]);
        command.args(options).env("NOTIFY_SOCKET", ground.path("notify"));
        let mut server = Server::start(command);
        let told = server.event("metrics");
        let metrics = told["address"].as_str().expect("an address").to_owned();
        assert_eq!(told["url"], format!("http://{metrics}/metrics"));
        Self { server, ground, metrics }
    }

    fn place(&self, path: &str) -> String {
        self.server.place(path)
    }

    /// A command of the client that trusts the server.
    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.ground, "client", arguments);
        command.args(["--fingerprint", &self.server.fingerprint]);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.client(arguments).output().expect("it starts")
    }

    /// Starts to send standard input, and waits until the server knows.
    fn put_endless(&self) -> Child {
        let mut put = self.client(&["put", "-", &self.place("endless")]);
        let put = put.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        wait_for("the transfer", || self.value("transfers", &[("direction", "received")]) == 1.0);
        put
    }

    /// Asks for a path; returns the first line of the answer, and the body.
    fn ask(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.metrics).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.metrics);
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it ends");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
    }

    fn metrics(&self) -> Vec<Sample> {
        let (status, body) = self.ask("/metrics");
        assert!(status.contains(" 200 "), "{status}");
        exposition::metrics(&body)
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        exposition::value(&self.metrics(), &format!("headroom_serve_{name}"), labels)
    }

    /// Lets the server drain, and waits until it does.
    fn drain(&mut self) -> Value {
        self.server.signal(Signal::SIGTERM);
        self.server.event("draining")
    }

    /// Waits until the server has ended; returns its exit code.
    fn end(&mut self) -> Option<i32> {
        let mut code = None;
        wait_for("the end of the server", || {
            code = self.server.ended();
            code.is_some()
        });
        code.and_then(|status| status.code())
    }
}

/// Ends the standard input of a command, and waits for its end.
fn finish(mut put: Child, last: &[u8]) -> Output {
    let mut stdin = put.stdin.take().expect("it is piped");
    let _ = stdin.write_all(last);
    drop(stdin);
    put.wait_with_output().expect("it ends")
}

#[test]
fn metrics_follow_what_a_server_does() {
    let watched = Watched::start("metrics", &[]);
    let own = watched.ground.path("secret-name").display().to_string();
    fs::write(&own, vec![7; 70_000]).expect("a file");
    let received = [("direction", "received")];
    assert_eq!(watched.value("transferred_bytes_total", &received), 0.0);
    assert_eq!(watched.ask("/healthz"), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));

    let put = watched.run(&["put", &own, &watched.place("")]);
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    let back = watched.ground.path("back").display().to_string();
    let got = watched.run(&["get", &watched.place("secret-name"), &back]);
    assert_eq!(got.status.code(), Some(0), "{got:?}");
    let missing = watched.run(&["ls", &watched.place("missing")]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    let stranger = watched.place("");
    let mut stranger = command(&watched.ground, "stranger", &["ls", &stranger]);
    let stranger = stranger.args(["--fingerprint", &watched.server.fingerprint]).output();
    assert_eq!(stranger.expect("it starts").status.code(), Some(5));

    // a client ends before the server has counted what it did
    for (name, labels, expected) in [
        ("requests_total", &[("operation", "put"), ("outcome", "done")][..], 1.0),
        ("requests_total", &[("operation", "get"), ("outcome", "done")], 1.0),
        ("requests_total", &[("operation", "ls"), ("outcome", "failed")], 1.0),
        ("requests_total", &[("operation", "ls"), ("outcome", "done")], 0.0),
        ("transferred_bytes_total", &[("direction", "received")], 70_000.0),
        ("transferred_bytes_total", &[("direction", "sent")], 70_000.0),
        ("stored_files_total", &[("direction", "received")], 1.0),
        ("stored_files_total", &[("direction", "sent")], 1.0),
        ("failed_files_total", &[("direction", "sent")], 0.0),
        ("transfers", &[("direction", "received")], 0.0),
        ("sessions", &[], 0.0),
        ("sessions_started_total", &[], 3.0),
        ("rejections_total", &[("reason", "failed_handshake")], 1.0),
        ("draining", &[], 0.0),
    ] {
        wait_for(&format!("{name} {labels:?}"), || watched.value(name, labels) == expected);
    }
    let (_, text) = watched.ask("/metrics");
    for secret in ["secret-name", "a-comment", "SHA256:", "127.0.0.1"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn sigterm_lets_a_running_transfer_finish_and_refuses_others() {
    let mut watched = Watched::start("drain", &[]);
    let put = watched.put_endless();
    let manager = UnixDatagram::bind(watched.ground.path("notify")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");

    let draining = watched.drain();
    assert_eq!((&draining["transfers"], &draining["seconds"]), (&1.into(), &25.0.into()));
    let mut told = [0; 128];
    let bytes = retried(|| manager.recv(&mut told)).expect("it says so");
    assert_eq!(&told[..bytes], b"STOPPING=1\nEXTEND_TIMEOUT_USEC=35000000\n");
    let (status, body) = watched.ask("/healthz");
    assert!(status.contains(" 503 ") && body == "draining\n", "{status}");
    assert_eq!(watched.value("draining", &[]), 1.0);
    let refused = watched.run(&["ls", &watched.place("")]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("the server is shutting down"), "{text}");
    assert_eq!(watched.value("rejections_total", &[("reason", "draining")]), 1.0);
    assert_eq!(watched.value("transfers", &[("direction", "received")]), 1.0);

    let put = finish(put, b"all of it");
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert_eq!(watched.end(), Some(0));
    let stored = watched.ground.path("served/endless");
    assert_eq!(fs::read(stored).expect("a file"), b"all of it");
}

#[test]
fn a_second_sigterm_ends_running_transfers() {
    let mut watched = Watched::start("drain-twice", &["--drain", "1000s"]);
    let put = watched.put_endless();
    watched.drain();
    assert!(watched.server.ended().is_none());
    watched.server.signal(Signal::SIGTERM);
    assert_eq!(watched.end(), Some(0));
    let put = finish(put, b"too late");
    assert_eq!(put.status.code(), Some(3), "{put:?}");
    assert!(!watched.ground.path("served/endless").exists());
}

#[test]
fn transfers_that_run_longer_than_a_server_drains_are_interrupted() {
    let mut watched = Watched::start("drain-limit", &["--drain", "100ms"]);
    let put = watched.put_endless();
    watched.drain();
    assert_eq!(watched.end(), Some(0));
    let put = finish(put, b"too late");
    assert_eq!(put.status.code(), Some(3), "{put:?}");
}

#[test]
fn without_transfers_sigterm_ends_a_server_at_once_and_with_them_sigint_does() {
    for (name, signal) in [("term", Signal::SIGTERM), ("int", Signal::SIGINT)] {
        let mut watched = Watched::start(name, &["--drain", "1000s"]);
        let put = (signal == Signal::SIGINT).then(|| watched.put_endless());
        watched.server.signal(signal);
        assert_eq!(watched.end(), Some(0), "{signal}");
        if let Some(put) = put {
            assert_eq!(finish(put, b"").status.code(), Some(3));
        }
    }
}

#[test]
fn metrics_at_an_address_that_others_reach_come_with_a_warning() {
    let ground = Ground::new("metrics-warning");
    let log = ground.path("log");
    let words = ["serve", "--listen", "127.0.0.1:0", "--anonymous", "read", "--root", "."];
    for (address, warns) in [("127.0.0.1:0", false), ("[::1]:0", false), ("0.0.0.0:0", true)] {
        let mut serve = command(&ground, "server", &words);
        serve.args(["--metrics", address]).stdout(Stdio::piped());
        serve.stderr(fs::File::create(&log).expect("a file"));
        let mut server = serve.spawn().expect("it starts");
        let mut lines = BufReader::new(server.stdout.take().expect("it is piped")).lines();
        let told = lines.nth(1).and_then(Result::ok).unwrap_or_default();
        let _ = server.kill();
        let _ = server.wait();
        assert!(told.starts_with("metrics are at http://"), "{told}");
        let logged = fs::read_to_string(&log).expect("the log");
        assert_eq!(logged.contains("without a key"), warns, "{address}: {logged}");
    }
}
