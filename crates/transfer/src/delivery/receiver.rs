//! The receiver: answers offers, receives data, and stores files.
//!
//! One thread handles messages in order and blocks on the disk; tasks of their own write data
//! streams.

mod answers;
mod asked;
mod data_session;
mod delta;
mod destination;
mod entries;
mod events;
mod in_flight;
mod incoming;
mod lanes;
mod linked;
mod links;
mod opening;
mod parts;
mod ranges;
mod remote;
mod sent;
mod sessions;
mod shared;
mod streams;
mod sync;
mod sync_mode;
mod worker;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use headroom_transfer_proto::message::{EntryKind, Message, PartsRequest, TreeOptions};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use self::answers::Answers;
use self::in_flight::InFlight;
use self::lanes::{LaneSink, Lanes};
use self::linked::Linked;
use self::shared::{NoteEnd, Shared, WorkerEvent};
use self::streams::take_streams;
use self::worker::Worker;
use super::divided::Participant;
use super::event::Observer;
use super::failed_directories::FailedDirectories;
use super::lane_status::report_lane_status;
use super::summary::{Counts, Summary};
use crate::claims::FileClaims;
use crate::connection::Connection;
use crate::control::{MessageReader, MessageWriter, unexpected};
use crate::error::Error;
use crate::files::requests;
use crate::lanes::LaneHandle;
use crate::owners::Owners;
use crate::rate::RateLimits;

pub(crate) use data_session::{Arrived, DataSession};
pub(crate) use destination::{Destination, make_directories, make_directories_as};
pub(crate) use sync_mode::SyncMode;

/// Events for the worker, and answers, that wait to be taken: as many again may have been.
const WAITING: usize = 32;

/// One transfer, from the receiver's view.
pub(crate) struct Receiver {
    pub(crate) connection: Connection,
    /// Sessions of the same sender that bring data, too.
    pub(crate) joining: Option<mpsc::Receiver<DataSession>>,
    pub(crate) destination: Destination,
    pub(crate) fsync: bool,
    pub(crate) observer: Arc<dyn Observer>,
    /// Ends an older transfer of the same file, on a server.
    pub(crate) claims: Option<FileClaims>,
    /// Limits what is received, whatever the sender was told.
    pub(crate) limits: RateLimits,
    /// The state of a sync.
    pub(crate) sync: Option<SyncMode>,
    /// Which attributes are set. Links that lead out of the tree are made with [`Links::Keep`], and
    /// are failures with [`Links::Refuse`].
    pub(crate) tree: TreeOptions,
    /// The lanes, if there are any.
    pub(crate) lanes: Option<LaneHandle>,
    /// The message to send first, when data may arrive.
    pub(crate) acceptance: Option<Message>,
    /// The file of which ranges were asked for, in place of whole files.
    pub(crate) part: Option<Participant>,
    /// How this takes part in the upload of one file, if several servers or sessions receive it.
    pub(crate) parts: Option<PartsRequest>,
}

impl Receiver {
    /// Receives everything.
    pub(crate) async fn receive(
        self,
        writer: &mut MessageWriter,
        reader: &mut MessageReader,
    ) -> Result<Summary, Error> {
        let connection = self.connection.clone();
        let (events, worker_events) = mpsc::channel(WAITING);
        let (answer, answers) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared {
            open: Mutex::default(),
            observer: Arc::clone(&self.observer),
            counts: Counts::default(),
            limits: self.limits,
            may_have_ended: AtomicBool::new(false),
        });
        let (observer, states) =
            (Arc::clone(&self.observer), self.lanes.as_ref().map(LaneHandle::states));
        let news = async {
            if let Some(states) = states {
                report_lane_status(observer, states).await;
            }
            std::future::pending().await
        };
        let lanes = self.lanes.map(|handle| {
            let sink = LaneSink { shared: Arc::clone(&shared), events: events.downgrade() };
            Lanes { handle, sink: Arc::new(sink) }
        });
        if let Some(acceptance) = self.acceptance {
            // the lane's first packet arrives after this message
            lanes.iter().for_each(Lanes::start);
            writer.send(&acceptance).await?;
        }
        let session = DataSession::new(connection.clone());
        let telling = self.joining.as_ref().map(|_| (session.arrived(), answer.downgrade()));
        let progress = async {
            if let Some((arrived, answers)) = telling {
                tell_arrived(&arrived, &answers).await;
            }
            std::future::pending().await
        };
        let worker = Worker {
            lanes,
            shared: Arc::clone(&shared),
            connection: connection.clone(),
            destination: self.destination,
            fsync: self.fsync,
            claims: self.claims,
            sync: self.sync,
            tree: self.tree,
            part: self.part,
            parts: self.parts,
            owners: Owners::default(),
            linked: Linked::default(),
            removes_nothing: Cell::new(false),
            answers: Answers::new(answer),
            files: HashMap::new(),
            directories: Vec::new(),
            directory_bytes: 0,
            next_id: Some(0),
            failed_directories: FailedDirectories::default(),
            is_end: false,
            in_flight: InFlight::new(events.downgrade()),
        };
        let note_end = NoteEnd(Arc::clone(&shared));
        let end = async {
            connection.ended().await;
            drop(note_end);
            std::future::pending().await
        };
        let opened = Arc::clone(&shared);
        let worker = spawn_blocking(move || {
            let ended = worker.run(worker_events);
            // lanes may refer to these files a little longer
            opened.open().clear();
            ended
        });
        let failure = tokio::select! {
            // the channel of answers closes when the worker ends
            sent = writer.forward(answers) => sent.err(),
            failure = receive_messages(reader, &shared, events.clone()) => Some(failure),
            failure = take_streams(session, self.joining, &shared, &events) => Some(failure),
            never = news => Some(never),
            never = progress => Some(never),
            never = end => Some(never),
        };
        drop(events);
        if failure.is_some() {
            // the worker ends with what it has received so far
            shared.open().clear();
        }
        match (worker.await, failure) {
            // a sender that has received the end may close before this side knows
            (Ok(Ok(true)), Some(Error::Lost(_))) => Ok(shared.counts.get()),
            (_, Some(error)) => Err(error),
            (ended, None) => {
                ended.map_err(|error| Error::task(&error))??;
                Ok(shared.counts.get())
            }
        }
    }
}

/// Tells the sender what arrives, as long as there are answers.
async fn tell_arrived(arrived: &Arrived, answers: &mpsc::WeakSender<Message>) {
    let mut told = (0, 0);
    loop {
        let news = arrived.news(&mut told).await;
        let Some(answers) = answers.upgrade() else { return };
        let _ = answers.send(news).await;
    }
}

/// Passes messages to the worker, until an error.
async fn receive_messages(
    reader: &mut MessageReader,
    shared: &Shared,
    events: mpsc::Sender<WorkerEvent>,
) -> Error {
    let limits = &shared.limits;
    let mut is_end = false;
    loop {
        let message = match reader.recv().await {
            Ok(Some(message)) => message,
            Ok(None) if is_end => std::future::pending().await,
            Ok(None) => return Error::Lost("the other side closed the stream".to_owned()),
            Err(error) => return error,
        };
        match message {
            Message::EntriesEnd { .. } => is_end = true,
            Message::Entry { kind: EntryKind::File { inline: Some(ref inline), .. }, .. }
            | Message::Content { ref inline, .. } => {
                limits.take(inline.content.len()).await;
            }
            Message::Literal { ref content, .. } => limits.take(content.len()).await,
            // these are bounded and small
            Message::Entry { .. }
            | Message::RangeSent { .. }
            | Message::RangesEnd { .. }
            | Message::Sealed { .. }
            | Message::Withdrawn { .. }
            | Message::Passed { .. }
            | Message::Hole { .. }
            | Message::Describe { .. }
            | Message::Copy { .. }
            | Message::Remark { .. }
            | Message::Unreadable { .. } => {}
            Message::Refused { reason, about_files, code } => {
                return Error::refused(reason, about_files, code);
            }
            // a server's answer to the end, which the worker is about to notice
            Message::StoreRequests { requests: counted } if is_end => {
                let counted = requests::of_message(&counted);
                shared.counts.add(|counts| counts.requests = Some(counted));
                continue;
            }
            other => return unexpected(&other),
        }
        if events.send(WorkerEvent::Message(message)).await.is_err() {
            // the worker has ended, and reports why itself
            std::future::pending::<()>().await;
        }
    }
}
