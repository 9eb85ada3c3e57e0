//! The engine of lanes: threads that move bulk data in UDP packets of our own, beside QUIC. The
//! protocol is `headroom_transfer_proto::lane`; here are its sockets, its clock, and the paths
//! from and to files.
//!
//! Sending: a blocking thread reads parts of files into a `Feed`, and hashes them while they
//! are in the processor's cache; the engine's thread seals them from there into the packets of
//! a train, which it hands to the kernel in one call. A part is recycled when all of it was
//! sent once: lost data is read from the file again.
//!
//! Receiving: the engine's thread opens packets in place, in the buffers that the kernel filled
//! with whole trains, and copies their data into the chunk of the file that it belongs to.
//! Another thread writes and hashes complete chunks. If the disk is slow, the chunk pool is
//! empty: the engine waits, the socket overflows, and the sender slows down. It does not wait
//! for long: packets that need a chunk are then dropped undecrypted until the disk has written
//! something, so that other lanes continue, and a lane whose disk is stuck falls silent.

mod chunk_pool;
mod dropped;
mod engine;
mod exporter;
mod feed;
mod flow;
mod handle;
mod ids;
mod options;
mod port;
mod range;
mod sink;
mod store;

pub use dropped::DropCounts;
#[cfg(test)]
pub(crate) use dropped::Dropped;
pub(crate) use feed::{PART, Part, Source};
pub(crate) use flow::LaneState;
pub(crate) use handle::{LaneHandle, LaneOffer, LaneParams};
pub use options::LaneOptions;
pub(crate) use port::{Port, UsedLanes};
pub(crate) use sink::{Sink, Target};
