//! What all threads of a datapath share.

use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use headroom_ipsec::{Bundle, Engine, Mode};
use headroom_packet::{Ip, Version, mss, protocol};

use super::held::Held;
use super::paths::{IPV6_MIN_MTU, Paths};
use super::settings::{IkeDatagram, Settings};
use super::sockets::Sockets;
use super::tracer::Tracer;

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: ArcSwap<Engine>,
    pub(crate) sockets: ArcSwap<Sockets>,
    pub(crate) paths: Paths,
    pub(crate) tracer: Tracer,
    pub(crate) held: Held,
    pub(crate) settings: Settings,
    pub(crate) started: Instant,
}

impl Shared {
    /// Returns the time of the engine's clock.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Keeps a packet whose association is not there yet, if IKE brings it for the first packet.
    pub(crate) fn keep(&self, policy: &str, read: &[u8]) -> bool {
        let Some(ike) = &self.settings.ike else { return false };
        let is_kept = self.held.keep(policy, read);
        if is_kept {
            // a full inbox wakes its reader as well
            let _ = ike.inbox.try_send(IkeDatagram::wake());
        }
        is_kept
    }

    /// Returns the largest TCP segment that fits `bundle`, if `ip` is a SYN.
    #[inline]
    pub(crate) fn largest_segment(
        &self,
        bundle: &Bundle,
        ip: &Ip<'_>,
        path_mtu: usize,
    ) -> Option<u16> {
        let opens = ip.upper() == protocol::TCP && mss::may_be_syn(ip.payload());
        if !opens || bundle.mode() != Mode::Tunnel {
            return None;
        }
        let passes = bundle.inner_mtu(path_mtu, 0).min(self.settings.clamp_mss?);
        // packets of 1280 bytes pass every path, if necessary in outer fragments
        let least = if ip.version() == Version::V6 { IPV6_MIN_MTU } else { 0 };
        Some(mss::of_mtu(ip.version(), passes.max(least)))
    }
}
