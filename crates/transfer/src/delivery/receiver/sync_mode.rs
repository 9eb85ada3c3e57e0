//! The state of a sync at the receiver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use headroom_transfer_proto::message::{Attributes, EntryKind, Time};
use headroom_transfer_proto::path::RelPath;

use crate::files::{Excludes, Extraneous};

/// The state of a sync at the receiver.
#[derive(Debug)]
pub(crate) struct SyncMode {
    pub(super) delete: bool,
    pub(super) dry_run: bool,
    /// Whether a directory replaces no file, as in a `get`.
    pub(super) keeps_files: bool,
    /// Whether the directory is missing, as it may be in a dry run.
    pub(super) is_missing: bool,
    pub(super) excludes: Arc<Excludes>,
    /// What is here and was not named by the sender so far.
    pub(super) extraneous: Option<Extraneous>,
    /// Large files that wait until fewer are open.
    pub(super) waiting: VecDeque<(u64, RelPath, EntryKind)>,
    /// Small files whose content was requested.
    pub(super) wanted: HashMap<u64, Small>,
}

#[derive(Debug)]
pub(super) struct Small {
    pub(super) path: RelPath,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) mtime: Time,
    pub(super) attributes: Option<Box<Attributes>>,
}

impl SyncMode {
    pub(crate) fn new(
        delete: bool,
        dry_run: bool,
        is_missing: bool,
        excludes: Arc<Excludes>,
    ) -> Self {
        let (waiting, wanted, keeps_files) = (VecDeque::new(), HashMap::new(), false);
        let extraneous = None;
        Self { delete, dry_run, keeps_files, is_missing, excludes, extraneous, waiting, wanted }
    }

    /// Lets no directory replace a file.
    pub(crate) fn keeping_files(self) -> Self {
        Self { keeps_files: true, ..self }
    }
}
