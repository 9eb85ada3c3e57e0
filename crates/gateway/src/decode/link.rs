//! From a frame to the IP packet in it (tcpdump.org/linktypes.html).

/// What a frame carries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Carried<'a> {
    Ip(&'a [u8]),
    /// Something else, in words.
    Other(&'static str),
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
/// 802.1Q, 802.1ad, and what came before that.
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags that are followed.
const MOST_TAGS: usize = 4;

/// The IP packet in a frame of a link type.
pub(super) fn carried(link: u32, frame: &[u8]) -> Carried<'_> {
    const CUT: Carried<'static> = Carried::Other("a frame that is cut short");
    let ip = |at: usize| match frame.get(at).map(|octet| octet >> 4) {
        Some(4 | 6) => Carried::Ip(&frame[at..]),
        Some(_) => Carried::Other("not IP"),
        None => CUT,
    };
    // what the type at `kind_at` names begins at `at`; a tag is of two bytes, then
    // the type of what it tags
    let typed = |mut kind_at: usize, mut at: usize| {
        for _ in 0..MOST_TAGS {
            if short(frame, kind_at).is_some_and(|kind| VLAN.contains(&kind)) {
                (kind_at, at) = (at + 2, at + 4);
            }
        }
        match short(frame, kind_at) {
            Some(IPV4 | IPV6) => ip(at),
            Some(ARP) => Carried::Other("ARP"),
            Some(_) => Carried::Other("not IP"),
            None => CUT,
        }
    };
    match link {
        // NULL and LOOP begin with an address family whose numbers differ
        0 | 108 => ip(4),
        1 => typed(12, 14),
        // RAW (12 and 14 where systems wrote their own), IPV4, IPV6
        12 | 14 | 101 | 228 | 229 => ip(0),
        // LINUX_SLL and LINUX_SLL2, with tags behind their headers as libpcap
        // leaves them
        113 => typed(14, 16),
        276 => typed(0, 20),
        _ => Carried::Other("a link type that is not read here"),
    }
}

fn short(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_gives_the_same_packet() {
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
            (113, frame(&[&[0; 14][..], &[0x81, 0, 0, 5, 8, 0]].concat())),
            (113, frame(&[&[0; 14][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat())),
            (276, frame(&[&[0x81, 0][..], &[0; 18], &[0, 5, 8, 0]].concat())),
            (276, frame(&[&[0x88, 0xa8][..], &[0; 18], &[0, 5, 0x81, 0, 0, 6, 8, 0]].concat())),
        ];
        for (link, frame) in &frames {
            assert_eq!(carried(*link, frame), Carried::Ip(&packet), "{link}");
            for end in 0..frame.len() - packet.len() {
                assert!(
                    matches!(carried(*link, &frame[..end]), Carried::Other(_)),
                    "{link}, {end}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_ip_is_named() {
        let arp = [&[0; 12][..], &[8, 6], &[0; 28]].concat();
        assert_eq!(carried(1, &arp), Carried::Other("ARP"));
        assert_eq!(carried(101, &[0x75]), Carried::Other("not IP"));
        assert_eq!(carried(105, &[0; 100]), Carried::Other("a link type that is not read here"));
    }
}
