//! Walks trees of a store that are to be sent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use headroom_store::{Error as StoreError, Object, Store};
use headroom_transfer_proto::message::Links;
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::ahead::Ahead;
use super::reader::SourceFile;
use super::root::{Place, Root, joined, key, marker};
use super::sorted::{Named, Sorted};
use super::tags;
use super::threads::{Running, not_carried_out};
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::exclude::Excludes;
use crate::files::found::{Found, SourceKind};
use crate::files::remaining::Remaining;
use crate::files::{reader, temporary};

/// Names that are looked up, and small files that are read, at once.
const AHEAD: usize = 64;

/// Directories of each level whose listings begin before the walk enters them, so that it does not
/// wait for each.
const LISTED_AHEAD: usize = 8;
/// The most of these of all levels, each of which has a page in memory.
const MAX_LISTED_AHEAD: usize = 64;

/// Walks what to send: an iterator of what was found, and of errors for what cannot be sent.
///
/// Directories come before their content, and names in byte order.
#[derive(Debug)]
pub struct Source {
    root: Root,
    excludes: Arc<Excludes>,
    starts: VecDeque<Start>,
    levels: Vec<Level>,
    /// Names under which sources are sent.
    given: HashSet<RelPath>,
    /// Whether sources that are not files are errors.
    only_files: bool,
    /// Files to return, if others are passed over.
    remaining: Option<Arc<Remaining>>,
    policy: Policy,
    ahead: Ahead<Result<Found, Error>>,
}

/// How what is found is sent.
#[derive(Debug, Clone, Copy)]
struct Policy {
    links: Links,
    /// Whether paths of the current source begin with its name.
    is_named: bool,
    /// The size up to which files are read ahead.
    most_ahead: Option<u64>,
}

/// A named source.
#[derive(Debug)]
enum Start {
    /// `None` is the root itself; the flag says whether its content is sent without its name.
    Below(Option<RelPath>, bool),
    /// Sent under its path, a directory without its content.
    Listed(RelPath),
}

/// A directory that is being walked.
#[derive(Debug)]
struct Level {
    /// Its key.
    key: String,
    /// The name under which it is sent; `None` if its content is sent without.
    path: Option<RelPath>,
    names: Sorted,
    /// Directories in it that are listed ahead, by their keys.
    begun: HashMap<String, Sorted>,
}

/// A name that is looked up.
struct Wanted {
    key: String,
    /// The name under which it is sent.
    path: RelPath,
    policy: Policy,
    /// What a listing had of it.
    listed: Option<Object>,
}

impl Source {
    pub(in crate::files) fn below(
        root: &Root,
        wanted: impl IntoIterator<Item = (Option<RelPath>, bool)>,
        links: Links,
    ) -> Self {
        let starts = wanted.into_iter().map(|(place, contents)| Start::Below(place, contents));
        Self::of(root, starts.collect(), links)
    }

    pub(in crate::files) fn listed(
        root: &Root,
        paths: impl IntoIterator<Item = RelPath>,
        links: Links,
    ) -> Self {
        Self::of(root, paths.into_iter().map(Start::Listed).collect(), links)
    }

    fn of(root: &Root, starts: VecDeque<Start>, links: Links) -> Self {
        let links = if links == Links::Follow { Links::Keep } else { links };
        Self {
            root: root.clone(),
            excludes: Arc::new(Excludes::none()),
            starts,
            levels: Vec::new(),
            given: HashSet::new(),
            only_files: false,
            remaining: None,
            policy: Policy { links, is_named: false, most_ahead: None },
            ahead: Ahead::new(),
        }
    }

    pub(in crate::files) fn only_files(self, only_files: bool) -> Self {
        Self { only_files, ..self }
    }

    pub(in crate::files) fn without(self, excludes: Arc<Excludes>) -> Self {
        Self { excludes, ..self }
    }

    pub(in crate::files) fn only(self, remaining: Arc<Remaining>) -> Self {
        Self { remaining: Some(remaining), ..self }
    }

    /// Whether something is a file that does not remain.
    fn is_done(&self, found: &Result<Found, Error>) -> bool {
        match (found, &self.remaining) {
            (Ok(Found { path, kind: SourceKind::File(_), .. }), Some(remaining)) => {
                !remaining.has(path)
            }
            _ => false,
        }
    }

    pub(in crate::files) fn reading_ahead(self, most: u64) -> Self {
        let policy = Policy { most_ahead: Some(most), ..self.policy };
        Self { policy, ..self }
    }

    /// Returns how many names and results are in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let held = |level: &Level| {
            let begun: usize = level.begun.values().map(Sorted::held).sum();
            level.names.held() + begun
        };
        self.ahead.len() + self.levels.iter().map(held).sum::<usize>()
    }

    /// Goes on with the walk; returns whether there may be more.
    fn step(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else {
            let Some(start) = self.starts.pop_front() else { return false };
            match start {
                Start::Below(place, contents) => {
                    if let Err(error) = self.begin(place, contents) {
                        self.ahead.push(Err(error.asked_for()));
                    }
                }
                Start::Listed(path) => self.begin_listed(path),
            }
            return true;
        };
        match level.names.next() {
            None => {
                self.levels.pop();
            }
            Some(Ok(named)) => {
                if let Err(error) = self.visit(named) {
                    self.ahead.push(Err(error));
                }
            }
            Some(Err(kind)) => {
                let shown = if level.key.is_empty() { "." } else { level.key.as_str() };
                let error = Error::new(shown.as_bytes(), "sent", kind);
                self.ahead.push(Err(error.about(level.path.as_ref())));
            }
        }
        true
    }

    fn begin(&mut self, place: Option<RelPath>, contents: bool) -> Result<(), Error> {
        let Some(place) = place else {
            if self.only_files {
                return Err(Error::new(b".", "sent", ErrorKind::NoFile));
            }
            self.policy.is_named = false;
            self.enter(String::new(), None);
            return Ok(());
        };
        let path = if contents { None } else { RelPath::single(place.name()).ok() };
        let sent_as = path.clone();
        let error =
            |kind: ErrorKind| Error::new(place.as_bytes(), "sent", kind).about(sent_as.as_ref());
        self.policy.is_named = path.is_some();
        if let Some(path) = &path
            && !self.given.insert(path.clone())
        {
            return Err(error(ErrorKind::Twice));
        }
        let key = key(&place).map_err(|_| error(ErrorKind::Missing))?.to_owned();
        let found = self.root.find(&key).map_err(error)?;
        let is_file = |object: &Object| tags::target(object).is_none();
        match &found {
            Some(Place::Object(object)) if is_file(object) => {}
            Some(_) if self.only_files => return Err(error(ErrorKind::NoFile)),
            _ => {}
        }
        match (found, path) {
            (None, _) => Err(error(ErrorKind::Missing)),
            (Some(Place::Object(_)), None) => Err(error(ErrorKind::NoDirectory)),
            (Some(Place::Object(object)), Some(path)) => {
                if !self.excludes.matches(&path, false) {
                    let wanted = Wanted { key, path, policy: self.policy, listed: None };
                    let root = self.root.clone();
                    let sent = move || wanted.sent(&root, object, None).map_err(Error::asked_for);
                    self.ahead.push_running(self.root.shared.threads.run(sent));
                }
                Ok(())
            }
            (Some(Place::Directory(metadata)), path) => {
                if let Some(path) = &path {
                    if self.excludes.matches(path, true) {
                        return Ok(());
                    }
                    let kind = SourceKind::Directory(metadata);
                    self.ahead.push(Ok(Found { path: path.clone(), kind, attributes: None }));
                }
                self.enter(key, path);
                Ok(())
            }
        }
    }

    /// Has a single name of a listing looked up.
    fn begin_listed(&mut self, path: RelPath) {
        self.policy.is_named = false;
        let (root, policy) = (self.root.clone(), self.policy);
        let look = move || {
            let error = |kind: ErrorKind| {
                Error::new(path.as_bytes(), "sent", kind).about(Some(&path)).asked_for()
            };
            let key = key(&path).map_err(|_| error(ErrorKind::Missing))?.to_owned();
            match root.find(&key).map_err(error)? {
                None => Err(error(ErrorKind::Missing)),
                Some(Place::Directory(metadata)) => {
                    let kind = SourceKind::Directory(metadata);
                    Ok(Found { path: path.clone(), kind, attributes: None })
                }
                Some(Place::Object(object)) => {
                    let wanted = Wanted { key, path: path.clone(), policy, listed: None };
                    wanted.sent(&root, object, None).map_err(Error::asked_for)
                }
            }
        };
        self.ahead.push_running(self.root.shared.threads.run(look));
    }

    /// Decides what to send of a name in a directory.
    fn visit(&mut self, named: Named) -> Result<(), Error> {
        let Named { name, object, is_directory } = named;
        let Some(level) = self.levels.last() else { return Ok(()) };
        let key = joined(&level.key, &name);
        let path = match &level.path {
            Some(path) => path.child(name.as_bytes()),
            None => RelPath::single(name.as_bytes()),
        };
        let path = path.map_err(|kind| Error::new(key.as_bytes(), "sent", kind))?;
        let error = |kind: ErrorKind| Error::new(key.as_bytes(), "sent", kind).about(Some(&path));
        if self.excludes.matches(&path, is_directory) {
            return Ok(());
        }
        if temporary::is_temporary(name.as_bytes()) {
            return Err(error(ErrorKind::Unfinished));
        }
        let root = self.root.clone();
        if !is_directory {
            let wanted = Wanted { key, path, policy: self.policy, listed: object };
            self.ahead.push_running(wanted.look(root));
            return Ok(());
        }
        if object.is_some() {
            self.ahead.push(Err(error(ErrorKind::FileAndDirectory)));
        }
        let (sent_as, directory) = (path.clone(), key.clone());
        let look = move || {
            let marker = root.store.look(&marker(&directory)).map_err(|error| {
                Error::new(directory.as_bytes(), "sent", error).about(Some(&sent_as))
            })?;
            let kind = SourceKind::Directory(tags::directory(&directory, marker.as_ref()));
            Ok(Found { path: sent_as, kind, attributes: None })
        };
        self.ahead.push_running(self.root.shared.threads.run(look));
        self.enter(key, Some(path));
        Ok(())
    }

    /// Starts walking a directory.
    fn enter(&mut self, key: String, path: Option<RelPath>) {
        let store = &self.root.store;
        let mut begun = None;
        let all: usize = self.levels.iter().map(|level| level.begun.len()).sum();
        if let Some(outer) = self.levels.last_mut() {
            begun = outer.begun.remove(&key);
            outer.begin_next(store, &self.excludes, MAX_LISTED_AHEAD.saturating_sub(all));
        }
        let names = begun.unwrap_or_else(|| Sorted::new(store, key.clone()));
        self.levels.push(Level { key, path, names, begun: HashMap::new() });
    }
}

impl Level {
    /// Begins to list the directories that come next, at most so many.
    fn begin_next(&mut self, store: &Store, excludes: &Excludes, most: usize) {
        let most = LISTED_AHEAD.min(self.begun.len() + most);
        for name in self.names.upcoming(LISTED_AHEAD) {
            // these are not entered
            if temporary::is_temporary(name.as_bytes()) {
                continue;
            }
            let path = match &self.path {
                Some(path) => path.child(name.as_bytes()),
                None => RelPath::single(name.as_bytes()),
            };
            let key = joined(&self.key, &name);
            if self.begun.len() < most
                && !self.begun.contains_key(&key)
                && path.is_ok_and(|path| !excludes.matches(&path, true))
            {
                self.begun.insert(key.clone(), Sorted::new(store, key));
            }
        }
    }
}

impl Iterator for Source {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while self.ahead.len() < AHEAD && self.step() {}
            let found = self.ahead.pop()?;
            let found = found.map_err(|kind| Error::new(b".", "sent", kind)).flatten();
            if !self.is_done(&found) {
                return Some(found);
            }
        }
    }
}

impl Wanted {
    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(self.key.as_bytes(), "sent", kind).about(Some(&self.path))
    }

    /// Whether the content goes with the name.
    fn is_small(&self, size: u64) -> bool {
        self.policy.most_ahead.is_some_and(|most| size <= most)
    }

    /// Has an object looked up that a listing had.
    fn look(mut self, root: Root) -> Running<Result<Found, Error>> {
        let threads = root.shared.threads.clone();
        match self.listed.take() {
            // an empty one may be a link, and has nothing to read
            Some(listed) if listed.size > 0 && self.is_small(listed.size) => {
                threads.run_task(self.read(root, listed))
            }
            _ => threads.run(move || self.ask(&root)),
        }
    }

    /// Reads a small object: metadata and content come in one answer.
    async fn read(self, root: Root, listed: Object) -> Result<Found, Error> {
        let (size, version) = (listed.size, Some(&listed.version));
        let read = root.store.read_object_async(&self.key, size, version).await;
        match read {
            Ok((object, content)) => self.sent(&root, object, Some(content)),
            // it has changed since; what is there now is asked for, which blocks
            Err(StoreError::Changed(_) | StoreError::NotFound(_)) => {
                let stopped = self.error(not_carried_out());
                spawn_blocking(move || self.ask(&root)).await.unwrap_or(Err(stopped))
            }
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// Asks for the metadata of an object.
    fn ask(self, root: &Root) -> Result<Found, Error> {
        match root.object(&self.key) {
            Ok(Some(object)) => self.sent(root, object, None),
            Ok(None) => Err(self.error(ErrorKind::Missing)),
            Err(kind) => Err(self.error(kind)),
        }
    }

    /// Makes of an object what is sent, with its content if that was read.
    fn sent(self, root: &Root, object: Object, content: Option<Bytes>) -> Result<Found, Error> {
        let metadata = tags::metadata(&self.key, &object);
        if metadata.file_type == FileType::Symlink {
            let target = tags::target(&object).unwrap_or_default();
            let Policy { links, is_named, .. } = self.policy;
            let is_inside = match is_named {
                true => self.path.tree_holds_link_to(&target),
                false => self.path.holds_link_to(&target),
            };
            match links {
                Links::Skip => return Err(self.error(ErrorKind::LinkLeftOut)),
                Links::Keep => {}
                _ if is_inside => {}
                Links::Refuse => return Err(self.error(ErrorKind::LinkRefused)),
                _ => return Err(self.error(ErrorKind::LinkLeavesTree)),
            }
            let kind = SourceKind::Symlink { target, metadata };
            return Ok(Found { path: self.path, kind, attributes: None });
        }
        let mut file = SourceFile::new(root.clone(), &self.key, self.path.clone(), object);
        if self.is_small(metadata.size) {
            file.read_ahead(content);
        }
        let kind = SourceKind::File(reader::SourceFile::Store(Box::new(file)));
        Ok(Found { path: self.path, kind, attributes: None })
    }
}
