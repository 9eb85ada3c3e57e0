//! Many clients of one server at once: all are served, and none costs much while it does
//! nothing. How evenly they share a link is simulated in `headroom-transfer-proto`
//! (`many_lanes_share_a_link_evenly`): here it would be the machine's scheduler.
//! HEADROOM_CROWD=1000 makes it that many instead of 100, and
//! `--nocapture` shows the figures; 32 of them then fetch HEADROOM_CROWD_MIB each.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headroom_transfer::client::Trust;
use headroom_transfer::server::Options;
use headroom_transfer::trust::{Access, AccessPolicy, AuthorizedKeys, KnownHosts};
use headroom_transfer::{Client, Event, Host, Identity, Observer, Server, block_on};
use tokio::task::JoinSet;

/// What one client may cost while it does nothing: a hundred megabytes for a thousand.
const IDLE_BYTES: u64 = 100_000;
/// What the server says before its address.
const LISTENS: &str = "listening at ";
/// How many fetch a large file at once.
const READERS: usize = 32;
/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn every_client_of_a_crowd_is_served() {
    let crowd = Crowd::new();
    let count = number("HEADROOM_CROWD", 100);
    block_on(async {
        tokio::time::timeout(PATIENCE, crowd.come(count)).await.expect("it hangs");
    })
    .expect("threads");
}

/// The server, in a process of its own so that its memory can be told.
#[test]
#[ignore = "it serves the other test, which starts it"]
fn a_server_alone() {
    let folder = std::env::var("HEADROOM_CROWD_SERVES").expect("the other test says");
    let folder = Path::new(&folder);
    let mut keys = AuthorizedKeys::default();
    let client = Identity::read(&folder.join("client")).expect("a key");
    keys.insert(client.public(), Access::default());
    let policy = AccessPolicy { keys, ..AccessPolicy::default() };
    let any = "127.0.0.1:0".parse().expect("an address");
    let identity = Identity::read(&folder.join("server")).expect("a key");
    block_on(async {
        let options = Options::new(folder.join("served"), any, policy);
        let server = Server::bind(&identity, options).expect("a port");
        println!("\n{LISTENS}{}", server.address().expect("an address"));
        server.serve().await;
    })
    .expect("threads");
}

/// A server of its own process, and the key that all its clients share.
struct Crowd {
    ground: tempfile::TempDir,
    address: SocketAddr,
    server: Child,
}

impl Crowd {
    fn new() -> Self {
        let ground = tempfile::tempdir().expect("a folder");
        for folder in ["served", "back"] {
            std::fs::create_dir(ground.path().join(folder)).expect("a folder");
        }
        let identity = |name| Identity::create(&ground.path().join(name)).expect("a key");
        let (server, _client) = (identity("server"), identity("client"));
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "a_server_alone", "--ignored", "--nocapture"]);
        command.env("HEADROOM_CROWD_SERVES", ground.path()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut lines = stdout.lines().map_while(Result::ok);
        let address: SocketAddr = lines
            .find_map(|line| line.strip_prefix(LISTENS)?.parse().ok())
            .expect("it says where it listens");
        let known = format!("[{}]:{} {}\n", address.ip(), address.port(), server.public());
        std::fs::write(ground.path().join("known_hosts"), known).expect("a file");
        Self { ground, address, server: process }
    }

    async fn come(&self, count: usize) {
        let alone = self.server_bytes("VmRSS");
        let began = Instant::now();
        let clients = self.connect(count).await;
        let took = began.elapsed();
        let idle = self.server_bytes("VmRSS");
        println!(
            "{count} clients came in {:.2} s; the server has {:.1} MB, {:.1} without them: {:.1} kB each",
            took.as_secs_f64(),
            mb(idle),
            mb(alone),
            (idle.saturating_sub(alone)) as f64 / count as f64 / 1e3
        );
        assert!(idle <= alone + count as u64 * IDLE_BYTES, "{idle} bytes, {alone} without them");

        // all put something of their own at once, and fetch it again
        let began = Instant::now();
        let mut moving = JoinSet::new();
        for (n, mut client) in clients.into_iter().enumerate() {
            let (here, back) = (self.path(&format!("of-{n}")), self.path("back"));
            let content = content(n, 100_000 + n);
            std::fs::write(&here, &content).expect("a file");
            moving.spawn(async move {
                let put = client.put(&[here], b"", false, Arc::new(())).await;
                assert_eq!(put.expect("it is sent").stored, 1, "of-{n}");
                let from = [format!("of-{n}").into_bytes()];
                let got = client.get(&from, &back, false, Arc::new(())).await;
                assert_eq!(got.expect("it is fetched").stored, 1, "of-{n}");
                let got = std::fs::read(back.join(format!("of-{n}"))).expect("it is there");
                assert!(got == content, "of-{n} is another");
                client
            });
        }
        let clients = moving.join_all().await;
        println!(
            "each put and fetched a file of some 100 kB in {:.2} s; the server had {:.1} MB at most",
            began.elapsed().as_secs_f64(),
            mb(self.server_bytes("VmHWM"))
        );
        self.share(clients).await;
    }

    /// Some fetch a large file at once: how evenly?
    async fn share(&self, clients: Vec<Client>) {
        let bytes = number("HEADROOM_CROWD_MIB", 4) << 20;
        std::fs::write(self.path("served/large"), content(0, bytes)).expect("a file");
        let moved: Arc<Vec<Moved>> = Arc::new((0..READERS).map(|_| Moved::default()).collect());
        let mut moving = JoinSet::new();
        let began = Instant::now();
        for (n, mut client) in clients.into_iter().take(READERS).enumerate() {
            let (moved, to) = (Arc::clone(&moved), self.path(&format!("back/large-{n}")));
            moving.spawn(async move {
                let observer = Arc::new(Reader { all: moved, own: n });
                let got = client.get(&[b"large".to_vec()], &to, false, observer).await;
                assert_eq!(got.expect("it is fetched").stored, 1);
                std::fs::remove_file(to).expect("it is there");
                began.elapsed().as_secs_f64()
            });
        }
        let first = moving.join_next().await.expect("some fetch").expect("it does not panic");
        let until_then: Vec<f64> =
            moved.iter().map(|moved| moved.0.load(Ordering::Relaxed) as f64).collect();
        let mut rates = vec![bytes as f64 / first];
        while let Some(took) = moving.join_next().await {
            rates.push(bytes as f64 / took.expect("it does not panic"));
        }
        println!(
            "{READERS} fetched {bytes} bytes each: Jain's index {:.3} of their rates, {:.3} of what they had when \
             the first was done; the server had {:.1} MB at most",
            jain(&rates),
            jain(&until_then),
            mb(self.server_bytes("VmHWM"))
        );
    }

    async fn connect(&self, count: usize) -> Vec<Client> {
        let identity = Arc::new(Identity::read(&self.path("client")).expect("a key"));
        let hosts = KnownHosts::read(&self.path("known_hosts")).expect("a file");
        let hosts = Arc::new(hosts);
        let mut coming = JoinSet::new();
        for _ in 0..count {
            let (identity, hosts) = (Arc::clone(&identity), Arc::clone(&hosts));
            let host = Host::new(&self.address.ip().to_string(), self.address.port());
            coming.spawn(async move {
                let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
                let mut client =
                    Client::connect(&host, &identity, trust).await.expect("it comes in");
                client.list(b"", |_| {}).await.expect("it may look");
                client
            });
        }
        coming.join_all().await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.path().join(name)
    }

    /// `VmRSS`, what it has, or `VmHWM`, the most that it had.
    fn server_bytes(&self, field: &str) -> u64 {
        let status = format!("/proc/{}/status", self.server.id());
        let status = std::fs::read_to_string(status).expect("it runs");
        let line = status.lines().find(|line| line.starts_with(field)).expect("the field");
        let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        kib.expect("a number") * 1024
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What one reader has.
#[derive(Default)]
struct Moved(AtomicU64);

struct Reader {
    all: Arc<Vec<Moved>>,
    own: usize,
}

impl Observer for Reader {
    fn event(&self, event: Event<'_>) {
        if let Event::Moved { bytes } = event {
            self.all[self.own].0.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// 1 where all have the same, 1/n where one has all (Jain, Chiu and Hawe 1984).
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

fn content(seed: usize, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut content);
    content
}

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
