//! NATS servers on loopback, one or a cluster.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::parts;

/// How long servers may take to be ready.
const READY: Duration = Duration::from_secs(60);

/// Returns the program that `scripts/fetch-parts nats-server` fetches, or nothing where it is
/// missing: the test is skipped then.
///
/// # Panics
/// It is missing, and tests are required (`CI`, `HEADROOM_TESTS=required`).
pub fn nats_server() -> Option<PathBuf> {
    parts::program("nats-server", "root/usr/bin/nats-server")
}

/// Servers that keep what they have in a folder. They end when this is dropped.
#[derive(Debug)]
pub struct NatsServers {
    program: PathBuf,
    folder: PathBuf,
    addresses: Vec<Ipv4Addr>,
    port: u16,
    processes: Vec<Option<Child>>,
}

impl NatsServers {
    /// Starts so many servers, as a cluster if there are several. Each has an address of its own
    /// below 127.0.0.0/8, which no other process uses.
    ///
    /// # Panics
    /// They do not start.
    pub fn start(program: &Path, folder: &Path, count: u8) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let port = 4222 + NEXT.fetch_add(1, Ordering::Relaxed);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // a process has at most 22 bits of an ID; the servers of a cluster differ in the two above
        let address = |n: u8| Ipv4Addr::new(127, (high & 63) | ((n + 1) << 6), middle, low);
        let mut servers = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            addresses: (0..count.min(3)).map(address).collect(),
            port,
            processes: Vec::new(),
        };
        for n in 0..servers.addresses.len() {
            let process = servers.spawn(n);
            servers.processes.push(Some(process));
        }
        for n in 0..servers.addresses.len() {
            servers.wait_for(n);
        }
        servers
    }

    /// Returns the servers' addresses, as a list of TOML has them.
    pub fn list(&self) -> String {
        let port = self.port;
        let addresses: Vec<_> =
            self.addresses.iter().map(|ip| format!("\"nats://{ip}:{port}\"")).collect();
        format!("[{}]", addresses.join(", "))
    }

    /// Returns how many servers there are.
    pub const fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns the number of a server by its name.
    ///
    /// # Panics
    /// No server has the name.
    pub fn number_of(&self, name: &str) -> usize {
        let names = (0..self.addresses.len()).map(name_of);
        names.zip(0..).find(|(other, _)| other == name).expect("a server").1
    }

    /// Kills a server by SIGKILL.
    ///
    /// # Panics
    /// It was killed before.
    pub fn kill(&mut self, n: usize) {
        let mut process = self.processes[n].take().expect("it lives");
        process.kill().expect("it lives");
        process.wait().expect("it ends");
    }

    /// Starts a server again that was killed.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self, n: usize) {
        let process = self.spawn(n);
        self.processes[n] = Some(process);
        self.wait_for(n);
    }

    /// Returns what a server's monitoring has at a path; nothing if it does not answer.
    pub fn monitor(&self, n: usize, path: &str) -> Option<String> {
        let address = (self.addresses[n], self.monitoring());
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: nats\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
    }

    const fn monitoring(&self) -> u16 {
        self.port + 4000
    }

    fn spawn(&self, n: usize) -> Child {
        let (name, address, port) = (name_of(n), self.addresses[n], self.port);
        let at = |file: &str| self.folder.join(format!("{name}{file}"));
        let mut config = format!(
            "server_name: {name}\nlisten: \"{address}:{port}\"\nhttp: \"{address}:{}\"\n\
             jetstream {{ store_dir: \"{}\", max_mem: 64M, max_file: 1G }}\n",
            self.monitoring(),
            at("").display(),
        );
        if self.addresses.len() > 1 {
            let routes: Vec<_> = self
                .addresses
                .iter()
                .map(|ip| format!("\"nats://{ip}:{}\"", port + 2000))
                .collect();
            let _ = writeln!(
                config,
                "cluster {{ name: test, listen: \"{address}:{}\", routes: [{}] }}",
                port + 2000,
                routes.join(", ")
            );
        }
        std::fs::write(at(".conf"), config).expect("a file");
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(at(".conf")).arg("--log").arg(at(".log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    }

    /// Waits until a server serves streams.
    fn wait_for(&mut self, n: usize) {
        let deadline = Instant::now() + READY;
        let what = "/healthz?js-enabled-only=true";
        while self.monitor(n, what).is_none() {
            let ended = self.processes[n].as_mut().map(Child::try_wait);
            assert!(
                Instant::now() < deadline && matches!(ended, Some(Ok(None))),
                "{} is not ready: {ended:?}",
                name_of(n)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn name_of(n: usize) -> String {
    format!("nats{n}")
}
