//! How the receiver of a sync goes about it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use headroom_transfer_proto::message::{Attributes, Kind, Time};
use headroom_transfer_proto::path::RelPath;

use crate::files::{Excludes, Extraneous};

/// How the receiver of a sync goes about it.
#[derive(Debug)]
pub(crate) struct SyncMode {
    pub(super) delete: bool,
    pub(super) dry_run: bool,
    /// The directory is not there, and in a dry run it is not made.
    pub(super) is_missing: bool,
    pub(super) excludes: Arc<Excludes>,
    /// What is here and was not named by the sender so far.
    pub(super) extraneous: Option<Extraneous>,
    /// Large files that wait until fewer are open.
    pub(super) waiting: VecDeque<(u64, RelPath, Kind)>,
    /// Small files whose content was asked for.
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
