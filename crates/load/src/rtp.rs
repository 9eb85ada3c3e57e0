//! The part of RTP (RFC 3550) that measurements need: headers, sequence numbers beyond 16
//! bits, and interarrival jitter. No I/O and no clock.

/// Bytes of a header without CSRC list and extension.
pub const HEADER: usize = 12;
/// Clock rate of video timestamps (RFC 3551 §5).
pub const CLOCK_HZ: u32 = 90_000;

/// A dynamic payload type (RFC 3551 §6).
pub const DYNAMIC: u8 = 96;
/// RTCP packet types (RFC 3550 §12.1).
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const BYE: u8 = 203;

/// The fields of a packet's header that its receiver uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The sequence number's lower 16 bits.
    pub sequence: u16,
    /// The sampling instant of the payload, in ticks of [`CLOCK_HZ`].
    pub timestamp: u32,
    /// The synchronization source.
    pub ssrc: u32,
}

impl Header {
    /// Writes the header to the first [`HEADER`] bytes of a datagram.
    ///
    /// # Panics
    /// The datagram is shorter.
    pub fn write(&self, datagram: &mut [u8]) {
        datagram[..2].copy_from_slice(&[2 << 6, DYNAMIC]);
        datagram[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        datagram[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        datagram[8..HEADER].copy_from_slice(&self.ssrc.to_be_bytes());
    }

    /// Reads the header; none: the datagram is too short, of another version, or RTCP,
    /// which may use the same port (RFC 5761 §4).
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (header, _) = datagram.split_first_chunk::<HEADER>()?;
        let [first, second, ..] = *header;
        if first >> 6 != 2 || (192..=223).contains(&second) {
            return None;
        }
        Some(Self {
            sequence: u16::from_be_bytes([header[2], header[3]]),
            timestamp: u32::from_be_bytes(header[4..8].try_into().ok()?),
            ssrc: u32::from_be_bytes(header[8..].try_into().ok()?),
        })
    }
}

/// An RTCP sender report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderReport {
    /// The source.
    pub ssrc: u32,
    /// Packets that it has sent since it started.
    pub packets: u32,
}

impl SenderReport {
    /// Reads a report; none: the datagram does not start with one (RFC 3550 §6.4.1).
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (report, _) = datagram.split_first_chunk::<28>()?;
        if report[0] >> 6 != 2 || report[1] != SENDER_REPORT {
            return None;
        }
        Some(Self {
            ssrc: u32::from_be_bytes(report[4..8].try_into().ok()?),
            packets: u32::from_be_bytes(report[20..24].try_into().ok()?),
        })
    }
}

/// Makes a BYE (RFC 3550 §6.6) after an empty receiver report: RTCP packets are always
/// compound (§6.1).
pub fn bye(ssrc: u32) -> [u8; 16] {
    let mut packet = [0; 16];
    packet[..4].copy_from_slice(&[0x80, RECEIVER_REPORT, 0, 1]);
    packet[8..12].copy_from_slice(&[0x81, BYE, 0, 1]);
    for at in [4, 12] {
        packet[at..at + 4].copy_from_slice(&ssrc.to_be_bytes());
    }
    packet
}

/// Extends sequence numbers beyond 16 bits (RFC 3550 §A.1): each to the value nearest to
/// the highest so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    highest: Option<u64>,
}

impl Numbers {
    /// Offset of all numbers, so that packets before the first, which arrive late, have
    /// numbers too.
    pub const BEFORE: u64 = 1 << 16;

    /// Returns the number of a packet that has just arrived.
    pub fn extend(&mut self, sequence: u16) -> u64 {
        let Some(highest) = self.highest else {
            let first = Self::BEFORE + u64::from(sequence);
            self.highest = Some(first);
            return first;
        };
        let ahead = sequence.wrapping_sub(highest as u16).cast_signed();
        let number = highest.saturating_add_signed(ahead.into());
        self.highest = Some(highest.max(number));
        number
    }
}

/// Estimates the interarrival jitter of RFC 3550 §6.4.1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jitter {
    before: Option<(u64, u32)>,
    seconds: f64,
}

impl Jitter {
    /// Returns the estimate in seconds after a packet with this timestamp.
    pub fn update(&mut self, arrived_ns: u64, timestamp: u32) -> f64 {
        if let Some((arrived_before, timestamp_before)) = self.before {
            let apart_s = (arrived_ns as f64 - arrived_before as f64) / 1e9;
            let ticks = timestamp.wrapping_sub(timestamp_before).cast_signed();
            let differs_s = apart_s - f64::from(ticks) / f64::from(CLOCK_HZ);
            self.seconds += (differs_s.abs() - self.seconds) / 16.0;
        }
        self.before = Some((arrived_ns, timestamp));
        self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_others_are_rejected() {
        let header = Header { sequence: 65_535, timestamp: 1 << 31, ssrc: 0xdead_beef };
        let mut datagram = [0xff; 20];
        header.write(&mut datagram);
        assert_eq!(datagram[..2], [0x80, 96]);
        assert_eq!(Header::read(&datagram), Some(header));
        for end in 0..HEADER {
            assert_eq!(Header::read(&datagram[..end]), None, "{end}");
        }
        for (first, second) in [(0x40, 96), (b'H', b'L'), (0x80, 200), (0x81, 203)] {
            datagram[..2].copy_from_slice(&[first, second]);
            assert_eq!(Header::read(&datagram), None, "{first:#x} {second}");
        }
    }

    #[test]
    fn reads_the_count_of_a_sender_report() {
        // as ffmpeg's last one: a report, and a BYE after it
        let bye_chunk = [0x81, 203, 0, 1, 0x12, 0x34, 0x56, 0x78];
        let report: Vec<u8> = [
            &[0x80, 200, 0, 6, 0x12, 0x34, 0x56, 0x78][..],
            &[0; 12],
            &[0, 0, 0, 176, 0, 2, 0xb1, 0x60],
            &bye_chunk,
        ]
        .concat();
        let report_read = SenderReport::read(&report).expect("a report");
        assert_eq!(report_read, SenderReport { ssrc: 0x1234_5678, packets: 176 });
        for end in 0..28 {
            assert_eq!(SenderReport::read(&report[..end]), None, "{end}");
        }
        assert_eq!(SenderReport::read(&report[28..]), None);
        let sent_bye = bye(0x1234_5678);
        assert_eq!(sent_bye[..8], [0x80, 201, 0, 1, 0x12, 0x34, 0x56, 0x78]);
        assert_eq!(sent_bye[8..], bye_chunk);
        assert_eq!((SenderReport::read(&sent_bye), Header::read(&sent_bye)), (None, None));
        assert_eq!(SenderReport::read(&[0x80; 28]), None);
    }

    #[test]
    fn numbers_continue_beyond_sixteen_bits() {
        let mut numbers = Numbers::default();
        let seen = [65_534, 65_535, 1, 0, 2, 65_533].map(|sequence| numbers.extend(sequence));
        let first = Numbers::BEFORE + 65_534;
        assert_eq!(seen, [first, first + 1, first + 3, first + 2, first + 4, first - 1]);
        // a packet from before the first has a number too
        let mut numbers = Numbers::default();
        assert_eq!(numbers.extend(0), Numbers::BEFORE);
        assert_eq!(numbers.extend(65_535), Numbers::BEFORE - 1);
    }

    #[test]
    fn jitter_follows_rfc_3550() {
        // 10 ms apart by their timestamps, across the wrap of 32 bits
        let stamp = |n: u32| u32::MAX.wrapping_add(n * 900);
        let mut even = Jitter::default();
        for n in 0..10 {
            assert!(even.update(5_000_000_000 + u64::from(n) * 10_000_000, stamp(n)) < 1e-9);
        }
        // a packet 16 ms late adds a sixteenth of that, and so does the next, as early
        let mut jitter = Jitter::default();
        jitter.update(0, stamp(0));
        assert!((jitter.update(26_000_000, stamp(1)) - 0.001).abs() < 1e-9);
        let second = 0.001 + (0.016 - 0.001) / 16.0;
        assert!((jitter.update(20_000_000, stamp(2)) - second).abs() < 1e-9);
    }
}
