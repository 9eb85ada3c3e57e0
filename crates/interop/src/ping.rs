//! Echo requests and replies (RFC 792, RFC 4443) and the Ethernet they travel
//! in, without our packet crate, which is under test here.

use std::net::IpAddr;

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Makes an echo request as a whole IP packet.
pub fn request(
    source: IpAddr,
    destination: IpAddr,
    id: u16,
    sequence: u16,
    data: &[u8],
) -> Vec<u8> {
    let kind = if source.is_ipv4() { 8 } else { 128 };
    message(source, destination, kind, id, sequence, data)
}

/// Makes a host's reply to [`request`].
pub fn reply(source: IpAddr, destination: IpAddr, id: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    let kind = if source.is_ipv4() { 0 } else { 129 };
    message(source, destination, kind, id, sequence, data)
}

fn message(
    source: IpAddr,
    destination: IpAddr,
    kind: u8,
    id: u16,
    sequence: u16,
    data: &[u8],
) -> Vec<u8> {
    let mut icmp = vec![kind, 0, 0, 0];
    icmp.extend(id.to_be_bytes());
    icmp.extend(sequence.to_be_bytes());
    icmp.extend(data);
    let protocol = if source.is_ipv4() { ICMP } else { ICMPV6 };
    let mut summed = Vec::new();
    if let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) {
        summed.extend(source.octets());
        summed.extend(destination.octets());
        summed.extend((icmp.len() as u32).to_be_bytes());
        summed.extend([0, 0, 0, protocol]);
    }
    summed.extend(&icmp);
    let sum = checksum(&summed);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(source, destination, protocol, &icmp)
}

/// Makes an IP packet without options or extension headers.
///
/// # Panics
/// The addresses have different families.
pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = (20 + payload.len()) as u16;
            packet = vec![0x45, 0];
            packet.extend(total.to_be_bytes());
            packet.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
            let sum = checksum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet = vec![0x60, 0, 0, 0];
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend(source.octets());
            packet.extend(destination.octets());
        }
        _ => panic!("{source} and {destination} are of two families"),
    }
    packet.extend(payload);
    packet
}

/// Adds options to an IPv4 packet; their length is a multiple of four.
///
/// # Panics
/// The packet is not IPv4 without options.
pub fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    assert_eq!(packet[0], 0x45, "IPv4 without options");
    let mut packet = [&packet[..20], options, &packet[20..]].concat();
    let header = 20 + options.len();
    packet[0] = 0x40 | (header / 4) as u8;
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Adds to an IPv6 packet a hop-by-hop header with a router alert (RFC 2711) and
/// a mutable option, and a destination options header.
pub fn with_extensions(packet: &[u8]) -> Vec<u8> {
    const DESTINATION_OPTIONS: u8 = 60;
    let protocol = packet[6];
    // type 0x3e: skipped where unknown, may change (RFC 8200, section 4.2)
    let hop_by_hop = [DESTINATION_OPTIONS, 1, 5, 2, 0, 0, 0x3e, 4, 1, 2, 3, 4, 1, 2, 0, 0];
    // type 0x1e: skipped where unknown, may not change
    let destination = [protocol, 0, 0x1e, 4, 5, 6, 7, 8];
    let mut packet = [&packet[..40], &hop_by_hop, &destination, &packet[40..]].concat();
    packet[6] = 0;
    let length = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet
}

/// Writes the checksum of a UDP datagram without options ahead of it, as the
/// kernel does for a socket (over IPv6 there must be one: RFC 8200, section
/// 8.1); leaves any other packet alone.
pub fn sum_udp(packet: &mut [u8]) {
    let (at, addresses, protocol) =
        if packet[0] >> 4 == 4 { (20, 12..20, packet[9]) } else { (40, 8..40, packet[6]) };
    if protocol != UDP {
        return;
    }
    packet[at + 6..at + 8].fill(0);
    let length = (packet.len() - at) as u32;
    let pseudo = [&packet[addresses], &length.to_be_bytes(), &[0, 0, 0, UDP]].concat();
    let sum = match checksum(&[&pseudo, &packet[at..]].concat()) {
        0 => 0xffff,
        sum => sum,
    };
    packet[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
}

/// Computes the checksum of RFC 1071, in its plainest form.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&octet| u32::from(octet));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads identifier and sequence number of an echo reply, after IPv4 options if
/// any; `None` for anything else.
pub fn read_reply(packet: &[u8]) -> Option<(u16, u16)> {
    let (protocol, at, kind) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 0xf) * 4, 0),
        6 => (*packet.get(6)?, 40, 129),
        _ => return None,
    };
    let icmp = packet.get(at..at + 8)?;
    let word = |at: usize| u16::from_be_bytes([icmp[at], icmp[at + 1]]);
    let is_reply = [ICMP, ICMPV6].contains(&protocol) && icmp[0] == kind;
    is_reply.then(|| (word(4), word(6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_is_what_ping_sends() {
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address"));
        let packet = request(a, b, 0x1234, 1, b"abcdefgh");
        assert_eq!(packet.len(), 36);
        assert_eq!(checksum(&packet[..20]), 0, "the header sums to zero");
        assert_eq!(checksum(&packet[20..]), 0, "the message sums to zero");
    }

    #[test]
    fn a_reply_is_read() {
        let [a, b] = ["fd00::1", "fd00::2"].map(|text| text.parse().expect("an address"));
        assert_eq!(read_reply(&reply(a, b, 7, 9, b"data")), Some((7, 9)));
        assert_eq!(read_reply(&request(a, b, 7, 9, b"data")), None);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address"));
        let with_options = with_options(&reply(a, b, 7, 9, b"data"), &[1, 1, 1, 0]);
        assert_eq!(read_reply(&with_options), Some((7, 9)));
    }
}
