//! The local API, asked by programs that are not the page.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_transfer::client::TIMEOUT;
use headroom_transfer::ssh::Ssh;
use headroom_ui::{ConnectOptions, Control, Error, Options, Ui};

const PATIENCE: Duration = Duration::from_secs(20);

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
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(folder.path(), "127.0.0.1:0");
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
