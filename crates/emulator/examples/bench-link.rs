//! How good is the emulator on this machine? Builds client, router and server
//! (namespaces, removed at the end), sends 1500-byte packets through it and
//! compares what arrives, frame by frame, with what the model says should.
//! Needs root: `cargo run --release -p headroom-emulator --example bench-link`.
//! A rate such as `1gbit` as argument tests only that.

use std::fs::File;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use headroom_emulator::model::{Disposition, Model};
use headroom_emulator::{Emulator, Settings};
use headroom_link_spec::LinkSpec;
use headroom_netio::link_socket::BATCH;
use headroom_netio::{Capture, LinkSocket, capture};
use nix::sched::{CloneFlags, setns};

const FRAME: usize = 1514;
const FRAME_BITS: f64 = (FRAME as f64 + 24.0) * 8.0;
/// An EtherType for experiments (IEEE 802), which no host answers.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
const SEED: u64 = 7;
const NAMES: [&str; 3] = ["hr-bench-client", "hr-bench-router", "hr-bench-server"];
/// What is sent, as a share of the rate: a little less, to see delays without a
/// queue; a little more, to see the rate.
const BELOW: f64 = 0.5;
const ABOVE: f64 = 1.03;

fn main() {
    let hosts = Hosts::new();
    let one: Vec<String> = std::env::args().skip(1).collect();
    let rates = ["100mbit", "1gbit", "2gbit", "3gbit", "4gbit", "5gbit", "6gbit"];
    println!("| link | offered | passed | error | delay error, median | 99 % | lost | CPU |");
    println!("|---|---|---|---|---|---|---|---|");
    for rate in
        rates.iter().map(|rate| (*rate).to_owned()).filter(|r| one.is_empty() || one.contains(r))
    {
        for (spec, share) in [
            (format!("{rate},delay=5ms"), ABOVE),
            (format!("{rate},delay=5ms"), BELOW),
            (format!("{rate},delay=5ms,loss=1%"), BELOW),
        ] {
            println!("{}", hosts.measure(&spec.parse().expect("a link"), share));
        }
    }
}

/// The three namespaces.
struct Hosts;

impl Hosts {
    fn new() -> Self {
        for name in NAMES {
            run(&format!("ip netns add {name}"));
            run(&format!(
                "nsenter --net=/run/netns/{name} sysctl -qw net.ipv6.conf.default.disable_ipv6=1"
            ));
        }
        for (host, peer) in [(NAMES[0], "to-client"), (NAMES[2], "to-server")] {
            run(&format!(
                "ip -n {host} link add eth0 type veth peer name {peer} netns {}",
                NAMES[1]
            ));
            run(&format!("ip -n {host} link set eth0 up"));
            run(&format!("ip -n {} link set {peer} up", NAMES[1]));
        }
        Self
    }

    fn measure(&self, spec: &LinkSpec, share: f64) -> String {
        let rate_bps = spec.up.rate_bps.expect("a rate") as f64;
        let seconds = 1.5;
        let count = (rate_bps * share * seconds / FRAME_BITS) as u32;
        let settings = Settings {
            a: "to-client".into(),
            b: "to-server".into(),
            spec: spec.clone(),
            seed: SEED,
        };
        let (ready, began) = channel();
        std::thread::scope(|scope| {
            let link = scope.spawn(move || {
                enter(NAMES[1]);
                let mut emulator = Emulator::open(&settings).expect("the emulator");
                ready.send(emulator.shared()).expect("the bench waits");
                let before = cpu_ns();
                emulator.run().expect("forwards");
                cpu_ns() - before
            });
            let shared = began.recv().expect("the emulator starts");
            let entering = tap(NAMES[1], "to-client", count);
            let leaving = tap(NAMES[2], "eth0", count);
            let start = Instant::now();
            scope.spawn(move || send(count, rate_bps * share)).join().expect("sent");
            let seconds = start.elapsed().as_secs_f64();
            std::thread::sleep(Duration::from_millis(150));
            shared.stop();
            let cpu = link.join().expect("ends") as f64 / 1e9 / seconds;
            let counters = shared.counters()[0];
            let (sent, got) = (drain(entering), drain(leaving));
            judge(spec, share, &sent, &got, cpu, counters.dropped_by_kernel)
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        NAMES.iter().for_each(|name| run(&format!("ip netns del {name}")));
    }
}

/// Compares what left with what the model makes of what entered.
fn judge(
    spec: &LinkSpec,
    share: f64,
    sent: &[(u32, u64)],
    got: &[(u32, u64)],
    cpu: f64,
    dropped: u64,
) -> String {
    let mut model = Model::new(&spec.up, SEED, 0);
    let mut due = vec![None; sent.len().max(1)];
    let mut lost = 0u32;
    for &(number, at_ns) in sent {
        match model.offer(at_ns, FRAME) {
            Disposition::Delivered(delivery) => due[number as usize] = Some(delivery.at_ns),
            Disposition::Lost => lost += 1,
            Disposition::DroppedByQueue => {}
        }
    }
    let mut errors_us: Vec<f64> = got
        .iter()
        .filter_map(|&(number, at_ns)| {
            due.get(number as usize).copied().flatten().map(|due| (at_ns as f64 - due as f64) / 1e3)
        })
        .collect();
    errors_us.sort_by(f64::total_cmp);
    let quantile = |q: f64| {
        errors_us.get(((errors_us.len() - 1) as f64 * q) as usize).copied().unwrap_or(f64::NAN)
    };
    let rate_bps = spec.up.rate_bps.expect("a rate") as f64;
    let bps = |frames: usize, first_ns: u64, last_ns: u64| {
        frames as f64 * FRAME_BITS / ((last_ns - first_ns) as f64 / 1e9)
    };
    let offered = bps(sent.len() - 1, sent[0].1, sent[sent.len() - 1].1);
    let (from, to) = (got.len() / 5, got.len() * 49 / 50);
    let measured = bps(to - from, got[from].1, got[to].1);
    // a sender that did not fill the link says nothing about its rate
    let rate = match offered > rate_bps {
        true => format!("{:+.3} %", 100.0 * (measured / rate_bps - 1.0)),
        false => String::new(),
    };
    let missing = sent.len() - got.len();
    let chance = match spec.up.loss.average_pct() / 100.0 {
        p if p > 0.0 => {
            let n = sent.len() as f64;
            let half = 1.96 * (n * p * (1.0 - p)).sqrt();
            format!("{missing} (model {lost}; 95 %: {:.0} to {:.0})", n * p - half, n * p + half)
        }
        _ if share > 1.0 => "queue".into(),
        _ => missing.to_string(),
    };
    let kernel =
        if dropped > 0 { format!(", {dropped} dropped by the kernel") } else { String::new() };
    format!(
        "| {spec} | {:.0} Mbit/s | {:.2} Mbit/s | {rate} | {:.1} µs | {:.1} µs | {chance}{kernel} | {:.0} % |",
        rate_bps * share / 1e6,
        measured / 1e6,
        quantile(0.5),
        quantile(0.99),
        cpu * 100.0
    )
}

/// Sends numbered frames at a rate, in groups of 200 µs.
fn send(count: u32, rate_bps: f64) {
    enter(NAMES[0]);
    let socket = LinkSocket::open("eth0").expect("eth0");
    let mut frames = vec![vec![0u8; FRAME]; BATCH];
    for frame in &mut frames {
        frame[..6].copy_from_slice(&[2; 6]);
        frame[6..12].copy_from_slice(&[4; 6]);
        frame[12..14].copy_from_slice(&EXPERIMENT);
    }
    let (start, mut next) = (Instant::now(), 0u32);
    while next < count {
        let allowed = (start.elapsed().as_secs_f64() * rate_bps / FRAME_BITS) as u32 + 1;
        let now = allowed.min(count).saturating_sub(next).min(BATCH as u32);
        for (frame, number) in frames.iter_mut().zip(next..next + now) {
            frame[14..18].copy_from_slice(&number.to_be_bytes());
        }
        let mut rest = &frames[..now as usize];
        while !rest.is_empty() {
            rest = &rest[socket.send(rest).expect("sent")..];
        }
        next += now;
        if now < BATCH as u32 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn tap(namespace: &'static str, interface: &'static str, count: u32) -> Capture {
    let open = move || {
        enter(namespace);
        Capture::open(interface, count as usize + 1000, capture::HEAD).expect("a capture")
    };
    std::thread::spawn(open).join().expect("a capture")
}

/// Number and time of each frame of the experiment.
fn drain(mut capture: Capture) -> Vec<(u32, u64)> {
    let mut frames = Vec::new();
    capture.drain(|frame| {
        if frame.bytes[12..14] == EXPERIMENT {
            let number = u32::from_be_bytes(frame.bytes[14..18].try_into().expect("four bytes"));
            frames.push((number, frame.time.as_nanos() as u64));
        }
    });
    assert_eq!(capture.dropped().expect("a count"), 0, "the capture dropped frames");
    frames
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace");
    setns(file, CloneFlags::CLONE_NEWNET).expect("root");
}

/// Time that the calling thread has run, its share of the kernel included.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().expect("a command")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{line}");
}
