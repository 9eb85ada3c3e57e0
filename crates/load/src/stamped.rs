//! RTP packets that carry their send time behind the header, by the clock that both ends
//! share on one machine.

use crate::rtp::{self, CLOCK_HZ, Header};

/// Bytes of the shortest packet: RTP's header and the send time.
pub const MIN_RTP_PACKET: usize = rtp::HEADER + 8;

/// Writes packet `number` of a stream to the start of a datagram.
///
/// # Panics
/// The datagram is shorter than [`MIN_RTP_PACKET`].
pub(crate) fn write(datagram: &mut [u8], ssrc: u32, number: u64, per_second: f64, now_ns: u64) {
    let ticks = number as f64 * f64::from(CLOCK_HZ) / per_second;
    let header = Header { sequence: number as u16, timestamp: ticks as u64 as u32, ssrc };
    header.write(datagram);
    datagram[rtp::HEADER..MIN_RTP_PACKET].copy_from_slice(&now_ns.to_be_bytes());
}

/// Reads the send time; none: the datagram is too short.
pub(crate) fn sent_ns(datagram: &[u8]) -> Option<u64> {
    let octets = datagram.get(rtp::HEADER..MIN_RTP_PACKET)?;
    octets.try_into().ok().map(u64::from_be_bytes)
}
