//! What a lane is made with, what it asks of the engine, and what it returns.

use std::net::SocketAddr;
use std::time::Duration;

use super::header::LaneId;
use super::keys::{Direction, TransferId};
use super::measurement::Chunk;
use super::queue::Piece;
use crate::rate::RateConfig;

/// The parameters of a lane.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// The transfer it belongs to.
    pub transfer: TransferId,
    /// The lane's ID.
    pub lane: LaneId,
    /// The direction in which this end sends.
    pub sends: Direction,
    /// The peer's address, for the end that opens the lane; the other end learns it.
    pub peer: Option<SocketAddr>,
    /// Whether the connection has shown that the peer receives at that address: data may then be
    /// sent there at once.
    pub is_known: bool,
    /// Whether data is expected, and the end that opens the lane should let it come at once.
    pub awaits_data: bool,
    /// The longest packet to probe for, as UDP payload.
    pub max_packet: usize,
    /// Bytes of files in each packet, for measurements; the path's MTU is then ignored.
    pub chunk: Option<Chunk>,
    /// The round-trip time, if it is known from elsewhere.
    pub rtt: Option<Duration>,
    /// The rate control's parameters.
    pub rate: RateConfig,
    /// Random and secret: path challenges are derived from it.
    pub seed: [u8; 32],
}

/// What the engine needs to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Data may flow: to an address that the connection knows, or within the limit for one that is
    /// not validated yet.
    Opened,
    /// This address of the peer is validated.
    Reached(SocketAddr),
    /// Everything queued of this file has arrived.
    Arrived(u32),
    /// The peer does not answer; only probes are sent.
    Silent,
    /// The peer answers again.
    Answered,
    /// The peer closed the lane with this reason.
    Closed(u32),
    /// Packet numbers or keys are used up, or the connection gives no key: the lane has ended.
    KeyExhausted,
}

/// The source of the bytes to send.
pub trait PayloadSource {
    /// Returns all bytes of a piece, if they are contiguous in memory.
    fn in_memory(&mut self, piece: Piece) -> Option<&[u8]>;
    /// Copies the bytes of a piece.
    fn write(&mut self, piece: Piece, body: &mut [u8]);
}

/// The content of a packet.
#[derive(Debug, Eq, PartialEq)]
pub enum Received<'p> {
    /// Bytes of a file. They may arrive again in other packets.
    Data {
        /// The file's number in the transfer.
        file: u32,
        /// The offset of the first byte in the file.
        offset: u64,
        /// At least one.
        bytes: &'p [u8],
    },
    /// A packet of the protocol itself.
    Control,
}

/// Packets to send: `len` bytes of the buffer, segmented every `segment` (the last may be
/// shorter), as one UDP GSO train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// Bytes of all packets.
    pub len: usize,
    /// Bytes of each packet but the last.
    pub segment: usize,
}

/// Statistics of a lane's sending half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// The sending rate in bytes per second.
    pub rate: f64,
    /// The smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// The path's MTU as UDP payload.
    pub mtu: usize,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of lost packets.
    pub lost: u64,
    /// Bytes of packets with data that another packet in flight carried, too.
    pub repeated: u64,
}
