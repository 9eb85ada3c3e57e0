//! A tree on its way over one session: a sender and a receiver, whichever of them
//! is the server. Files up to 64 KiB travel within the messages, others on lanes, or,
//! where these are not open, in pieces on streams of their own; none waits for
//! another.

mod data_stream;
mod event;
mod follow_ups;
mod limits;
mod news;
pub(crate) mod pipe;
mod receiver;
mod sender;
mod squeeze;
mod summary;

pub use event::{Event, Observer};
pub(crate) use receiver::{Destination, Mirror, Receiver, make_directories};
pub(crate) use sender::{Offering, Sender};
pub use summary::Summary;
