//! Admission control of a server: bounds on connections and handshakes, in total and from one
//! address, and counts of what is rejected. Handshakes beyond the bounds wait; clients beyond a
//! threshold must first prove that their address is real.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use quinn::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The log mentions rejections no more often than this.
const LOGGED: Duration = Duration::from_secs(10);

/// A closed connection stays in memory for three probe timeouts (RFC 9000, section 10.2): of 0.3 s
/// each while no round trip is known, and of about a second on the longest paths.
const CLOSING_TIME: Duration = Duration::from_secs(3);

/// Bounds on unauthenticated clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub of_address: usize,
    /// Handshakes at once; more of them wait.
    pub handshakes: usize,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub handshakes_of_address: usize,
    /// The number of handshakes beyond which an address must be validated first, which takes one
    /// more round trip (RFC 9000, section 8.1.2).
    pub unvalidated: usize,
    /// TCP connections at once, of browsers. Each needs a file descriptor, so there are at most
    /// half as many as those.
    pub tcp: usize,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub tcp_of_address: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            of_address: 1024,
            handshakes: 256,
            handshakes_of_address: 64,
            unvalidated: 32,
            tcp: 1024,
            tcp_of_address: 256,
        }
    }
}

/// What a server has rejected since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectionCounts {
    /// First packets answered with a Retry, to validate the address.
    pub unvalidated_packets: u64,
    /// Connections refused because there were too many.
    pub full: u64,
    /// Connections refused because their address had too many.
    pub full_for_address: u64,
    /// Handshakes that took too long.
    pub slow: u64,
    /// Handshakes that failed: an unknown identity, or another protocol.
    pub failed: u64,
    /// Connections closed because the client violated the protocol.
    pub protocol: u64,
    /// Sessions refused after the handshake: an unknown key, a wrong proof, an invitation or a
    /// share link that is not open.
    pub unauthorized: u64,
    /// Sessions refused because the server shuts down.
    pub draining: u64,
}

impl RejectionCounts {
    /// Returns each count, with the name of its reason and words for the log.
    const fn table(&self) -> [(u64, &'static str, &'static str); 8] {
        [
            (self.unvalidated_packets, "unvalidated", "asked to validate the address"),
            (self.full, "full", "too many connections"),
            (self.full_for_address, "full_for_address", "too many connections of one address"),
            (self.slow, "slow_handshake", "slow handshake"),
            (
                self.failed,
                "failed_handshake",
                "failed handshake (an unknown key, or another protocol)",
            ),
            (self.protocol, "protocol", "protocol violation"),
            (self.unauthorized, "unauthorized", "no known key or open link"),
            (self.draining, "draining", "the server is shutting down"),
        ]
    }

    /// Returns the name of each reason and its count.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.table().into_iter().map(|(count, name, _)| (name, count))
    }
}

impl fmt::Display for RejectionCounts {
    /// Lists the counts that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (count, _, what) in self.table().into_iter().filter(|(count, ..)| *count > 0) {
            write!(f, "{comma}{count} × {what}")?;
            comma = ", ";
        }
        Ok(())
    }
}

/// Enforces the bounds.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    /// Handshakes in progress or waiting.
    opening: AtomicUsize,
    /// TCP connections, and how many there may be.
    tcp: AtomicUsize,
    most_tcp: usize,
    handshakes: Arc<Semaphore>,
    addresses: Mutex<HashMap<IpAddr, Address>>,
    rejected: Mutex<(RejectionCounts, Option<Instant>)>,
}

/// The connections and handshakes of one address.
#[derive(Debug)]
struct Address {
    connections: usize,
    tcp: usize,
    handshakes: Arc<Semaphore>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            opening: AtomicUsize::new(0),
            tcp: AtomicUsize::new(0),
            most_tcp: limits.tcp.min(file_descriptors() / 2),
            handshakes: Arc::new(Semaphore::new(limits.handshakes)),
            addresses: Mutex::default(),
            rejected: Mutex::default(),
        })
    }

    /// Accepts a connection attempt, or answers it here: with a Retry, or a refusal.
    pub(crate) fn accept(
        self: &Arc<Self>,
        incoming: Incoming,
        connections: usize,
    ) -> Option<(Incoming, PendingHandshake)> {
        let opening = self.opening.load(Ordering::Relaxed);
        if opening >= self.limits.unvalidated && incoming.may_retry() {
            self.reject(|rejected| rejected.unvalidated_packets += 1);
            // `may_retry` said that this cannot fail
            let _ = incoming.retry();
            return None;
        }
        if connections >= self.limits.connections {
            self.reject(|rejected| rejected.full += 1);
            incoming.refuse();
            return None;
        }
        let Some((slot, handshakes)) = ConnectionSlot::take(self, incoming.remote_address().ip())
        else {
            self.reject(|rejected| rejected.full_for_address += 1);
            incoming.refuse();
            return None;
        };
        self.opening.fetch_add(1, Ordering::Relaxed);
        let opening = OpeningCount(Arc::clone(self));
        Some((incoming, PendingHandshake { slot, handshakes, opening }))
    }

    /// Accepts a TCP connection, unless there are too many.
    pub(crate) fn accept_tcp(self: &Arc<Self>, address: IpAddr) -> Option<TcpSlot> {
        let address = network(address);
        if self.tcp.load(Ordering::Relaxed) >= self.most_tcp {
            self.reject(|rejected| rejected.full += 1);
            return None;
        }
        let mut addresses = self.addresses();
        let of_address = self.address(&mut addresses, address);
        let is_full = of_address.tcp >= self.limits.tcp_of_address;
        let handshakes = Arc::clone(&of_address.handshakes);
        of_address.tcp += usize::from(!is_full);
        drop(addresses);
        if is_full {
            self.reject(|rejected| rejected.full_for_address += 1);
            return None;
        }
        self.tcp.fetch_add(1, Ordering::Relaxed);
        Some(TcpSlot { of: Arc::clone(self), address, handshakes })
    }

    fn address<'a>(
        &self,
        addresses: &'a mut HashMap<IpAddr, Address>,
        address: IpAddr,
    ) -> &'a mut Address {
        addresses.entry(address).or_insert_with(|| Address {
            connections: 0,
            tcp: 0,
            handshakes: Arc::new(Semaphore::new(self.limits.handshakes_of_address)),
        })
    }

    /// Gives back what an address has.
    fn release(&self, address: IpAddr, give: impl FnOnce(&mut Address)) {
        let mut addresses = self.addresses();
        if let Some(of_address) = addresses.get_mut(&address) {
            give(of_address);
            if of_address.connections == 0 && of_address.tcp == 0 {
                addresses.remove(&address);
            }
        }
    }

    /// Permits a session over a TCP connection as long as its client is not authenticated, unless
    /// too many are not.
    pub(crate) fn session_permit(self: &Arc<Self>, address: IpAddr) -> Option<HandshakePermit> {
        let own = self.addresses().get(&network(address)).map(|it| Arc::clone(&it.handshakes))?;
        let own = own.try_acquire_owned().ok();
        let all =
            own.and_then(|own| Some((own, Arc::clone(&self.handshakes).try_acquire_owned().ok()?)));
        let Some((own, all)) = all else {
            self.reject(|rejected| rejected.full_for_address += 1);
            return None;
        };
        self.opening.fetch_add(1, Ordering::Relaxed);
        Some(HandshakePermit { opening: OpeningCount(Arc::clone(self)), permits: [own, all] })
    }

    /// Counts a rejection that is no news: a page whose key is not known asks every few seconds.
    pub(crate) fn count(&self, count: impl FnOnce(&mut RejectionCounts)) {
        count(&mut lock(&self.rejected).0);
    }

    /// Counts a rejection. The log shows the counts now and then: a flood must not fill it.
    pub(crate) fn reject(&self, count: impl FnOnce(&mut RejectionCounts)) {
        let mut rejected = lock(&self.rejected);
        count(&mut rejected.0);
        if rejected.1.is_none_or(|logged| logged.elapsed() >= LOGGED) {
            rejected.1 = Some(Instant::now());
            tracing::warn!("rejected since the start: {}", rejected.0);
        }
    }

    pub(crate) fn rejections(&self) -> RejectionCounts {
        lock(&self.rejected).0
    }

    /// Returns the number of handshakes in progress or waiting.
    pub(crate) fn handshakes(&self) -> usize {
        self.opening.load(Ordering::Relaxed)
    }

    /// Returns the number of TCP connections.
    pub(crate) fn tcp_connections(&self) -> usize {
        self.tcp.load(Ordering::Relaxed)
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, Address>> {
        lock(&self.addresses)
    }
}

/// A handshake that waits.
pub(crate) struct PendingHandshake {
    slot: ConnectionSlot,
    handshakes: Arc<Semaphore>,
    opening: OpeningCount,
}

/// The permission for one handshake, until it is dropped.
pub(crate) struct HandshakePermit {
    opening: OpeningCount,
    permits: [OwnedSemaphorePermit; 2],
}

impl HandshakePermit {
    /// Notes that the handshake failed. Its connection stays in memory for a while and still
    /// counts, but others may start their handshakes.
    pub(crate) fn fail(self, slot: ConnectionSlot) {
        let Self { opening, permits } = self;
        drop(permits);
        tokio::spawn(async move {
            tokio::time::sleep(CLOSING_TIME).await;
            drop((opening, slot));
        });
    }
}

impl PendingHandshake {
    /// Waits for permission. The slot is held as long as the connection lasts.
    pub(crate) async fn permit(self) -> Option<(ConnectionSlot, HandshakePermit)> {
        // its address first: a crowded one takes no permits from others
        let own = self.handshakes.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.opening.0.handshakes).acquire_owned().await.ok()?;
        Some((self.slot, HandshakePermit { opening: self.opening, permits: [own, all] }))
    }
}

struct OpeningCount(Arc<Admission>);

impl Drop for OpeningCount {
    fn drop(&mut self) {
        self.0.opening.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of the connections of an address, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    of: Arc<Admission>,
    address: IpAddr,
}

impl ConnectionSlot {
    fn take(of: &Arc<Admission>, address: IpAddr) -> Option<(Self, Arc<Semaphore>)> {
        let address = network(address);
        let mut addresses = of.addresses();
        let of_address = of.address(&mut addresses, address);
        if of_address.connections >= of.limits.of_address {
            return None;
        }
        of_address.connections += 1;
        let handshakes = Arc::clone(&of_address.handshakes);
        drop(addresses);
        Some((Self { of: Arc::clone(of), address }, handshakes))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.of.release(self.address, |of_address| of_address.connections -= 1);
    }
}

/// One of the TCP connections of an address, until it is dropped.
#[derive(Debug)]
pub struct TcpSlot {
    of: Arc<Admission>,
    address: IpAddr,
    handshakes: Arc<Semaphore>,
}

impl TcpSlot {
    /// Waits for permission for a TLS handshake: those of one address count together.
    pub async fn handshake(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.handshakes).acquire_owned().await.ok()
    }
}

impl Drop for TcpSlot {
    fn drop(&mut self) {
        self.of.tcp.fetch_sub(1, Ordering::Relaxed);
        self.of.release(self.address, |of_address| of_address.tcp -= 1);
    }
}

/// Returns how many file descriptors this process may have, and lets it have as many as it can.
fn file_descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    usize::try_from(if is_raised { hard } else { soft }).unwrap_or(usize::MAX)
}

/// Returns the network that one customer of a provider has: an IPv4 address, an IPv6 /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bytes = address.octets();
            let mut network = [0; 16];
            network[..8].copy_from_slice(&bytes[..8]);
            Ipv6Addr::from(network).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_address_are_limited_and_released() {
        let admission = Admission::new(Limits { of_address: 2, ..Limits::default() });
        let take =
            |address: &str| ConnectionSlot::take(&admission, address.parse().expect(address));
        let one = take("192.0.2.1").expect("a place");
        let two = take("::ffff:192.0.2.1").expect("the same address, written for IPv6");
        assert!(take("192.0.2.1").is_none());
        let other = take("2001:db8::1:2").expect("another address");
        let sister = take("2001:db8::9").expect("of the same /64");
        assert!(take("2001:db8::").is_none());
        drop(one);
        let again = take("192.0.2.1").expect("it was given back");
        drop((two, other, sister, again));
        assert!(admission.addresses().is_empty());
    }

    #[test]
    fn tcp_connections_have_bounds_of_their_own() {
        let limits = Limits { tcp: 3, tcp_of_address: 2, of_address: 1, ..Limits::default() };
        let admission = Admission::new(limits);
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let quic = ConnectionSlot::take(&admission, one).expect("a place");
        let first = admission.accept_tcp(one).expect("a place");
        let second = admission.accept_tcp(one).expect("QUIC takes none of them");
        assert!(admission.accept_tcp(one).is_none(), "too many of this address");
        assert!(ConnectionSlot::take(&admission, other).is_some());
        let third = admission.accept_tcp(other).expect("a place");
        assert!(admission.accept_tcp(IpAddr::from([192, 0, 2, 3])).is_none(), "too many");
        drop(first);
        drop(admission.accept_tcp(one).expect("one was given back"));
        drop((quic, second, third));
        assert!(admission.addresses().is_empty());
        assert_eq!(admission.tcp.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn rejected_connections_are_counted_by_reason() {
        let rejected = RejectionCounts { full: 2, slow: 1, ..RejectionCounts::default() };
        assert_eq!(rejected.to_string(), "2 × too many connections, 1 × slow handshake");
        let named: Vec<_> = rejected.named().filter(|(_, count)| *count > 0).collect();
        assert_eq!(named, [("full", 2), ("slow_handshake", 1)]);
    }
}
