//! Hosts of a test's own: network namespaces joined by a link, each with a thread
//! that lives in it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that lives in it; it ends when dropped.
#[derive(Debug)]
pub struct Host {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    fn new() -> Self {
        let (work, to_do) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            let alone = nix::sched::CloneFlags::CLONE_NEWNET;
            nix::sched::unshare(alone).expect("a network namespace");
            to_do.into_iter().for_each(|work| work());
        });
        let host = Self { work: Some(work), thread: Some(thread) };
        host.ip("link set lo up");
        host
    }

    /// Does something in the namespace; threads and programs that it starts are
    /// in it too.
    ///
    /// # Panics
    /// Where the work does.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work: Work = Box::new(move || drop(done.send(work())));
        self.work.as_ref().expect("a host that lives").send(work).expect("a thread that lives");
        result.recv().expect("work that does not panic")
    }

    /// Runs `ip` with these words, which must succeed, and gives what it printed.
    ///
    /// # Panics
    /// Where it fails.
    pub fn ip(&self, words: &str) -> String {
        let words = words.to_owned();
        let run = move || {
            let output = Command::new("ip").args(words.split_whitespace()).output().expect("ip");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "`ip {words}` failed: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        self.run(run)
    }

    /// A further host, its `eth0` joined to a new interface of this one.
    ///
    /// # Panics
    /// Where it cannot be made: that needs root.
    #[must_use]
    pub fn neighbour(&self, interface: &str) -> Self {
        let host = Self::new();
        let there = host.run(|| File::open("/proc/thread-self/ns/net").expect("a namespace"));
        let place = format!("/proc/{}/fd/{}", std::process::id(), there.as_raw_fd());
        self.ip(&format!("link add {interface} type veth peer name eth0 netns {place}"));
        host
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the test has failed already if it panicked
        }
    }
}

/// Two hosts on one link, `eth0` of each, with an [`address`] of either family.
///
/// # Panics
/// Where they cannot be made: that needs root.
pub fn link() -> [Host; 2] {
    let here = Host::new();
    let there = here.neighbour("eth0");
    let hosts = [here, there];
    for (n, host) in hosts.iter().enumerate() {
        host.ip(&format!("addr add {}/24 dev eth0", address(n, false)));
        host.ip(&format!("addr add {}/64 dev eth0 nodad", address(n, true)));
        host.ip("link set eth0 up");
    }
    hosts
}

/// The address on the link of the first host (0) or the second (1): 192.0.2.1 and
/// .2, 2001:db8::1 and ::2.
pub fn address(host: usize, v6: bool) -> String {
    let network = if v6 { "2001:db8::" } else { "192.0.2." };
    format!("{network}{}", host + 1)
}
