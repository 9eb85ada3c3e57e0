//! What happens in a delivery, for whoever watches it.

use headroom_transfer_proto::lane::{Chunk, Cipher};
use headroom_transfer_proto::path::RelPath;

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
