//! Remembers path MTUs (RFC 1191, RFC 8201).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use headroom_netio::route;

/// The minimum MTU of IPv6 (RFC 8200, section 5). Assumed if the kernel has no route.
pub const IPV6_MIN_MTU: usize = 1280;

/// The most paths that are remembered. Further ones, of packets sent in clear, cause a query each.
const MAX_PATHS: usize = 1024;

/// The path MTUs of all peers, as the kernel learned them from routers.
#[derive(Debug)]
pub struct Paths {
    mark: u32,
    configured: Option<usize>,
    known: ArcSwap<HashMap<IpAddr, usize>>,
    /// Incremented by each change.
    generation: AtomicU64,
}

impl Paths {
    /// Makes the table for packets with this mark. A `configured` MTU applies to all paths.
    #[must_use]
    pub fn new(mark: u32, configured: Option<usize>) -> Self {
        Self { mark, configured, known: ArcSwap::default(), generation: AtomicU64::new(1) }
    }

    /// Returns the longest outer packet to `destination`.
    pub fn mtu(&self, destination: IpAddr) -> usize {
        if let Some(configured) = self.configured {
            return configured;
        }
        let known = self.known.load().get(&destination).copied();
        known.unwrap_or_else(|| self.query(destination))
    }

    /// Queries the kernel about one path.
    pub fn query(&self, destination: IpAddr) -> usize {
        let mtu = route::path_mtu(destination, Some(self.mark)).unwrap_or(IPV6_MIN_MTU);
        // some kernels report 65536 for loopback; no packet is that long
        let mtu = mtu.min(usize::from(u16::MAX));
        let known = self.known.load();
        let before = known.get(&destination);
        if before != Some(&mtu) && (before.is_some() || known.len() < MAX_PATHS) {
            self.known.rcu(|known| {
                let mut known = HashMap::clone(known);
                known.insert(destination, mtu);
                known
            });
            self.generation.fetch_add(1, Ordering::Release);
        }
        mtu
    }

    /// Queries the kernel about all remembered paths.
    pub fn query_all(&self) {
        let known = self.known.load_full();
        for destination in known.keys() {
            self.query(*destination);
        }
    }

    /// Returns a number that changes when a path does.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// Caches the path of a thread's last packet.
#[derive(Debug, Default)]
pub struct LastPath {
    last: Option<(u64, IpAddr, usize)>,
}

impl LastPath {
    /// As [`Paths::mtu`].
    pub fn mtu(&mut self, paths: &Paths, destination: IpAddr) -> usize {
        let generation = paths.generation();
        match self.last {
            Some((then, of, mtu)) if then == generation && of == destination => mtu,
            _ => {
                let mtu = paths.mtu(destination);
                self.last = Some((paths.generation(), destination, mtu));
                mtu
            }
        }
    }
}
