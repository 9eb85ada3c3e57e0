//! Bulk data on lanes: our own UDP packets beside QUIC on one port. No socket, clock, thread or
//! file: packets and `now` go in, packets and the next deadline come out.
//!
//! A lane is two directions of packets under one random ID. Each direction has its own keys and
//! packet numbers; data flows in either. Data is addressed by file and byte offset, never by
//! packet number, so lost data can be sent again in any packet of any size, and no byte waits
//! for another.

mod cipher;
mod endpoint;
mod feedback;
mod header;
mod interface;
mod keys;
mod limits;
mod measurement;
mod mtu;
mod pacer;
mod path;
mod payload;
mod queue;
mod receiver;
mod rtt;
mod seal;
mod sender;
mod sent;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod testing;
mod varint;
mod window;

pub use cipher::Cipher;
pub use endpoint::Lane;
pub use feedback::{Feedback, Ranges};
pub use header::{HEADER_LEN, Header, LaneId, Number, OVERHEAD, is_lane};
pub use interface::{Event, LaneConfig, PayloadSource, Received, Stats, Transmit};
pub use keys::{CONTEXT_LEN, Context, Derived, Direction, Keys, PacketKey, Refused, TransferId};
pub use limits::{
    EPOCH_PACKETS, EPOCHS, FORGED_PER_KEY, KEY_PACKETS, MAX_PACKET, MIN_MTU, TAG_LEN, TRAIN_PACKETS,
};
pub use measurement::{Chunk, Unencrypted};
pub use payload::{DATA_HEAD, Path, Payload};
pub use queue::Piece;
pub use seal::{Dropped, KeyExhausted, Opener, Sealer};
pub use window::Window;
