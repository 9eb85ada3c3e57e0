//! Copies batches of files by one server.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::batch::with_parents;
use super::queue::{Batch, Work};
use super::record::{Record, add};
use super::servers::{Returned, SpreadObserver};
use super::session::{Job, Phase, is_about_files};
use crate::client::Client;
use crate::delivery::Summary;
use crate::error::Error;

/// Files of one request: a server accepts 1024.
const FILES_OF_REQUEST: usize = 1000;
/// Bytes of the paths in one request: a message has at most 1 MiB.
const PATH_BYTES_OF_REQUEST: usize = 768 << 10;
/// The most bytes of a name, and of what a message needs beside it.
const NAME_BYTES: usize = 300;

impl<O: SpreadObserver + 'static> Phase<'_, '_, O> {
    /// Copies the files of a batch.
    pub(super) async fn copy(
        &self,
        client: &mut Client,
        batch: &Batch,
        record: &Arc<Record<O>>,
    ) -> Result<Summary, Error> {
        let (from, fsync) = (&*batch.from, self.fsync);
        match self.job {
            Job::Put { to } => {
                let paths = with_parents(&batch.files);
                client.put_listed(from, paths, to, fsync, record.clone()).await
            }
            Job::SyncTo { to } => {
                let paths = with_parents(&batch.files);
                client.sync_listed(from, paths, to, fsync, record.clone()).await
            }
            Job::Get { to, .. } => {
                if let Some(directory) = batch.directory.clone() {
                    let root = to.clone();
                    // the request reports why it cannot be made
                    let _ = spawn_blocking(move || directory.make(&root)).await;
                }
                let directory = batch.directory.as_ref().map(|directory| &directory.path);
                let from = from.as_os_str().as_bytes();
                let names: Vec<_> = batch.files.iter().map(|(name, _)| name.clone()).collect();
                let mut all = Summary::default();
                for names in names.chunks(files_of_request(from, directory)) {
                    let observer = record.clone();
                    let got = client.get_listed(from, directory, names, to, fsync, observer).await;
                    match got {
                        Ok(summary) => add(&mut all, &summary),
                        // the last request reports it
                        Err(error) if is_about_files(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(all)
            }
        }
    }

    /// Notes what became of a batch. What a lost server has not stored is copied by another one.
    ///
    /// # Errors
    /// The server is lost, or refuses.
    pub(super) fn settle(
        &self,
        batch: Batch,
        record: &Record<O>,
        copied: Result<Summary, Error>,
    ) -> Result<(), Error> {
        let noted = record.end();
        self.totals().add(&noted, copied.as_ref().ok(), batch.is_named);
        match copied {
            Ok(_) => {
                self.leave_to_last(&batch, noted.left.keys());
                self.queue.finished();
                Ok(())
            }
            // it would be so for every batch: the last request says what is wrong
            Err(error) if is_about_files(&error) => {
                self.remaining().add_all();
                self.queue.stop();
                self.queue.finished();
                Ok(())
            }
            Err(error) => {
                let ((files, bytes), (stored, stored_bytes)) = (noted.offered, noted.stored);
                self.servers.observer.returned(Returned {
                    files: files.saturating_sub(stored),
                    offered: bytes.saturating_sub(stored_bytes),
                    done: noted.done.saturating_sub(stored_bytes),
                });
                let mut left = batch;
                left.files.retain(|(name, _)| noted.left.contains_key(name));
                self.queue.put_back(Work::Copy(left));
                Err(error)
            }
        }
    }

    /// Leaves files to the last request.
    fn leave_to_last<'f>(&self, batch: &Batch, files: impl Iterator<Item = &'f RelPath>) {
        match self.job {
            Job::Put { .. } => files.for_each(|name| self.remaining().add(name)),
            Job::Get { .. } if batch.is_named => files.for_each(|name| {
                let above = RelPath::typed(batch.from.as_os_str().as_bytes()).ok().flatten();
                let path = above.map_or_else(|| Ok(name.clone()), |above| above.join(name));
                path.iter().for_each(|path| self.remaining().add(path));
            }),
            // it compares all
            Job::SyncTo { .. } | Job::Get { .. } => {}
        }
    }
}

/// Returns how many files of a directory fit into one request, whatever their names.
fn files_of_request(from: &[u8], directory: Option<&RelPath>) -> usize {
    let above = directory.map_or(0, |directory| directory.as_bytes().len()) + from.len();
    (PATH_BYTES_OF_REQUEST / (above + NAME_BYTES)).clamp(1, FILES_OF_REQUEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_fits_into_a_message_however_deep_its_files_are() {
        assert_eq!(files_of_request(b"served", None), FILES_OF_REQUEST);
        let deep = RelPath::parse(&[&[b'a'; 250][..]; 15].join(&b'/')).expect("a path");
        let count = files_of_request(b"served", Some(&deep));
        assert!(count > 100 && count * (deep.as_bytes().len() + 255) < 1 << 20, "{count}");
    }
}
