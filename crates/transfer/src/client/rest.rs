//! What several connections to servers of one store divide among themselves, and what one of them
//! does at last.

use std::path::PathBuf;
use std::sync::Arc;

use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::connection::Client;
use super::sync::SyncOptions;
use crate::delivery::{Destination, Observer, Summary, SyncMode};
use crate::error::Error;
use crate::files::{Remaining, Root, Source};
use crate::quic;

impl Client {
    /// Waits until the network reports that the server is gone, and nothing arrives any more.
    pub(crate) fn gone(&self) -> impl Future<Output = Error> + use<> {
        let connection = self.connection.clone();
        async move { quic::gone(&connection).await }
    }

    /// Waits until the connection has ended, or the server is gone as [`Self::gone`] says. It is for
    /// a client that has nothing to do: requests report the end of their connection themselves.
    pub(crate) fn lost(&self) -> impl Future<Output = Error> + use<> {
        let connection = self.connection.clone();
        async move {
            tokio::select! {
                error = connection.closed() => Error::from(error),
                error = quic::gone(&connection) => error,
            }
        }
    }

    /// Does what [`Self::put`] does into the directory `to`, but sends of files only those that
    /// remain.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub(crate) async fn put_rest(
        &mut self,
        paths: &[PathBuf],
        to: &[u8],
        remaining: Arc<Remaining>,
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let to = self.below(to)?;
        let source = Source::new(paths.iter().cloned(), self.tree.links).only(remaining);
        self.put_source(source, to, false, fsync, observer).await
    }

    /// Fetches what differs of the content of the directory `from` below the server's root into a
    /// directory below `to`, or into `to` itself. That is made if it is missing; no link below `to`
    /// is followed. No directory replaces a file.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub(crate) async fn get_rest(
        &mut self,
        from: &[u8],
        (to, directory): (&Root, Option<&RelPath>),
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let options = SyncOptions { fsync, ..SyncOptions::default() };
        let request = options.request(self.below(from)?, false, self.compress, self.tree);
        let (root, directory) = (to.clone(), directory.cloned());
        let resolve = move || Destination::directory(&root, directory.as_ref(), true);
        let resolved = spawn_blocking(resolve).await.map_err(|error| Error::task(&error))??;
        let mode = SyncMode::new(false, false, false, Arc::new(options.excludes.clone()));
        self.sync_into(resolved.0, mode.keeping_files(), &request, fsync, observer).await
    }
}
