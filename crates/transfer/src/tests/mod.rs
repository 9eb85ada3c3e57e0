//! Two ends in one process, over the loopback interface.

mod delivery;
mod delta;
mod drain;
mod faults;
mod hostile;
mod hostile_delta;
mod lanes;
mod listed;
mod measurement;
mod outages;
mod parts;
mod ranges;
mod rate;
mod resume;
mod round_trips;
mod several_lanes;
mod shared_uploads;
mod spread;
mod store;
mod sync;
mod thrift;
mod trees;
mod trust;
mod verification;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::client::Trust;
use crate::server::{Allow, Limits, Options, PathPolicy};
use crate::trust::{Access, AccessPolicy, AuthorizedKeys, KnownHosts};
use crate::{Client, Error, Event, Host, Identity, Observer, Server, Summary};

/// A server on a port that the kernel chose, and a client's view of it.
struct Ground {
    folder: tempfile::TempDir,
    server: Identity,
    client: Identity,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["served", "here"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let identity = || Identity::ephemeral().expect("a key");
        Self { folder, server: identity(), client: identity() }
    }

    /// The server's directory.
    fn served(&self, name: &str) -> PathBuf {
        self.folder.path().join("served").join(name)
    }

    /// The client's directory.
    fn here(&self, name: &str) -> PathBuf {
        self.folder.path().join("here").join(name)
    }

    fn options(&self) -> Options {
        let mut keys = AuthorizedKeys::default();
        keys.insert(self.client.public(), Access::default());
        Options {
            root: self.served("").into(),
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
            policy: AccessPolicy { keys, ..AccessPolicy::default() },
            limits: Limits::default(),
            paths: PathPolicy::BeneathRoot,
            rate_bps: None,
            lanes: true,
            lane_ports: None,
            allow: Allow::default(),
            insecure_measurement: false,
            log: None,
        }
    }

    fn start(&self) -> Server {
        start(&self.server, self.options())
    }

    /// Hosts that the client knows: the server at this port.
    fn hosts(&self, host: &Host) -> KnownHosts {
        let mut hosts = self.no_hosts();
        hosts.add(&host.known_as(), self.server.public()).expect("it is written");
        hosts
    }

    fn no_hosts(&self) -> KnownHosts {
        let name = format!("hosts-{:?}", std::thread::current().id());
        let path = self.folder.path().join(name);
        let _ = std::fs::remove_file(&path);
        KnownHosts::read(&path).expect("nothing is there")
    }

    async fn connect(&self, server: &Server) -> Result<Client, Error> {
        let host = host(server);
        let hosts = self.hosts(&host);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        Client::connect(&host, &self.client, trust).await
    }
}

/// Starts a server that ends with the runtime.
fn start(identity: &Identity, options: Options) -> Server {
    let server = Server::bind(identity, options).expect("a port");
    let serving = server.clone();
    tokio::spawn(async move { serving.serve().await });
    server
}

fn host(server: &Server) -> Host {
    let address = server.address().expect("an address");
    Host::new(&address.ip().to_string(), address.port())
}

/// Runs it, and waits for all that it began: a process takes its locks with it when
/// it ends, threads that are left behind do not.
fn run<F: Future>(work: F) -> F::Output {
    let patience = std::time::Duration::from_secs(120);
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.expect("threads");
    let output =
        threads.block_on(async { tokio::time::timeout(patience, work).await.expect("it hangs") });
    threads.shutdown_timeout(patience);
    output
}

/// Notes what happens.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn event(&self, event: Event<'_>) {
        let mut notes = self.0.lock().expect("nobody panicked");
        match event {
            Event::Failed { reason, .. } => notes.push(format!("failed: {reason}")),
            Event::Warning { reason } => notes.push(format!("warning: {reason}")),
            Event::LeftOut { reason } => notes.push(format!("left out: {reason}")),
            Event::Stored { path } => notes.push(format!("stored: {path}")),
            Event::Removed { path } => notes.push(format!("removed: {path}")),
            Event::Planned { path, new, .. } => {
                notes.push(format!("{}: {path}", if new { "new" } else { "changed" }));
            }
            _ => {}
        }
    }
}

impl Notes {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Whether something was said that has all of these words in it.
    fn has(&self, words: &[&str]) -> bool {
        let notes = self.0.lock().expect("nobody panicked");
        notes.iter().any(|note| words.iter().all(|word| note.contains(word)))
    }
}

/// Bytes that do not repeat.
fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_be_bytes()).finalize_xof().fill(&mut content);
    content
}

/// Whether two files have the same content.
fn is_same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).expect("a file") == std::fs::read(other).expect("a file")
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, content).expect("a file");
}

/// All names below a directory with kind, mode, time and content, sorted.
fn tree(root: &Path) -> Vec<(Vec<u8>, String)> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a folder") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("it is there");
            let what = if meta.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).expect("a link").display())
            } else {
                let content = match meta.is_dir() {
                    true => "directory".to_owned(),
                    false => {
                        let content = std::fs::read(&path).expect("a file");
                        format!("{} {}", content.len(), blake3::hash(&content))
                    }
                };
                let (mode, mtime) = (meta.mode(), meta.mtime());
                format!("{content} {mode:o} {mtime}.{}", meta.mtime_nsec())
            };
            if meta.is_dir() {
                left.push(path.clone());
            }
            let name = path.strip_prefix(root).expect("below").as_os_str().as_bytes().to_vec();
            found.push((name, what));
        }
    }
    found.sort();
    found
}
