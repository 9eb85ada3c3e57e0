//! Moves a tree over one connection: a sender and a receiver, whichever of them is the server.
//! Files up to 64 KiB travel within messages; others on lanes or, while these are not open, in
//! pieces on streams of their own. No file waits for another.

mod compression;
mod data_stream;
mod delta;
mod divided;
mod event;
mod failed_directories;
mod lane_status;
mod limits;
pub(crate) mod pipe;
mod range_allocator;
mod receiver;
mod sender;
mod summary;

pub use delta::Delta;
pub(crate) use divided::Participant;
pub use divided::{DividedFile, FileVersion, StoredWhole};
pub use event::{Event, Observer};
pub(crate) use receiver::{
    DataSession, Destination, Receiver, SyncMode, make_directories, make_directories_as,
};
pub(crate) use sender::{DividedUpload, Offering, Sender, Terms, UploadParticipant};
pub use summary::Summary;
