//! `put`, `get` and `ls`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_transfer_proto::message::{
    Listed, MAX_SOURCES, Message, PartsRequest, TreeOptions, Wanted,
};
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::connection::{Answer, Client, limited, receive_counts};
use crate::control::{MessageReader, unexpected};
use crate::delivery::{
    Destination, DividedUpload, Observer, Offering, Receiver, Sender, Summary, Terms,
};
use crate::error::Error;
use crate::files::{Keep, Root, Source, settable};
use crate::lanes::LaneOffer;
use crate::rate::RateLimits;

/// The most entries that a listing may have.
const MAX_ENTRIES: usize = 1 << 24;

impl Client {
    /// Sends files and directories into the directory `to` below the server's root. A single one
    /// gets the name `to`, unless that is a directory or ends with `/`; of `DIR/.` the content goes
    /// into `to`. Missing directories are made. With `fsync`, everything is on the server's disk
    /// when this returns.
    ///
    /// # Errors
    /// The request failed as a whole. Single files that fail are counted instead, and reported to
    /// `observer`.
    pub async fn put(
        &mut self,
        paths: &[PathBuf],
        to: &[u8],
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let names_source = |path: &PathBuf| !names_contents(path.as_os_str().as_bytes());
        let rename = paths.len() == 1 && paths.iter().all(names_source) && !names_directory(to);
        let to = self.below(to)?;
        let source = Source::new(paths.iter().cloned(), self.tree.links);
        self.put_source(source, to, rename, fsync, observer).await
    }

    /// Sends a source into the directory `to`, or with `rename` under that name.
    pub(super) async fn put_source(
        &mut self,
        source: Source,
        to: Option<RelPath>,
        rename: bool,
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        self.put_or_complete(source, (to, rename), fsync, (None, None), observer).await
    }

    /// Does what [`Self::put_source`] does. The source may be a file whose ranges are stored: then
    /// `parts` says so, and it may have been `divided` by this process.
    pub(super) async fn put_or_complete(
        &mut self,
        source: Source,
        (to, rename): (Option<RelPath>, bool),
        fsync: bool,
        (parts, divided): (Option<PartsRequest>, Option<Arc<DividedUpload>>),
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let offer = self.offer();
        let lanes = offer.as_ref().map(LaneOffer::message);
        let tree = self.tree_of_copy()?;
        let request = Message::Put { to, rename, fsync, lanes, tree: Some(tree), parts };
        let (mut writer, mut reader, mut answer) = self.begin(&request, offer).await?;
        let mut kept = tree;
        // entries without more attributes do not depend on the answer, and go ahead of it; not so
        // if lanes were chosen, without which nothing is to be sent
        if tree.keep != Keep::NONE || self.lane_options.is_any() {
            let accepted = answer.receive(&mut reader).await?;
            kept = accepted.limit(tree, &observer);
            answer = Answer::Received(accepted);
        }
        let source = source.keeping(kept.keep);
        let limits = RateLimits::default().and(self.rate_bps);
        let (connection, offering) = (self.connection.clone().into(), Offering::Content);
        let sender = Sender::ahead(connection, offering, Arc::clone(&observer), limits.clone());
        let sender = sender.compressing(self.compress).of_tree(kept, false).completing(divided);
        let (mut cipher, mut counts) = (None, false);
        let agreed = async |reader: &mut MessageReader| {
            let accepted = answer.receive(reader).await?;
            cipher = accepted.report_params(&observer).map(|params| params.cipher);
            counts = accepted.counts;
            let limits = limits.and(accepted.peer_limit_bps);
            let verification = accepted.verification(tree.verification, &observer)?;
            Ok::<_, Error>(Some(Terms { limits, lane: accepted.lanes, verification }))
        };
        let next_id = &mut self.next_id;
        let sent = sender.send_ahead(source, next_id, &mut writer, &mut reader, agreed).await?;
        let requests = receive_counts(counts, &mut reader).await;
        Ok(Summary { cipher, requests, ..sent })
    }

    /// Fetches files and directories at `from` below the server's root, as [`Self::put`] sends
    /// them: into the directory `to`, or a single one under the name `to`. Of `DIR/.`, and of the
    /// root, the content goes into `to`.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn get(
        &mut self,
        from: &[Vec<u8>],
        to: &Path,
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        if from.len() > MAX_SOURCES {
            return Err(Error::Usage(format!("no more than {MAX_SOURCES} paths at once")));
        }
        let wanted = from
            .iter()
            .map(|path| Ok(Wanted { path: self.below(path)?, contents: names_contents(path) }));
        let from = wanted.collect::<Result<Vec<_>, Error>>()?;
        let has_name = |wanted: &Wanted| !wanted.contents && wanted.path.is_some();
        let (to, alone) = (to.to_owned(), from.len() == 1 && from.iter().all(has_name));
        let (mut destination, made) = spawn_blocking(move || here(&to, alone))
            .await
            .map_err(|error| Error::task(&error))??;
        // the names in a directory whose content was requested are not known here
        if from.iter().all(has_name) {
            let names = from.iter().filter_map(|wanted| wanted.path.as_ref());
            destination = destination.only(names.map(|path| path.name().to_vec()).collect());
        }
        let received = self.get_into(destination, from, fsync, observer).await;
        remove_if_failed(&made, &received);
        received
    }

    /// Fetches what is wanted into a destination.
    pub(super) async fn get_into(
        &mut self,
        destination: Destination,
        from: Vec<Wanted>,
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let compress = Some(self.compress);
        // the rate of a lane cannot be limited at the receiver
        let offer = self.offer().filter(|_| self.rate_bps.is_none());
        let lanes = offer.as_ref().map(LaneOffer::message);
        let tree = self.tree_of_copy()?;
        let request = Message::Get { from, compress, lanes, tree: Some(tree), ranges: None };
        let (mut writer, mut reader, accepted) = self.request(&request, offer).await?;
        let params = accepted.report_params(&observer);
        let verification = Some(accepted.verification(tree.verification, &observer)?);
        let stored_as = limited(tree, settable(), "this user may not set", &observer);
        let stored_as = TreeOptions { verification, ..stored_as };
        let receiver = Receiver {
            connection: self.connection.clone().into(),
            joining: None,
            destination,
            fsync,
            observer,
            claims: None,
            limits: RateLimits::default().and(self.rate_bps),
            sync: None,
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
        Ok(Summary { cipher: params.map(|params| params.cipher), ..summary })
    }

    /// Lists a directory, or the one file of that name.
    ///
    /// # Errors
    /// It is missing, has more than 16 777 216 entries, or the connection is lost.
    pub async fn list(&mut self, path: &[u8], each: impl FnMut(Listed)) -> Result<(), Error> {
        self.list_at_most(MAX_ENTRIES, path, each).await
    }

    pub(crate) async fn list_at_most(
        &mut self,
        most: usize,
        path: &[u8],
        mut each: impl FnMut(Listed),
    ) -> Result<(), Error> {
        let mut left = most;
        let request = Message::List { path: self.below(path)? };
        let (_speaker, mut reader, _) = self.request(&request, None).await?;
        loop {
            match reader.expect().await? {
                Message::Listing { entries, last } => {
                    // empty messages count, too: a server could send them forever
                    left = left.checked_sub(entries.len().max(1)).ok_or_else(|| {
                        Error::Protocol(format!("its listing has more than {most} entries"))
                    })?;
                    entries.into_iter().for_each(&mut each);
                    if last {
                        return Ok(());
                    }
                }
                Message::Refused { reason, about_files, code } => {
                    return Err(Error::refused(reason, about_files, code));
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
}

/// Whether a path names the content of a directory, not the directory.
pub(crate) fn names_contents(path: &[u8]) -> bool {
    path.ends_with(b"/.") || matches!(path, b"" | b".")
}

/// Whether a path names a directory by its form.
pub(crate) fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || names_contents(path)
}

/// Resolves the destination on this machine, as [`Destination::resolve`] does on a server.
/// `alone`: a single file or directory arrives under its name. Also returns the directories
/// that it made, as [`make_directories`] does.
pub(crate) fn here(to: &Path, alone: bool) -> Result<(Destination, Vec<PathBuf>), Error> {
    let name = to.file_name().and_then(|name| RelPath::single(name.as_bytes()).ok());
    let is_link = to.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    let leads_to_directory = is_link && to.is_dir();
    let is_directory = leads_to_directory || names_directory(to.as_os_str().as_bytes());
    match name.filter(|_| alone && !is_directory) {
        Some(name) => {
            let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or_else(|| Path::new("."));
            let made = make_directories(parent)?;
            Ok((Destination::resolve(&Root::open(parent)?, Some(&name), true)?, made))
        }
        None => {
            let made = make_directories(to)?;
            Ok((Destination::resolve(&Root::open(to)?, None, false)?, made))
        }
    }
}

/// Makes a directory and its missing parents. Returns those that were missing, the innermost
/// first.
pub(crate) fn make_directories(path: &Path) -> Result<Vec<PathBuf>, Error> {
    // without a trailing `/.`, by which no directory can be made or removed
    let path = path.components().as_path();
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    std::fs::create_dir_all(path).map_err(|cause| Error::System {
        doing: format!("make the directory {}", path.display()),
        cause,
    })?;
    Ok(missing)
}

/// Removes directories that were made for what did not come, the innermost first, as far as
/// they are empty.
pub(crate) fn remove_if_failed(made: &[PathBuf], received: &Result<Summary, Error>) {
    if !received.as_ref().is_ok_and(|summary| summary.failed == 0) {
        let _ = made.iter().try_for_each(std::fs::remove_dir);
    }
}
