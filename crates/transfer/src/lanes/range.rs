//! A range of ports for lanes, one for each transfer in turn, so that late packets of an
//! earlier transfer do not reach a later one. The scheme is that of a study (Tornai et al.,
//! 2020, section 4); here keys and lane IDs prevent that anyway.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use headroom_mutex::lock;
use headroom_netio::UdpSocket;
use headroom_netio::udp::Options;

use super::dropped::DropCounts;
use super::engine::Engine;

/// The most ports that are open at once, each with an engine's thread and memory: the latest
/// ones.
const MAX_OPEN: usize = 8;
/// The most ports to try before a transfer uses streams.
const MAX_TRIED: usize = 256;
/// The kernel's range of ephemeral ports.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A range of ports.
pub(super) struct Range {
    address: IpAddr,
    ports: RangeInclusive<u16>,
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    /// Transfers that had a port.
    next: usize,
    /// In the order of opening.
    open: Vec<(u16, Arc<Engine>)>,
    /// What the closed ones had dropped.
    dropped: DropCounts,
}

impl Range {
    /// Uses ports of this address.
    ///
    /// # Errors
    /// None of them can be opened.
    pub(super) fn open(address: IpAddr, ports: RangeInclusive<u16>) -> io::Result<Self> {
        let free = std::fs::read_to_string(EPHEMERAL).ok().and_then(|text| ephemeral(&text));
        if let Some(free) = free.filter(|free| overlap(free, &ports)) {
            tracing::warn!(
                "UDP ports {}-{} for lanes overlap the ephemeral ports of this system ({}-{}, {EPHEMERAL}): ports in use are skipped. Choose ports below {}",
                ports.start(),
                ports.end(),
                free.start(),
                free.end(),
                free.start()
            );
        }
        let range = Self { address, ports, turns: Mutex::default() };
        let mut refused = io::ErrorKind::InvalidInput.into();
        for port in range.ports.clone().take(MAX_TRIED) {
            match range.bind(port) {
                Ok(_) => return Ok(range),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Returns the port of the next transfer; `None` if none can be opened.
    pub(super) fn turn(&self) -> Option<(u16, Arc<Engine>)> {
        let mut turns = lock(&self.turns);
        for _ in 0..self.ports.len().min(MAX_TRIED) {
            let port = *self.ports.start() + (turns.next % self.ports.len()) as u16;
            if let Some(open) = turns.open.iter().find(|(open, _)| *open == port).cloned() {
                turns.next += 1;
                return Some(open);
            }
            if !turns.make_room() {
                break;
            }
            turns.next += 1;
            // another program may have it
            if let Ok(engine) = self.bind(port).and_then(Engine::start) {
                let open = (port, Arc::new(engine));
                turns.open.push(open.clone());
                return Some(open);
            }
        }
        // all open ports are in use: lanes share a port, as they do without a range
        turns.open.iter().min_by_key(|(_, engine)| Arc::strong_count(engine)).cloned()
    }

    fn bind(&self, port: u16) -> io::Result<UdpSocket> {
        let options = Options { dual_stack: true, ignore_errors: true, ..Options::default() };
        UdpSocket::bind(SocketAddr::new(self.address, port), &options)
    }

    /// Reads what was dropped since the start.
    pub(super) fn drop_counts(&self) -> DropCounts {
        let turns = lock(&self.turns);
        let open: DropCounts = turns.open.iter().map(|(_, engine)| engine.drop_counts()).sum();
        open.plus(turns.dropped)
    }

    /// Returns the open engines.
    #[cfg(test)]
    pub(super) fn engines(&self) -> Vec<Arc<Engine>> {
        let turns = lock(&self.turns);
        turns.open.iter().map(|(_, engine)| Arc::clone(engine)).collect()
    }
}

impl Turns {
    /// Closes the unused port that was opened first, if the limit is reached. Returns whether
    /// another may be opened.
    fn make_room(&mut self) -> bool {
        if self.open.len() < MAX_OPEN {
            return true;
        }
        let idle = self.open.iter().position(|(_, engine)| Arc::strong_count(engine) == 1);
        let Some((_, engine)) = idle.map(|idle| self.open.remove(idle)) else { return false };
        self.dropped = self.dropped.plus(engine.drop_counts());
        true
    }
}

/// `FIRST LAST`, as the kernel has it.
fn ephemeral(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

fn overlap(one: &RangeInclusive<u16>, other: &RangeInclusive<u16>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_or_not() {
        let free = ephemeral("32768\t60999\n").expect("two numbers");
        assert_eq!(free, 32768..=60999);
        let overlaps = |first, last| overlap(&free, &(first..=last));
        assert!(!overlaps(20000, 20255) && !overlaps(61000, 61255));
        assert!(overlaps(32768, 32768) && overlaps(60999, 61255) && overlaps(20000, 65535));
        assert_eq!(ephemeral("32768"), None);
    }

    #[test]
    fn ports_are_used_in_turn_and_few_are_open() {
        // an address that is this process's alone, so that nobody else has the ports
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let (address, first) = (IpAddr::from([127, high, low, 2]), 20_000);
        let taken = std::net::UdpSocket::bind((address, first + 3)).expect("a free port");
        let range = Range::open(address, first..=first + 11).expect("free ports");
        let mut turns = Vec::new();
        for _ in 0..30 {
            let (port, engine) = range.turn().expect("a port");
            assert!(!turns.iter().rev().take(5).any(|before| *before == port), "{port}: {turns:?}");
            assert!(range.engines().len() <= MAX_OPEN);
            turns.push(port);
            drop(engine);
        }
        assert_eq!(
            turns[..4],
            [first, first + 1, first + 2, first + 4],
            "what is taken is passed over"
        );
        drop(taken);
        // when all are used, they are shared
        let used: Vec<_> = (0..20).map(|_| range.turn().expect("a port")).collect();
        assert_eq!(used.len(), 20);
        // a port that was closed is free only when its thread has ended
        assert!((4..=MAX_OPEN).contains(&range.engines().len()));
    }
}
