//! Files that are sent to all servers of an object store, each of which stores parts of its own, or
//! over several sessions to one server.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;

use headroom_transfer_proto::message::Links;
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::divided::{joined, look_at};
use super::large::{BegunFile, Divided, LargeFile};
use super::queue::{Batch, Work};
use super::record::Record;
use super::servers::SpreadObserver;
use super::session::{Job, Phase, is_about_files};
use crate::client::{Client, names_directory};
use crate::delivery::{DividedUpload, Event, FileVersion, Observer, Summary};
use crate::error::Error;
use crate::files::{Found, Root, Source, SourceKind};

impl<O: SpreadObserver + 'static> Phase<'_, '_, O> {
    /// Begins a file of which all servers then store ranges. If the servers have it already, or it
    /// cannot be divided, it is left to a request for whole files.
    ///
    /// # Errors
    /// The server is lost, or refuses.
    pub(super) async fn begin_upload(
        &self,
        client: &mut Client,
        large: LargeFile,
    ) -> Result<Option<Arc<BegunFile>>, Error> {
        let Some(here) = version(&large).await.filter(|here| self.servers.divides(here.size))
        else {
            self.queue.put_back(Work::Copy(Batch::of_large(large)));
            return Ok(None);
        };
        if let Job::SyncTo { to } = self.job {
            let place = joined([to.strip_suffix(b"/").unwrap_or(to), large.name.as_bytes()]);
            let gone = client.gone();
            let looked = tokio::select! {
                looked = look_at(client, &place, large.name.name()) => looked,
                error = gone => Err(error),
            };
            match looked {
                Ok(Some(there)) if there == here => {
                    self.queue.put_back(Work::Copy(Batch::of_large(large)));
                    return Ok(None);
                }
                Ok(_) => {}
                // it is not there; otherwise the first request for ranges reports the failure
                Err(error) if is_about_files(&error) => {}
                Err(error) => {
                    self.queue.put_back(Work::Begin(large));
                    return Err(error);
                }
            }
        }
        let large = LargeFile { size: here.size, ..large };
        self.servers.observer.event(Event::Offered { bytes: large.size });
        self.servers.observer.event(Event::Begun { path: &large.path() });
        let how = (self.servers.sessions(), self.servers.range_bytes);
        let one_server = self.servers.count == 1;
        let upload = DividedUpload::new(large.path(), large.size, how, one_server);
        let open = Arc::new(BegunFile::new(large, Divided::Sent(upload)));
        self.queue.opened(Arc::clone(&open));
        Ok(Some(open))
    }

    /// Sends ranges of a file to one server, as long as there are some. The last session that sends
    /// some completes the file. Returns whether the server takes ranges.
    ///
    /// # Errors
    /// The server is lost, or refuses.
    pub(super) async fn send_ranges(
        &self,
        client: &mut Client,
        open: Arc<BegunFile>,
        upload: &Arc<DividedUpload>,
    ) -> Result<bool, Error> {
        let outcome = match upload.join() {
            Some(participant) => {
                client.limit(self.share_bps());
                let observer = Arc::clone(&self.servers.observer);
                let record = Record::new(observer, Arc::clone(&self.told), None, &[]);
                let gone = client.gone();
                let (to, observer) = (self.destination(&open.large), record.clone());
                let sending = async {
                    let source = source(&open.large).await?;
                    client.put_ranges(source, to, participant.clone(), observer).await
                };
                // others take part as soon as the upload has a name
                let waking = async {
                    upload.begun().await;
                    self.queue.wake();
                    pending().await
                };
                let sent = tokio::select! {
                    sent = sending => sent,
                    error = gone => Err(error),
                    never = waking => never,
                };
                let done = record.end().done;
                open.add_done(done);
                let moved = Summary { moved: done, ..Summary::default() };
                let (moved, outcome) = match sent {
                    Ok(Some(summary)) => (summary, Ok(true)),
                    Ok(None) => {
                        upload.decline();
                        (Summary::default(), Ok(false))
                    }
                    Err(error) if is_about_files(&error) => {
                        let server = client.address();
                        participant.fail(&format!("{server} does not accept it: {error}"));
                        (moved, Ok(true))
                    }
                    Err(error) => (moved, Err(error)),
                };
                participant.leave();
                self.totals().add_ranges(client.address(), &moved);
                outcome
            }
            // another server is about to begin it
            None => Ok(true),
        };
        match (self.queue.leave(&open), outcome) {
            (false, outcome) => {
                self.queue.end_ranges(None);
                outcome
            }
            (true, Ok(takes_ranges)) => {
                self.complete_upload(client, open, Arc::clone(upload)).await?;
                Ok(takes_ranges)
            }
            // another server completes it
            (true, Err(error)) => {
                self.queue.put_back(Work::Complete(open, Arc::clone(upload)));
                Err(error)
            }
        }
    }

    /// Completes a file of which no more ranges are sent, and sends what is missing of it. As the
    /// request names the upload, it does not wait for servers that were lost while they stored
    /// parts. A file that has no upload, or is not stored, is left to a request for whole files,
    /// which reports why.
    ///
    /// # Errors
    /// The server is lost, or refuses. Another one completes the file.
    pub(super) async fn complete_upload(
        &self,
        client: &mut Client,
        open: Arc<BegunFile>,
        upload: Arc<DividedUpload>,
    ) -> Result<(), Error> {
        let failure = upload.failure();
        if !upload.is_begun() {
            let left = self.give_up_large(open, failure.as_deref());
            self.queue.end_ranges(Some(left));
            return Ok(());
        }
        let large = &open.large;
        let (observer, told) = (Arc::clone(&self.servers.observer), Arc::clone(&self.told));
        let record = Record::new(observer, told, None, &[(large.name.clone(), large.size)]);
        if let Some(reason) = failure {
            let reason = format!("{reason}. One server receives the rest of it");
            record.event(Event::Warning { reason: &reason });
        }
        let is_first = open.done() == 0;
        let completion = Arc::new(Completion { record: Arc::clone(&record), is_first });
        client.limit(self.share_bps());
        let gone = client.gone();
        let completing = async {
            let source = source(large).await?;
            let (to, divided) = (self.destination(large), Arc::clone(&upload));
            client.complete_divided(source, to, self.fsync, divided, completion).await
        };
        let completed = tokio::select! {
            completed = completing => completed,
            error = gone => Err(error),
        };
        let noted = record.end();
        open.add_done(noted.done);
        self.totals().add_moved(&match &completed {
            Ok(summary) if is_first => *summary,
            // what is there counts where it was sent
            Ok(summary) => Summary { kept: 0, holes: 0, ..*summary },
            Err(_) => Summary { moved: noted.done, ..Summary::default() },
        });
        let is_stored = noted.stored.0 > 0;
        let lost = completed.err().filter(|error| !is_about_files(error));
        if is_stored {
            self.totals().add_divided(large.size, 0, large.is_named);
            self.queue.finished();
        } else if lost.is_some() {
            self.queue.put_back(Work::Complete(open, upload));
        } else {
            let left = self.give_up_large(open, None);
            self.queue.end_ranges(Some(left));
        }
        lost.map_or(Ok(()), Err)
    }

    /// Returns the destination on the servers, and whether the file gets this name.
    fn destination(&self, large: &LargeFile) -> (&[u8], bool) {
        match self.job {
            Job::Put { to } => (to, large.alone_as.is_some() && !names_directory(to)),
            Job::SyncTo { to } => (to, false),
            Job::Get { .. } => (&b""[..], false),
        }
    }
}

/// Passes on what the completion of a divided file reports, but for what was reported before.
#[derive(Debug)]
struct Completion<O> {
    record: Arc<Record<O>>,
    /// Whether no range of the file was reported.
    is_first: bool,
}

impl<O: SpreadObserver> Observer for Completion<O> {
    fn event(&self, event: Event<'_>) {
        let is_again = match event {
            Event::Offered { .. } | Event::Begun { .. } => true,
            Event::Kept { .. } | Event::Hole { .. } => !self.is_first,
            _ => false,
        };
        if !is_again {
            self.record.event(event);
        }
    }
}

/// Returns the version of a file of this machine, if it is one.
async fn version(large: &LargeFile) -> Option<FileVersion> {
    let mut source = source(large).await.ok()?;
    spawn_blocking(move || match source.next() {
        Some(Ok(Found { kind: SourceKind::File(file), .. })) => {
            let metadata = file.metadata();
            Some(FileVersion { size: metadata.size, mtime: metadata.mtime })
        }
        _ => None,
    })
    .await
    .ok()
    .flatten()
}

/// Makes the source of a file of this machine.
async fn source(large: &LargeFile) -> Result<Source, Error> {
    let (from, name): (Arc<Path>, RelPath) = (Arc::clone(&large.from), large.name.clone());
    let opened = spawn_blocking(move || {
        let root = Root::open(&from)?;
        Ok::<_, Error>(Source::listed(&root, [name], Links::Skip))
    });
    opened.await.map_err(|error| Error::task(&error))?
}
