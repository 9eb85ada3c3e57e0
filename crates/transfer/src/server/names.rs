//! Makes, renames and removes names for a client whose key may write. Paths are resolved like
//! those of a transfer.

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::path::RelPath;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::request::Request;
use crate::delivery::{Summary, make_directories};
use crate::error::Error;
use crate::files::{self, ErrorKind, Excludes, FileType, Removal, Root};
use crate::path_policy::PathPolicy;

/// Removed names that wait to be reported.
const WAITING: usize = 256;

impl Request<'_> {
    pub(super) async fn make_directory(
        &mut self,
        path: RelPath,
        parents: bool,
    ) -> Result<Summary, Error> {
        self.may_write()?;
        let (root, paths) = (self.root.clone(), self.paths);
        let make = move || {
            let (root, path) = paths.name(&root, path)?;
            match parents {
                true => make_directories(&root, &path),
                false => root.create_directory(&path),
            }
        };
        spawn_blocking(make).await.map_err(|error| Error::task(&error))??;
        self.one_done().await
    }

    pub(super) async fn rename(
        &mut self,
        from: RelPath,
        to: Option<RelPath>,
        replace: bool,
    ) -> Result<Summary, Error> {
        self.may_write()?;
        let (root, paths) = (self.root.clone(), self.paths);
        let rename = move || {
            let to = target(&root, paths, &from, to)?;
            let (source, from) = paths.name(&root, from)?;
            let (target, to) = paths.name(&root, to)?;
            // a client with all rights of the user needs no confinement
            let confined = paths == PathPolicy::BeneathRoot;
            source.rename(&from, (&target, &to), replace, confined)
        };
        spawn_blocking(rename).await.map_err(|error| Error::task(&error))??;
        self.one_done().await
    }

    pub(super) async fn remove(
        &mut self,
        path: RelPath,
        recursive: bool,
    ) -> Result<Summary, Error> {
        self.may_write()?;
        let (root, paths) = (self.root.clone(), self.paths);
        let (tell, mut told) = mpsc::channel(WAITING);
        let remove = move || -> Result<(), files::Error> {
            let (root, path) = paths.name(&root, path)?;
            let is_directory = match root.look(&path)? {
                None => return Err(files::Error::missing(&path)),
                Some(metadata) => metadata.file_type == FileType::Directory,
            };
            if !recursive || !is_directory {
                root.remove(&path)?;
                let _ = tell.blocking_send(Removal::Removed(path));
                return Ok(());
            }
            // the rest is not reported if the connection has ended
            root.remove_tree(&path, &Excludes::none(), false, &mut |removal| {
                let _ = tell.blocking_send(removal);
            });
            Ok(())
        };
        let removing = spawn_blocking(remove);
        let mut summary = Summary::default();
        let mut is_accepted = false;
        while let Some(removal) = told.recv().await {
            if !is_accepted {
                self.writer.queue(&Message::ACCEPTED).await?;
                is_accepted = true;
            }
            let message = match removal {
                Removal::Removed(path) => {
                    summary.removed += 1;
                    Message::Removed { path }
                }
                Removal::Kept(path) => {
                    summary.failed += 1;
                    let reason = format!("{path} stays: something in it stays, or is unfinished");
                    Message::Left { reason, failed: true, code: None }
                }
                Removal::Failed(error) => {
                    summary.failed += 1;
                    Message::Left { reason: error.to_string(), failed: true, code: error.code() }
                }
            };
            self.writer.queue(&message).await?;
        }
        removing.await.map_err(|error| Error::task(&error))??;
        if !is_accepted {
            self.writer.queue(&Message::ACCEPTED).await?;
        }
        let Summary { removed, failed, .. } = summary;
        self.writer.send(&Message::End { stored: removed, failed }).await?;
        Ok(summary)
    }

    /// Reports success of a request about one name.
    pub(super) async fn one_done(&mut self) -> Result<Summary, Error> {
        self.writer.queue(&Message::ACCEPTED).await?;
        self.writer.send(&Message::End { stored: 1, failed: 0 }).await?;
        Ok(Summary { stored: 1, ..Summary::default() })
    }
}

/// Returns the new name of something: in a directory it keeps its own.
fn target(
    root: &Root,
    paths: PathPolicy,
    from: &RelPath,
    to: Option<RelPath>,
) -> Result<RelPath, files::Error> {
    let long = |error| files::Error::path(from, error);
    let Some(to) = to else { return RelPath::single(from.name()).map_err(long) };
    let (there, name) = paths.name(root, to.clone())?;
    let here = match there.look(&name) {
        Err(error) if matches!(error.kind(), ErrorKind::Missing) => None,
        looked => looked?,
    };
    match here {
        Some(metadata) if metadata.file_type == FileType::Directory => {
            to.child(from.name()).map_err(long)
        }
        _ => Ok(to),
    }
}
