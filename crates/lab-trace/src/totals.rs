//! Counts frames and bytes of all traffic by direction, TCP or not. With layers around a
//! transfer, their outer frames count.

use std::net::IpAddr;

use headroom_packet::ethernet::Frame;

/// Frames and bytes of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    client: ClientSide,
    from_client: DirectionTotals,
    /// All other frames: from the server, or from nobody that is known.
    to_client: DirectionTotals,
}

/// The addresses of the client at the point of capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSide {
    address: IpAddr,
    /// Length of their common prefix, bits.
    bits: u32,
    /// The Ethernet address of its interface, for frames without an IP address; none: unknown.
    interface: Option<[u8; 6]>,
}

impl ClientSide {
    /// Takes a network for the client.
    pub fn network(address: IpAddr, bits: u32) -> Self {
        Self { address, bits, interface: None }
    }

    /// The same with the Ethernet address of its interface, by which frames that are not IP are
    /// the client's.
    #[must_use]
    pub fn with_interface(self, interface: [u8; 6]) -> Self {
        Self { interface: Some(interface), ..self }
    }

    /// Tells whether an address is the client's.
    pub fn has(&self, other: IpAddr) -> bool {
        // left-aligned, so that prefixes of both families compare alike
        let number = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let same = number(self.address) ^ number(other);
        self.address.is_ipv4() == other.is_ipv4() && same.leading_zeros() >= self.bits
    }
}

impl From<IpAddr> for ClientSide {
    /// Takes a single address for the client.
    fn from(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 }, interface: None }
    }
}

/// Frames and bytes of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Frames.
    pub frames: u64,
    /// Bytes, Ethernet headers included.
    pub bytes: u64,
    /// Bytes of the largest frame.
    pub largest: u32,
    /// Frames of that size.
    full_frames: u64,
    /// Bytes from the first of these on.
    bytes_since_full: u64,
}

impl Totals {
    /// Starts at zero.
    pub fn new(client: impl Into<ClientSide>) -> Self {
        Self {
            client: client.into(),
            from_client: DirectionTotals::default(),
            to_client: DirectionTotals::default(),
        }
    }

    /// Counts a frame by its captured head.
    pub fn add(&mut self, head: &[u8], wire_len: u32) {
        let from_client = Frame::new(head).is_ok_and(|frame| match frame.ip_source() {
            Some(source) => self.client.has(source),
            None => self.client.interface == Some(frame.source()),
        });
        (if from_client { &mut self.from_client } else { &mut self.to_client }).add(wire_len);
    }

    /// Returns one direction.
    pub fn direction(&self, from_client: bool) -> &DirectionTotals {
        if from_client { &self.from_client } else { &self.to_client }
    }

    /// Sums frames of both directions.
    pub fn frames(&self) -> u64 {
        self.from_client.frames + self.to_client.frames
    }

    /// Sums bytes of both directions, Ethernet headers included.
    pub fn bytes(&self) -> u64 {
        self.from_client.bytes + self.to_client.bytes
    }

    /// Returns the bytes of the largest frame.
    pub fn largest(&self) -> u32 {
        self.from_client.largest.max(self.to_client.largest)
    }
}

impl DirectionTotals {
    fn add(&mut self, wire_len: u32) {
        self.frames += 1;
        self.bytes += u64::from(wire_len);
        if wire_len > self.largest {
            self.largest = wire_len;
            (self.full_frames, self.bytes_since_full) = (0, 0);
        }
        self.full_frames += u64::from(wire_len == self.largest);
        if self.full_frames > 0 {
            self.bytes_since_full += u64::from(wire_len);
        }
    }

    /// Returns the bytes of a full frame that are not the file's; none: fewer than 100 full
    /// frames, so that others would distort the mean.
    pub fn header_bytes(&self, file_bytes: u64) -> Option<f64> {
        const ENOUGH: u64 = 100;
        let beside = self.bytes_since_full.checked_sub(file_bytes)?;
        (self.full_frames >= ENOUGH).then(|| beside as f64 / self.full_frames as f64)
    }

    /// Returns the file's share of the bytes, per cent; none: there is no file.
    pub fn efficiency_pct(&self, file_bytes: u64) -> Option<f64> {
        let fits = file_bytes > 0 && file_bytes <= self.bytes;
        fits.then(|| 100.0 * file_bytes as f64 / self.bytes as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: [u8; 4] = [10, 77, 1, 1];

    /// A frame of UDP, which is not TCP: a tunnel's, say.
    fn head(source: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![0; 34];
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[23] = 17;
        bytes[26..30].copy_from_slice(&source);
        bytes
    }

    #[test]
    fn counts_each_frame_in_its_direction() {
        let mut totals = Totals::new(IpAddr::from(CLIENT));
        totals.add(&head(CLIENT), 100);
        totals.add(&head([10, 77, 2, 1]), 1514);
        totals.add(&[0; 14], 60); // no IP at all
        totals.add(&[], 42); // captured without a head
        assert_eq!((totals.direction(true).frames, totals.direction(true).bytes), (1, 100));
        assert_eq!((totals.direction(false).frames, totals.direction(false).bytes), (3, 1616));
        assert_eq!((totals.frames(), totals.bytes(), totals.largest()), (4, 1716, 1514));
    }

    #[test]
    fn frames_without_an_ip_address_are_counted_by_their_ethernet_address() {
        let own = [2, 0, 0, 0, 1, 1];
        let mut totals = Totals::new(ClientSide::from(IpAddr::from(CLIENT)).with_interface(own));
        for source in [own, [2, 0, 0, 0, 2, 1]] {
            let mut frame = vec![0; 14];
            frame[6..12].copy_from_slice(&source);
            frame[12..].copy_from_slice(&[0x88, 0xe5]);
            totals.add(&frame, 1500);
        }
        totals.add(&head([10, 77, 2, 1]), 1514);
        assert_eq!((totals.direction(true).frames, totals.direction(false).frames), (1, 2));
    }

    #[test]
    fn a_client_may_have_a_network_of_addresses() {
        let side = ClientSide::network(IpAddr::from([10, 77, 1, 1]), 24);
        assert!(side.has([10, 77, 1, 1].into()) && side.has([10, 77, 1, 77].into()));
        assert!(!side.has([10, 77, 2, 1].into()) && !side.has("a4d:101::1".parse().expect("IPv6")));
        let one = ClientSide::from(IpAddr::from([10, 78, 3, 1]));
        assert!(one.has([10, 78, 3, 1].into()) && !one.has([10, 78, 3, 2].into()));
        let side = ClientSide::network("fd77:1::1".parse().expect("IPv6"), 64);
        assert!(side.has("fd77:1::1:9".parse().expect("IPv6")));
        assert!(!side.has("fd77:2::1".parse().expect("IPv6")));
    }

    #[test]
    fn headers_are_the_rest_of_full_frames() {
        let mut direction = DirectionTotals::default();
        for wire_len in [90, 800, 66] {
            direction.add(wire_len); // a handshake
        }
        (0..1000).for_each(|_| direction.add(1514));
        direction.add(66 + 500);
        let file = 1000 * 1448 + 500;
        assert_eq!(direction.header_bytes(file), Some((66_000.0 + 66.0) / 1000.0));
        let all = 90 + 800 + 66 + 1000 * 1514 + 566;
        assert_eq!(direction.efficiency_pct(file), Some(100.0 * file as f64 / f64::from(all)));
    }

    #[test]
    fn too_few_full_frames_or_no_file_give_no_figure() {
        let mut direction = DirectionTotals::default();
        (0..99).for_each(|_| direction.add(1514));
        assert_eq!(direction.header_bytes(1000), None);
        assert_eq!(direction.efficiency_pct(0), None);
        assert_eq!(direction.efficiency_pct(1 << 40), None, "more than passed");
        direction.add(1514);
        assert!(direction.header_bytes(1000).is_some());
        assert_eq!(direction.header_bytes(1 << 40), None);
    }
}
