//! Who may knock at a server's door: how many come at once and from where, and a
//! count of what is turned away. Handshakes beyond the bounds wait for their turn; whoever
//! has not shown that its address is real waits at home.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The log has a line about what is turned away no more often.
const LOGGED: Duration = Duration::from_secs(10);

/// A connection that ends is remembered for three probe timeouts (RFC 9000, section
/// 10.2), of a second where no round trip is known yet (RFC 9002, section 6.2.2).
const CLOSING_TIME: Duration = Duration::from_secs(3);

/// Bounds of what strangers can take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub of_address: usize,
    /// Handshakes at once: those beyond wait for their turn.
    pub handshakes: usize,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub handshakes_of_address: usize,
    /// Handshakes from which on an address must first show that it is real, for
    /// which it needs one more round trip (RFC 9000, section 8.1.2).
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

/// What a server has turned away since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectionCounts {
    /// First packets whose sender was asked to show that its address is real.
    pub unvalidated_packets: u64,
    /// Connections refused since there were as many as there may be.
    pub full: u64,
    /// Connections refused since their address had as many as it may have.
    pub full_for_address: u64,
    /// Handshakes that were not done in time.
    pub slow: u64,
    /// Handshakes that failed: no identity that is let in, or another protocol.
    pub failed: u64,
    /// Connections ended since the client broke the rules of the protocol.
    pub protocol: u64,
}

impl fmt::Display for RejectionCounts {
    /// What happened at all.
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

/// Keeps to the bounds.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: Limits,
    /// Handshakes that go on or wait for their turn.
    opening: AtomicUsize,
    handshakes: Arc<Semaphore>,
    addresses: Mutex<HashMap<IpAddr, Address>>,
    rejected: Mutex<(RejectionCounts, Option<Instant>)>,
}

/// What comes from one address.
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

    /// Lets somebody wait for a handshake, where there are so many connections
    /// already; else that is answered here.
    pub(crate) fn accept(
        self: &Arc<Self>,
        incoming: Incoming,
        connections: usize,
    ) -> Option<(Incoming, PendingHandshake)> {
        let opening = self.opening.load(Ordering::Relaxed);
        if opening >= self.limits.unvalidated && incoming.may_retry() {
            self.reject(|rejected| rejected.unvalidated_packets += 1);
            // it could be: that was asked
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

    /// Counts something that is turned away. The log has the counts now and then:
    /// a flood must not fill it.
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

/// Somebody whose handshake waits for its turn.
pub(crate) struct PendingHandshake {
    slot: ConnectionSlot,
    handshakes: Arc<Semaphore>,
    opening: OpeningCount,
}

/// A handshake's turn, until it is dropped.
pub(crate) struct HandshakePermit {
    opening: OpeningCount,
    permits: [OwnedSemaphorePermit; 2],
}

impl HandshakePermit {
    /// The handshake failed. What is left of it stays in memory for a while, and so
    /// it still counts, but others have their turn.
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
    /// Waits for the turn. The place is kept as long as the connection lasts.
    pub(crate) async fn permit(self) -> Option<(ConnectionSlot, HandshakePermit)> {
        // its address first: one that is crowded takes no turns from others
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

/// A place among the connections of an address, until it is dropped.
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

/// What one customer of a provider has: an address of IPv4, a /64 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let octets = address.octets();
            let mut network = [0; 16];
            network[..8].copy_from_slice(&octets[..8]);
            Ipv6Addr::from(network).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_gives_them_back() {
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
    fn what_was_turned_away_is_named() {
        let rejected = RejectionCounts { full: 2, slow: 1, ..RejectionCounts::default() };
        assert_eq!(rejected.to_string(), "2 refused: too many connections, 1 handshakes too slow");
    }
}
