//! The objects below a prefix, as a directory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Condition, Entry, Object, Replaced, Requests, Store, Version};
use headroom_transfer_proto::message::Time;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Hash, SPAN_BYTES, Spans, Tree};
use tokio::runtime::Handle;

use super::budget::Budget;
use super::error::of_write;
use super::known::{Ask, Known};
use super::spool::unnamed_file;
use super::tags;
use super::threads::Threads;
use crate::files::cleanup::CleanupStats;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::Metadata;
use crate::files::offer::{Seal, Stored};
use crate::files::temporary;

/// Bytes that are read in one request.
pub(super) const READ_BYTES: u64 = 8 * SPAN_BYTES;
/// The most bytes of parts and whole files in memory, of all transfers together.
const MAX_IN_MEMORY: u64 = 128 << 20;
/// The most bytes that are read back at once. Who waits for these may hold some of the others, and
/// who has these waits for none.
const MAX_READ_BACK: u64 = 64 << 20;
/// The most bytes that were read for senders, and wait to be sent. Without room nothing is read
/// ahead.
const MAX_READ_AHEAD: u64 = 256 << 20;
/// The most names of a directory that are listed to learn which are directories.
const MAX_LISTED: usize = 100_000;

/// How a store is used.
#[derive(Debug, Clone, Default)]
pub struct StoreOptions {
    /// Where large files lie on their way into the store, a window of each; otherwise in the
    /// system's folder for temporary files.
    pub spool: Option<PathBuf>,
    /// Whether to read each object again when it is stored, and compare.
    pub read_back: bool,
}

/// The objects below a prefix of a store. Nothing outside it is read, made, changed or removed.
#[derive(Debug, Clone)]
pub struct Root {
    pub(super) store: Store,
    pub(super) shared: Arc<Shared>,
    path: PathBuf,
    pub(super) known: Arc<Known>,
}

/// What all transfers of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) threads: Threads,
    pub(super) spool: PathBuf,
    pub(super) read_back: bool,
    /// For what is on its way into the store.
    pub(super) memory: Arc<Budget>,
    /// For what is read back.
    back: Arc<Budget>,
    /// For what waits to be sent.
    pub(super) ahead: Arc<Budget>,
}

/// What a key leads to.
#[derive(Debug)]
pub(super) enum Place {
    /// A file or a link.
    Object(Object),
    Directory(Metadata),
}

impl Root {
    pub(in crate::files) fn open(
        url: &str,
        options: &StoreOptions,
        runtime: Handle,
    ) -> Result<Self, Error> {
        let shown = without_secrets(url);
        let store = Store::open(url, runtime.clone()).map_err(|error| {
            // also that the bucket is missing: the store's sentence says what
            Error::new(shown.as_bytes(), "opened", ErrorKind::Store(error.to_string().into()))
        })?;
        let root = Self::new(store, options, runtime);
        // a folder that cannot be used is found before the first file comes
        unnamed_file(&root.shared.spool)
            .map_err(|kind| Error::new(shown.as_bytes(), "opened", kind))?;
        Ok(root)
    }

    pub(in crate::files) fn check_url(url: &str) -> Result<String, String> {
        Store::check_url(url).map_err(|error| error.to_string())
    }

    pub(in crate::files) fn new(store: Store, options: &StoreOptions, runtime: Handle) -> Self {
        let shared = Shared {
            threads: Threads::new(runtime),
            spool: options.spool.clone().unwrap_or_else(std::env::temp_dir),
            read_back: options.read_back,
            memory: Budget::new(MAX_IN_MEMORY),
            back: Budget::new(MAX_READ_BACK),
            ahead: Budget::new(MAX_READ_AHEAD),
        };
        let path = PathBuf::from(store.url());
        Self { store, shared: Arc::new(shared), path, known: Arc::default() }
    }

    /// Returns the store's URL.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many requests were made, of all roots over this store.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.store.requests()
    }

    pub(in crate::files) fn own_requests(&self) -> Requests {
        self.store.own_requests()
    }

    pub(in crate::files) fn for_transfer(&self) -> Self {
        Self { store: self.store.counted(), known: Arc::default(), ..self.clone() }
    }

    pub(in crate::files) fn below(&self, path: &RelPath) -> Result<Self, Error> {
        let below = || {
            let key = key(path)?;
            match self.directory(key)? {
                Some(_) => {}
                // made just now, in a store that keeps nothing of that
                None if self.known.exists(key) => {}
                None if self.object(key)?.is_some() => return Err(ErrorKind::NotBeneath),
                None => return Err(ErrorKind::Missing),
            }
            let (store, path) = (self.store.below(key), self.path.join(key));
            Ok(Self { store, shared: Arc::clone(&self.shared), path, known: Arc::default() })
        };
        below().map_err(|kind| Error::new(path.as_bytes(), "opened", kind))
    }

    pub(in crate::files) fn look(&self, path: &RelPath) -> Result<Option<Metadata>, Error> {
        let look = || {
            // a store has no such name
            let Ok(key) = key(path) else { return Ok(None) };
            Ok(self.find(key)?.map(|place| match place {
                Place::Object(object) => tags::metadata(key, &object),
                Place::Directory(metadata) => metadata,
            }))
        };
        look().map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "read", kind))
    }

    pub(in crate::files) fn target(&self, path: &RelPath) -> Result<Vec<u8>, Error> {
        let target = || {
            let object = self.object(key(path)?)?.ok_or(ErrorKind::Missing)?;
            tags::target(&object).ok_or(ErrorKind::Missing)
        };
        target().map_err(|kind| Error::new(path.as_bytes(), "read", kind))
    }

    pub(in crate::files) fn seal_symlink(
        &self,
        path: &RelPath,
        mtime: Option<Time>,
    ) -> Result<(), Error> {
        let seal = || {
            let Some(mtime) = mtime else { return Ok(()) };
            let key = written_key(path)?;
            let here = self.object(key)?.ok_or(ErrorKind::Missing)?;
            let target = tags::target(&here).ok_or(ErrorKind::Missing)?;
            if tags::metadata(key, &here).mtime != mtime {
                let tags = tags::of_link(&target, mtime)?;
                let condition = Condition::over(Some(&here.version));
                self.store.put(key, Bytes::new(), &tags, condition)?;
            }
            Ok(())
        };
        seal().map_err(|kind: ErrorKind| {
            Error::new(path.as_bytes(), "given its time and owner", kind)
        })
    }

    pub(in crate::files) fn store(
        &self,
        path: &RelPath,
        content: &[u8],
        seal: &Seal,
    ) -> Result<Stored, Error> {
        let store = || {
            if blake3::hash(content) != seal.root {
                return Err(ErrorKind::Mismatch);
            }
            let key = written_key(path)?;
            self.put(key, Bytes::copy_from_slice(content), seal)
        };
        store().map_err(|kind| Error::new(path.as_bytes(), "stored", kind))
    }

    /// Stores a file in one request. Its hash was verified.
    pub(super) fn put(&self, key: &str, content: Bytes, seal: &Seal) -> Result<Stored, ErrorKind> {
        self.check_place(key)?;
        let size = content.len() as u64;
        let tags = tags::of_file(seal.mode, seal.mtime, Some(&seal.root))?;
        let expected = self.known.expected(key);
        let replaced = self.store.replace(key, content, &tags, &expected);
        let Replaced { version, was_there } = replaced.map_err(of_write)?;
        self.known.replaced(key, was_there);
        self.read_back(key, size, &version, &seal.root)?;
        Ok(Stored { replaced: was_there })
    }

    /// Reads an object again, if that is wanted, and removes it if it is not what was stored.
    pub(super) fn read_back(
        &self,
        key: &str,
        size: u64,
        version: &Version,
        root: &Hash,
    ) -> Result<(), ErrorKind> {
        if !self.shared.read_back {
            return Ok(());
        }
        let _memory = self.shared.back.take(READ_BYTES.min(size));
        let spans = Spans::new(size);
        let mut tree = Tree::new(spans);
        let mut at = 0;
        while at < size {
            let end = size.min(at + READ_BYTES);
            let content = self.store.read(key, at..end, Some(version))?;
            for (n, bytes) in content.chunks(SPAN_BYTES as usize).enumerate() {
                let span = at / SPAN_BYTES + n as u64;
                if let Some(value) = spans.value(span, bytes) {
                    tree.insert(span, value);
                }
            }
            at = end;
        }
        if tree.root() == Some(*root) {
            return Ok(());
        }
        self.store.remove(key)?;
        Err(ErrorKind::ReadBack)
    }

    pub(in crate::files) fn remove_unfinished(&self, age: Duration) -> CleanupStats {
        match self.store.abort_uploads(age) {
            Ok(removed) => CleanupStats { removed, ..CleanupStats::default() },
            Err(error) => {
                tracing::warn!("old uploads cannot be given up: {error}");
                CleanupStats::default()
            }
        }
    }

    /// Returns what a key leads to. An object comes before a directory of the same name.
    pub(super) fn find(&self, key: &str) -> Result<Option<Place>, ErrorKind> {
        Ok(match self.object(key)? {
            Some(object) => Some(Place::Object(object)),
            None => self.directory(key)?.map(Place::Directory),
        })
    }

    /// Returns the object of a key, with its metadata.
    pub(super) fn object(&self, key: &str) -> Result<Option<Object>, ErrorKind> {
        Ok(self.store.look(key)?)
    }

    /// Returns the metadata of a directory that has a marker or something in it.
    pub(super) fn directory(&self, key: &str) -> Result<Option<Metadata>, ErrorKind> {
        let marker = self.store.look(&marker(key))?.filter(is_marker);
        if marker.is_none() && !self.has_entries(key)? {
            return Ok(None);
        }
        Ok(Some(tags::directory(key, marker.as_ref())))
    }

    /// Whether something is below a directory.
    pub(super) fn has_entries(&self, key: &str) -> Result<bool, ErrorKind> {
        match self.store.list(key).next() {
            None => Ok(false),
            Some(Ok(_) | Err(headroom_store::Error::Name(_))) => Ok(true),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Fails if a file or link is to be stored where a directory is, or below a file.
    pub(super) fn check_place(&self, key: &str) -> Result<(), ErrorKind> {
        self.check_parents(key)?;
        match self.is_directory(key)? {
            true => Err(ErrorKind::Clash { here: FileType::Directory }),
            false => Ok(()),
        }
    }

    /// Whether a name is in a directory that was empty when this transfer made it. Names come to a
    /// transfer once.
    pub(super) fn is_in_new_directory(&self, key: &str) -> bool {
        let (parent, _) = key.rsplit_once('/').unwrap_or(("", key));
        self.known.is_new(parent)
    }

    /// Whether a key is that of a directory, as far as this transfer must know.
    pub(super) fn is_directory(&self, key: &str) -> Result<bool, ErrorKind> {
        let (parent, name) = key.rsplit_once('/').unwrap_or(("", key));
        match self.known.ask(parent) {
            Ask::No => Ok(false),
            // it may have been removed since, in favour of a file
            Ask::In(inner) => Ok(inner.contains(name) && self.directory(key)?.is_some()),
            Ask::Store => Ok(self.directory(key)?.is_some()),
            Ask::List => match self.directories(parent)? {
                Some(inner) => {
                    let is_directory = inner.contains(name);
                    self.known.listed(parent, inner);
                    Ok(is_directory)
                }
                None => Ok(self.directory(key)?.is_some()),
            },
        }
    }

    /// Lists the directories in a directory; `None` if too much else is there.
    fn directories(&self, key: &str) -> Result<Option<HashSet<String>>, ErrorKind> {
        let mut inner = HashSet::new();
        for (n, entry) in self.store.list(key).enumerate() {
            match entry {
                _ if n == MAX_LISTED => return Ok(None),
                Ok(Entry::Directory(name)) => {
                    inner.insert(name);
                }
                Ok(Entry::Object(_)) | Err(headroom_store::Error::Name(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(inner))
    }

    /// Fails if a file or link is where a directory of a path has to be.
    pub(super) fn check_parents(&self, key: &str) -> Result<(), ErrorKind> {
        self.known.is_there("");
        let mut unknown = Vec::new();
        let mut rest = key;
        while let Some((parent, _)) = rest.rsplit_once('/') {
            if self.known.has(parent) {
                break;
            }
            unknown.push(parent);
            rest = parent;
        }
        for parent in unknown.into_iter().rev() {
            // what is about to be made may take the place of a file: that is waited for once more
            if self.object(parent)?.is_some() && !self.known.has(parent) {
                return Err(ErrorKind::NotBeneath);
            }
            self.known.is_there(parent);
        }
        Ok(())
    }
}

/// Returns the key of a path.
///
/// # Errors
/// It is not UTF-8. What else a store cannot hold the store refuses.
pub(super) fn key(path: &RelPath) -> Result<&str, ErrorKind> {
    std::str::from_utf8(path.as_bytes()).map_err(|_| ErrorKind::NotUtf8)
}

/// Returns the key of a path that is to be made, changed or removed.
pub(super) fn written_key(path: &RelPath) -> Result<&str, ErrorKind> {
    match temporary::is_temporary(path.name()) {
        true => Err(ErrorKind::Reserved),
        false => key(path),
    }
}

/// Whether what has the key of a directory's marker is one: it is empty. Some servers show a file
/// for its name with a slash, too.
pub(super) fn is_marker(object: &Object) -> bool {
    object.size == 0
}

/// Returns the key of a directory's marker.
pub(super) fn marker(key: &str) -> String {
    format!("{key}/")
}

/// Joins a directory's key and a name; the root has the empty key.
pub(super) fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Returns a URL without what somebody may have written into it although it belongs elsewhere: a
/// user with a password, a signature.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let place = rest.split('/').next().unwrap_or_default();
            let host = place.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{}", &rest[place.len()..])
        }
        None => url.to_owned(),
    }
}

pub(super) fn now() -> Time {
    let since =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Time { seconds, nanoseconds: since.subsec_nanos() }
}
