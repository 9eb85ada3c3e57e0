//! The local API, asked by programs that are not the page.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_fleet::{
    Checkpoint, CopiedFile, DirectoryKey, Engine, Entry, Job, Kind, Outcome, Phase, Settlement,
    Sqlite, State, StateFolder, now_ms,
};
use headroom_transfer::Time;
use headroom_transfer::client::TIMEOUT;
use headroom_transfer::files::Requests;
use headroom_transfer::path::RelPath;
use headroom_transfer::ssh::Ssh;
use headroom_ui::{ConnectOptions, Control, Error, FleetOptions, Options, Ui};

const PATIENCE: Duration = Duration::from_secs(60);

fn options(folder: &Path, address: &str) -> Options {
    let connect = ConnectOptions {
        identity: folder.join("identity"),
        known_hosts: folder.join("known_hosts"),
        resolve: |host| Ok((host.clone(), None)),
        suggest: Vec::new,
        ssh: Ssh::default(),
        timeout: TIMEOUT,
    };
    Options {
        address: address.parse().expect("an address"),
        connect,
        servers: Vec::new(),
        folder: folder.to_owned(),
        program: PathBuf::from("/nonexistent"),
        fleets: FleetOptions { states: Some(folder.join("states")), jobs: Vec::new() },
    }
}

/// A server in a thread, until it is dropped.
struct Ground {
    folder: tempfile::TempDir,
    address: SocketAddr,
    token: String,
    control: Control,
    serving: Option<std::thread::JoinHandle<()>>,
}

impl Ground {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(folder.path(), "127.0.0.1:0");
        change(&mut options);
        let (sender, receiver) = std::sync::mpsc::channel();
        let serving = std::thread::spawn(move || {
            let served = headroom_transfer::block_on(async {
                let ui = Ui::bind(options).await.expect("it listens");
                sender.send((ui.address(), ui.url(), ui.control())).expect("the test waits");
                ui.serve().await;
            });
            served.expect("threads");
        });
        let (address, url, control) = receiver.recv_timeout(PATIENCE).expect("it starts");
        let (_, token) = url.split_once("#token=").expect("a token");
        Self { folder, address, token: token.to_owned(), control, serving: Some(serving) }
    }

    /// Sends a request as it stands; returns the status, the head and the body.
    fn ask(&self, request: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // it may answer and close before it has read all
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> (u16, String, String) {
        let (address, length) = (self.address, body.len());
        let host =
            if headers.contains("host:") { String::new() } else { format!("host: {address}\r\n") };
        let request = format!(
            "POST {path} HTTP/1.1\r\n{host}{headers}connection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.ask(request.as_bytes())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(
            format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address)
                .as_bytes(),
        )
    }

    /// Opens the WebSocket of events.
    fn events(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!(
            "GET /api/events HTTP/1.1\r\nhost: {0}\r\norigin: http://{0}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.address
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        let token = serde_json::json!({"token": self.token}).to_string();
        // a text of less than 126 bytes, masked with zeros
        let length = u8::try_from(token.len()).expect("a short text");
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0][..], token.as_bytes()].concat();
        stream.write_all(&frame).expect("it reads");
        stream
    }

    fn bearer(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.token)
    }

    fn call(&self, name: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
        let (status, _, body) =
            self.post(&format!("/api/{name}"), &self.bearer(), &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// A path of the folder as the page writes it.
    fn path(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.to_str().expect("a text").trim_start_matches('/').to_owned()
    }
}

/// Reads the content of a WebSocket's next frame (RFC 6455, section 5.2).
fn frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a frame");
    let mut length = [0; 8];
    let more = match head[1] {
        126 => 2,
        127 => 8,
        short => {
            length[7] = short;
            0
        }
    };
    stream.read_exact(&mut length[8 - more..]).expect("a length");
    let length = usize::try_from(u64::from_be_bytes(length)).expect("a length");
    let mut content = vec![0; length];
    stream.read_exact(&mut content).expect("all of it");
    content
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.control.quit();
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

#[test]
fn refuses_to_listen_where_other_machines_reach_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let bound = headroom_transfer::block_on(Ui::bind(options(folder.path(), address)));
        assert!(matches!(bound.expect("threads"), Err(Error::NotLoopback(_))), "{address}");
    }
}

#[test]
fn answers_nothing_without_the_token() {
    let ground = Ground::new();
    let names = [
        "list",
        "make-directory",
        "rename",
        "remove",
        "read",
        "copy",
        "sync",
        "transfer",
        "files",
        "clear",
        "limit",
        "connect",
        "disconnect",
        "fleet",
        "lab",
        "status",
        "quit",
        "nothing",
    ];
    for name in names {
        let path = format!("/api/{name}");
        assert_eq!(ground.post(&path, "", "{}").0, 401, "{name}");
        let wrong = format!("authorization: Bearer {}A\r\n", &ground.token[..42]);
        assert!(
            wrong.contains(&ground.token) || ground.post(&path, &wrong, "{}").0 == 401,
            "{name}"
        );
        assert_eq!(
            ground.post(&format!("{path}?token={}", ground.token), "", "{}").0,
            401,
            "{name}"
        );
        let twice = format!("{0}{0}", ground.bearer());
        assert_eq!(ground.post(&path, &twice, "{}").0, 401, "{name}");
        assert_eq!(ground.get(&path).0, 405, "{name}");
    }
    let (status, answer) = ground.call("status", &serde_json::json!({}));
    assert_eq!(status, 200);
    assert!(answer["refused"]["wrong_token"].as_u64() >= Some(50), "{answer}");
    for path in ["/report/x", "/report/", "/etc/passwd", "/../../etc/passwd", "/plans/demo.toml"] {
        assert_eq!(ground.get(path).0, 404, "{path}");
    }
    // the page itself has no secret
    let (status, head, body) = ground.get("/");
    assert_eq!(status, 200);
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'; "),
        "{head}"
    );
    assert!(body.contains("ui.js") && !body.contains("app.js") && !body.contains(&ground.token));
}

#[test]
fn refuses_foreign_names_and_origins() {
    let ground = Ground::new();
    let (own, bearer) = (ground.address, ground.bearer());
    for host in ["evil.example", "127.0.0.1", "evil.example:80", "[::1]:1", ""] {
        let headers = format!("host: {host}\r\n{bearer}");
        assert_eq!(ground.post("/api/status", &headers, "{}").0, 421, "{host}");
    }
    assert_eq!(
        ground.post("/api/status", &format!("host: {own}\r\nhost: {own}\r\n{bearer}"), "{}").0,
        400
    );
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        let (status, head, _) =
            ground.post("/api/status", &format!("origin: {origin}\r\n{bearer}"), "{}");
        assert_eq!(status, 403, "{origin}");
        assert!(!head.contains("access-control"), "{head}");
    }
    let own = format!("origin: http://{own}\r\nsec-fetch-site: same-origin\r\n{bearer}");
    assert_eq!(ground.post("/api/status", &own, "{}").0, 200);
    assert_eq!(
        ground.post("/api/status", &format!("sec-fetch-site: cross-site\r\n{bearer}"), "{}").0,
        403
    );
}

#[test]
fn refuses_large_bodies_and_malformed_calls() {
    let ground = Ground::new();
    let large = format!(
        "POST /api/list HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\ncontent-length: 99999999\r\n\r\n",
        ground.address,
        ground.bearer()
    );
    let mut large = large.into_bytes();
    large.resize(large.len() + (5 << 20), b' ');
    assert!(matches!(ground.ask(&large).0, 413 | 0), "closed before all was read");
    let long =
        format!("GET / HTTP/1.1\r\nhost: {}\r\nx: {}\r\n\r\n", ground.address, "x".repeat(20_000));
    assert!(matches!(ground.ask(long.as_bytes()).0, 431 | 0));
    for body in [
        "",
        "[]",
        "null",
        "{\"place\":\"local\"}",
        "{\"place\":\"local\",\"path\":\"a\",\"more\":1}",
        "{\"place\":\"local\",\"path\":\"..\"}",
        "{\"place\":\"local\",\"path\":\"\\ud800\"}",
    ] {
        assert_eq!(ground.post("/api/list", &ground.bearer(), body).0, 400, "{body}");
    }
    let (_, answer) = ground.call("list", &serde_json::json!({"place": "nas", "path": ""}));
    assert_eq!(answer["code"], "not-found");
    for garbage in
        [&b"\0\0\0\0"[..], b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
    {
        // it closes, and answers others
        let mut stream = TcpStream::connect(ground.address).expect("it listens");
        let _ = stream.write_all(garbage);
    }
    assert_eq!(ground.call("status", &serde_json::json!({})).0, 200);
}

#[test]
fn events_show_all_transfers_however_many_bytes_they_take() {
    let ground = Ground::with(|options| {
        options.servers.push("nas".to_owned());
        options.connect.resolve = |_| Err("nobody is there".to_owned());
    });
    let name = "x".repeat(4_000_000);
    let labels = serde_json::json!({"name": name, "more": 0, "source": "", "destination": ""});
    for _ in 0..3 {
        let copy = serde_json::json!({"server": "nas", "upload": true, "from": ["a"], "to": "", "labels": labels});
        assert_eq!(ground.call("copy", &copy).0, 200);
    }
    let mut events = ground.events();
    let greeting = String::from_utf8(frame(&mut events)).expect("a text");
    assert!(greeting.contains("\"program\":"), "{greeting}");
    assert!(frame(&mut events).len() > 12_000_000);
}

#[test]
fn renames_and_removes_without_surprises() {
    let ground = Ground::new();
    let folder = ground.folder.path();
    std::fs::write(folder.join("a"), "a").expect("a file");
    std::fs::write(folder.join("b"), "b").expect("a file");
    std::fs::create_dir(folder.join("kept")).expect("a folder");
    std::fs::write(folder.join("kept/c"), "c").expect("a file");
    std::fs::create_dir(folder.join("gone")).expect("a folder");
    std::os::unix::fs::symlink(folder.join("kept"), folder.join("gone/link")).expect("a link");
    let rename =
        serde_json::json!({"place": "local", "from": ground.path("a"), "to": ground.path("b")});
    assert_eq!(ground.call("rename", &rename).1["code"], "exists");
    assert_eq!(std::fs::read(folder.join("b")).expect("it is there"), b"b");
    let remove = |name: &str, recursive: bool| {
        ground.call(
            "remove",
            &serde_json::json!({"place": "local", "path": name, "recursive": recursive}),
        )
    };
    assert_eq!(remove(&ground.path("gone"), false).0, 422, "it is not empty");
    assert_eq!(remove(&ground.path("gone"), true).0, 200);
    assert!(folder.join("kept/c").exists() && !folder.join("gone").exists());
    assert_eq!(remove("", true).1["message"], "the root cannot be removed");
    let read = serde_json::json!({"place": "local", "path": ground.path("kept/c"), "offset": 0, "length": 9});
    let (_, head, body) = ground.post("/api/read", &ground.bearer(), &read.to_string());
    assert!(head.contains("application/octet-stream") && head.contains("nosniff"), "{head}");
    assert_eq!(body, "c");
}

#[test]
fn opens_reports_in_a_sandbox_by_an_address_that_nobody_guesses() {
    let ground = Ground::new();
    let run = ground.folder.path().join("results/demo-1");
    std::fs::create_dir_all(&run).expect("a folder");
    std::fs::write(run.join("report.html"), "<h1>a report</h1>").expect("a file");
    std::fs::write(ground.folder.path().join("report.html"), "not one").expect("a file");
    let (_, listed) = ground.call("lab", &serde_json::json!({"action": "list"}));
    assert_eq!(listed["runs"][0]["name"], "demo-1", "{listed}");
    for name in ["", ".", "..", "../results/demo-1", "demo-2"] {
        let (status, _) = ground.call("lab", &serde_json::json!({"action": "report", "run": name}));
        assert_eq!(status, 422, "{name}");
    }
    let (_, answer) = ground.call("lab", &serde_json::json!({"action": "report", "run": "demo-1"}));
    let path = answer["path"].as_str().expect("an address").to_owned();
    assert!(path.len() > 50 && !path.contains(&ground.token), "{path}");
    let (status, head, body) = ground.get(&path);
    assert_eq!((status, &*body), (200, "<h1>a report</h1>"));
    assert!(
        head.contains("content-security-policy: sandbox allow-scripts; default-src 'none';"),
        "{head}"
    );
    assert!(!head.contains("allow-same-origin"));
}

/// Begins a job of four files in the folder of states, and lists it.
fn begin_fleet(ground: &Ground) -> Sqlite {
    let folder = ground.folder.path();
    let file = folder.join("archive.toml");
    let text = "name = \"archive\"\nfrom = \"/data\"\nto = \"host:there\"\nattempts = 1\nrate = \"8mbit\"\n[batch]\nfiles = 2\n";
    std::fs::write(&file, text).expect("a file");
    let job = Job::read(&file).expect("a job");
    let state = StateFolder::new(folder.join("states/archive"));
    let lock = state.lock().expect("nobody has it");
    let mut engine = state.begin(&lock, &job, &file).expect("a state");
    let first = engine.begin_listing().expect("it begins");
    let entry = |number: u64| {
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let kind = Kind::File { size: 1000, mode: 0o644, mtime, ranges: 0 };
        let path = RelPath::parse(format!("file-{number}").as_bytes()).expect("a path");
        Entry { number, path, kind }
    };
    let entries: Vec<_> = (first..first + 4).map(entry).collect();
    for entries in entries.chunks(2) {
        engine.stage(entries).expect("it is staged");
    }
    let root = [DirectoryKey::of(None)];
    let checkpoint = Checkpoint {
        listed: &root,
        next_number: first + 4,
        files: 4,
        bytes: 4000,
        is_complete: true,
        ..Checkpoint::default()
    };
    engine.checkpoint(&checkpoint).expect("a checkpoint");
    engine
}

#[test]
fn shows_the_jobs_of_fleets_and_steers_them() {
    let ground = Ground::new();
    let jobs = || {
        let (status, answer) = ground.call("fleet", &serde_json::json!({"action": "list"}));
        assert_eq!(status, 200, "{answer}");
        answer["jobs"].as_array().expect("a list").clone()
    };
    assert!(jobs().is_empty());
    let mut engine = begin_fleet(&ground);
    engine.beat("host.1", None, 0, now_ms()).expect("orders");
    let item = engine.take("host.1", now_ms()).expect("an answer").expect("an item");
    let job = jobs().remove(0);
    let id = job["id"].as_str().expect("an id").to_owned();
    assert!(id.ends_with("/states/archive"), "{job}");
    for (key, value) in [("name", "archive"), ("to", "host:there"), ("state", "copying")] {
        assert_eq!(job[key], value, "{job}");
    }
    assert_eq!((&job["files"], &job["bytes"]), (&4.into(), &4000.into()), "{job}");
    assert_eq!(job["limit"], "8 Mbit/s", "{job}");
    let worker = &job["workers"][0];
    assert_eq!((&worker["name"], &worker["item"]), (&"host.1".into(), &true.into()), "{job}");

    // one file is copied, the other one fails alone, and is set aside
    let copied = |entry: &Entry| CopiedFile {
        number: entry.number,
        path: entry.path.clone(),
        size: 1000,
        hash: Some([7; 32]),
    };
    let settlement = Settlement {
        copied: vec![copied(&item.entries[0])],
        left: vec![item.entries[1].clone()],
        vanished: 0,
        outcome: Outcome::Failed("<b>file-1</b> cannot be read".to_owned()),
        requests: Requests::default(),
    };
    assert!(engine.settle(item.lease, &settlement, now_ms()).expect("an answer"));
    let job = jobs().remove(0);
    assert_eq!((&job["copied_files"], &job["aside"]), (&1.into(), &1.into()), "{job}");
    assert_eq!(job["reasons"], serde_json::json!(["<b>file-1</b> cannot be read"]), "{job}");

    let steer = |body: serde_json::Value| ground.call("fleet", &body);
    let act = |action: &str| steer(serde_json::json!({"action": action, "id": id}));
    assert_eq!(act("pause").0, 200);
    assert_eq!(engine.control().expect("control").state, State::Paused);
    assert_eq!(jobs()[0]["state"], "paused");
    assert_eq!(act("resume").0, 200);
    assert_eq!(engine.control().expect("control").state, State::Running);
    let rate = |rate: &str| steer(serde_json::json!({"action": "rate", "id": id, "rate": rate}));
    assert_eq!(rate("100mbit").0, 200);
    assert_eq!(engine.control().expect("control").rate_bps, Some(100_000_000));
    let (status, answer) = rate("fast");
    assert_eq!((status, &answer["code"]), (422, &"usage".into()), "{answer}");
    assert_eq!(rate("none").0, 200);
    assert_eq!(engine.control().expect("control").rate_bps, None);
    assert_eq!(act("cancel").0, 200);
    let control = engine.control().expect("control");
    assert_eq!((control.state, control.phase), (State::Cancelled, Phase::Copying));
    let (status, answer) = act("resume");
    assert_eq!(status, 422, "{answer}");
    assert!(answer["message"].as_str().is_some_and(|it| it.contains("cancelled")), "{answer}");
    assert_eq!(jobs()[0]["state"], "cancelled");
}

#[test]
fn steers_no_job_but_those_that_it_lists() {
    let ground = Ground::new();
    drop(begin_fleet(&ground));
    let folder = ground.folder.path();
    // beside the folder of states, and by a link in it
    std::fs::rename(folder.join("states/archive"), folder.join("elsewhere")).expect("a folder");
    std::os::unix::fs::symlink("../elsewhere", folder.join("states/archive")).expect("a link");
    let (_, answer) = ground.call("fleet", &serde_json::json!({"action": "list"}));
    assert_eq!(answer["jobs"], serde_json::json!([]));
    for id in ["archive", "states/archive", "../elsewhere", "elsewhere", ""] {
        for id in [id.to_owned(), folder.join(id).display().to_string()] {
            let pause = serde_json::json!({"action": "pause", "id": id});
            let (status, answer) = ground.call("fleet", &pause);
            assert_eq!((status, &answer["code"]), (422, &"not-found".into()), "{id}: {answer}");
        }
    }
    for body in [
        serde_json::json!({"action": "remove", "id": "x"}),
        serde_json::json!({"action": "pause"}),
        serde_json::json!({"action": "list", "path": "/"}),
        serde_json::json!({"action": "rate", "id": "x", "rate": 5}),
    ] {
        assert_eq!(ground.call("fleet", &body).0, 400, "{body}");
    }
}

#[test]
fn names_a_job_whose_state_cannot_be_read() {
    let ground = Ground::new();
    let folder = ground.folder.path().join("states/broken");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("fleet.sqlite"), [b'x'; 5000]).expect("a file");
    let (_, answer) = ground.call("fleet", &serde_json::json!({"action": "list"}));
    let job = &answer["jobs"][0];
    assert_eq!((&job["name"], &job["state"]), (&"broken".into(), &"unknown".into()), "{answer}");
    let message = job["error"]["message"].as_str().expect("a sentence");
    assert!(message.contains("it is not a database"), "{message}");
}

#[test]
fn job_files_that_cannot_be_read_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("job.toml");
    std::fs::write(&file, "name = \"job\"\nto = 5\n").expect("a file");
    let mut options = options(folder.path(), "127.0.0.1:0");
    options.fleets.jobs = vec![file];
    let bound = headroom_transfer::block_on(Ui::bind(options)).expect("threads");
    match bound {
        Err(Error::Fleet(reason)) => assert!(reason.contains("job.toml:2"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
