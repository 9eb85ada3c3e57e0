//! An S3 server of other people, versitygw, on loopback.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::parts;

/// How long the server may take to be ready.
const READY: Duration = Duration::from_secs(60);

/// Returns the program that `scripts/fetch-parts versitygw` builds, or nothing where it is
/// missing: the test is skipped then.
///
/// # Panics
/// It is missing, and tests are required (`CI`, `HEADROOM_TESTS=required`).
pub fn versitygw() -> Option<PathBuf> {
    parts::built("versitygw")
}

/// A server whose buckets are folders. It ends when this is dropped.
#[derive(Debug)]
pub struct Versitygw {
    process: Child,
    address: SocketAddr,
}

impl Versitygw {
    /// Starts a server that keeps its buckets in `FOLDER/store`, which must exist, and what it
    /// knows of their objects in `FOLDER/sidecar`. It has an address of its own below 127.0.0.0/8,
    /// which no other process uses.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(program: &Path, folder: &Path, key: &str, secret: &str, region: &str) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let port = 7070 + NEXT.fetch_add(1, Ordering::Relaxed);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // a process has at most 22 bits of an ID; NATS servers differ in the two above
        let address = SocketAddr::from((Ipv4Addr::new(127, high & 63, middle, low), port));
        let sidecar = folder.join("sidecar");
        std::fs::create_dir_all(&sidecar).expect("a folder");
        let log = folder.join("versitygw.log");
        let output = || Stdio::from(File::options().append(true).open(&log).expect("a file"));
        File::create(&log).expect("a file");
        let mut command = Command::new(program);
        // variables of the environment would be settings of it
        command.env_clear().env("HOME", folder).stdin(Stdio::null());
        command.stdout(output()).stderr(output());
        command.arg("--port").arg(address.to_string()).args(["--access", key, "--secret", secret]);
        command.args(["--region", region, "--quiet", "posix", "--sidecar"]).arg(&sidecar);
        command.arg(folder.join("store"));
        let process = command.spawn().expect("it starts");
        let mut server = Self { process, address };
        server.wait(&log);
        server
    }

    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it listens.
    fn wait(&mut self, log: &Path) {
        let deadline = Instant::now() + READY;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.process.try_wait();
            assert!(
                Instant::now() < deadline && matches!(ended, Ok(None)),
                "versitygw is not ready: {ended:?}, {}",
                std::fs::read_to_string(log).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Versitygw {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
