//! How long a packet each path takes (path MTU, RFC 1191, RFC 8201).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use headroom_netio::route;

/// What every path takes: IPv6's least (RFC 8200, section 5). Assumed where the
/// kernel has no route.
pub const IPV6_MIN_MTU: usize = 1280;

/// Paths that are remembered. Further ones, of packets sent in clear, are asked
/// about each time.
const MAX_PATHS: usize = 1024;

/// The path MTUs of all peers; asked of the kernel, which learns from routers.
#[derive(Debug)]
pub struct Paths {
    mark: u32,
    configured: Option<usize>,
    known: ArcSwap<HashMap<IpAddr, usize>>,
    /// Grows with each change.
    generation: AtomicU64,
}

impl Paths {
    /// Paths of packets with this mark; `configured` octets, where configured.
    #[must_use]
    pub fn new(mark: u32, configured: Option<usize>) -> Self {
        Self { mark, configured, known: ArcSwap::default(), generation: AtomicU64::new(1) }
    }

    /// Octets of the longest outer packet to `destination`.
    pub fn mtu(&self, destination: IpAddr) -> usize {
        if let Some(configured) = self.configured {
            return configured;
        }
        let known = self.known.load().get(&destination).copied();
        known.unwrap_or_else(|| self.query(destination))
    }

    /// Asks the kernel about one path, again.
    pub fn query(&self, destination: IpAddr) -> usize {
        let mtu = route::path_mtu(destination, Some(self.mark)).unwrap_or(IPV6_MIN_MTU);
        // some kernels say 65 536 for loopback; no packet is that long
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

    /// Asks the kernel about all paths that were of interest.
    pub fn query_all(&self) {
        let known = self.known.load_full();
        for destination in known.keys() {
            self.query(*destination);
        }
    }

    /// A number that changes when a path does.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// The path of one thread's last packet, so that the next asks nobody.
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
