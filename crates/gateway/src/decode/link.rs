//! Finds the IP packet in a frame (tcpdump.org/linktypes.html) and in a packet of an unencrypted
//! tunnel.

use headroom_packet::{Ip, protocol, udp};

/// The payload of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramePayload<'a> {
    Ip(&'a [u8]),
    /// Something else, as a description.
    Other(&'static str),
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
/// 802.1Q, 802.1ad, and the type used before 802.1ad.
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// PPPoE's session stage (RFC 2516).
const PPPOE: u16 = 0x8864;
const PPPOE_LEN: usize = 6;
/// MPLS unicast and multicast (RFC 5332).
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// Ethernet in another protocol.
const BRIDGED: u16 = 0x6558;
pub(super) const GRE: u8 = 47;
/// The UDP port of VXLAN (RFC 7348).
const VXLAN_PORT: u16 = 4789;
const VXLAN_LEN: usize = 8;
/// The most tags or labels followed.
const MAX_TAGS: usize = 4;

/// Returns the payload of a frame of a link type.
pub(super) fn frame_payload(link: u32, frame: &[u8]) -> FramePayload<'_> {
    const TRUNCATED: FramePayload<'static> = FramePayload::Other("a truncated frame");
    let ip = |at: usize| match frame.get(at).map(|octet| octet >> 4) {
        Some(4 | 6) => FramePayload::Ip(&frame[at..]),
        Some(_) => FramePayload::Other("not IP"),
        None => TRUNCATED,
    };
    // `kind_at` is the offset of the type, `at` that of what the type names. A tag has two bytes,
    // then the type of what it tags.
    let typed = |mut kind_at: usize, mut at: usize| {
        for _ in 0..MAX_TAGS {
            if short(frame, kind_at).is_some_and(|kind| VLAN.contains(&kind)) {
                (kind_at, at) = (at + 2, at + 4);
            }
        }
        match short(frame, kind_at) {
            Some(IPV4 | IPV6) => ip(at),
            // PPP's numbers for IP (RFC 1332, RFC 5072).
            Some(PPPOE) => match short(frame, at + PPPOE_LEN) {
                Some(0x0021 | 0x0057) => ip(at + PPPOE_LEN + 2),
                Some(_) => FramePayload::Other("PPPoE without IP"),
                None => TRUNCATED,
            },
            // The last label has the lowest bit of its third byte set (RFC 3032).
            Some(kind) if MPLS.contains(&kind) => {
                let labels = (0..MAX_TAGS).map(|label| at + 4 * label);
                let last = labels.take_while(|label| label + 2 < frame.len());
                let last = last.into_iter().find(|label| frame[label + 2] & 1 == 1);
                last.map_or(TRUNCATED, |label| ip(label + 4))
            }
            Some(ARP) => FramePayload::Other("ARP"),
            Some(_) => FramePayload::Other("not IP"),
            None => TRUNCATED,
        }
    };
    match link {
        // NULL and LOOP begin with an address family, whose numbers differ between systems.
        0 | 108 => ip(4),
        1 => typed(12, 14),
        // RAW (12 and 14 on some systems), IPV4, IPV6.
        12 | 14 | 101 | 228 | 229 => ip(0),
        // LINUX_SLL and LINUX_SLL2, whose headers libpcap leaves before the tags.
        113 => typed(14, 16),
        276 => typed(0, 20),
        _ => FramePayload::Other("unsupported link type"),
    }
}

/// Returns the IP packet in a packet of GRE (RFC 2784, RFC 2890) or VXLAN (RFC 7348).
pub(super) fn encapsulated<'a>(ip: &Ip<'a>) -> Option<&'a [u8]> {
    let (kind, inner) = match ip.upper() {
        GRE => {
            let flags = short(ip.payload(), 0)?;
            const OPTIONAL: [u16; 3] = [0x8000, 0x2000, 0x1000]; // checksum, key, number
            const KNOWN: u16 = 0xb000;
            if flags & !KNOWN != 0 {
                return None; // another version, or source routes
            }
            let options = OPTIONAL.iter().filter(|option| flags & **option != 0).count();
            (short(ip.payload(), 2)?, ip.payload().get(4 + 4 * options..)?)
        }
        protocol::UDP => {
            let datagram = udp::Packet::new(ip.payload()).ok()?;
            let valid = datagram.payload().first().is_some_and(|flags| flags & 0x08 != 0);
            if datagram.destination_port() != VXLAN_PORT || !valid {
                return None;
            }
            (BRIDGED, ip.payload().get(udp::HEADER_LEN + VXLAN_LEN..)?)
        }
        _ => return None,
    };
    let carried = match kind {
        IPV4 | IPV6 => frame_payload(101, inner),
        BRIDGED => frame_payload(1, inner),
        _ => return None,
    };
    match carried {
        FramePayload::Ip(packet) => Some(packet),
        FramePayload::Other(_) => None,
    }
}

fn short(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_packet_in_every_link_type() {
        let packet = [0x45, 1, 2, 3];
        let frame = |head: &[u8]| [head, &packet].concat();
        let addresses = [0; 12];
        let frames = [
            (0, frame(&[2, 0, 0, 0])),
            (108, frame(&[0, 0, 0, 2])),
            (1, frame(&[&addresses[..], &[8, 0]].concat())),
            (1, frame(&[&addresses[..], &[0x81, 0, 0, 5, 8, 0]].concat())),
            (1, frame(&[&addresses[..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat())),
            (101, frame(&[])),
            (228, frame(&[])),
            (113, frame(&[&[0; 14][..], &[8, 0]].concat())),
            (276, frame(&[&[8, 0][..], &[0; 18]].concat())),
            (1, frame(&[&addresses[..], &[0x88, 0x64, 0x11, 0, 0, 9, 0, 6, 0, 0x21]].concat())),
            (
                1,
                frame(
                    &[&addresses[..], &[0x81, 0, 0, 5, 0x88, 0x64, 0x11, 0, 0, 9, 0, 6, 0, 0x57]]
                        .concat(),
                ),
            ),
            (1, frame(&[&addresses[..], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]].concat())),
            (113, frame(&[&[0; 14][..], &[0x81, 0, 0, 5, 8, 0]].concat())),
            (113, frame(&[&[0; 14][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat())),
            (276, frame(&[&[0x81, 0][..], &[0; 18], &[0, 5, 8, 0]].concat())),
            (276, frame(&[&[0x88, 0xa8][..], &[0; 18], &[0, 5, 0x81, 0, 0, 6, 8, 0]].concat())),
        ];
        for (link, frame) in &frames {
            assert_eq!(frame_payload(*link, frame), FramePayload::Ip(&packet), "{link}");
            for end in 0..frame.len() - packet.len() {
                assert!(
                    matches!(frame_payload(*link, &frame[..end]), FramePayload::Other(_)),
                    "{link}, {end}"
                );
            }
        }
    }

    #[test]
    fn names_frames_without_ip() {
        let arp = [&[0; 12][..], &[8, 6], &[0; 28]].concat();
        assert_eq!(frame_payload(1, &arp), FramePayload::Other("ARP"));
        assert_eq!(frame_payload(101, &[0x75]), FramePayload::Other("not IP"));
        assert_eq!(frame_payload(105, &[0; 100]), FramePayload::Other("unsupported link type"));
    }
}
