//! Walks the trees to send.

use std::path::PathBuf;
use std::sync::Arc;

use headroom_transfer_proto::message::{Keep, Links};
use headroom_transfer_proto::path::RelPath;

use super::error::Error;
use super::exclude::Excludes;
use super::found::Found;
use super::remaining::Remaining;
use super::root::Root;
use super::{disk, store};

/// Walks what to send: an iterator of what was found, and of errors for what cannot be sent.
///
/// Directories come before their content, and names in byte order. Memory is bounded.
#[derive(Debug)]
pub enum Source {
    /// On this machine's disks.
    Disk(Box<disk::Source>),
    /// In an object store.
    Store(Box<store::Source>),
}

impl Source {
    /// Walks these local paths.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathBuf>, links: Links) -> Self {
        Self::Disk(Box::new(disk::Source::new(paths, links)))
    }

    /// Walks what a peer names below a root; `None` is the root itself. Of the root, and of those
    /// marked `true`, the content is sent. No link is followed.
    #[must_use]
    pub fn below(
        root: &Root,
        wanted: impl IntoIterator<Item = (Option<RelPath>, bool)>,
        links: Links,
    ) -> Self {
        match root {
            Root::Disk(root) => Self::Disk(Box::new(disk::Source::below(root, wanted, links))),
            Root::Store(root) => Self::Store(Box::new(store::Source::below(root, wanted, links))),
        }
    }

    /// Walks names below a root that a listing found, each sent under its path there. A directory
    /// is sent without its content: what is in it is listed, too. No link is followed.
    #[must_use]
    pub fn listed(root: &Root, paths: impl IntoIterator<Item = RelPath>, links: Links) -> Self {
        match root {
            Root::Disk(root) => Self::Disk(Box::new(disk::Source::listed(root, paths, links))),
            Root::Store(root) => Self::Store(Box::new(store::Source::listed(root, paths, links))),
        }
    }

    /// Sets whether sources that are not files, such as directories, are errors.
    #[must_use]
    pub fn only_files(self, only_files: bool) -> Self {
        match self {
            Self::Disk(source) => Self::Disk(Box::new(source.only_files(only_files))),
            Self::Store(source) => Self::Store(Box::new(source.only_files(only_files))),
        }
    }

    /// Skips what is excluded, silently.
    #[must_use]
    pub fn without(self, excludes: Arc<Excludes>) -> Self {
        match self {
            Self::Disk(source) => Self::Disk(Box::new(source.without(excludes))),
            Self::Store(source) => Self::Store(Box::new(source.without(excludes))),
        }
    }

    /// Sets which attributes to keep. A store has none.
    #[must_use]
    pub fn keeping(self, keep: Keep) -> Self {
        match self {
            Self::Disk(source) => Self::Disk(Box::new(source.keeping(keep))),
            Self::Store(source) => Self::Store(source),
        }
    }

    /// Returns of files only those that remain, and everything else.
    #[must_use]
    pub(crate) fn only(self, remaining: Arc<Remaining>) -> Self {
        match self {
            Self::Disk(source) => Self::Disk(Box::new(source.only(remaining))),
            Self::Store(source) => Self::Store(Box::new(source.only(remaining))),
        }
    }

    /// Reads files of at most this many bytes ahead, if reading takes long: the caller will read
    /// each of them.
    #[must_use]
    pub fn reading_ahead(self, most: u64) -> Self {
        match self {
            Self::Disk(source) => Self::Disk(source),
            Self::Store(source) => Self::Store(Box::new(source.reading_ahead(most))),
        }
    }
}

impl Iterator for Source {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Disk(source) => source.next(),
            Self::Store(source) => source.next(),
        }
    }
}
