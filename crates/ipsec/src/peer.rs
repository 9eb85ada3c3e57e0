//! The address of a peer that may move: that of the newest authenticated packet (RFC 3947, section 6;
//! RFC 7296, section 2.23).

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use headroom_mutex::lock;

use crate::spec::{Direction, SaSpec};

/// The least time between two messages about one peer: an attacker on the path can move it with every
/// packet.
const BETWEEN_MESSAGES: Duration = Duration::from_secs(10);

/// The configured ends of ESP in UDP. Associations of one path share a peer and a NAT mapping; another
/// group has another peer, which may have got the mapping after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) group: u64,
}

/// A peer whose address is followed.
#[derive(Debug)]
pub struct Peer {
    path: Path,
    /// The version of a sequence lock: odd while `endpoint` is being written.
    version: AtomicU64,
    /// The current address, encoded by [`words_of`].
    endpoint: [AtomicU64; 3],
    /// Its lock is held while `version` and `endpoint` change.
    reported: Mutex<Reported>,
}

/// What was reported about a peer.
#[derive(Debug, Default)]
struct Reported {
    changes: u64,
    at: Option<Duration>,
}

/// A change of a peer's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMoved {
    /// The configured address.
    pub configured: SocketAddr,
    /// The current address.
    pub now: SocketAddr,
    /// The number of changes so far.
    pub changes: u64,
    /// The group of its associations ([`SaSpec::peer_group`]).
    pub group: u64,
}

impl Path {
    /// Returns the path of an association with ESP in UDP.
    pub(crate) fn of(spec: &SaSpec) -> Option<Self> {
        let ports = spec.udp?;
        let source = SocketAddr::new(spec.source, ports.source);
        let destination = SocketAddr::new(spec.destination, ports.destination);
        let (local, remote) = match spec.direction {
            Direction::Out => (source, destination),
            Direction::In => (destination, source),
        };
        Some(Self { local, remote, group: spec.peer_group })
    }
}

impl Peer {
    /// Makes a peer at its configured address.
    pub(crate) fn new(path: Path) -> Self {
        let endpoint = words_of(path.remote).map(AtomicU64::new);
        Self { path, version: AtomicU64::new(0), endpoint, reported: Mutex::default() }
    }

    /// Returns the configured address.
    pub fn configured(&self) -> SocketAddr {
        self.path.remote
    }

    /// Returns the current address.
    pub fn now(&self) -> SocketAddr {
        let before = self.version.load(Ordering::Acquire);
        let endpoint = self.endpoint();
        fence(Ordering::Acquire);
        if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
            return self.address_of(endpoint);
        }
        // a change is in progress: wait for its end
        let _turn = self.reported();
        self.address_of(self.endpoint())
    }

    /// Returns how often the address or the port has changed.
    pub fn changes(&self) -> u64 {
        self.version.load(Ordering::Relaxed) / 2
    }

    /// Learns the source of an authenticated packet that is the newest of its association. Returns whether
    /// the address changed.
    #[inline(always)]
    pub(crate) fn learn(&self, from: SocketAddr) -> bool {
        words_of(from) != self.endpoint() && self.move_to(from)
    }

    #[cold]
    fn move_to(&self, to: SocketAddr) -> bool {
        let _turn = self.reported();
        let endpoint = words_of(to);
        if !self.is_usable(to) || endpoint == self.endpoint() {
            return false;
        }
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, new) in self.endpoint.iter().zip(endpoint) {
            word.store(new, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
        true
    }

    /// Whether an address is that of another host, of the family of the open sockets.
    fn is_usable(&self, at: SocketAddr) -> bool {
        let Path { local, remote, .. } = self.path;
        let usable = match at.ip() {
            IpAddr::V4(v4) => !v4.is_broadcast(),
            // a link-local address says nothing without its interface
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none() && !v6.is_unicast_link_local(),
        };
        usable
            && at.is_ipv4() == remote.is_ipv4()
            && at.port() != 0
            && at.ip() != local.ip()
            && !at.ip().is_unspecified()
            && !at.ip().is_multicast()
            && (!at.ip().is_loopback() || remote.ip().is_loopback())
    }

    /// Returns a change that was not reported yet, unless one was reported shortly before.
    pub(crate) fn take_change(&self, now: Duration) -> Option<PeerMoved> {
        let changes = self.changes();
        let mut reported = self.reported();
        let early = reported.at.is_some_and(|at| now.saturating_sub(at) < BETWEEN_MESSAGES);
        if reported.changes == changes || early {
            return None;
        }
        *reported = Reported { changes, at: Some(now) };
        let endpoint = self.address_of(self.endpoint());
        let (configured, group) = (self.configured(), self.path.group);
        Some(PeerMoved { configured, now: endpoint, changes, group })
    }

    fn endpoint(&self) -> [u64; 3] {
        self.endpoint.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Decodes [`words_of`]. The family is always that of the configured address.
    fn address_of(&self, [high, low, port]: [u64; 3]) -> SocketAddr {
        let address = match self.path.remote {
            SocketAddr::V4(_) => IpAddr::from((low as u32).to_be_bytes()),
            SocketAddr::V6(_) => {
                IpAddr::from((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
            }
        };
        SocketAddr::new(address, port as u16)
    }

    fn reported(&self) -> MutexGuard<'_, Reported> {
        lock(&self.reported)
    }
}

/// Encodes an address in two words and its port in one.
fn words_of(address: SocketAddr) -> [u64; 3] {
    let octets = match address.ip() {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(octets >> 64) as u64, octets as u64, u64::from(address.port())]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn peer(local: &str, remote: &str) -> Peer {
        Peer::new(Path { local: address(local), remote: address(remote), group: 0 })
    }

    #[test]
    fn address_is_the_last_one_learned() {
        for (local, remote, other) in [
            ("192.0.2.1:4500", "192.0.2.2:4500", "198.51.100.7:40001"),
            ("[2001:db8::1]:4500", "[2001:db8::2]:4500", "[2001:db8:1:2:3:4:5:6]:40001"),
        ] {
            let peer = peer(local, remote);
            assert_eq!((peer.now(), peer.changes()), (address(remote), 0));
            assert!(!peer.learn(address(remote)), "no change");
            assert!(peer.learn(address(other)) && !peer.learn(address(other)));
            assert_eq!((peer.now(), peer.changes()), (address(other), 1));
            assert!(peer.learn(address(remote)));
            assert_eq!((peer.now(), peer.changes()), (address(remote), 2));
            assert_eq!(peer.configured(), address(remote));
        }
    }

    #[test]
    fn rejects_addresses_that_no_other_host_can_have() {
        for (local, remote, places) in [
            (
                "192.0.2.1:4500",
                "192.0.2.2:4500",
                &[
                    "192.0.2.1:4501",
                    "192.0.2.3:0",
                    "0.0.0.0:4500",
                    "224.0.0.1:4500",
                    "255.255.255.255:4500",
                    "127.0.0.1:4500",
                    "[2001:db8::3]:4500",
                    "[::ffff:192.0.2.3]:4500",
                ][..],
            ),
            (
                "[2001:db8::1]:4500",
                "[2001:db8::2]:4500",
                &[
                    "[2001:db8::1]:4501",
                    "[2001:db8::3]:0",
                    "[::]:4500",
                    "[ff02::1]:4500",
                    "[::1]:4500",
                    "[fe80::1]:4500",
                    "[::ffff:192.0.2.3]:4500",
                    "192.0.2.3:4500",
                ][..],
            ),
        ] {
            let peer = peer(local, remote);
            for endpoint in places {
                assert!(!peer.learn(address(endpoint)), "{endpoint}");
            }
            assert_eq!((peer.now(), peer.changes()), (address(remote), 0));
        }
    }

    #[test]
    fn reports_a_change_once_and_at_a_limited_rate() {
        let peer = peer("192.0.2.1:4500", "192.0.2.2:4500");
        let at = Duration::from_secs;
        assert_eq!(peer.take_change(at(1)), None);
        peer.learn(address("192.0.2.3:1"));
        let change = peer.take_change(at(2)).expect("a change");
        assert_eq!((change.now, change.changes), (address("192.0.2.3:1"), 1));
        assert_eq!(peer.take_change(at(20)), None, "it is known");
        for port in 2..100 {
            peer.learn(SocketAddr::new(change.now.ip(), port));
        }
        assert!(peer.take_change(at(21)).is_some());
        peer.learn(address("192.0.2.4:1"));
        assert_eq!(peer.take_change(at(30)), None, "a moment ago something was reported");
        assert_eq!(peer.take_change(at(31)).map(|change| change.changes), Some(100));
    }

    #[test]
    fn concurrent_readers_never_see_a_mixed_address() {
        let peer = peer("[2001:db8::1]:4500", "[2001:db8::2]:4500");
        let endpoint = |n: u16| SocketAddr::new(IpAddr::from([n + 1; 8]), n + 1);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20_000 {
                    assert!(peer.learn(endpoint(n)));
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let now = peer.now();
                let whole = now == peer.configured() || now == endpoint(now.port() - 1);
                assert!(whole, "{now}");
            }
        });
        assert_eq!(peer.changes(), 20_000);
    }
}
