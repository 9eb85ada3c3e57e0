//! Files whose hard links may follow.

use std::collections::HashMap;

use headroom_transfer_proto::path::RelPath;

use crate::delivery::limits::MAX_LINKED_BYTES;
use crate::error::Error;

/// Files whose hard links may follow.
#[derive(Default)]
pub(super) struct Linked {
    pub(super) files: HashMap<RelPath, State>,
    /// Those that are not answered yet.
    pub(super) unanswered: HashMap<u64, RelPath>,
    pub(super) bytes: usize,
}

/// A file that may have hard links.
pub(super) enum State {
    /// It is being received, and these names wait for it.
    Coming(Vec<(u64, RelPath)>),
    Stored,
    Failed,
}

impl Linked {
    pub(super) fn take_room(&mut self, path: &RelPath) -> Result<(), Error> {
        self.bytes += path.as_bytes().len();
        match self.bytes > 2 * MAX_LINKED_BYTES {
            true => Err(Error::Protocol("it names too many files with other names".to_owned())),
            false => Ok(()),
        }
    }
}
