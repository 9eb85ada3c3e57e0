//! Files that may have other names, which follow.

use std::collections::HashMap;

use headroom_transfer_proto::path::RelPath;

use crate::delivery::limits::MOST_LINKED_BYTES;
use crate::error::Error;

/// Files that may have other names, which follow.
#[derive(Default)]
pub(super) struct Linked {
    pub(super) files: HashMap<RelPath, State>,
    /// Those that have no answer yet.
    pub(super) unanswered: HashMap<u64, RelPath>,
    pub(super) bytes: usize,
}

/// A file that may have other names.
pub(super) enum State {
    /// It is on its way, and these names wait for it.
    Coming(Vec<(u64, RelPath)>),
    Stored,
    Failed,
}

impl Linked {
    pub(super) fn take_room(&mut self, path: &RelPath) -> Result<(), Error> {
        self.bytes += path.as_bytes().len();
        match self.bytes > 2 * MOST_LINKED_BYTES {
            true => Err(Error::Protocol("it names too many files with other names".to_owned())),
            false => Ok(()),
        }
    }
}
