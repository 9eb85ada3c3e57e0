//! A tree on its way over one session: a sender and a receiver, whichever of them
//! is the server. Files up to 64 KiB travel within the messages, others on lanes, or,
//! where these are not open, in pieces on streams of their own; none waits for
//! another.

mod data_stream;
mod follow_ups;
mod news;
pub(crate) mod pipe;
mod receiver;
mod sender;
mod squeeze;

use headroom_transfer_proto::lane::{Chunk, Cipher};
use headroom_transfer_proto::path::RelPath;

pub(crate) use receiver::{Destination, Mirror, Receiver, make_directories};
pub(crate) use sender::{Offering, Sender};

/// What was delivered; of a dry run, what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Files, directories and links that lie under their names.
    pub stored: u64,
    /// Those that do not.
    pub failed: u64,
    /// Links, devices, pipes and sockets that were left out, as they should be.
    pub left_out: u64,
    /// Octets of files that went over the network; of a dry run, the most that would.
    pub moved: u64,
    /// Octets that the receiver had.
    pub kept: u64,
    /// Octets of holes, which are not sent.
    pub holes: u64,
    /// Of the octets that went over the network, those that compression saved.
    pub saved: u64,
    /// Files, directories and links that a sync found as they should be.
    pub unchanged: u64,
    /// Those that a sync removed at the receiver's.
    pub removed: u64,
    /// Of those that went over the network, the ones on lanes; the others went on
    /// streams.
    pub on_lanes: u64,
    /// Octets of packets of lanes that were lost, as far as this side sent them.
    pub lost: u64,
    /// The cipher of lanes, if there were any. Streams have TLS's.
    pub cipher: Option<Cipher>,
}

/// Something that happens on the way.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A file of so many octets belongs to it.
    Offered {
        /// Its octets.
        octets: u64,
    },
    /// All that belongs to it is known.
    AllOffered {
        /// How many files.
        files: u64,
        /// Octets in them.
        octets: u64,
    },
    /// The receiver has so many octets from before.
    Kept {
        /// How many.
        octets: u64,
    },
    /// So many octets are a hole, and are not sent.
    Hole {
        /// How many.
        octets: u64,
    },
    /// Of octets that were sent or have come, compression saved so many.
    Saved {
        /// How many.
        octets: u64,
    },
    /// So many octets were sent or have come.
    Moved {
        /// How many.
        octets: u64,
    },
    /// The content of a file begins to move.
    Begun {
        /// Its name.
        path: &'a RelPath,
    },
    /// Something lies under its name, verified.
    Stored {
        /// Its name.
        path: &'a RelPath,
    },
    /// Something does not.
    Failed {
        /// A sentence that names it.
        reason: &'a str,
    },
    /// Something would be stored, but this is a dry run.
    Planned {
        /// Its name.
        path: &'a RelPath,
        /// At most so many octets would be sent.
        octets: u64,
        /// Whether nothing has the name yet.
        new: bool,
    },
    /// Something was removed at the receiver's that the sender has not; in a dry run
    /// it would be.
    Removed {
        /// Its name.
        path: &'a RelPath,
    },
    /// Big files may go on lanes, which are so.
    Lanes {
        /// The cipher. One that is not secure protects nothing: both sides were asked to
        /// allow that, for a measurement.
        cipher: Cipher,
        /// Octets of files in each packet, if that is measured.
        chunk: Option<Chunk>,
        /// The server's UDP port.
        port: u16,
    },
    /// Nobody answers on lanes: what is left goes on streams until somebody does.
    LanesSilent,
    /// Somebody answers on lanes again: what is left goes on them.
    LanesBack,
    /// Something was sent or stored, and not quite as it might be expected.
    Warning {
        /// A sentence that names it.
        reason: &'a str,
    },
    /// Something is left out, as it should be.
    LeftOut {
        /// A sentence that names it.
        reason: &'a str,
    },
}

/// Somebody who wants to know what happens. Called from several threads.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&self, event: Event<'_>);
}

/// Nobody wants to know.
impl Observer for () {
    fn event(&self, _event: Event<'_>) {}
}

/// What was counted so far, by several tasks.
#[derive(Debug, Default)]
struct Counts(std::sync::Mutex<Summary>);

impl Counts {
    fn add(&self, change: impl FnOnce(&mut Summary)) {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    fn get(&self) -> Summary {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
