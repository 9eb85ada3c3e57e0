//! What only measurements use, never a transfer that protects its files: packets that are
//! not encrypted, and packets of a fixed length. Both ends must have allowed it
//! (docs/security.md, "Without encryption, for measurement").

mod chunk;
mod unencrypted;

pub use chunk::Chunk;
pub use unencrypted::Unencrypted;
