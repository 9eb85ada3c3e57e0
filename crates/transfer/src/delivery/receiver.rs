//! The receiver: stores what is offered, says what it has, takes in what comes.
//!
//! One thread does what is said, in order, and blocks where the disk does; data
//! streams are written by tasks of their own.

mod sync;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use headroom_transfer_proto::message::{
    DataHeader, Inline, Kind, MOST_HOLE, MOST_OPEN_FILES, MOST_VALUES, Message, Time, body_len,
};
use headroom_transfer_proto::path::{RelPath, shown};
use headroom_transfer_proto::span::{Hash, SPAN_OCTETS};
use quinn::{Connection, RecvStream};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};

use super::squeeze::expand;
use super::{Counts, Event, Observer, Summary};
use crate::claims::{Claim, Claims};
use crate::control::{Hearer, Speaker, unexpected};
use crate::error::Error;
use crate::files::{self, Offer, Partial, Root, Seal, What, Why};
use crate::lanes::{Carrier, Sink, Target};
use crate::rate::Pace;

pub(crate) use sync::Mirror;

/// Things to be done, and answers, that wait.
const WAITING: usize = 64;
/// A header of a data stream is no longer.
const MOST_HEADER: usize = 64;
/// Octets of the names of directories that wait for their mode and time. The
/// others have theirs at once, and the time is then that of what is put in them.
const MOST_DIRECTORY_OCTETS: usize = 16 << 20;
/// How often, and how many times, a file is asked for whose former transfer is told to end.
const HANDOVER: (Duration, u32) = (Duration::from_millis(10), 500);

/// Where a delivery goes.
#[derive(Debug)]
pub(crate) struct Destination {
    root: Root,
    /// What one file or link is to be called.
    name: Option<RelPath>,
    /// The first components of names that were asked for, where only those may come.
    asked: Option<HashSet<Vec<u8>>>,
}

impl Destination {
    /// Below a root: into `to` if it is a directory; else, where that is wished, it
    /// is the name of the one file that comes; else it is made.
    pub(crate) fn resolve(
        root: &Root,
        to: Option<&RelPath>,
        rename: bool,
    ) -> Result<Self, files::Error> {
        let Some(to) = to else { return Ok(Self { root: root.clone(), name: None, asked: None }) };
        let here = match root.look(to) {
            Err(error) if matches!(error.why(), Why::Missing) => None,
            looked => looked?,
        };
        if here.is_some_and(|here| here.what == What::Directory) {
            return Ok(Self { root: root.below(to)?, name: None, asked: None });
        }
        let directory = if rename { to.parent() } else { Some(to.clone()) };
        let inner = match &directory {
            Some(directory) => {
                make_directories(root, directory)?;
                root.below(directory)?
            }
            None => root.clone(),
        };
        let name = rename.then(|| RelPath::single(to.name()).ok()).flatten();
        Ok(Self { root: inner, name, asked: None })
    }

    /// What one file is to be called, and where; none if that is a directory.
    pub(crate) fn file(self) -> Option<(Root, RelPath)> {
        Some((self.root, self.name?))
    }

    /// The directory `to` below a root, made where it is missing if that is wished.
    /// Where it is not, says that it is missing.
    pub(crate) fn directory(
        root: &Root,
        to: Option<&RelPath>,
        make: bool,
    ) -> Result<(Self, bool), files::Error> {
        let Some(to) = to else {
            return Ok((Self { root: root.clone(), name: None, asked: None }, false));
        };
        if make {
            make_directories(root, to)?;
        }
        match root.below(to) {
            Err(error) if !make && matches!(error.why(), Why::Missing) => {
                Ok((Self { root: root.clone(), name: None, asked: None }, true))
            }
            below => Ok((Self { root: below?, name: None, asked: None }, false)),
        }
    }

    /// Takes in only what has one of these names, or is below it: a peer chooses what
    /// it sends, and may send more than it was asked for.
    pub(crate) fn only(self, asked: HashSet<Vec<u8>>) -> Self {
        Self { asked: Some(asked), ..self }
    }

    fn is_asked_for(&self, path: &RelPath) -> bool {
        let first = path.components().next().unwrap_or_default();
        self.asked.as_ref().is_none_or(|asked| asked.contains(first))
    }
}

/// One delivery, seen from its receiver.
pub(crate) struct Receiver {
    pub(crate) connection: Connection,
    pub(crate) destination: Destination,
    pub(crate) fsync: bool,
    pub(crate) observer: Arc<dyn Observer>,
    /// What makes an older transfer of a file end, where that is possible.
    pub(crate) claims: Option<Claims>,
    /// No more is taken in than this allows, whatever the sender was told.
    pub(crate) pace: Pace,
    /// What is there becomes what is sent, and only that is sent which is not there.
    pub(crate) sync: Option<Mirror>,
    /// What may bring data beside streams.
    pub(crate) lanes: Option<Carrier>,
    /// What is said first, when data may come.
    pub(crate) acceptance: Option<Message>,
}

impl Receiver {
    /// Takes in all of it.
    pub(crate) async fn receive(
        self,
        speaker: &mut Speaker,
        hearer: &mut Hearer,
    ) -> Result<Summary, Error> {
        let connection = self.connection.clone();
        let (to_do, doing) = mpsc::channel(WAITING);
        let (answer, answers) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared {
            open: Mutex::default(),
            observer: Arc::clone(&self.observer),
            counts: Counts::default(),
            pace: self.pace,
        });
        let lanes = self.lanes.map(|carrier| {
            let sink = LaneSink { shared: Arc::clone(&shared), to_do: to_do.downgrade() };
            Lanes { carrier, sink: Arc::new(sink) }
        });
        if let Some(acceptance) = self.acceptance {
            // the lane's first packet comes when this has been heard
            lanes.iter().for_each(Lanes::start);
            speaker.say(&acceptance).await?;
        }
        let worker = Worker {
            lanes,
            shared: Arc::clone(&shared),
            connection: connection.clone(),
            destination: self.destination,
            fsync: self.fsync,
            claims: self.claims,
            sync: self.sync,
            answer,
            files: HashMap::new(),
            directories: Vec::new(),
            directory_octets: 0,
            is_named: false,
            is_end: false,
        };
        let worker = spawn_blocking(move || worker.run(doing));
        let broken = tokio::select! {
            // answers end when the worker does
            spoken = speak(answers, speaker) => spoken.err(),
            broken = hear(hearer, &shared.pace, to_do.clone()) => Some(broken),
            broken = take_streams(&connection, &shared, &to_do) => Some(broken),
        };
        drop(to_do);
        if let Some(error) = broken {
            // the worker ends with what it has been told so far
            shared.open().clear();
            let _ = worker.await;
            return Err(error);
        }
        worker.await.map_err(|error| Error::task(&error))??;
        Ok(shared.counts.get())
    }
}

struct Shared {
    open: Mutex<HashMap<u64, Arc<Incoming>>>,
    observer: Arc<dyn Observer>,
    counts: Counts,
    pace: Pace,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Incoming>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What may bring data beside streams, and where that goes.
struct Lanes {
    carrier: Carrier,
    sink: Arc<LaneSink>,
}

impl Lanes {
    fn start(&self) {
        self.carrier.start(Some(Arc::clone(&self.sink) as Arc<dyn Sink>));
    }
}

/// Takes in files that come on lanes.
struct LaneSink {
    shared: Arc<Shared>,
    /// The worker ends when nobody else has something for it.
    to_do: mpsc::WeakSender<ToDo>,
}

impl Sink for LaneSink {
    fn target(&self, file: u32) -> Option<Arc<dyn Target>> {
        let id = u64::from(file);
        let incoming = Arc::clone(self.shared.open().get(&id)?);
        let size = incoming.partial.spans().size();
        let (shared, to_do) = (Arc::clone(&self.shared), self.to_do.clone());
        let incoming = Arc::downgrade(&incoming);
        Some(Arc::new(LaneTarget { id, size, incoming, shared, to_do }))
    }
}

/// A file that comes on lanes.
struct LaneTarget {
    id: u64,
    size: u64,
    /// What waits to be written does not keep the file locked when its delivery is over.
    incoming: Weak<Incoming>,
    shared: Arc<Shared>,
    to_do: mpsc::WeakSender<ToDo>,
}

impl Target for LaneTarget {
    fn size(&self) -> u64 {
        self.size
    }

    fn write(&self, offset: u64, octets: &[u8]) {
        let Some(incoming) = self.incoming.upgrade() else { return };
        let writing = Writing::begin(&incoming);
        let written = incoming.partial.write_at(offset, octets);
        if let Ok(octets) = written {
            self.shared.counts.add(|counts| {
                counts.moved += octets;
                counts.on_lanes += octets;
            });
            self.shared.observer.event(Event::Moved { octets });
        }
        drop(writing);
        let news = match written {
            Ok(_) => incoming.is_whole().then_some(ToDo::Came(self.id)),
            Err(error) => Some(ToDo::Broken(self.id, error)),
        };
        drop(incoming);
        if let Some(news) = news
            && let Some(to_do) = self.to_do.upgrade()
        {
            let _ = to_do.blocking_send(news);
        }
    }
}

/// A file that comes on lanes or data streams.
struct Incoming {
    partial: Partial,
    /// Given up after the lock of `partial`, thus below it.
    _claim: Option<Claim>,
    /// Octets that come, of whole spans; [`u64::MAX`] until the sender has said it.
    sealed: AtomicU64,
    /// Those who write to it and have not counted what they wrote.
    writing: AtomicU64,
}

impl Incoming {
    /// Whether all came that the sender says it has sent, and is counted. Who writes
    /// asks again when it has done that.
    fn is_whole(&self) -> bool {
        self.writing.load(SeqCst) == 0 && self.partial.came() >= self.sealed.load(SeqCst)
    }
}

/// Somebody writes to a file, and counts it.
struct Writing<'a>(&'a Incoming);

impl<'a> Writing<'a> {
    fn begin(incoming: &'a Incoming) -> Self {
        incoming.writing.fetch_add(1, SeqCst);
        Self(incoming)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, SeqCst);
    }
}

/// A file that was begun, locked, and the claim that covers the lock.
struct Begun {
    partial: Partial,
    claim: Option<Claim>,
}

/// Something for the worker.
enum ToDo {
    /// The sender said it.
    Said(Message),
    /// A piece of this file came.
    Came(u64),
    /// A piece of this file cannot be written.
    Broken(u64, files::Error),
}

/// The worker's view of a file that comes on lanes or data streams.
struct File {
    incoming: Arc<Incoming>,
    mode: u32,
    mtime: Time,
    /// Its hash.
    sealed: Option<[u8; 32]>,
    /// Octets of holes.
    holes: u64,
}

struct Worker {
    lanes: Option<Lanes>,
    shared: Arc<Shared>,
    connection: Connection,
    destination: Destination,
    fsync: bool,
    claims: Option<Claims>,
    sync: Option<Mirror>,
    answer: mpsc::Sender<Message>,
    files: HashMap<u64, File>,
    /// Directories that get mode and time when all that is in them is there.
    directories: Vec<(RelPath, u32, Time)>,
    directory_octets: usize,
    /// Whether the one file that has a name from outside has come.
    is_named: bool,
    is_end: bool,
}

impl Worker {
    fn run(mut self, mut to_do: mpsc::Receiver<ToDo>) -> Result<(), Error> {
        self.begin_sync();
        while !(self.is_end && self.files.is_empty() && self.waits_for_none()) {
            // nothing comes when the connection has ended; whoever ended it knows why
            let Some(next) = to_do.blocking_recv() else { return Ok(()) };
            match next {
                ToDo::Said(message) => self.said(message)?,
                ToDo::Came(id) => self.try_finish(id),
                ToDo::Broken(id, error) => {
                    if self.close(id).is_some() {
                        self.failed(id, &error.to_string());
                    }
                }
            }
            self.begin_waiting()?;
        }
        self.end_sync();
        for (path, mode, mtime) in std::mem::take(&mut self.directories).into_iter().rev() {
            let sealed = self.destination.root.seal_directory(&path, mode, mtime, self.fsync);
            if let Err(error) = sealed {
                // its content is there: that counts
                self.shared.observer.event(Event::LeftOut { reason: &error.to_string() });
            }
        }
        let Summary { stored, failed, .. } = self.shared.counts.get();
        self.say(Message::End { stored, failed });
        Ok(())
    }

    fn said(&mut self, message: Message) -> Result<(), Error> {
        match message {
            Message::Entry { id, path, kind } => self.entry(id, path, kind)?,
            Message::Sealed { id, root, bytes } => {
                // one that failed here is sealed there all the same
                if let Some(file) = self.files.get_mut(&id) {
                    file.sealed = Some(root);
                    // spans that are holes came, too, though not from the network
                    let all = bytes.saturating_add(file.holes);
                    file.incoming.sealed.store(all, SeqCst);
                    self.try_finish(id);
                }
            }
            Message::Withdrawn { id, reason } => {
                if let Some(file) = self.close(id) {
                    let _ = file.incoming.partial.abandon();
                    self.count_failed(&reason);
                } else if self.is_withdrawn(id) {
                    self.count_failed(&reason);
                }
            }
            Message::Hole { id, offset, len } => self.hole(id, offset, len)?,
            Message::Content { id, inline } => self.content(id, &inline)?,
            Message::Passed { path } => self.passed(&path)?,
            Message::Unreadable { reason } => self.count_failed(&reason),
            Message::EntriesEnd { files, bytes } => {
                self.is_end = true;
                self.shared.observer.event(Event::AllOffered { files, octets: bytes });
            }
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn entry(&mut self, id: u64, path: RelPath, kind: Kind) -> Result<(), Error> {
        if self.is_end || self.files.contains_key(&id) {
            return Err(Error::Protocol("it offers something twice, or after the end".to_owned()));
        }
        if !self.destination.is_asked_for(&path) {
            return Err(Error::Protocol(format!("it sends {path}, which was not asked for")));
        }
        if let Kind::File { size, .. } = kind {
            self.shared.observer.event(Event::Offered { octets: size });
        }
        let path = match self.renamed(path, &kind) {
            Ok(path) => path,
            Err(reason) => {
                self.failed(id, &reason);
                return Ok(());
            }
        };
        let Some(kind) = self.compare(id, &path, kind)? else { return Ok(()) };
        self.store(id, &path, kind)
    }

    /// Stores an entry, or begins to.
    fn store(&mut self, id: u64, path: &RelPath, kind: Kind) -> Result<(), Error> {
        let root = &self.destination.root;
        let done = match kind {
            Kind::Directory { mode, mtime } => {
                let made = root.make_directory(path, mode);
                if made.is_ok() {
                    self.seal_later(path, mode, mtime);
                }
                made
            }
            Kind::Symlink { target } => root.make_symlink(path, &target).map(drop),
            Kind::File { mode, mtime, inline: Some(inline), .. } => {
                self.store_small(path, &inline, mode, mtime)
            }
            Kind::File { size, mode, mtime, inline: None, .. } => {
                if self.files.len() >= MOST_OPEN_FILES {
                    return Err(Error::Protocol(format!(
                        "it offers more than {MOST_OPEN_FILES} files at once"
                    )));
                }
                self.lanes.iter().for_each(Lanes::start);
                let offer = Offer { size, mtime, data: 0, reuse: true };
                match self.begin(path, &offer).and_then(|begun| self.have(id, begun)) {
                    Ok(incoming) => {
                        self.files
                            .insert(id, File { incoming, mode, mtime, sealed: None, holes: 0 });
                        return Ok(());
                    }
                    Err(error) => Err(error),
                }
            }
        };
        match done {
            Ok(()) => self.stored(id, path),
            Err(error) => self.failed(id, &error.to_string()),
        }
        Ok(())
    }

    fn store_small(
        &self,
        path: &RelPath,
        inline: &Inline,
        mode: u32,
        mtime: Time,
    ) -> Result<(), files::Error> {
        let octets = inline.content.len() as u64;
        let seal = seal(inline.root, mode, mtime, self.fsync);
        let stored = self.destination.root.store(path, &inline.content, &seal).map(drop);
        self.shared.counts.add(|counts| counts.moved += octets);
        self.shared.observer.event(Event::Moved { octets });
        stored
    }

    /// The name that an entry gets here.
    fn renamed(&mut self, path: RelPath, kind: &Kind) -> Result<RelPath, String> {
        let Some(name) = self.destination.name.clone() else { return Ok(path) };
        if self.is_named {
            return Err(format!("{path} is not stored: only one file can be called {name}"));
        }
        if matches!(kind, Kind::Directory { .. }) {
            // a tree comes: what was a name is the directory for it
            let root = &self.destination.root;
            let inner = root.make_directory(&name, 0o777).and_then(|()| root.below(&name));
            self.destination.root = inner.map_err(|error| error.to_string())?;
            self.destination.name = None;
            return Ok(path);
        }
        self.is_named = true;
        Ok(name)
    }

    fn seal_later(&mut self, path: &RelPath, mode: u32, mtime: Time) {
        let octets = path.as_bytes().len() + size_of::<(RelPath, u32, Time)>();
        if self.directory_octets + octets <= MOST_DIRECTORY_OCTETS {
            self.directory_octets += octets;
            self.directories.push((path.clone(), mode, mtime));
        } else {
            let _ = self.destination.root.seal_directory(path, mode | 0o700, mtime, self.fsync);
        }
    }

    /// Begins a file. One that an older session of the same client still has is
    /// handed over: who starts a transfer again need not wait until the server
    /// notices that the first is dead.
    fn begin(&self, path: &RelPath, offer: &Offer) -> Result<Begun, files::Error> {
        let root = &self.destination.root;
        let claims = self.claims.as_ref();
        let claim = claims.map(|claims| claims.claim(root.path(), path, &self.connection));
        let mut waits = match &claim {
            Some(claim) if claim.supersedes() => HANDOVER.1,
            _ => 0,
        };
        loop {
            match root.begin(path, offer) {
                Err(error) if matches!(error.why(), Why::Busy) && waits > 0 => {
                    waits -= 1;
                    std::thread::sleep(HANDOVER.0);
                }
                begun => return Ok(Begun { partial: begun?, claim }),
            }
        }
    }

    /// Says what lies here of a file.
    fn have(&self, id: u64, begun: Begun) -> Result<Arc<Incoming>, files::Error> {
        let Begun { mut partial, claim } = begun;
        let (mut first_span, mut values) = (0, Vec::new());
        let mut next = partial.next_present(0)?;
        while let Some(span) = next {
            let value = partial.present(span)?;
            next = partial.next_present(span + 1)?;
            let is_behind = first_span + values.len() as u64 != span;
            if !values.is_empty() && (value.is_none() || is_behind || values.len() == MOST_VALUES) {
                let values = std::mem::take(&mut values);
                self.say(Message::Have { id, first_span, values, last: false });
            }
            if let Some(value) = value {
                if values.is_empty() {
                    first_span = span;
                }
                values.push(value);
            }
        }
        let incoming = Arc::new(Incoming {
            partial,
            _claim: claim,
            sealed: AtomicU64::new(u64::MAX),
            writing: AtomicU64::new(0),
        });
        self.shared.open().insert(id, Arc::clone(&incoming));
        self.say(Message::Have { id, first_span, values, last: true });
        Ok(incoming)
    }

    /// Zeros of a file that are not sent.
    fn hole(&mut self, id: u64, offset: u64, len: u64) -> Result<(), Error> {
        if len > MOST_HOLE {
            return Err(Error::Protocol(format!("it names a hole of {len} octets at once")));
        }
        // one that failed here is sent on there all the same
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        match file.incoming.partial.write_zeros(offset, len) {
            Ok(new) => {
                file.holes += new;
                self.shared.counts.add(|counts| counts.holes += len);
                self.shared.observer.event(Event::Hole { octets: len });
            }
            Err(error) => {
                self.close(id);
                self.failed(id, &error.to_string());
            }
        }
        Ok(())
    }

    /// Verifies a file and gives it its name, if all of it is there.
    fn try_finish(&mut self, id: u64) {
        let Some(file) = self.files.get(&id) else { return };
        let Some(root) = file.sealed else { return };
        if !file.incoming.is_whole() {
            return;
        }
        let came = file.incoming.partial.came();
        let size = file.incoming.partial.spans().size();
        let kept = size.saturating_sub(came);
        let seal = seal(root, file.mode, file.mtime, self.fsync);
        let finished = file.incoming.partial.finish(&seal);
        let path = file.incoming.partial.path().clone();
        self.close(id);
        match finished {
            Ok(_) => {
                if kept > 0 {
                    self.shared.counts.add(|counts| counts.kept += kept);
                    self.shared.observer.event(Event::Kept { octets: kept });
                }
                self.stored(id, &path);
            }
            Err(error) => self.failed(id, &error.to_string()),
        }
    }

    /// Takes in nothing more of a file.
    fn close(&mut self, id: u64) -> Option<File> {
        self.shared.open().remove(&id);
        self.files.remove(&id)
    }

    fn stored(&self, id: u64, path: &RelPath) {
        self.shared.counts.add(|counts| counts.stored += 1);
        self.shared.observer.event(Event::Stored { path });
        self.say(Message::Stored { id });
    }

    fn failed(&self, id: u64, reason: &str) {
        self.count_failed(reason);
        self.say(Message::Failed { id, reason: reason.to_owned() });
    }

    fn count_failed(&self, reason: &str) {
        self.shared.counts.add(|counts| counts.failed += 1);
        self.shared.observer.event(Event::Failed { reason: &shown(reason.as_bytes()).to_string() });
    }

    /// Nobody hears it where the connection has ended.
    fn say(&self, message: Message) {
        let _ = self.answer.blocking_send(message);
    }
}

fn seal(root: [u8; 32], mode: u32, mtime: Time, fsync: bool) -> Seal {
    Seal { root: Hash::from_bytes(root), mode, mtime, fsync }
}

fn make_directories(root: &Root, path: &RelPath) -> Result<(), files::Error> {
    match root.make_directory(path, 0o777) {
        Err(error) if matches!(error.why(), Why::Missing) => {
            let Some(parent) = path.parent() else { return Err(error) };
            make_directories(root, &parent)?;
            root.make_directory(path, 0o777)
        }
        made => made,
    }
}

/// Passes on what is said, until something is wrong.
async fn hear(hearer: &mut Hearer, pace: &Pace, to_do: mpsc::Sender<ToDo>) -> Error {
    let mut is_end = false;
    loop {
        let message = match hearer.hear().await {
            Ok(Some(message)) => message,
            Ok(None) if is_end => std::future::pending().await,
            Ok(None) => return Error::Lost("the other side says no more".to_owned()),
            Err(error) => return error,
        };
        match message {
            Message::EntriesEnd { .. } => is_end = true,
            Message::Entry { kind: Kind::File { inline: Some(ref inline), .. }, .. }
            | Message::Content { ref inline, .. } => {
                pace.take(inline.content.len()).await;
            }
            // it holds no more than the bounds of these: what waits is small
            Message::Entry { .. }
            | Message::Sealed { .. }
            | Message::Withdrawn { .. }
            | Message::Passed { .. }
            | Message::Hole { .. }
            | Message::Unreadable { .. } => {}
            Message::Refused { reason } => {
                return Error::Refused(shown(reason.as_bytes()).to_string());
            }
            other => return unexpected(&other),
        }
        if to_do.send(ToDo::Said(message)).await.is_err() {
            // the worker has ended: why, it says itself
            std::future::pending::<()>().await;
        }
    }
}

/// Takes in data streams, until something is wrong.
async fn take_streams(
    connection: &Connection,
    shared: &Arc<Shared>,
    to_do: &mpsc::Sender<ToDo>,
) -> Error {
    let mut pieces = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = connection.accept_uni() => stream,
            Some(ended) = pieces.join_next() => match ended {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => return error,
                Err(error) => return Error::task(&error),
            },
        };
        match stream {
            Ok(stream) => {
                pieces.spawn(take_piece(stream, Arc::clone(shared), to_do.clone()));
            }
            Err(error) => return error.into(),
        }
    }
}

/// Takes in one piece, a span at a time.
async fn take_piece(
    mut stream: RecvStream,
    shared: Arc<Shared>,
    to_do: mpsc::Sender<ToDo>,
) -> Result<(), Error> {
    let header = header(&mut stream).await?;
    let Some(incoming) = shared.open().get(&header.id).cloned() else {
        // it failed here, and the sender does not know yet
        let _ = stream.stop(0u32.into());
        return Ok(());
    };
    let zstd = header.zstd == Some(true);
    let (mut buffer, mut frame) = (Vec::new(), Vec::new());
    let (mut offset, mut left) = (header.offset, header.len);
    while left > 0 {
        let want = usize::try_from(left.min(SPAN_OCTETS)).unwrap_or(usize::MAX);
        let len = if zstd { frame_len(&mut stream, want).await? } else { want };
        // what is as long as the span is no frame
        let is_frame = len < want;
        let room = if is_frame { &mut frame } else { &mut buffer };
        if !fill(&mut stream, &shared.pace, room, len).await? {
            // the sender cannot go on with it, and says why elsewhere
            return Ok(());
        }
        let saved = (want - len) as u64;
        let writing = Arc::clone(&incoming);
        let write = move || {
            if is_frame {
                buffer.resize(want, 0);
                if expand(&frame, &mut buffer).is_err() {
                    return (None, buffer, frame);
                }
            }
            (Some(writing.partial.write_at(offset, &buffer)), buffer, frame)
        };
        let counting = Writing::begin(&incoming);
        let (written, used, frame_used) =
            spawn_blocking(write).await.map_err(|error| Error::task(&error))?;
        (buffer, frame) = (used, frame_used);
        let Some(written) = written else {
            return Err(Error::Protocol("a span does not come out of its frame".to_owned()));
        };
        if let Err(error) = written {
            let _ = stream.stop(0u32.into());
            let _ = to_do.send(ToDo::Broken(header.id, error)).await;
            return Ok(());
        }
        let octets = want as u64;
        shared.counts.add(|counts| {
            counts.moved += octets;
            counts.saved += saved;
        });
        drop(counting);
        shared.observer.event(Event::Moved { octets });
        if saved > 0 {
            shared.observer.event(Event::Saved { octets: saved });
        }
        // a write that succeeded lies within the file, and so does its end
        offset = offset.saturating_add(octets);
        left -= octets;
    }
    let _ = to_do.send(ToDo::Came(header.id)).await;
    Ok(())
}

/// The octets of the frame that follows, at most those of the span.
async fn frame_len(stream: &mut RecvStream, span: usize) -> Result<usize, Error> {
    let mut head = [0; 4];
    exactly(stream, &mut head).await?;
    match u32::from_be_bytes(head) as usize {
        len if (1..=span).contains(&len) => Ok(len),
        len => Err(Error::Protocol(format!("it compresses {span} octets to {len}"))),
    }
}

/// Fills the room with so many octets, no faster than it may. Whether the sender goes
/// on with it.
async fn fill(
    stream: &mut RecvStream,
    pace: &Pace,
    room: &mut Vec<u8>,
    len: usize,
) -> Result<bool, Error> {
    // memory is filled by what came, not by what was announced
    room.clear();
    room.reserve_exact(len);
    while room.len() < len {
        match stream.read_chunk(pace.slice(len - room.len()), true).await {
            Ok(Some(chunk)) => {
                room.extend_from_slice(&chunk.bytes);
                pace.take(chunk.bytes.len()).await;
            }
            Ok(None) => return Err(Error::Protocol("a piece of a file has no end".to_owned())),
            Err(quinn::ReadError::Reset(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

async fn header(stream: &mut RecvStream) -> Result<DataHeader, Error> {
    let mut length = [0; 4];
    exactly(stream, &mut length).await?;
    let len = body_len(length)?;
    if len > MOST_HEADER {
        return Err(Error::Protocol("a data stream has no header".to_owned()));
    }
    let mut body = vec![0; len];
    exactly(stream, &mut body).await?;
    Ok(DataHeader::parse(&body)?)
}

async fn exactly(stream: &mut RecvStream, room: &mut [u8]) -> Result<(), Error> {
    stream.read_exact(room).await.map_err(|error| match error {
        quinn::ReadExactError::FinishedEarly(_) => {
            Error::Protocol("a data stream ends in its header".to_owned())
        }
        quinn::ReadExactError::ReadError(error) => error.into(),
    })
}

/// Writes answers, together where several wait.
async fn speak(mut answers: mpsc::Receiver<Message>, speaker: &mut Speaker) -> Result<(), Error> {
    while let Some(message) = answers.recv().await {
        speaker.add(&message).await?;
        while let Ok(message) = answers.try_recv() {
            speaker.add(&message).await?;
        }
        speaker.flush().await?;
    }
    Ok(())
}
