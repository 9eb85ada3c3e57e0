//! The state of a sync at the receiver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use headroom_transfer_proto::message::{Attributes, EntryKind, Time};
use headroom_transfer_proto::path::RelPath;

use crate::delivery::delta::Delta;
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
    /// Whether to offer the sender the old versions of changed files.
    pub(super) delta: Delta,
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
        Self {
            delete,
            dry_run,
            keeps_files: false,
            is_missing,
            excludes,
            delta: Delta::On,
            extraneous: None,
            waiting: VecDeque::new(),
            wanted: HashMap::new(),
        }
    }

    /// Sets of which files the sender may reuse the old version; without this of all.
    pub(crate) fn reusing(self, delta: Delta) -> Self {
        Self { delta, ..self }
    }

    /// Lets no directory replace a file.
    pub(crate) fn keeping_files(self) -> Self {
        Self { keeps_files: true, ..self }
    }
}
