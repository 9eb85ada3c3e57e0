//! Two hosts of a test's own: network namespaces joined by a link, each with a
//! thread that lives in it, and a gateway on each.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use headroom_gateway::config::Config;
use headroom_gateway::datapath::{DEFAULT_MARK, Datapath, Settings};
use headroom_gateway::host::{self, Setup};
use headroom_ipsec::Engine;
use headroom_netio::Tun;

/// Whether this process may make namespaces. Where tests are required, one that
/// cannot run is a failure.
pub(crate) fn privileged() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("CI").is_some()
        || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
    assert!(!required, "this test makes network namespaces, which needs root");
    eprintln!("skipped: this test makes network namespaces, which needs root");
    false
}

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that lives in it.
pub(crate) struct Host {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn new() -> Self {
        let (work, to_do) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            let alone = nix::sched::CloneFlags::CLONE_NEWNET;
            nix::sched::unshare(alone).expect("a network namespace");
            sh("ip link set lo up");
            to_do.into_iter().for_each(|work| work());
        });
        Self { work: Some(work), thread: Some(thread) }
    }

    /// Does something in the namespace, threads and programs included.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work: Work = Box::new(move || drop(done.send(work())));
        self.work.as_ref().expect("a host that lives").send(work).expect("a thread that lives");
        result.recv().expect("work that does not panic")
    }

    pub(crate) fn sh(&self, line: &str) {
        let line = line.to_owned();
        self.run(move || sh(&line));
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

/// Runs a command of words that must succeed.
pub(crate) fn sh(line: &str) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run `{line}`: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed: {said}");
}

/// Two hosts on one link, `eth0` of each, 192.0.2.1 and .2, 2001:db8::1 and ::2.
pub(crate) fn link() -> [Host; 2] {
    let hosts = [Host::new(), Host::new()];
    let there = hosts[1].run(|| File::open("/proc/thread-self/ns/net").expect("a namespace"));
    hosts[0].run(move || {
        let place = format!("/proc/{}/fd/{}", std::process::id(), there.as_raw_fd());
        sh(&format!("ip link add eth0 type veth peer name eth0 netns {place}"));
    });
    for (n, host) in hosts.iter().enumerate() {
        host.sh(&format!("ip addr add 192.0.2.{}/24 dev eth0", n + 1));
        host.sh(&format!("ip addr add 2001:db8::{}/64 dev eth0 nodad", n + 1));
        host.sh("ip link set eth0 up");
    }
    hosts
}

/// A gateway that runs, and what it has changed on its host.
pub(crate) struct Gateway {
    pub(crate) datapath: Datapath,
    setup: Setup,
}

impl Gateway {
    /// Starts a gateway of this configuration in the calling thread's namespace.
    pub(crate) fn start(text: &str) -> Self {
        let (config, engine) = read(text, None);
        let look = host::Host::look(DEFAULT_MARK);
        let path_mtu = |to: IpAddr| host::path_mtu(to, DEFAULT_MARK);
        let setup = Setup::plan(&config, &engine, look, path_mtu);
        host::apply(&setup.before).expect("rules, routes and a firewall");
        let tuns = Tun::create(&config.name, config.queues).expect("a TUN");
        host::apply(&setup.after).expect("the interface");
        let settings = Settings { keepalive: Duration::from_millis(200), ..Settings::default() };
        let datapath = Datapath::start(tuns, engine, settings, |_| {}).expect("threads");
        Self { datapath, setup }
    }

    /// Ends it as an unexpected death would: what it has changed stays.
    pub(crate) fn die(self) -> Setup {
        drop(self.datapath);
        self.setup
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let engine = self.datapath.engine();
        let found = engine.counters().nonzero().find(|(reason, _)| reason.name() == name);
        found.map_or(0, |(_, times)| times)
    }

    /// Packets of an association.
    pub(crate) fn packets(&self, sa: &str) -> u64 {
        self.datapath.engine().association(sa).expect("the association").packets()
    }
}

/// A configuration and its engine, all sequence numbers granted.
pub(crate) fn read(text: &str, previous: Option<(&Engine, Duration)>) -> (Config, Engine) {
    let parse = || Config::parse(text, Path::new("test.toml")).expect("a configuration");
    let (config, other) = (parse(), parse());
    let specs = other.associations.into_iter().map(|association| association.spec).collect();
    let (before, now) =
        previous.map_or((None, Duration::ZERO), |(before, now)| (Some(before), now));
    let engine = Engine::new(specs, other.policies, before, now).expect("an engine");
    for sa in engine.associations() {
        sa.sequence().grant(1 << 40);
    }
    (config, engine)
}

/// How the two protect what is between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// `esp`, `ah`, `qesp`.
    pub(crate) protocol: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) udp: bool,
    pub(crate) outer_v6: bool,
    /// In tunnel mode, of what is inside.
    pub(crate) inner_v6: bool,
}

impl Kind {
    /// The address of a host that the other side talks to.
    pub(crate) fn address(&self, host: usize) -> String {
        match (self.mode, self.outer_v6, self.inner_v6) {
            ("transport", true, _) => format!("2001:db8::{}", host + 1),
            ("transport", false, _) => format!("192.0.2.{}", host + 1),
            (_, _, true) => format!("fd00:{}::1", host + 1),
            _ => format!("10.{}.0.1", host + 1),
        }
    }

    /// The configuration of one side; `generation` chooses keys and SPIs.
    pub(crate) fn config(&self, me: usize, generation: u8) -> String {
        let outer = |host: usize| match self.outer_v6 {
            true => format!("2001:db8::{}", host + 1),
            false => format!("192.0.2.{}", host + 1),
        };
        let suite = if self.protocol == "ah" { "hmac-sha256" } else { "aes-128-gcm" };
        let key_len = if self.protocol == "ah" { 32 } else { 20 };
        let udp = if self.udp { "udp = { source = 4500, destination = 4500 }\n" } else { "" };
        let sa = |name: &str, direction: &str, from: usize| {
            let spi = 0x1000 + u32::from(generation) * 2 + from as u32;
            let key = format!("{:02x}", generation * 2 + from as u8 + 1).repeat(key_len);
            format!(
                "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nprotocol = \"{}\"\n\
                 mode = \"{}\"\nspi = {spi}\nsource = \"{}\"\ndestination = \"{}\"\n\
                 suite = \"{suite}\"\nkey = \"{key}\"\n{udp}",
                self.protocol,
                self.mode,
                outer(from),
                outer(1 - from),
            )
        };
        let (out, inbound) = (sa("out", "out", me), sa("in", "in", 1 - me));
        let (local, remote) = (self.address(me), self.address(1 - me));
        let len = if self.inner_v6 { 64 } else { 24 };
        let address = match self.mode {
            "tunnel" => format!("address = [\"{local}/{len}\"]\n"),
            _ => String::new(),
        };
        format!(
            "name = \"hr0\"\n{address}{out}{inbound}[[policy]]\nname = \"both\"\n\
             action = \"protect\"\nlocal = \"{local}\"\nremote = \"{remote}\"\nout = [\"out\"]\n\
             in = [\"in\"]\n"
        )
    }
}
