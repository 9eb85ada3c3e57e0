//! Hosts for tests: network namespaces joined by a link, each with a thread inside.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread inside it. Dropping it removes both.
#[derive(Debug)]
pub struct Host {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Makes one that has only its loopback interface.
    ///
    /// # Panics
    /// The process lacks root.
    #[must_use]
    pub fn alone() -> Self {
        let (work, to_do) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            let network = nix::sched::CloneFlags::CLONE_NEWNET;
            nix::sched::unshare(network).expect("a network namespace");
            to_do.into_iter().for_each(|work| work());
        });
        let host = Self { work: Some(work), thread: Some(thread) };
        host.ip("link set lo up");
        host
    }

    /// Runs a closure inside the namespace, which its threads and programs inherit.
    ///
    /// # Panics
    /// The closure panics.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work: Work = Box::new(move || drop(done.send(work())));
        self.work.as_ref().expect("a running host").send(work).expect("a running thread");
        result.recv().expect("work that does not panic")
    }

    /// Runs `ip` with these arguments and returns its output.
    ///
    /// # Panics
    /// It fails.
    pub fn ip(&self, arguments: &str) -> String {
        let arguments = arguments.to_owned();
        let run = move || {
            let output =
                Command::new("ip").args(arguments.split_whitespace()).output().expect("ip");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "`ip {arguments}` failed: {errors}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        self.run(run)
    }

    /// Makes another host and joins its `eth0` to a new interface of this one.
    ///
    /// # Panics
    /// The process lacks root.
    #[must_use]
    pub fn neighbour(&self, interface: &str) -> Self {
        let host = Self::alone();
        let handle = host.run(|| File::open("/proc/thread-self/ns/net").expect("a namespace"));
        let namespace = format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd());
        self.ip(&format!("link add {interface} type veth peer name eth0 netns {namespace}"));
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

/// Makes two hosts on one link, `eth0` of each, with an [`address`] of either family.
///
/// # Panics
/// The process lacks root.
pub fn link() -> [Host; 2] {
    let here = Host::alone();
    let there = here.neighbour("eth0");
    let hosts = [here, there];
    for (n, host) in hosts.iter().enumerate() {
        host.ip(&format!("addr add {}/24 dev eth0", address(n, false)));
        host.ip(&format!("addr add {}/64 dev eth0 nodad", address(n, true)));
        host.ip("link set eth0 up");
    }
    hosts
}

/// Returns the address of the first host (0) or the second (1): 192.0.2.1 and .2,
/// 2001:db8::1 and ::2.
pub fn address(host: usize, v6: bool) -> String {
    let network = if v6 { "2001:db8::" } else { "192.0.2." };
    format!("{network}{}", host + 1)
}
