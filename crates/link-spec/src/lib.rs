//! Describes the link between two hosts: what each direction does to frames.
//! `text` reads and writes a link as plans and command lines spell it, `trace` reads the files
//! of recorded links.

mod counters;
mod direction;
mod link;
mod loss;
mod router;
mod text;
mod trace;

pub use counters::{Counters, Direction, DirectionCounters, Ready};
pub use direction::{Aqm, LinkDirection, Queue};
pub use link::LinkSpec;
pub use loss::Loss;
pub use router::{Dscp, Flow, Transport};
pub use trace::Trace;
