//! A third-party program that serves on loopback for one test.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long it may take to be ready.
const READY: Duration = Duration::from_secs(60);

/// A program that listens. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts a program that is told to listen at this address, and waits until it does. The file
    /// `log` gets what it prints.
    ///
    /// # Panics
    /// It does not start.
    pub(crate) fn start(command: &mut Command, address: SocketAddr, log: &Path) -> Self {
        let output = || Stdio::from(File::options().append(true).open(log).expect("a file"));
        File::create(log).expect("a file");
        command.stdin(Stdio::null()).stdout(output()).stderr(output());
        let mut server = Self { process: command.spawn().expect("it starts"), address };
        server.wait(log);
        server
    }

    /// Returns where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    fn wait(&mut self, log: &Path) {
        let deadline = Instant::now() + READY;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.process.try_wait();
            assert!(
                Instant::now() < deadline && matches!(ended, Ok(None)),
                "nothing listens at {}: {ended:?}, {}",
                self.address,
                std::fs::read_to_string(log).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an address below 127.0.0.0/8 that no other process uses, and that no other call
/// with this port returns. It stays free while a server there is restarted, if the port is none
/// that the system gives to others (from 32768 on, ip(7)).
pub fn own_address(port: u16) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // a process has at most 22 bits of an ID; NATS servers differ in the two above
    let address = Ipv4Addr::new(127, high & 63, middle, low);
    SocketAddr::from((address, port + NEXT.fetch_add(1, Ordering::Relaxed)))
}
