//! Handles packets that are longer than the path once they are protected (docs/datapath.md,
//! "Packets longer than the path").
//!
//! Tunnel mode fragments the inner packet before sealing it, where that is allowed, so that routers
//! see whole packets, and ports of Q-ESP in each (RFC 4301, section 8; docs/qesp.md). Transport mode
//! protects whole datagrams (RFC 4303, section 3.3.4), so the outer packet is fragmented. A sender
//! that must make smaller packets gets an ICMP message.

use std::hash::BuildHasher;

use headroom_ipsec::{Bundle, Engine, Headers, Mode, Policy, Reason};
use headroom_packet::fragment::Fragmenter;
use headroom_packet::{Ip, Offload, Segmenter, Version, header, icmp, protocol};

use super::device::{TunDevice, WireTx};
use super::outbound::Outbound;
use super::outbox::{Transmit, transmit_of};
use super::paths::IPV6_MIN_MTU;

/// The treatment of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OversizeAction {
    /// Sends it whole; the outer packet may be fragmented.
    Send,
    /// Fragments it into packets of this length.
    Fragment(usize),
    /// Drops it, and reports this MTU to the sender.
    Reject(usize),
}

impl<T: TunDevice, D: WireTx> Outbound<T, D> {
    /// Protects a packet or train whose longest segment does not fit the path, as far as possible.
    pub(super) fn protect_oversize(
        &mut self,
        engine: &Engine,
        segmenter: &Segmenter<'_>,
        policy: &Policy,
        bundle: &Bundle,
        path_mtu: usize,
    ) {
        each_segment(segmenter, |segment| {
            let Ok(ip) = Ip::parse(segment) else { return true };
            let headers = Headers::read(&ip);
            match action_for(bundle, &headers, &ip, path_mtu) {
                OversizeAction::Send => {
                    self.seal_and_fragment(engine, &headers, segment, bundle, path_mtu);
                }
                OversizeAction::Reject(mtu) => {
                    self.reject_too_big(engine, &headers, &ip, policy, mtu);
                    return false; // the other segments are as long
                }
                OversizeAction::Fragment(mtu) => {
                    let Ok(fragmenter) = Fragmenter::new(ip, mtu, self.fragment_id()) else {
                        engine.counters().add(Reason::TooBig, 1);
                        return true;
                    };
                    for index in 0..fragmenter.fragments() {
                        let mut piece =
                            vec![0; fragmenter.head_len(index) + fragmenter.payload(index).len()];
                        if fragmenter.copy(index, &mut piece).is_ok()
                            && let Ok(ip) = Ip::parse(&piece)
                        {
                            let headers = Headers::read(&ip);
                            self.seal_and_fragment(engine, &headers, &piece, bundle, path_mtu);
                        }
                    }
                }
            }
            true
        });
    }

    /// Sends in clear a packet or train that does not fit the path.
    pub(super) fn bypass_oversize(
        &mut self,
        engine: &Engine,
        segmenter: &Segmenter<'_>,
        policy: &Policy,
        path_mtu: usize,
    ) {
        each_segment(segmenter, |segment| {
            let Ok(ip) = Ip::parse(segment) else { return true };
            if ip.total_len() > path_mtu
                && ip.upper() == protocol::TCP
                && must_not_be_fragmented(&ip)
            {
                self.reject_too_big(engine, &Headers::read(&ip), &ip, policy, path_mtu);
                return false;
            }
            self.send_fragmented(engine, segment, path_mtu);
            true
        });
    }

    /// Seals one packet, and fragments the outer one if necessary.
    fn seal_and_fragment(
        &mut self,
        engine: &Engine,
        headers: &Headers,
        packet: &[u8],
        bundle: &Bundle,
        path_mtu: usize,
    ) {
        let sealed = bundle.reserve(1, packet.len() as u64).and_then(|mut reservation| {
            let least = bundle.sealed_len(packet.len(), headers.security_offset);
            let mut sealed = vec![0; least.max(path_mtu)];
            let write = |place: &mut [u8]| place.copy_from_slice(packet);
            let len = bundle.seal(&mut reservation, headers, packet.len(), &mut sealed, write)?;
            sealed.truncate(len);
            Ok((sealed, reservation.destination()))
        });
        match sealed {
            Ok((sealed, to)) => match transmit_of(bundle, to, &sealed) {
                // the kernel fragments what UDP sockets send
                Transmit::Datagrams { source, destination, port, tos, dont_fragment, skip } => {
                    let dont_fragment = dont_fragment && sealed.len() <= path_mtu;
                    let transmit =
                        Transmit::Datagrams { source, destination, port, tos, dont_fragment, skip };
                    self.enqueue(engine, &sealed, transmit);
                }
                Transmit::Packets { .. } => self.send_fragmented(engine, &sealed, path_mtu),
            },
            Err(reason) => engine.counters().add(reason, 1),
        }
    }

    /// Sends an IP packet, in fragments if necessary.
    fn send_fragmented(&mut self, engine: &Engine, packet: &[u8], path_mtu: usize) {
        let mut packet = packet.to_vec();
        if packet.len() > path_mtu && packet[0] >> 4 == 4 {
            packet[6] &= !0x40; // DF
            let _ = header::refresh_checksum(&mut packet); // a whole header has one
        }
        let id = self.fragment_id();
        let fragmenter =
            Ip::parse(&packet).ok().and_then(|ip| Fragmenter::new(ip, path_mtu, id).ok());
        let Some(fragmenter) = fragmenter else { return engine.counters().add(Reason::TooBig, 1) };
        for index in 0..fragmenter.fragments() {
            let mut piece = vec![0; fragmenter.head_len(index) + fragmenter.payload(index).len()];
            if fragmenter.copy(index, &mut piece).is_ok()
                && let Ok(ip) = Ip::parse(&piece)
            {
                let transmit =
                    Transmit::Packets { source: ip.source(), destination: ip.destination() };
                self.enqueue(engine, &piece, transmit);
            }
        }
    }

    /// Copies a packet into the send buffer.
    fn enqueue(&mut self, engine: &Engine, packet: &[u8], transmit: Transmit) {
        let added = self.outbox.space(&mut self.wire).map(|space| {
            space[..packet.len()].copy_from_slice(packet);
        });
        let added = added.and_then(|()| self.outbox.add(packet.len(), transmit, &mut self.wire));
        if let Err(unsent) = added {
            self.count_unsent(engine, &unsent);
        }
    }

    /// Drops a packet and reports the MTU to its sender.
    fn reject_too_big(
        &mut self,
        engine: &Engine,
        headers: &Headers,
        packet: &Ip<'_>,
        policy: &Policy,
        mtu: usize,
    ) {
        self.drop_whole(engine, headers, (1, packet.total_len()), Some(policy), Reason::TooBig);
        if !self.icmp_limit.allows() {
            return;
        }
        let mut answer = [0; icmp::MAX_LEN];
        // from the destination: it has the right family and is on this route
        let from = packet.destination();
        if let Some(len) = icmp::too_big(packet, mtu as u32, from, &mut answer) {
            let parts = [std::io::IoSlice::new(&answer[..len])];
            if self.tun.write(&Offload::default(), &parts).is_err() {
                engine.counters().add(Reason::DeliverFailed, 1);
            }
        }
    }

    /// Returns an unpredictable identification that repeats late (RFC 7739).
    fn fragment_id(&mut self) -> u32 {
        self.fragments = self.fragments.wrapping_add(1);
        self.hasher.hash_one(self.fragments) as u32
    }
}

/// Decides the treatment of one packet.
fn action_for(bundle: &Bundle, headers: &Headers, ip: &Ip<'_>, path_mtu: usize) -> OversizeAction {
    let len = ip.total_len();
    if bundle.sealed_len(len, headers.security_offset) <= path_mtu {
        return OversizeAction::Send;
    }
    let passes = bundle.inner_mtu(path_mtu, headers.security_offset);
    match bundle.mode() {
        Mode::Tunnel if ip.version() == Version::V6 && len <= IPV6_MIN_MTU => OversizeAction::Send,
        // RFC 2473, section 7.1
        Mode::Tunnel if ip.version() == Version::V6 => {
            OversizeAction::Reject(passes.max(IPV6_MIN_MTU))
        }
        Mode::Tunnel if ip.dont_fragment() => OversizeAction::Reject(passes),
        Mode::Tunnel => OversizeAction::Fragment(passes),
        // A host sets DF on its own datagrams to learn the path MTU, and then would send
        // fragments, which transport mode must not protect. TCP makes smaller segments.
        Mode::Transport if headers.protocol == protocol::TCP && must_not_be_fragmented(ip) => {
            OversizeAction::Reject(passes)
        }
        Mode::Transport => OversizeAction::Send,
    }
}

fn must_not_be_fragmented(ip: &Ip<'_>) -> bool {
    ip.version() == Version::V6 || ip.dont_fragment()
}

/// Passes each segment to `take` as a packet of its own, until it returns false.
fn each_segment(segmenter: &Segmenter<'_>, mut take: impl FnMut(&[u8]) -> bool) {
    for index in 0..segmenter.segments() {
        let mut segment = vec![0; segmenter.head_len() + segmenter.payload(index).len()];
        if segmenter.copy(index, &mut segment).is_ok() && !take(&segment) {
            return;
        }
    }
}
