//! Sends a large file to a server: its ranges, which any workers send at the same time, and then
//! the file itself, whose transfer compares what the ranges have brought with the source, sends what
//! differs or is missing, and stores the file.

use std::sync::Arc;

use headroom_transfer::client::SentRange;
use headroom_transfer::files::{FileType, Root};
use headroom_transfer::{Client, Error, FileVersion};

use super::range::version_on_server;
use super::{is_about_files, sync_options, with_parents};
use crate::ends::blocking;
use crate::entry::Entry;
use crate::job::{Job, Mode};
use crate::ledger::{Ledger, Noting};

/// A large file that goes to a server.
pub(super) struct LargeFile<'a> {
    pub(super) job: &'a Job,
    pub(super) from: &'a Root,
    /// The directory below the root of the destination's server.
    pub(super) to: &'a [u8],
    pub(super) file: &'a Entry,
}

impl LargeFile<'_> {
    /// Sends a range of it, and notes whether that has ended.
    ///
    /// # Errors
    /// A request failed as a whole, as [`super::copy`] says.
    pub(super) async fn send_range(
        &self,
        client: &mut Client,
        index: u32,
        ledger: &Arc<Ledger>,
    ) -> Result<(), Error> {
        let Self { from, to, file, .. } = *self;
        // of another size the ranges are others, too
        let here = self.version_here().await?.filter(|here| here.size == file.size());
        let there = self.version_there(client).await?;
        // stored already, if the lease of this range has ended; otherwise its transfer compares
        if here.is_none() || here == there || self.is_synced_with(there) {
            ledger.range_ended();
            return Ok(());
        }
        let range = (file.size(), file.range(index));
        let observer = Arc::new(Noting { ledger: Arc::clone(ledger), directory: None });
        match client.put_range(from, &file.path, range, to, observer).await {
            Ok(Some(SentRange { failure: Some(reason), .. })) => ledger.failed(&reason, None),
            // it is there, or the server takes the whole file alone
            Ok(_) => ledger.range_ended(),
            Err(error) if is_about_files(&error) => {
                ledger.failed(&error.to_string(), error.code());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether it is left to the request of a sync, as a file without ranges is.
    ///
    /// # Errors
    /// As those of [`Self::send_range`].
    pub(super) async fn is_left_to_sync(&self, client: &mut Client) -> Result<bool, Error> {
        Ok(self.job.mode == Mode::Sync && self.is_synced_with(self.version_there(client).await?))
    }

    /// Whether a sync compares it with a version that is there: its request sends nothing of a file
    /// that is up to date, and finds what of an older version has moved. Ranges do not.
    fn is_synced_with(&self, there: Option<FileVersion>) -> bool {
        self.job.mode == Mode::Sync && there.is_some()
    }

    /// Stores it, whatever of its ranges has arrived.
    ///
    /// # Errors
    /// As those of [`Self::send_range`].
    pub(super) async fn complete(
        &self,
        client: &mut Client,
        ledger: &Arc<Ledger>,
    ) -> Result<(), Error> {
        let Self { job, from, to, file } = *self;
        let paths = with_parents(std::slice::from_ref(file));
        let observer = Arc::new(Noting { ledger: Arc::clone(ledger), directory: None });
        if let (Mode::Sync, [directories @ .., _]) = (job.mode, paths.as_slice())
            && !directories.is_empty()
        {
            // a sync replaces files by directories, and a request that completes a file does not
            let (options, directories) = (sync_options(job, false), directories.to_vec());
            client.sync_names(&options, from, directories, to, observer.clone()).await?;
        }
        client.complete_ranges(from, paths, to, job.fsync, observer).await.map(drop)
    }

    /// Returns its version at the source. `None` if there is no such file, or it cannot be read:
    /// the transfer of the whole file says so.
    async fn version_here(&self) -> Result<Option<FileVersion>, Error> {
        let (root, path) = (self.from.clone(), self.file.path.clone());
        let here = blocking(move || root.look(&path)).await?.ok().flatten();
        let file = here.filter(|here| here.file_type == FileType::File);
        Ok(file.map(|here| FileVersion { size: here.size, mtime: here.mtime }))
    }

    /// Returns the version that the destination has.
    async fn version_there(&self, client: &mut Client) -> Result<Option<FileVersion>, Error> {
        let there = version_on_server(client, self.to, &self.file.path).await?;
        Ok(there.map(|(version, _)| version))
    }
}
