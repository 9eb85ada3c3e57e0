//! Single names of a tree, as a listing found them: for programs that divide a tree among
//! several connections.

use std::path::Path;
use std::sync::Arc;

use headroom_transfer_proto::message::{MAX_SOURCES, Wanted};
use headroom_transfer_proto::path::{PathError, RelPath};
use tokio::task::spawn_blocking;

use super::connection::Client;
use super::sync::SyncOptions;
use crate::delivery::{Destination, Observer, Summary};
use crate::error::Error;
use crate::files::{Root, Source};

impl Client {
    /// Sends names below the local directory `from` into the directory `to` below the server's
    /// root, each under its path. A directory is made, and gets its mode and time, but its content
    /// is not sent. A name comes after the directories that it is in, unless these are there.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn put_listed(
        &mut self,
        from: &Path,
        paths: Vec<RelPath>,
        to: &[u8],
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        self.put_names(&open(from).await?, paths, to, fsync, observer).await
    }

    /// Does what [`Self::put_listed`] does with names below a root, which may be in an object
    /// store.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn put_names(
        &mut self,
        from: &Root,
        paths: Vec<RelPath>,
        to: &[u8],
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let to = self.below(to)?;
        let source = Source::listed(from, paths, self.tree.links);
        self.put_source(source, to, false, fsync, observer).await
    }

    /// Does what [`Self::put_listed`] does, but sends of files only what differs, as
    /// [`Self::sync_to`] does. Nothing is removed.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn sync_listed(
        &mut self,
        from: &Path,
        paths: Vec<RelPath>,
        to: &[u8],
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let options = SyncOptions { fsync, ..SyncOptions::default() };
        self.sync_names(&options, &open(from).await?, paths, to, observer).await
    }

    /// Does what [`Self::sync_listed`] does with names below a root, which may be in an object
    /// store, and with options. None of them makes it remove anything.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn sync_names(
        &mut self,
        options: &SyncOptions,
        from: &Root,
        paths: Vec<RelPath>,
        to: &[u8],
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let options = SyncOptions { delete: false, ..options.clone() };
        let request = options.request(self.below(to)?, true, self.compress, self.tree);
        let source = Source::listed(from, paths, self.tree.links);
        self.sync_source(source, &request, &options, observer).await
    }

    /// Reports what [`Self::sync_names`] would send ([`Event::Planned`]), and changes nothing. No
    /// file is read: it is enough that `from` has files with the same sizes, modes and times.
    ///
    /// [`Event::Planned`]: crate::Event::Planned
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn plan_names(
        &mut self,
        from: &Root,
        paths: Vec<RelPath>,
        to: &[u8],
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let options = SyncOptions { dry_run: true, ..SyncOptions::default() };
        self.sync_names(&options, from, paths, to, observer).await
    }

    /// Fetches files of one directory, at most 1024: `names` in the directory `directory` below
    /// `from`, which is below the server's root, into the directory of the same path below `to`.
    /// That is made if it is missing, with all permissions that the process gives new directories:
    /// the caller has made a private one before. No link below `to` is followed. Events have the
    /// names alone.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub async fn get_listed(
        &mut self,
        from: &[u8],
        directory: Option<&RelPath>,
        names: &[RelPath],
        to: &Root,
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        if names.len() > MAX_SOURCES {
            return Err(Error::Usage(format!("no more than {MAX_SOURCES} files at once")));
        }
        let from = self.below(from)?;
        let wanted = names.iter().map(|name| {
            let path = joined(from.as_ref(), directory, name).map_err(|error| Error::OnServer {
                reason: format!("{name} cannot be read: {error}"),
                code: None,
            });
            Ok(Wanted { path: Some(path?), contents: false })
        });
        let wanted = wanted.collect::<Result<Vec<_>, Error>>()?;
        let (root, directory) = (to.clone(), directory.cloned());
        let resolve = move || Destination::directory(&root, directory.as_ref(), true);
        let resolved = spawn_blocking(resolve).await.map_err(|error| Error::task(&error))??;
        let asked = names.iter().map(|name| name.name().to_vec()).collect();
        self.get_into(resolved.0.only(asked), wanted, fsync, observer).await
    }
}

/// Opens a local directory.
async fn open(path: &Path) -> Result<Root, Error> {
    let path = path.to_owned();
    let opened = spawn_blocking(move || Root::open(&path)).await;
    Ok(opened.map_err(|error| Error::task(&error))??)
}

pub(super) fn joined(
    from: Option<&RelPath>,
    directory: Option<&RelPath>,
    name: &RelPath,
) -> Result<RelPath, PathError> {
    let mut path = name.clone();
    for above in [directory, from].into_iter().flatten() {
        path = above.join(&path)?;
    }
    Ok(path)
}
