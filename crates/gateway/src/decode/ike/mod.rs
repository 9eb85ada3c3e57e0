//! Reads messages of IKEv2, and opens them with keys of a log.

mod decoder;
mod fragments;
mod message;
mod payload;
mod repeats;

pub(super) use decoder::IkeDecoder;
pub use message::{Encryption, IkeMessage, IkeTally};
pub use payload::PayloadReport;
