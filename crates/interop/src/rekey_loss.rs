//! Counts the packets that rekeying loses: two of our gateways on an emulated link, under load,
//! with keys that change all the time.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use headroom_load::{Server, packets};
use headroom_mutex::lock;
use serde_json::Value;

use crate::folder::Folder;
use crate::gateway::Gateway;
use crate::namespace::Namespace;

/// How often one end rekeys the CHILD SA, in seconds, and how often the IKE SA.
const CHILD_SECONDS: u64 = 1;
const IKE_SECONDS: u64 = 10;
/// Bytes of a datagram, which fills a packet of the tunnel.
const SIZE: usize = 1280;
/// Senders, and servers, on a link with delay: one waits for reports most of the time, so that it sends some
/// 10 Mbit/s at a round trip of 100 ms.
const SENDERS_OVER_DELAY: u16 = 96;
/// Time of one part of the load, after which the rekeys are counted.
const PART: Duration = Duration::from_secs(5);
/// Longer than a negotiation takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was sent and what became of it.
#[derive(Debug, Default, Clone)]
pub struct Losses {
    /// The link, as `headroom link` names it; empty: without emulation.
    pub link: String,
    /// CHILD SAs that replaced others.
    pub child_rekeys: u64,
    /// IKE SAs that replaced others.
    pub ike_rekeys: u64,
    /// Datagrams that arrived.
    pub arrived: u64,
    /// Datagrams that did not.
    pub lost: u64,
    /// Frames that the link lost in the direction of the load.
    pub lost_by_link: u64,
    /// Packets that found a queue of a host full: of a socket or of an interface.
    pub lost_by_queues: u64,
    /// Packets that either gateway dropped, by reason.
    pub dropped: Vec<(String, u64)>,
    /// Bits of datagrams that arrived in a second.
    pub bits_per_second: f64,
}

impl Losses {
    /// Returns whether all that was lost was lost by the link, or before a full queue.
    pub fn none_by_rekeying(&self) -> bool {
        self.dropped.is_empty() && self.lost <= self.lost_by_link + self.lost_by_queues
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dropped: Vec<String> =
            self.dropped.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        write!(
            f,
            "link {}: {} CHILD and {} IKE rekeys, {:.2} Gbit/s, {} datagrams arrived, {} lost, {} frames lost by the link, {} by full queues, dropped by the gateways: {}",
            if self.link.is_empty() { "without delay or loss" } else { &self.link },
            self.child_rekeys,
            self.ike_rekeys,
            self.bits_per_second / 1e9,
            self.arrived,
            self.lost,
            self.lost_by_link,
            self.lost_by_queues,
            if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") },
        )
    }
}

/// Sends datagrams until the CHILD SA was rekeyed `rekeys` times and the IKE SA a tenth as often.
/// `link` is a link of `headroom link`; empty: without emulation. Needs root.
///
/// # Errors
/// A step failed, or no key changed for a minute.
pub fn count(headroom: &Path, link: &str, rekeys: u64) -> Result<Losses> {
    let folder = Folder::new()?;
    let hosts = [Namespace::new()?, Namespace::new()?];
    let between = Namespace::new()?;
    let emulator = connect(headroom, &hosts, &between, link)?;
    let gateways = [0, 1].map(|end| start(headroom, &folder.0, &hosts[end], end));
    let [here, there] = gateways;
    let (here, there) = (here?, there?);
    wait_until_up(headroom, &here)?;
    let counter = Counter::start(headroom.to_owned(), here);
    let mut losses = Losses { link: link.to_owned(), ..Losses::default() };
    let senders = if link.is_empty() { 1 } else { SENDERS_OVER_DELAY };
    let servers: Vec<_> =
        (0..senders).map(|sender| serve(&hosts[1], sender)).collect::<Result<_>>()?;
    let (mut seconds, mut last_change) = (0.0, Instant::now());
    while losses.child_rekeys < rekeys || losses.ike_rekeys < rekeys / 10 {
        let load = |to| hosts[0].spawn(move || Ok(packets(to, SIZE, PART, b"rekey")?));
        let running: Vec<_> = servers.iter().copied().map(load).collect();
        for sender in running {
            let sent = sender.join().context("the load")?;
            losses.arrived += sent.packets;
            losses.lost += sent.lost;
            seconds += sent.seconds / f64::from(senders);
        }
        let before = losses.child_rekeys;
        (losses.child_rekeys, losses.ike_rekeys) = counter.rekeys();
        if losses.child_rekeys > before {
            last_change = Instant::now();
        }
        ensure!(last_change.elapsed() < PATIENCE, "no key has changed for a minute");
    }
    losses.bits_per_second = losses.arrived as f64 * SIZE as f64 * 8.0 / seconds;
    let here = counter.end()?;
    for host in &hosts {
        losses.lost_by_queues += full_queues(host)?;
    }
    for gateway in [&here, &there] {
        losses.dropped.extend(drops(headroom, gateway)?);
    }
    if let Some(emulator) = emulator {
        losses.lost_by_link = emulator.lost()?;
    }
    Ok(losses)
}

/// Connects the hosts by a link, emulated or not.
fn connect(
    headroom: &Path,
    hosts: &[Namespace; 2],
    between: &Namespace,
    link: &str,
) -> Result<Option<Emulator>> {
    let wire = |one: &Namespace, name: &str, other: &Namespace| -> Result<()> {
        let pid = other.pid().to_string();
        one.run(&[
            "ip", "link", "add", name, "type", "veth", "peer", "name", "wire", "netns", &pid,
        ])?;
        one.run(&["ip", "link", "set", name, "up"]).map(drop)
    };
    if link.is_empty() {
        wire(&hosts[0], "direct", &hosts[1])?;
        hosts[0].run(&["ip", "link", "set", "direct", "down"])?;
        hosts[0].run(&["ip", "link", "set", "direct", "name", "wire"])?;
    } else {
        wire(between, "first", &hosts[0])?;
        wire(between, "second", &hosts[1])?;
    }
    for (host, number) in hosts.iter().zip(1..) {
        for line in [
            format!("ip addr add 192.0.2.{number}/24 dev wire"),
            format!("ip addr add 10.{number}.0.1/32 dev lo"),
            "ip link set wire up".to_owned(),
        ] {
            host.run(&line.split(' ').collect::<Vec<_>>())?;
        }
    }
    if link.is_empty() { Ok(None) } else { Emulator::start(headroom, between, link).map(Some) }
}

fn start(headroom: &Path, folder: &Path, host: &Namespace, end: usize) -> Result<Gateway> {
    let folder = folder.join(end.to_string());
    std::fs::create_dir(&folder)?;
    let (own, other) = (end + 1, 2 - end);
    // one end rekeys, so each change is one
    let [ike, child] = if end == 0 {
        [IKE_SECONDS, CHILD_SECONDS].map(|seconds| format!("rekey_seconds = {seconds}\n"))
    } else {
        [String::new(), String::new()]
    };
    let configuration = format!(
        "name = \"hr0\"\n[ike]\nlocal = \"192.0.2.{own}\"\nremote = \"192.0.2.{other}\"\n\
         psk = \"known to two namespaces only\"\ninitiate = {}\n{ike}\
         [[child]]\nlocal = \"10.{own}.0.1\"\nremote = \"10.{other}.0.1\"\n{child}",
        end == 0
    );
    Gateway::start(headroom, &configuration, &folder, host)
}

fn status(headroom: &Path, gateway: &Gateway) -> Result<Value> {
    Ok(serde_json::from_str(&gateway.control(headroom, &["status", "--json"])?)?)
}

fn wait_until_up(headroom: &Path, gateway: &Gateway) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while spis(&status(headroom, gateway)?).is_empty() {
        if Instant::now() > deadline {
            bail!("no tunnel came up: {}", gateway.said());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn spis(status: &Value) -> Vec<u64> {
    let all = status["associations"].as_array().into_iter().flatten();
    all.filter(|one| one["direction"] == "in").filter_map(|one| one["spi"].as_u64()).collect()
}

/// Starts the server of a sender.
fn serve(host: &Namespace, sender: u16) -> Result<SocketAddr> {
    let address: SocketAddr = ([10, 2, 0, 1], 7000 + sender).into();
    let server = host.spawn(move || {
        let server = Server::bind(address, None).context("the load's server")?;
        // it runs until this process ends
        std::thread::spawn(move || server.run());
        Ok(())
    });
    server.join()?;
    Ok(address)
}

/// Returns how many packets a host's sockets and interfaces have dropped.
fn full_queues(host: &Namespace) -> Result<u64> {
    let counters = host.run(&["cat", "/proc/net/snmp", "/proc/net/dev"])?;
    // two lines: names and numbers
    let mut udp = counters.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (udp.next().unwrap_or_default(), udp.next().unwrap_or_default());
    let by_name = names.split_whitespace().zip(numbers.split_whitespace());
    let mut by_sockets = by_name.filter(|(name, _)| *name == "RcvbufErrors");
    let (_, by_sockets) = by_sockets.next().context("/proc/net/snmp has no RcvbufErrors")?;
    let mut lost: u64 = by_sockets.parse()?;
    for (_, numbers) in counters
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| matches!(name.trim(), "wire" | "hr0"))
    {
        // the fourth of eight numbers in each direction
        let drops = numbers.split_whitespace().skip(3).step_by(8);
        lost += drops.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    }
    Ok(lost)
}

/// What a gateway dropped, but for keepalives of the NAT, which nobody waits for.
fn drops(headroom: &Path, gateway: &Gateway) -> Result<Vec<(String, u64)>> {
    let status = status(headroom, gateway)?;
    let drops = status["drops"].as_object().into_iter().flatten();
    Ok(drops
        .filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?)))
        .filter(|(reason, count)| *count > 0 && reason != "keepalive")
        .collect())
}

/// Counts rekeys while the load runs: those of a CHILD SA are shorter than a part of the load.
struct Counter {
    stop: Arc<AtomicBool>,
    counts: Arc<Mutex<(u64, u64)>>,
    thread: std::thread::JoinHandle<Result<Gateway>>,
}

impl Counter {
    fn start(headroom: PathBuf, gateway: Gateway) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Mutex::new((0, 0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&counts));
        let thread = std::thread::spawn(move || {
            let mut seen = spis(&status(&headroom, &gateway)?);
            let first = seen.len() as u64;
            while !stopped.load(Ordering::Relaxed) {
                let status = status(&headroom, &gateway)?;
                for spi in spis(&status) {
                    if !seen.contains(&spi) {
                        seen.push(spi);
                    }
                }
                let ike = status["ike"][0]["rekeys"].as_u64().unwrap_or_default();
                *lock(&counted) = (seen.len() as u64 - first, ike);
                std::thread::sleep(Duration::from_millis(200));
            }
            Ok(gateway)
        });
        Self { stop, counts, thread }
    }

    fn rekeys(&self) -> (u64, u64) {
        *lock(&self.counts)
    }

    fn end(self) -> Result<Gateway> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(gateway) => gateway,
            Err(_) => bail!("the thread that counts rekeys panicked"),
        }
    }
}

/// `headroom link` in a namespace. Dropping it ends it.
struct Emulator {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Emulator {
    fn start(headroom: &Path, between: &Namespace, link: &str) -> Result<Self> {
        let mut child = between
            .command(&[])
            .arg(headroom)
            .args([
                "link", "--a", "first", "--b", "second", "--json", "--seed", "1", "--spec", link,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting headroom link")?;
        let output = child.stdout.take().context("its output")?;
        let mut emulator = Self { child, output: BufReader::new(output) };
        let ready = emulator.line()?;
        ensure!(ready["ready"] == true, "headroom link: {ready}");
        Ok(emulator)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("reading from headroom link")?;
        serde_json::from_str(&line).with_context(|| format!("headroom link: {line:?}"))
    }

    /// Returns the frames that it lost from A to B.
    fn lost(mut self) -> Result<u64> {
        let mut input = self.child.stdin.take().context("its input")?;
        input.write_all(b"stats\n")?;
        let counters = [self.line()?, self.line()?];
        let forward = &counters[0];
        let count = |name: &str| {
            forward[name].as_u64().with_context(|| format!("no `{name}`: headroom link: {forward}"))
        };
        Ok(count("lost")? + count("dropped_by_queue")? + count("dropped_by_memory")?)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
