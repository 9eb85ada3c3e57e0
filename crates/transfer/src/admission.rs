//! Admission control of a server: bounds on connections and handshakes, in total and from one
//! address, and counts of what is rejected. Handshakes beyond the bounds wait; clients beyond a
//! threshold must first prove that their address is real.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The log mentions rejections no more often than this.
const LOGGED: Duration = Duration::from_secs(10);

/// A closed connection stays in memory for three probe timeouts (RFC 9000, section 10.2), of
/// one second while no round trip is known (RFC 9002, section 6.2.2).
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            of_address: 1024,
            handshakes: 256,
            handshakes_of_address: 64,
            unvalidated: 32,
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
}

impl fmt::Display for RejectionCounts {
    /// Lists the counts that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.unvalidated_packets, "asked whether their address is real"),
            (self.full, "refused: too many connections"),
            (self.full_for_address, "refused: too many connections of one address"),
            (self.slow, "handshakes too slow"),
            (self.failed, "handshakes failed"),
            (self.protocol, "connections ended for breaking the rules"),
        ];
        let mut comma = "";
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{comma}{count} {what}")?;
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
    handshakes: Arc<Semaphore>,
    addresses: Mutex<HashMap<IpAddr, Address>>,
    rejected: Mutex<(RejectionCounts, Option<Instant>)>,
}

/// The connections and handshakes of one address.
#[derive(Debug)]
struct Address {
    connections: usize,
    handshakes: Arc<Semaphore>,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            opening: AtomicUsize::new(0),
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
    pub(crate) fn accept_tcp(
        self: &Arc<Self>,
        address: IpAddr,
        connections: usize,
    ) -> Option<ConnectionSlot> {
        if connections >= self.limits.connections {
            self.reject(|rejected| rejected.full += 1);
            return None;
        }
        let slot = ConnectionSlot::take(self, address).map(|(slot, _)| slot);
        if slot.is_none() {
            self.reject(|rejected| rejected.full_for_address += 1);
        }
        slot
    }

    /// Counts a rejection. The log shows the counts now and then: a flood must not fill it.
    pub(crate) fn reject(&self, count: impl FnOnce(&mut RejectionCounts)) {
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        count(&mut rejected.0);
        if rejected.1.is_none_or(|logged| logged.elapsed() >= LOGGED) {
            rejected.1 = Some(Instant::now());
            tracing::warn!("turned away since the start: {}", rejected.0);
        }
    }

    pub(crate) fn rejections(&self) -> RejectionCounts {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, Address>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
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
        let of_address = addresses.entry(address).or_insert_with(|| Address {
            connections: 0,
            handshakes: Arc::new(Semaphore::new(of.limits.handshakes_of_address)),
        });
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
        let mut addresses = self.of.addresses();
        if let Some(of_address) = addresses.get_mut(&self.address) {
            of_address.connections -= 1;
            if of_address.connections == 0 {
                addresses.remove(&self.address);
            }
        }
    }
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
    fn rejected_connections_are_counted_by_reason() {
        let rejected = RejectionCounts { full: 2, slow: 1, ..RejectionCounts::default() };
        assert_eq!(rejected.to_string(), "2 refused: too many connections, 1 handshakes too slow");
    }
}
