//! `sync`: makes the content of one directory that of another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_transfer_proto::message::{Compress, Message, TreeOptions};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Verification;
use tokio::task::spawn_blocking;

use super::connection::{Client, limited, receive_counts};
use super::copy::{make_directories, remove_if_failed};
use crate::delivery::{
    Delta, Destination, Observer, Offering, Receiver, Sender, Summary, SyncMode, Terms,
};
use crate::error::Error;
use crate::files::{Excludes, Root, Source, settable};
use crate::rate::RateLimits;

/// Options of a sync.
#[derive(Debug, Clone)]
pub struct SyncOptions {
    /// Remove at the destination what the source does not have. If anything could not be read or
    /// stored, nothing is removed.
    pub delete: bool,
    /// Change nothing, and report what would be done.
    pub dry_run: bool,
    /// Compare files by hash instead of size and time.
    pub checksum: bool,
    /// Search changed files for content that the receiver has.
    pub delta: Delta,
    /// Count a file as stored only when it is on the disk.
    pub fsync: bool,
    /// Names that are neither sent nor removed.
    pub excludes: Excludes,
}

impl Default for SyncOptions {
    fn default() -> Self {
        let (excludes, delta) = (Excludes::none(), Delta::default());
        Self { delete: false, dry_run: false, checksum: false, delta, fsync: false, excludes }
    }
}

impl SyncOptions {
    pub(super) fn offering(&self) -> Offering {
        if self.checksum { Offering::Hash } else { Offering::Name }
    }

    pub(super) fn request(
        &self,
        path: Option<RelPath>,
        upload: bool,
        compress: Compress,
        tree: TreeOptions,
    ) -> Message {
        let &Self { delete, dry_run, checksum, fsync, ref excludes, .. } = self;
        let exclude = excludes.patterns().to_vec();
        let (compress, tree) = (Some(compress), Some(tree));
        Message::Sync { path, upload, delete, dry_run, checksum, fsync, exclude, compress, tree }
    }
}

impl Client {
    /// Makes the content of the directory `to` below the server's root that of `from`. Files whose
    /// size and time agree are neither read nor sent; of others the spans of 1 MiB are sent that
    /// differ at the same offset, without what [`SyncOptions::delta`] finds in the old version.
    ///
    /// # Errors
    /// `from` is not a directory; else as those of [`Self::put`].
    pub async fn sync_to(
        &mut self,
        from: &Path,
        to: &[u8],
        options: &SyncOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        if !from.is_dir() {
            return Err(Error::Usage(format!(
                "{} is not a directory: `sync` is for directories, `put` sends files",
                from.display()
            )));
        }
        let request = options.request(self.below(to)?, true, self.compress, self.tree);
        let excludes = Arc::new(options.excludes.clone());
        let source = Source::new([from.join(".")], self.tree.links).without(excludes);
        self.sync_source(source, &request, options, observer).await
    }

    /// Does what [`Self::sync_to`] does with the content of a root, which may be in an object
    /// store.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn sync_root_to(
        &mut self,
        from: &Root,
        to: &[u8],
        options: &SyncOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let request = options.request(self.below(to)?, true, self.compress, self.tree);
        let excludes = Arc::new(options.excludes.clone());
        let source = Source::below(from, [(None, true)], self.tree.links).without(excludes);
        self.sync_source(source, &request, options, observer).await
    }

    /// Sends what differs of a source, as the request says.
    pub(super) async fn sync_source(
        &mut self,
        source: Source,
        request: &Message,
        options: &SyncOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let (mut writer, mut reader, accepted) = self.request(request, None).await?;
        let limits = RateLimits::default().and(self.rate_bps).and(accepted.peer_limit_bps);
        let tree = accepted.limit(self.tree, &observer);
        let source = source.keeping(tree.keep);
        let (connection, offering) = (self.connection.clone().into(), options.offering());
        let terms = Terms { limits, lane: accepted.lanes, verification: Verification::Blake3 };
        let sender = Sender::new(connection, offering, observer, terms);
        let sender = sender.compressing(self.compress).of_tree(tree, false);
        let sender = sender.searching(options.delta);
        let sent = sender.send(source, &mut self.next_id, &mut writer, &mut reader).await?;
        let requests = receive_counts(accepted.counts, &mut reader).await;
        Ok(Summary { requests, ..sent })
    }

    /// Makes the content of the directory `to` that of `from` below the server's root, as
    /// [`Self::sync_to`] does in the other direction.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub async fn sync_from(
        &mut self,
        from: &[u8],
        to: &Path,
        options: &SyncOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let request = options.request(self.below(from)?, false, self.compress, self.tree);
        let (to, make) = (to.to_owned(), !options.dry_run);
        let destination = spawn_blocking(move || here(&to, make));
        let (destination, is_missing, made) =
            destination.await.map_err(|error| Error::task(&error))??;
        let SyncOptions { delete, dry_run, delta, fsync, .. } = *options;
        let excludes = Arc::new(options.excludes.clone());
        let mode = SyncMode::new(delete, dry_run, is_missing, excludes).reusing(delta);
        let received = self.sync_into(destination, mode, &request, fsync, observer).await;
        remove_if_failed(&made, &received);
        received
    }

    /// Does what [`Self::sync_from`] does into a root, which may be in an object store.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub async fn sync_root_from(
        &mut self,
        from: &[u8],
        to: &Root,
        options: &SyncOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let request = options.request(self.below(from)?, false, self.compress, self.tree);
        let (destination, is_missing) = Destination::directory(to, None, true)?;
        let SyncOptions { delete, dry_run, delta, fsync, .. } = *options;
        let excludes = Arc::new(options.excludes.clone());
        let mode = SyncMode::new(delete, dry_run, is_missing, excludes).reusing(delta);
        self.sync_into(destination, mode, &request, fsync, observer).await
    }

    /// Receives what differs into a destination, as the request says.
    pub(super) async fn sync_into(
        &mut self,
        destination: Destination,
        mode: SyncMode,
        request: &Message,
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let (mut writer, mut reader, accepted) = self.request(request, None).await?;
        let stored_as = limited(self.tree, settable(), "this user may not set", &observer);
        let receiver = Receiver {
            connection: self.connection.clone().into(),
            joining: None,
            destination,
            fsync,
            observer,
            claims: None,
            limits: RateLimits::default().and(self.rate_bps),
            sync: Some(mode),
            tree: stored_as,
            lanes: accepted.lanes,
            acceptance: None,
            part: None,
            parts: None,
        };
        let mut summary = receiver.receive(&mut writer, &mut reader).await?;
        if summary.requests.is_none() {
            summary.requests = receive_counts(accepted.counts, &mut reader).await;
        }
        self.finish_request(writer, reader).await;
        Ok(summary)
    }
}

/// Opens the destination on this machine, and makes it with `make`. Also returns whether it is
/// missing, in which case another directory stands in for it, and the directories that were
/// made.
fn here(to: &Path, make: bool) -> Result<(Destination, bool, Vec<PathBuf>), Error> {
    let made = if make { make_directories(to)? } else { Vec::new() };
    let is_missing = !make && !to.exists();
    let root = Root::open(if is_missing { Path::new(".") } else { to })?;
    Ok((Destination::directory(&root, None, make)?.0, is_missing, made))
}
