//! Lists a directory, or a single file, in parts.

use headroom_transfer_proto::message::{Listed, ListedKind, MAX_LISTED, Message};
use headroom_transfer_proto::path::RelPath;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::request::Request;
use super::sharing;
use crate::error::Error;
use crate::files::{self, FileType, Metadata, Root};
use crate::path_policy::PathPolicy;

/// The most bytes of names and targets in one message of a listing, before its last entry.
const LISTED_BYTES: usize = 512 << 10;

impl Request<'_> {
    pub(super) async fn list(&mut self, path: Option<RelPath>) -> Result<(), Error> {
        if let Some(name) = self.client.share.as_deref().and_then(sharing::file_name) {
            let name = RelPath::single(name).map_err(|error| Error::Refused(error.to_string()))?;
            return self.list_shared_file(name).await;
        }
        let (root, paths) = (self.root.clone(), self.paths);
        let (lists, mut listed_parts) = tokio::sync::mpsc::channel(2);
        let lister = spawn_blocking(move || {
            let (there, path) = paths.listed(&root, path)?;
            list(&there, path.as_ref(), &lists).map_err(|error| match paths {
                PathPolicy::BeneathRoot => error,
                PathPolicy::FollowLinks => error.below(there.path()),
            })
        });
        self.writer.send(&Message::ACCEPTED).await?;
        while let Some(entries) = listed_parts.recv().await {
            self.writer.send(&Message::Listing { entries, last: false }).await?;
        }
        lister.await.map_err(|error| Error::task(&error))??;
        self.writer.send(&Message::Listing { entries: Vec::new(), last: true }).await
    }
}

/// Lists a directory, or a single file, in parts.
fn list(
    root: &Root,
    path: Option<&RelPath>,
    lists: &mpsc::Sender<Vec<Listed>>,
) -> Result<(), files::Error> {
    let metadata = path.map(|path| root.look(path)).transpose()?.flatten();
    if let Some((path, metadata)) =
        path.zip(metadata).filter(|(_, metadata)| metadata.file_type != FileType::Directory)
    {
        if let Ok(name) = RelPath::single(path.name()) {
            let target = root.target(path).ok().filter(|_| metadata.file_type == FileType::Symlink);
            let _ = lists.blocking_send(vec![listed(name, &metadata, target)]);
        }
        return Ok(());
    }
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut listing = root.list(path)?;
    while let Some(found) = listing.next() {
        let (name, metadata) = found?;
        let target =
            (metadata.file_type == FileType::Symlink).then(|| listing.target(&name)).flatten();
        bytes += name.as_bytes().len() + target.as_ref().map_or(0, Vec::len);
        entries.push(listed(name, &metadata, target));
        if entries.len() == MAX_LISTED || bytes > LISTED_BYTES {
            bytes = 0;
            if lists.blocking_send(std::mem::take(&mut entries)).is_err() {
                return Ok(());
            }
        }
    }
    let _ = lists.blocking_send(entries);
    Ok(())
}

pub(super) fn listed(path: RelPath, metadata: &Metadata, target: Option<Vec<u8>>) -> Listed {
    let kind = match metadata.file_type {
        FileType::File => ListedKind::File,
        FileType::Directory => ListedKind::Directory,
        FileType::Symlink => ListedKind::Symlink,
        FileType::Pipe | FileType::Socket | FileType::Device => ListedKind::Other,
    };
    Listed { path, kind, size: metadata.size, mode: metadata.mode, mtime: metadata.mtime, target }
}
