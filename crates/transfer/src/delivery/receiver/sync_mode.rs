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
        let (waiting, wanted) = (VecDeque::new(), HashMap::new());
        Self { delete, dry_run, is_missing, excludes, extraneous: None, waiting, wanted }
    }
}
