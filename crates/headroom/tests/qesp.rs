//! What a router without keys can do with Q-ESP, and what `headroom ipsec decode`
//! makes of what it saw.

mod common;

use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use common::{Ground, HEADROOM, part, privileged};
use headroom_netio::LinkSocket;
use serde_json::Value;

/// Nobody sends this by chance.
const MARKER: &[u8] = b"a marker that must not be read on the wire";
const LONG: Duration = Duration::from_secs(30);

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace with a `/run` and a `/var/lib` of its own, and the thread
/// that lives in it.
struct Host {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    fn new() -> Self {
        use nix::sched::{CloneFlags, unshare};
        let (work, to_do) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            // the calling thread alone: it shares no folder with others from here
            let alone = CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
            unshare(alone).expect("namespaces");
            sh("mount --make-rprivate /");
            sh("mount -t tmpfs run /run");
            sh("mount -t tmpfs state /var/lib");
            sh("ip link set lo up");
            to_do.into_iter().for_each(|work| work());
        });
        Self { work: Some(work), thread: Some(thread) }
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work: Work = Box::new(move || drop(done.send(work())));
        self.work.as_ref().expect("a host that lives").send(work).expect("a thread that lives");
        result.recv().expect("work that does not panic")
    }

    fn sh(&self, line: &str) {
        let line = line.to_owned();
        self.run(move || sh(&line));
    }

    /// Brings a tunnel up and waits until it says so.
    fn up(&self, config: &Path, name: &str) -> Gateway {
        let (config, name) = (config.to_owned(), name.to_owned());
        self.run(move || {
            let mut command = Command::new(HEADROOM);
            command.args(["tunnel", "up"]).arg(config).stdin(Stdio::null()).stdout(Stdio::null());
            let mut child = command.stderr(Stdio::piped()).spawn().expect("a gateway");
            let mut said = std::io::BufReader::new(child.stderr.take().expect("its words"));
            let mut line = String::new();
            while !line.contains("is up") {
                let before = line.len();
                std::io::BufRead::read_line(&mut said, &mut line).expect("its words");
                assert!(line.len() > before, "`tunnel up` of {name} ended: {line}");
            }
            // nobody waits for what it says further
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
            Gateway(child)
        })
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

/// A gateway's process; killed when dropped.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may be gone
        let _ = self.0.wait();
    }
}

fn sh(line: &str) {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run `{line}`: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed: {said}");
}

/// Two hosts on one link, 192.0.2.1 and .2, with 10.1.0.1 and 10.2.0.1 behind.
fn link() -> [Host; 2] {
    let hosts = [Host::new(), Host::new()];
    let there = hosts[1].run(|| File::open("/proc/thread-self/ns/net").expect("a namespace"));
    hosts[0].run(move || {
        let place = format!("/proc/{}/fd/{}", std::process::id(), there.as_raw_fd());
        sh(&format!("ip link add eth0 type veth peer name eth0 netns {place}"));
    });
    for (n, host) in hosts.iter().enumerate() {
        let n = n + 1;
        host.sh(&format!("ip addr add 192.0.2.{n}/24 dev eth0"));
        host.sh(&format!("ip addr add 10.{n}.0.1/32 dev lo"));
        host.sh("ip link set eth0 up");
    }
    hosts
}

/// Fresh configurations of both ends.
fn keygen(ground: &Ground, options: &[&str]) -> [PathBuf; 2] {
    let dir = ground.path("keys");
    let networks = ["--local-net", "10.1.0.0/16", "--remote-net", "10.2.0.0/16"];
    let output = Command::new(HEADROOM)
        .args(["tunnel", "keygen", "192.0.2.1", "192.0.2.2", "--name", "hr0", "--out"])
        .arg(&dir)
        .args(networks)
        .args(options)
        .output()
        .expect("keygen");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ["left.toml", "right.toml"].map(|name| dir.join(name))
}

/// Takes all frames that arrive at a host until it is asked for them.
struct Tap {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Tap {
    fn start(host: &Host) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = host.run(move || {
            let mut socket = LinkSocket::open("eth0").expect("a packet socket");
            std::thread::spawn(move || {
                let mut frames = Vec::new();
                loop {
                    let last = asked.load(Ordering::Acquire);
                    match socket.receive(|frame| frames.push(frame.bytes.to_vec())) {
                        Ok(0) if last => return frames,
                        Ok(0) => sleep(Duration::from_millis(1)),
                        Ok(_) => {}
                        Err(error) => panic!("the tap: {error}"),
                    }
                }
            })
        });
        Self { stop, thread }
    }

    fn frames(self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("a tap")
    }
}

fn shows_the_marker(frames: &[Vec<u8>]) -> bool {
    frames.iter().any(|frame| frame.windows(MARKER.len()).any(|window| window == MARKER))
}

/// A router without any key tells Q-ESP flows apart by a rule of nftables, and a
/// capture of it opens with the keys.
#[test]
fn q_esp_is_classified_by_a_stock_rule_and_decoded_from_a_capture() {
    if !privileged() {
        return;
    }
    let (ground, hosts) = (Ground::new("qesp"), link());
    let [left, right] = keygen(&ground, &["--protocol", "qesp"]);
    let gateways = [hosts[0].up(&left, "hr0"), hosts[1].up(&right, "hr0")];
    // what a router on the way would have (docs/qesp.md)
    let rules = "table inet router {
  counter matched {}
  counter other_port {}
  counter other_protocol {}
  chain prerouting {
    type filter hook prerouting priority raw;
    meta l4proto 253 @th,16,16 6000 @th,32,8 17 counter name matched
    meta l4proto 253 @th,16,16 6001 counter name other_port
    meta l4proto 253 @th,16,16 6000 @th,32,8 6 counter name other_protocol
  }
}
";
    let rules = ground.write("rules.nft", rules).display().to_string();
    hosts[1].run(move || nft(&["-f", &rules]));

    let tap = Tap::start(&hosts[1]);
    const DATAGRAMS: usize = 20;
    let receiver = hosts[1].run(|| UdpSocket::bind(("10.2.0.1", 6000)).expect("a socket"));
    receiver.set_read_timeout(Some(LONG)).expect("a timeout");
    hosts[0].run(|| {
        let socket = UdpSocket::bind(("10.1.0.1", 5004)).expect("a socket");
        for _ in 0..DATAGRAMS {
            socket.send_to(MARKER, ("10.2.0.1", 6000)).expect("sent");
        }
    });
    let mut buffer = [0; 2000];
    for _ in 0..DATAGRAMS {
        let len = receiver.recv(&mut buffer).expect("it arrives");
        assert_eq!(&buffer[..len], MARKER);
    }
    let frames = tap.frames();
    drop(gateways);
    assert!(!shows_the_marker(&frames), "it is readable on the wire");
    let counted = hosts[1].run(|| nft(&["list", "counters", "table", "inet", "router"]));
    let packets = |name: &str| -> usize {
        let behind = counted.split(&format!("counter {name} {{")).nth(1).expect("the counter");
        let word = behind.split_whitespace().nth(1).expect("a number");
        word.parse().expect("a number")
    };
    assert_eq!(
        (packets("matched"), packets("other_port"), packets("other_protocol")),
        (DATAGRAMS, 0, 0)
    );

    let capture = write_pcap(&ground, &frames);
    let clear = ground.path("clear.pcap");
    let decode = |config: &Path| {
        Command::new(HEADROOM)
            .args(["ipsec", "decode", "--json", "--config"])
            .arg(config)
            .arg("--out")
            .arg(&clear)
            .arg(&capture)
            .output()
            .expect("ipsec decode")
    };
    let output = decode(&right);
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let last: Value =
        said.lines().last().map(|line| serde_json::from_str(line).expect("JSON")).expect("a line");
    assert!(last.get("summary").is_some(), "{last}");
    let opened =
        said.lines().filter(|line| line.contains("\"opened\"") && !line.contains("summary"));
    assert!(opened.count() >= DATAGRAMS, "{said}");
    let clear = std::fs::read(&clear).expect("the clear packets");
    let marked = clear.windows(MARKER.len()).filter(|window| *window == MARKER).count();
    assert_eq!(marked, DATAGRAMS);

    // other keys open nothing, and that is said
    let stranger = Ground::new("stranger");
    let [_, other] = keygen(&stranger, &["--protocol", "qesp"]);
    let output = decode(&other);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("unknown-spi"));
}

/// Runs nft and gives what it says.
fn nft(arguments: &[&str]) -> String {
    let output = part("nft").args(arguments).output().expect("nft");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The frames as a capture of Ethernet.
fn write_pcap(ground: &Ground, frames: &[Vec<u8>]) -> PathBuf {
    let path = ground.path("wire.pcap");
    let mut out = File::create(&path).expect("a file");
    let header = [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    header.iter().for_each(|word| out.write_all(&word.to_le_bytes()).expect("written"));
    for (n, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        let record = [n as u32, 0, len, len];
        record.iter().for_each(|word| out.write_all(&word.to_le_bytes()).expect("written"));
        out.write_all(frame).expect("written");
    }
    path
}
