//! `headroom link` between real namespaces: what passes, what is lost, how it
//! ends. Nothing here depends on how fast anything is.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::HEADROOM;
use headroom_testing::{privileged, retried};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

/// A client, a router and a server, each a namespace; removed when dropped.
struct Hosts {
    names: [String; 3],
}

const CLIENT: usize = 0;
const ROUTER: usize = 1;
const SERVER: usize = 2;

impl Hosts {
    /// With IPv6 a host also speaks of itself (MLD), and packets cannot be
    /// counted exactly.
    fn new(mtu: u32, v6: bool) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["c", "r", "s"].map(|n| format!("hr-em-{}-{number}-{n}", std::process::id()));
        let hosts = Self { names };
        for name in &hosts.names {
            run(&format!("ip netns add {name}"));
            run(&format!(
                "nsenter --net=/run/netns/{name} sysctl -qw net.ipv6.conf.default.accept_dad=0 \
                 net.ipv6.conf.default.router_solicitations=0 net.ipv6.conf.default.addr_gen_mode=1 \
                 net.ipv6.conf.default.disable_ipv6={}",
                u8::from(!v6)
            ));
        }
        let router = &hosts.names[ROUTER];
        for (host, peer, n) in [(CLIENT, "to-client", 1), (SERVER, "to-server", 2)] {
            let host = &hosts.names[host];
            run(&format!(
                "ip -n {host} link add eth0 mtu {mtu} address 02:00:00:00:00:0{n} \
                 type veth peer name {peer} netns {router} mtu {mtu}"
            ));
            for (namespace, interface) in [(host, "eth0"), (router, peer)] {
                run(&format!("ip -n {namespace} link set {interface} multicast off"));
                run(&format!("ip -n {namespace} link set {interface} up"));
            }
            for v6 in [false, true].into_iter().filter(|&family| v6 || !family) {
                let [near, far] = if n == 1 { addresses(v6) } else { reversed(addresses(v6)) };
                let (bits, nodad) = if v6 { (64, " nodad") } else { (24, "") };
                run(&format!("ip -n {host} addr add {near}/{bits} dev eth0{nodad}"));
                run(&format!(
                    "ip -n {host} neigh replace {far} lladdr 02:00:00:00:00:0{} nud permanent dev eth0",
                    3 - n
                ));
            }
        }
        hosts
    }

    /// Does something in the namespace of a host.
    fn on<T: Send>(&self, host: usize, act: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.names[host]);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let namespace = File::open(path).expect("the namespace");
                setns(namespace, CloneFlags::CLONE_NEWNET).expect("to enter the namespace");
                act()
            });
            thread.join().expect("what was done there")
        })
    }

    /// At a port of its own: that of a dropped socket may be in use a moment longer, by a child
    /// that another test has forked.
    fn udp(&self, host: usize, address: IpAddr) -> UdpSocket {
        let socket = self.on(host, || UdpSocket::bind((address, 0)).expect("a socket"));
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).expect("a large buffer");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        socket
    }

    /// Sockets of client and server, joined.
    fn pair(&self, v6: bool) -> (UdpSocket, UdpSocket) {
        let [c, s] = addresses(v6);
        let (client, server) = (self.udp(CLIENT, c), self.udp(SERVER, s));
        client.connect(server.local_addr().expect("its address")).expect("connected");
        server.connect(client.local_addr().expect("its address")).expect("connected");
        (client, server)
    }

    fn link(&self, spec: &str) -> Link {
        let mut child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.names[ROUTER]))
            .args([HEADROOM, "link", "--json", "--a", "to-client", "--b", "to-server"])
            .args(["--seed", "7", "--spec", spec])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the link starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let input = child.stdin.take();
        let ready = read_line(&mut output);
        assert_eq!(ready["ready"], true, "{ready}");
        Link { child, input, output }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// A running `headroom link`.
struct Link {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Link {
    /// Closes its input and reads what it counted: up, down.
    fn end(mut self) -> [Value; 2] {
        drop(self.input.take());
        let counters = [read_line(&mut self.output), read_line(&mut self.output)];
        assert!(self.child.wait().expect("its end").success());
        counters
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().expect("a command")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{line}");
}

fn read_line(output: &mut impl BufRead) -> Value {
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn addresses(v6: bool) -> [IpAddr; 2] {
    let pair = if v6 { ["fd99::1", "fd99::2"] } else { ["10.9.0.1", "10.9.0.2"] };
    pair.map(|text| text.parse().expect("an address"))
}

fn reversed([a, b]: [IpAddr; 2]) -> [IpAddr; 2] {
    [b, a]
}

/// Datagrams that arrive until nothing has come for two seconds.
fn arrivals(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    std::iter::from_fn(|| {
        retried(|| socket.recv(&mut buffer)).ok().map(|len| buffer[..len].to_vec())
    })
    .collect()
}

/// Sends numbered datagrams and tells which arrive.
fn delivered_numbers(hosts: &Hosts, spec: &str, count: u32) -> (Vec<u32>, Value) {
    let link = hosts.link(spec);
    let (client, server) = hosts.pair(false);
    for n in 0..count {
        client.send(&n.to_be_bytes()).expect("sent");
    }
    let got = arrivals(&server)
        .iter()
        .map(|bytes| u32::from_be_bytes(bytes[..].try_into().expect("four bytes")))
        .collect();
    let [up, _] = link.end();
    (got, up)
}

#[test]
fn forwards_frames_unchanged_after_the_delay() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(9000, true);
    let link = hosts.link("1gbit,delay=20ms,up-delay=5ms");
    for v6 in [false, true] {
        let (client, server) = hosts.pair(v6);
        for len in [1usize, 100, 1400, 8900] {
            let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            let start = Instant::now();
            client.send(&payload).expect("sent");
            let mut buffer = [0; 9000];
            let got = retried(|| server.recv(&mut buffer)).expect("up");
            assert_eq!(buffer[..got], payload);
            server.send(&buffer[..got]).expect("sent");
            let got = retried(|| client.recv(&mut buffer)).expect("down");
            assert_eq!(buffer[..got], payload);
            assert!(start.elapsed() >= Duration::from_millis(25), "{:?}", start.elapsed());
        }
    }
    let [up, down] = link.end();
    for way in [&up, &down] {
        for bad in ["malformed", "lost", "corrupted", "duplicated", "reordered"] {
            assert_eq!(way[bad], 0, "{bad}: {way}");
        }
        for dropped in ["dropped_by_kernel", "dropped_by_memory", "dropped_by_queue"] {
            assert_eq!(way[dropped], 0, "{dropped}: {way}");
        }
        // multicast reports of the hosts pass too, and may be on their way at the end
        assert!(way["forwarded"].as_u64() >= Some(8), "{way}");
    }
}

#[test]
fn splits_trains_and_completes_checksums() {
    if !privileged() {
        return;
    }
    for v6 in [false, true] {
        let hosts = Hosts::new(1500, v6);
        let link = hosts.link("unshaped,delay=1ms");
        let [_, address] = addresses(v6);
        let address = SocketAddr::new(address, 4001);
        let listener = hosts.on(SERVER, || TcpListener::bind(address).expect("listens"));
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let got = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut got = Vec::new();
                let (mut stream, _) = listener.accept().expect("a client");
                stream.read_to_end(&mut got).expect("all of it");
                got
            });
            let mut client = hosts.on(CLIENT, || TcpStream::connect(address).expect("connects"));
            client.write_all(&sent).expect("sent");
            drop(client);
            server.join().expect("received")
        });
        assert!(got == sent, "{} bytes of {} arrived, or others", got.len(), sent.len());
        let [up, down] = link.end();
        assert!(up["trains_split"].as_u64() > Some(0), "{up}");
        assert!(up["received"].as_u64() > Some(2000), "single frames are counted: {up}");
        assert!(down["checksums_finished"].as_u64() > Some(0), "{down}");
        assert_eq!(up["malformed"], 0);
    }
}

#[test]
fn loses_single_frames_of_a_train() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    let link = hosts.link("unshaped,loss=10%");
    let (client, server) = hosts.pair(false);
    setsockopt(&client, sockopt::UdpGsoSegment, &1000).expect("segmentation offload");
    for train in 0..20u8 {
        let payload: Vec<u8> = (0..40u8).flat_map(|n| [[train, n].repeat(500)].concat()).collect();
        client.send(&payload).expect("sent");
    }
    let got: Vec<(u8, u8)> = arrivals(&server).iter().map(|d| (d[0], d[1])).collect();
    let [up, _] = link.end();
    assert_eq!((&up["trains_split"], &up["received"]), (&20.into(), &800.into()), "{up}");
    assert_eq!(got.len() as u64 + up["lost"].as_u64().expect("a count"), 800);
    let whole =
        (0..20u8).filter(|train| got.iter().filter(|g| g.0 == *train).count() == 40).count();
    let none = (0..20u8).filter(|train| !got.iter().any(|g| g.0 == *train)).count();
    assert!(whole < 20 && none == 0, "{whole} trains arrived whole, {none} not at all");
}

#[test]
fn equal_seeds_lose_equal_frames() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    let spec = "100mbit,delay=2ms,loss=5%,burst=3,queue=1000";
    let (first, up) = delivered_numbers(&hosts, spec, 500);
    assert_eq!(first.len() as u64 + up["lost"].as_u64().expect("a count"), 500, "{up}");
    assert!(first.is_sorted() && first.len() < 500);
    assert_eq!(delivered_numbers(&hosts, spec, 500).0, first);
}

#[test]
fn duplicates_corrupts_and_reorders() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    let (twice, up) = delivered_numbers(&hosts, "unshaped,duplicate=100%", 50);
    assert_eq!(twice, (0..50).flat_map(|n| [n, n]).collect::<Vec<u32>>());
    assert_eq!((&up["duplicated"], &up["forwarded"]), (&50.into(), &100.into()));
    // a wrong bit is found by a checksum, or sends the frame elsewhere
    let (right, up) = delivered_numbers(&hosts, "unshaped,corrupt=100%", 50);
    assert_eq!((right.len() < 25, &up["corrupted"]), (true, &50.into()), "{right:?}");
    let (mixed, up) = delivered_numbers(&hosts, "unshaped,delay=1ms,reorder=10%", 200);
    assert!(up["reordered"].as_u64() > Some(0) && !mixed.is_sorted(), "{up}");
    assert_eq!(mixed.iter().copied().collect::<BTreeSet<_>>(), (0..200).collect());
}

#[test]
fn a_full_queue_drops() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    let (got, up) = delivered_numbers(&hosts, "100kbit,queue=5", 100);
    // 84 bytes take 6.7 ms: sending a hundred takes less
    assert!(got.len() < 100 && got.len() >= 6, "{got:?}");
    assert_eq!(up["dropped_by_queue"].as_u64(), Some(100 - got.len() as u64));
}

#[test]
fn a_managed_queue_drops_what_waits_too_long_or_marks_it() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    for spec in ["100kbit,aqm=codel", "100kbit,aqm=fq-codel"] {
        // 300 frames of 6.7 ms: two seconds, in which the last have waited that long
        let (got, up) = delivered_numbers(&hosts, spec, 300);
        let dropped = up["dropped_by_queue"].as_u64().expect("a count");
        assert!(dropped > 3 && got.len() as u64 + dropped == 300, "{spec}: {up}");
        assert_eq!(up["marked"], 0, "{spec}: nobody knows ECN");
    }
    // a sender that knows ECN is told without a loss
    let link = hosts.link("100kbit,aqm=codel");
    let (client, server) = hosts.pair(false);
    setsockopt(&client, sockopt::Ipv4Tos, &2).expect("ECT(0)");
    for n in 0..300u32 {
        client.send(&n.to_be_bytes()).expect("sent");
    }
    assert_eq!(arrivals(&server).len(), 300, "with checksums that are right");
    let [up, _] = link.end();
    assert!(up["marked"].as_u64() > Some(3) && up["dropped_by_queue"] == 0, "{up}");
}

#[test]
fn a_trace_delivers_no_more_than_its_opportunities_carry() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    let file = std::env::temp_dir().join(format!("{}.trace", hosts.names[ROUTER]));
    std::fs::write(&file, "10\n").expect("the trace");
    let link = hosts.link(&format!("unshaped,up-trace={},up-queue=1000", file.display()));
    std::fs::remove_file(&file).expect("it was read");
    let (client, server) = hosts.pair(false);
    let start = Instant::now();
    // IP packets of 1000 bytes: thirty of them take twenty opportunities, 10 ms apart
    for n in 0..30u8 {
        client.send(&[n; 972]).expect("sent");
    }
    let mut buffer = [0; 1500];
    for n in 0..30u8 {
        let got = retried(|| server.recv(&mut buffer)).expect("all of them");
        assert!(buffer[..got] == [n; 972], "{n}");
    }
    // the first leave with the next opportunity, however many nobody used before
    assert!(start.elapsed() >= Duration::from_millis(180), "{:?}", start.elapsed());
    let [up, _] = link.end();
    assert_eq!((&up["received"], &up["forwarded"]), (&30.into(), &30.into()), "{up}");
}

#[test]
fn an_interface_that_disappears_ends_the_link_with_an_error() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    let mut link = hosts.link("100mbit");
    run(&format!("ip -n {} link del to-server", hosts.names[ROUTER]));
    let status = link.child.wait().expect("its end");
    let mut said = String::new();
    link.child.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("`to-server` went down or disappeared"), "{said}");
}

#[test]
fn rejects_bad_arguments() {
    if !privileged() {
        return;
    }
    let hosts = Hosts::new(1500, false);
    for (arguments, words) in [
        ("--a to-client --b nothing", "no interface `nothing`"),
        ("--a to-client --b to-client", "given twice"),
        ("--a to-client --b to-server --rate fast", "`fast` is not a rate"),
        ("--a to-client --b to-server --jitter 1ms", "jitter exceeds the delay"),
        ("--a to-client --b to-server --rate 1mbit --spec 1mbit", "cannot be used with"),
        ("--a to-client --b to-server --rate 1mbit --trace a.trace", "cannot be used with"),
        ("--a to-client --b to-server --trace a.trace --trace-folder /none", "cannot read /none/a"),
    ] {
        let output = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", hosts.names[ROUTER]))
            .args([HEADROOM, "link"])
            .args(arguments.split(' '))
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
