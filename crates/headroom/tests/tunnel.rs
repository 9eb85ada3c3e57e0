//! `headroom tunnel` and `headroom ipsec decode` as they are typed, between two
//! hosts of the test's own.

mod common;

use std::collections::HashSet;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use common::{Ground, HEADROOM, part, privileged};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};
use nix::unistd::Pid;
use serde_json::Value;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HERE: &str = "192.0.2.1";
const THERE: &str = "192.0.2.2";
const SECRET: &[u8] = b"nobody on the way reads this";

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace, the thread that lives in it, and where its gateway keeps
/// its socket and its witness.
struct Host {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    run: PathBuf,
}

impl Host {
    fn new(run: PathBuf) -> Self {
        let (work, to_do) = channel::<Work>();
        let thread = std::thread::spawn(move || {
            let alone = nix::sched::CloneFlags::CLONE_NEWNET;
            nix::sched::unshare(alone).expect("a network namespace");
            to_do.into_iter().for_each(|work| work());
        });
        let host = Self { work: Some(work), thread: Some(thread), run };
        host.ip("link set lo up");
        host
    }

    /// Does something in the namespace, threads and programs included.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work: Work = Box::new(move || drop(done.send(work())));
        self.work.as_ref().expect("a host that lives").send(work).expect("a thread that lives");
        result.recv().expect("work that does not panic")
    }

    fn ip(&self, words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let output = self.run(move || Command::new("ip").args(words).output().expect("ip"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(HEADROOM);
        command.arg("tunnel").args(words).env("HEADROOM_RUN_DIR", &self.run).stdin(Stdio::null());
        command
    }

    /// Runs `headroom tunnel` to its end.
    fn tunnel(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.run(move || command.output().expect("the command starts"))
    }

    #[track_caller]
    fn must(&self, words: &[&str]) -> String {
        let output = self.tunnel(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.must(&["status", "--json"])).expect("JSON")
    }

    fn socket(&self, address: &'static str) -> UdpSocket {
        let socket = self.run(move || UdpSocket::bind(address).expect("an address"));
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        socket
    }

    /// What passes an interface of the host, until it is asked for.
    fn capture(&self, interface: &str) -> Capture {
        let index = self.ip(&format!("-o link show dev {interface}"));
        let index = index.split(':').next().and_then(|n| n.parse().ok()).expect("an index");
        Capture::start(self.run(open_capture), index)
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

/// Two hosts on one link, `eth0` of each.
fn link(ground: &Ground) -> [Host; 2] {
    let hosts = ["here", "there"].map(|name| Host::new(ground.path(name)));
    let there =
        hosts[1].run(|| std::fs::File::open("/proc/thread-self/ns/net").expect("a namespace"));
    let place = format!("/proc/{}/fd/{}", std::process::id(), there.as_raw_fd());
    hosts[0].ip(&format!("link add eth0 type veth peer name eth0 netns {place}"));
    for (host, address) in hosts.iter().zip([HERE, THERE]) {
        host.ip(&format!("addr add {address}/24 dev eth0"));
        host.ip("link set eth0 up");
    }
    hosts
}

/// Frames of one interface, from when it was started.
struct Capture {
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn open_capture() -> OwnedFd {
    let kind = (AddressFamily::Packet, SockType::Raw, SockProtocol::EthAll);
    let socket = socket(kind.0, kind.1, SockFlag::empty(), kind.2).expect("a packet socket");
    setsockopt(&socket, sockopt::RcvBuf, &(32 << 20)).expect("a buffer");
    let timeout = nix::sys::time::TimeVal::new(0, 20_000);
    setsockopt(&socket, sockopt::ReceiveTimeout, &timeout).expect("a timeout");
    socket
}

impl Capture {
    fn start(socket: OwnedFd, interface: usize) -> Self {
        let frames: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, ended) = (Arc::clone(&frames), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 70_000];
            while !ended.load(Ordering::Relaxed) {
                let Ok((len, from)) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) else {
                    continue;
                };
                if from.is_some_and(|from| from.ifindex() == interface) {
                    kept.lock().expect("frames").push(buffer[..len].to_vec());
                }
            }
        });
        Self { frames, stop, thread: Some(thread) }
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        sleep(Duration::from_millis(100));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).expect("a thread").expect("no panic");
        std::mem::take(&mut self.frames.lock().expect("frames"))
    }
}

/// Frames as a pcap file of Ethernet.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 262_144, 1]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    for (at, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        file.extend([at as u32, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

fn contains(octets: &[u8], what: &[u8]) -> bool {
    octets.windows(what.len()).any(|window| window == what)
}

/// Writes a pair of configurations whose witnesses are the test's own.
fn keygen(ground: &Ground, words: &[&str]) -> [PathBuf; 2] {
    let folder = ground.path("keys");
    let output = Command::new(HEADROOM)
        .args(["tunnel", "keygen", HERE, THERE, "--out"])
        .arg(&folder)
        .args(words)
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ["left", "right"].map(|end| {
        let file = folder.join(format!("{end}.toml"));
        let text = std::fs::read_to_string(&file).expect("a configuration");
        let witness = ground.path(&format!("witness-{end}"));
        std::fs::write(&file, format!("witness = {witness:?}\n{text}")).expect("written");
        file
    })
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the test")
}

/// The process of the gateway; killed when dropped, should the test fail.
struct Alive(Vec<i32>);

impl Alive {
    fn note(&mut self, host: &Host) -> i32 {
        let pid = host.status()["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
            .expect("a process");
        self.0.push(pid);
        pid
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        for pid in &self.0 {
            let own = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if contains(&own, b"--detached") {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
        }
    }
}

#[test]
fn a_tunnel_from_keygen_to_down() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("tunnel");
    let hosts = link(&ground);
    let files = keygen(&ground, &["--protocol", "qesp"]);
    let rules = hosts[0].ip("rule");
    let printed = hosts[0].must(&["up", text(&files[0]), "--dry-run"]);
    assert!(printed.contains("ip tuntap add dev hr0") && hosts[0].ip("rule") == rules, "{printed}");
    let sockets = [hosts[0].socket("192.0.2.1:5000"), hosts[1].socket("192.0.2.2:5001")];
    let exchange = || {
        sockets[0].send_to(SECRET, "192.0.2.2:5001").map_err(|error| error.to_string())?;
        let mut room = [0; 100];
        let (len, from) = sockets[1].recv_from(&mut room).map_err(|error| error.to_string())?;
        sockets[1].send_to(&room[..len], from).map_err(|error| error.to_string())?;
        sockets[0]
            .recv(&mut room)
            .map(|len| room[..len].to_vec())
            .map_err(|error| error.to_string())
    };

    // up, and what passes is protected
    let mut alive = Alive(Vec::new());
    for (host, file) in hosts.iter().zip(&files) {
        host.must(&["up", text(file), "--background"]);
        alive.note(host);
    }
    let capture = hosts[1].capture("eth0");
    let mut tracing = hosts[0].command(&["trace", "--count", "2", "--json"]);
    let tracing = hosts[0].run(move || tracing.stdout(Stdio::piped()).spawn().expect("a trace"));
    sleep(Duration::from_millis(500)); // it has nothing to say that it listens
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");

    // status and trace say so
    let status = hosts[0].status();
    let of = |name: &str| {
        let all = status["associations"].as_array().expect("associations");
        all.iter().find(|one| one["name"] == name).expect("the association").clone()
    };
    assert_eq!(
        (&of("out-qesp")["packets"], &of("in-qesp")["packets"]),
        (&1.into(), &1.into()),
        "{status}"
    );
    assert_eq!(status["policies"][0]["hits"], 1);
    let human = hosts[0].must(&["status", "hr0"]);
    assert!(human.contains("out transport, Q-ESP") && human.contains("protected"), "{human}");
    let traced = wait(tracing);
    let records: Vec<Value> =
        traced.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(records.len(), 2, "{traced}");
    assert!(
        records
            .iter()
            .all(|record| record["decision"] == "protect" && record["policy"] == "protected"),
        "{traced}"
    );

    // the capture opens with the keys of either end
    let captured = ground.path("wire.pcap");
    std::fs::write(&captured, pcap(&frames)).expect("a capture");
    for file in &files {
        let (code, said) =
            decode(&captured, file, &["--json", "--out", text(&ground.path("clear.pcap"))]);
        assert_eq!(code, Some(0), "{said}");
        let opened: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .filter(|packet: &Value| packet["result"] == "opened")
            .collect();
        assert_eq!(opened.len(), 2, "{said}");
        assert_eq!(opened[0]["layers"][0]["clear"]["destination_port"], 5001);
        assert!(contains(&std::fs::read(ground.path("clear.pcap")).expect("a file"), SECRET));
    }
    let others = Ground::new("tunnel-others");
    let foreign = keygen(&others, &["--protocol", "qesp"]);
    let (code, said) = decode(&captured, &foreign[0], &["--failures"]);
    assert!(
        code == Some(1) && said.contains("unknown-spi") && said.contains("known for Q-ESP"),
        "{said}"
    );

    // a reload that is refused changes nothing
    let before = std::fs::read_to_string(&files[0]).expect("a configuration");
    std::fs::write(&files[0], before.replace("action", "acton")).expect("written");
    let refused = hosts[0].tunnel(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("unknown field `acton`"), "{said}");
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    std::fs::write(&files[0], before).expect("written");
    hosts[0].must(&["reload"]);
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    let twice = hosts[0].tunnel(&["up", text(&files[0]), "--background"]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is up already"), "{twice:?}");

    // a gateway that dies leaves nothing open, and comes back with new numbers
    let capture = hosts[1].capture("eth0");
    kill(Pid::from_raw(alive.note(&hosts[0])), Signal::SIGKILL).expect("it was there");
    until("the interface is gone", || {
        !Path::new(&format!("/proc/{}", alive.0[0])).join("exe").exists()
    });
    assert!(exchange().is_err(), "it left in clear");
    assert!(
        String::from_utf8_lossy(&hosts[0].tunnel(&["status"]).stderr).contains("no gateway runs")
    );
    assert!(!capture.finish().iter().any(|frame| contains(frame, SECRET)));
    hosts[0].must(&["up", text(&files[0]), "--background"]);
    alive.note(&hosts[0]);
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    let out = hosts[0].status();
    let out = out["associations"]
        .as_array()
        .expect("associations")
        .iter()
        .find(|one| one["direction"] == "out")
        .cloned();
    assert!(out.expect("one")["sequence"].as_u64() > Some(1 << 20), "numbers of the former life");

    // down, also of one that is dead
    hosts[0].must(&["down"]);
    kill(Pid::from_raw(alive.0[1]), Signal::SIGKILL).expect("it was there");
    hosts[1].must(&["down"]);
    assert_eq!(hosts[0].ip("rule"), rules);
    assert_eq!(hosts[1].ip("rule"), rules);
    assert_eq!(exchange().as_deref(), Ok(SECRET), "in clear, as before");
    let nothing = hosts[1].tunnel(&["down"]);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no tunnel is up"), "{nothing:?}");
}

/// A router without any key tells Q-ESP flows apart by a rule of nftables, and a
/// capture of it opens with the keys.
#[test]
fn q_esp_is_classified_by_a_stock_rule_and_decoded_from_a_capture() {
    if !privileged() {
        return;
    }
    const DATAGRAMS: usize = 20;
    let ground = Ground::new("qesp");
    let hosts = link(&ground);
    let files = keygen(&ground, &["--protocol", "qesp"]);
    let mut gateways = Alive(Vec::new());
    for (host, file) in hosts.iter().zip(&files) {
        host.must(&["up", text(file), "--background"]);
        gateways.note(host);
    }
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
    let rules = ground.write("rules.nft", rules);
    hosts[1].run(move || nft(&["-f", text(&rules)]));
    let capture = hosts[1].capture("eth0");
    let receiver = hosts[1].socket("192.0.2.2:6000");
    let sender = hosts[0].socket("192.0.2.1:5004");
    for _ in 0..DATAGRAMS {
        let mut room = [0; 100];
        sender.send_to(SECRET, "192.0.2.2:6000").expect("sent");
        let len = receiver.recv(&mut room).expect("it arrives");
        assert_eq!(&room[..len], SECRET);
    }
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is readable on the wire");
    let counted = hosts[1].run(|| nft(&["list", "counters", "table", "inet", "router"]));
    let packets = |name: &str| -> usize {
        let behind = counted.split(&format!("counter {name} {{")).nth(1).expect("the counter");
        let word = behind.split_whitespace().nth(1).expect("a number");
        word.parse().expect("a number")
    };
    let all = ["matched", "other_port", "other_protocol"].map(packets);
    assert_eq!(all, [DATAGRAMS, 0, 0], "{counted}");

    let captured = ground.path("wire.pcap");
    std::fs::write(&captured, pcap(&frames)).expect("written");
    let clear = ground.path("clear.pcap");
    let (code, said) = decode(&captured, &files[1], &["--json", "--out", text(&clear)]);
    assert_eq!(code, Some(0), "{said}");
    let clear = std::fs::read(&clear).expect("the clear packets");
    let secrets = clear.windows(SECRET.len()).filter(|window| *window == SECRET).count();
    assert_eq!(secrets, DATAGRAMS);
    for host in &hosts {
        host.must(&["down"]);
    }
}

/// Runs nft and gives what it says.
fn nft(arguments: &[&str]) -> String {
    let output = part("nft").args(arguments).output().expect("nft");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// DATAPATH's first test: killed under load again and again, no IV is sent twice.
#[test]
fn no_iv_is_sent_twice_by_gateways_that_are_killed() {
    if !privileged() {
        return;
    }
    const KILLS: usize = 100;
    let ground = Ground::new("kills");
    let hosts = link(&ground);
    let files = keygen(&ground, &["--local-net", HERE, "--remote-net", "10.2.0.0/16"]);
    hosts[0].ip(&format!("neigh add {THERE} lladdr {} dev eth0", address_of(&hosts[1])));
    let capture = hosts[1].capture("eth0");
    let load = hosts[0].socket("192.0.2.1:5000");
    let mut seen: HashSet<u64> = HashSet::new();
    let mut lives = 0;
    for _ in 0..KILLS {
        let mut command = hosts[0].command(&["up", text(&files[0])]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut gateway = hosts[0].run(move || command.spawn().expect("a gateway"));
        let socket = hosts[0].run.join("hr0.sock");
        let _ = std::fs::remove_file(&socket);
        until("the gateway is up", || {
            socket.exists() || gateway.try_wait().is_ok_and(|end| end.is_some())
        });
        let before = seen.len();
        let end = Instant::now() + Duration::from_millis(30);
        while Instant::now() < end {
            for _ in 0..32 {
                // blocked or full is as good
                let _ = load.send_to(&[0; 64], "10.2.0.1:9");
            }
        }
        gateway.kill().expect("it was there");
        let said = gateway.wait_with_output().expect("its end").stderr;
        for frame in std::mem::take(&mut *capture.frames.lock().expect("frames")) {
            let Some(iv) = iv_of(&frame) else { continue };
            assert!(
                seen.insert(iv),
                "the IV {iv} was sent twice; {}",
                String::from_utf8_lossy(&said)
            );
        }
        lives += usize::from(seen.len() > before);
    }
    for iv in capture.finish().iter().filter_map(|frame| iv_of(frame)) {
        assert!(seen.insert(iv), "the IV {iv} was sent twice");
    }
    println!("{} packets of {lives} gateways", seen.len());
    assert!(lives * 2 > KILLS, "only {lives} of {KILLS} gateways sent anything that was seen");
    hosts[0].must(&["down"]);
}

/// The IV of ESP over IPv4 in an Ethernet frame.
fn iv_of(frame: &[u8]) -> Option<u64> {
    const IV: std::ops::Range<usize> = 14 + 20 + 8..14 + 20 + 16;
    let esp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&50);
    frame.get(IV).filter(|_| esp).map(|iv| u64::from_be_bytes(iv.try_into().expect("eight octets")))
}

fn address_of(host: &Host) -> String {
    let link = host.ip("-o link show dev eth0");
    link.split("link/ether ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("an address")
        .to_owned()
}

fn decode(capture: &Path, config: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(HEADROOM);
    command.args(["ipsec", "decode"]).arg(capture).arg("--config").arg(config).args(words);
    let output = command.output().expect("the command starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn wait(child: Child) -> String {
    String::from_utf8_lossy(&child.wait_with_output().expect("its end").stdout).into_owned()
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        sleep(Duration::from_millis(5));
    }
}
