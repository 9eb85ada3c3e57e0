//! Packets that are too big for the path once they are protected (DATAPATH 7).
//!
//! In tunnel mode the inner packet is cut before it is sealed where it may be,
//! so that every piece is a packet of its own to routers and to Q-ESP (RFC 4301,
//! section 8; docs/qesp.md). In transport mode only whole datagrams are protected
//! (RFC 4303, section 3.3.4), so the outer packet is cut. A sender that must
//! make smaller packets is told so.

use std::hash::BuildHasher;

use headroom_ipsec::{Bundle, Engine, Headers, Mode, Policy, Reason};
use headroom_packet::fragment::Fragmenter;
use headroom_packet::{Ip, Offload, Segmenter, Version, header, icmp, protocol};

use super::ends::{Departures, Tunnel};
use super::outbound::Outbound;
use super::outbox::{Way, way_of};
use super::paths::LEAST;

/// What becomes of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It fits, or the outer packet is cut.
    Whole,
    /// It is cut into packets of so many octets.
    Cut(usize),
    /// Its sender is told how many octets would pass.
    Refuse(usize),
}

impl<T: Tunnel, D: Departures> Outbound<T, D> {
    /// Protects what it can of a packet or train whose longest segment does not
    /// fit the path.
    pub(super) fn protect_big(
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
            match fate(bundle, &headers, &ip, path_mtu) {
                Fate::Whole => self.seal_and_cut(engine, &headers, segment, bundle, path_mtu),
                Fate::Refuse(mtu) => {
                    self.refuse(engine, &headers, &ip, policy, mtu);
                    return false; // the others of a train are as long
                }
                Fate::Cut(mtu) => {
                    let Ok(cut) = Fragmenter::new(ip, mtu, self.fragment_id()) else {
                        engine.counters().add(Reason::TooBig, 1);
                        return true;
                    };
                    for index in 0..cut.fragments() {
                        let mut piece = vec![0; cut.head_len(index) + cut.payload(index).len()];
                        if cut.copy(index, &mut piece).is_ok()
                            && let Ok(ip) = Ip::parse(&piece)
                        {
                            let headers = Headers::read(&ip);
                            self.seal_and_cut(engine, &headers, &piece, bundle, path_mtu);
                        }
                    }
                }
            }
            true
        });
    }

    /// Sends in clear what does not fit the path, as [`Outbound::protect_big`].
    pub(super) fn bypass_big(
        &mut self,
        engine: &Engine,
        segmenter: &Segmenter<'_>,
        policy: &Policy,
        path_mtu: usize,
    ) {
        each_segment(segmenter, |segment| {
            let Ok(ip) = Ip::parse(segment) else { return true };
            if ip.total_len() > path_mtu && ip.upper() == protocol::TCP && may_not_be_cut(&ip) {
                self.refuse(engine, &Headers::read(&ip), &ip, policy, path_mtu);
                return false;
            }
            self.send_cut(engine, segment, path_mtu);
            true
        });
    }

    /// Seals one packet, and cuts the outer one where it must.
    fn seal_and_cut(
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
            Ok((sealed, to)) => match way_of(bundle, to, &sealed) {
                // the kernel cuts what its own sockets send
                Way::Datagrams { source, destination, port, tos, dont_fragment, skip } => {
                    let dont_fragment = dont_fragment && sealed.len() <= path_mtu;
                    let way =
                        Way::Datagrams { source, destination, port, tos, dont_fragment, skip };
                    self.post(engine, &sealed, way);
                }
                Way::Packets { .. } => self.send_cut(engine, &sealed, path_mtu),
            },
            Err(reason) => engine.counters().add(reason, 1),
        }
    }

    /// Sends a whole IP packet, in fragments where it must be.
    fn send_cut(&mut self, engine: &Engine, packet: &[u8], path_mtu: usize) {
        let mut packet = packet.to_vec();
        if packet.len() > path_mtu && packet[0] >> 4 == 4 {
            packet[6] &= !0x40; // DF
            let _ = header::refresh_checksum(&mut packet); // a whole header has one
        }
        let id = self.fragment_id();
        let cut = Ip::parse(&packet).ok().and_then(|ip| Fragmenter::new(ip, path_mtu, id).ok());
        let Some(cut) = cut else { return engine.counters().add(Reason::TooBig, 1) };
        for index in 0..cut.fragments() {
            let mut piece = vec![0; cut.head_len(index) + cut.payload(index).len()];
            if cut.copy(index, &mut piece).is_ok()
                && let Ok(ip) = Ip::parse(&piece)
            {
                let way = Way::Packets { source: ip.source(), destination: ip.destination() };
                self.post(engine, &piece, way);
            }
        }
    }

    /// Puts a packet that was made elsewhere among those that leave.
    fn post(&mut self, engine: &Engine, packet: &[u8], way: Way) {
        let added = self.outbox.room(&mut self.wire).map(|room| {
            room[..packet.len()].copy_from_slice(packet);
        });
        let added = added.and_then(|()| self.outbox.add(packet.len(), way, &mut self.wire));
        if let Err(unsent) = added {
            self.count_unsent(engine, &unsent);
        }
    }

    /// Tells the sender of a packet how long one may be.
    fn refuse(
        &mut self,
        engine: &Engine,
        headers: &Headers,
        packet: &Ip<'_>,
        policy: &Policy,
        mtu: usize,
    ) {
        self.drop_whole(engine, headers, (1, packet.total_len()), Some(policy), Reason::TooBig);
        if !self.answers.allows() {
            return;
        }
        let mut answer = [0; icmp::MAX_LEN];
        // from the one who was to get it: of the same family, and on this route
        let from = packet.destination();
        if let Some(len) = icmp::too_big(packet, mtu as u32, from, &mut answer) {
            let parts = [std::io::IoSlice::new(&answer[..len])];
            if self.tun.write(&Offload::default(), &parts).is_err() {
                engine.counters().add(Reason::DeliverFailed, 1);
            }
        }
    }

    /// An identification that nobody guesses (RFC 7739) and that repeats late.
    fn fragment_id(&mut self) -> u32 {
        self.fragments = self.fragments.wrapping_add(1);
        self.hasher.hash_one(self.fragments) as u32
    }
}

/// What becomes of one packet between its host and the wire.
fn fate(bundle: &Bundle, headers: &Headers, ip: &Ip<'_>, path_mtu: usize) -> Fate {
    let len = ip.total_len();
    if bundle.sealed_len(len, headers.security_offset) <= path_mtu {
        return Fate::Whole;
    }
    let passes = bundle.inner_mtu(path_mtu, headers.security_offset);
    match bundle.mode() {
        Mode::Tunnel if ip.version() == Version::V6 && len <= LEAST => Fate::Whole,
        // RFC 2473, section 7.1
        Mode::Tunnel if ip.version() == Version::V6 => Fate::Refuse(passes.max(LEAST)),
        Mode::Tunnel if ip.dont_fragment() => Fate::Refuse(passes),
        Mode::Tunnel => Fate::Cut(passes),
        // A host sets DF on its own datagrams only to learn, and what it learned
        // it would act upon by sending fragments, which transport mode drops.
        // TCP makes smaller segments.
        Mode::Transport if headers.protocol == protocol::TCP && may_not_be_cut(ip) => {
            Fate::Refuse(passes)
        }
        Mode::Transport => Fate::Whole,
    }
}

fn may_not_be_cut(ip: &Ip<'_>) -> bool {
    ip.version() == Version::V6 || ip.dont_fragment()
}

/// Hands each segment to `take`, as a packet of its own, until it says no.
fn each_segment(segmenter: &Segmenter<'_>, mut take: impl FnMut(&[u8]) -> bool) {
    for index in 0..segmenter.segments() {
        let mut segment = vec![0; segmenter.head_len() + segmenter.payload(index).len()];
        if segmenter.copy(index, &mut segment).is_ok() && !take(&segment) {
            return;
        }
    }
}
