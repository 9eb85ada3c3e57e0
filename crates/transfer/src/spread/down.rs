//! Downloads: listings of the servers' directories fill the queue.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_transfer_proto::message::{Listed, ListedKind, MAX_SOURCES};
use headroom_transfer_proto::path::{RelPath, shown};
use tokio::task::spawn_blocking;

use super::batch::Batcher;
use super::directory::ListedDirectory;
use super::large::LargeFile;
use super::queue::{Batch, Directory};
use super::record::{Last, add};
use super::servers::{Servers, SpreadObserver, finish};
use super::session::{Job, Phase};
use crate::client::{
    Client, SyncOptions, below_root, here, make_directories, names_contents, names_directory,
    remove_if_failed,
};
use crate::delivery::{Event, Observer, Summary};
use crate::error::Error;
use crate::files::{Excludes, Root};

impl<O: SpreadObserver + 'static> Servers<'_, O> {
    /// Fetches files and directories as [`Client::get`] does, spread over all servers. Patterns
    /// match as in [`Client::matching`]. Large files are divided ([`Self::range_bytes`]); if they
    /// cannot be, a warning says why, and they are fetched whole.
    ///
    /// # Errors
    /// As those of [`Client::get`], once no server is left. A single directory needs a destination
    /// that ends with `/`, or is `.`, and two sources need different names ([`Error::Usage`]).
    pub async fn get(&self, from: &[Vec<u8>], to: &Path, fsync: bool) -> Result<Summary, Error> {
        let find = async |mut client: Client| {
            let found = find(&mut client, from).await;
            finish(client, found).await
        };
        let (paths, kinds) = self.ask(find).await?;
        let mut named = Named::new(&paths, &kinds, |size| self.divides(size))?;
        if let [path] = paths.as_slice()
            && named.directories.is_empty()
        {
            if let Some(large) = named.large.pop() {
                return self.get_divided(&paths, large, to, fsync).await;
            }
            let get = async |mut client: Client| {
                let path = std::slice::from_ref(path);
                let done = client.get(path, to, fsync, self.observer.clone()).await;
                finish(client, done).await
            };
            return self.with_one(get).await;
        }
        if let ([_], [Tree { listed: Some(_), .. }]) = (paths.as_slice(), &*named.directories)
            && !names_directory(to.as_os_str().as_bytes())
        {
            return Err(Error::Usage(format!(
                "with several servers or lanes a directory needs a destination that ends with a slash: write {}/ to store it there under its name, or HOSTS:{}/. to store what is in it",
                to.display(),
                shown(&paths[0])
            )));
        }
        let made = make(to).await?;
        let received = self.get_named(named, to, fsync).await;
        remove_if_failed(&made, &received);
        received
    }

    /// Fetches a single file that is divided.
    async fn get_divided(
        &self,
        paths: &[Vec<u8>],
        large: LargeFile,
        to: &Path,
        fsync: bool,
    ) -> Result<Summary, Error> {
        let place = to.to_owned();
        let resolved = spawn_blocking(move || here(&place, true)).await;
        let (destination, made) = resolved.map_err(|error| Error::task(&error))??;
        let (root, name) = destination.of_file(&large.name);
        let large = LargeFile { alone_as: Some(name), ..large };
        let received = self.get_divided_into(&root, large, (paths, to), fsync).await;
        remove_if_failed(&made, &received);
        received
    }

    /// Fetches a single file that is divided into a directory; if that fails, whole.
    async fn get_divided_into(
        &self,
        root: &Root,
        large: LargeFile,
        (paths, to): (&[Vec<u8>], &Path),
        fsync: bool,
    ) -> Result<Summary, Error> {
        let excludes = Excludes::none();
        let job = Job::Get { to: root, is_sync: false, excludes: &excludes };
        let phase = Phase::new(self, job, fsync);
        if phase.copy_divided(large).await? {
            return Ok(phase.totals().of_get(Summary::default()));
        }
        let get = async |mut client: Client| {
            let done = client.get(paths, to, fsync, self.observer.clone()).await;
            finish(client, done).await
        };
        let left = self.by_any(Some(&phase.gone()), get).await?;
        Ok(phase.totals().of_get(left))
    }

    /// Fetches what was named into a directory, which is there.
    async fn get_named(&self, named: Named, to: &Path, fsync: bool) -> Result<Summary, Error> {
        let (root, excludes) = (open(to).await?, Excludes::none());
        let job = Job::Get { to: &root, is_sync: false, excludes: &excludes };
        let phase = Phase::new(self, job, fsync);
        let Named { directories: trees, files, large, mut others } = named;
        let starts = trees.iter().map(|tree| match &tree.listed {
            Some(listed) => {
                let above = tree.path.as_ref().and_then(RelPath::parent);
                let from = remote(above.as_ref().map_or(&b""[..], RelPath::as_bytes));
                let below = |name| ListedDirectory::new(None, name, listed.mode);
                Directory { from, below: tree.name().map(below) }
            }
            None => Directory { from: remote(&tree.from), below: None },
        });
        let mut batches = Vec::new();
        for (above, files) in files {
            let from = remote(&above);
            let mut batcher = Batcher::new(self.sessions());
            let mut full = Vec::new();
            for (name, size) in files {
                phase.batcher().pass(size);
                full.extend(batcher.add(name, size));
            }
            full.push(batcher.take());
            batches.extend(full.into_iter().filter(|files| !files.is_empty()).map(|files| Batch {
                from: Arc::clone(&from),
                directory: None,
                files,
                is_named: true,
            }));
        }
        for file in &large {
            phase.batcher().pass(file.size);
        }
        phase.queue.add_large(large);
        phase.queue.fill(batches, starts.collect());
        if trees.is_empty() {
            let (files, bytes) = phase.batcher().seen();
            self.observer.event(Event::AllOffered { files, bytes });
        }
        phase.run(async {}).await?;
        others.extend(phase.take_remaining().names().map(|path| path.as_bytes().to_vec()));
        let last = self.last(&phase);
        let get = async |mut client: Client| {
            let to = (&root, to);
            let done = get_left(&mut client, &trees, &others, to, fsync, &last).await;
            finish(client, done).await
        };
        let left = self.by_any(Some(&phase.gone()), get).await?;
        Ok(phase.totals().of_get(left))
    }

    /// Makes the content of the directory `to` that of `from` below the servers' root, as
    /// [`Self::sync_to`] does in the other direction.
    ///
    /// # Errors
    /// As those of [`Client::sync_from`], once no server is left.
    pub async fn sync_from(
        &self,
        from: &[u8],
        to: &Path,
        options: &SyncOptions,
    ) -> Result<Summary, Error> {
        if options.dry_run {
            let sync = async |mut client: Client| {
                let done = client.sync_from(from, to, options, self.observer.clone()).await;
                finish(client, done).await
            };
            return self.with_one(sync).await;
        }
        let made = make(to).await?;
        let received = self.sync_into(from, to, options).await;
        remove_if_failed(&made, &received);
        received
    }

    async fn sync_into(
        &self,
        from: &[u8],
        to: &Path,
        options: &SyncOptions,
    ) -> Result<Summary, Error> {
        let root = open(to).await?;
        let job = Job::Get { to: &root, is_sync: true, excludes: &options.excludes };
        let phase = Phase::new(self, job, options.fsync);
        phase.queue.fill(Vec::new(), vec![Directory { from: remote(from), below: None }]);
        phase.run(async {}).await?;
        let last = self.last(&phase);
        let sync = async |mut client: Client| {
            let done = client.sync_from(from, to, options, last.clone()).await;
            finish(client, done).await
        };
        let summary = self.by_any(Some(&phase.gone()), sync).await?;
        Ok(phase.totals().of_sync(summary))
    }
}

/// What the servers have, by the paths that the user named.
struct Named {
    directories: Vec<Tree>,
    /// Files, with sizes in bytes, by the directories that they are in.
    files: BTreeMap<Vec<u8>, Vec<(RelPath, u64)>>,
    /// Files that are divided.
    large: Vec<LargeFile>,
    /// Links, and what is missing or of another type.
    others: Vec<Vec<u8>>,
}

/// A directory of the servers.
struct Tree {
    /// As the user named it.
    from: Vec<u8>,
    /// Its path; `None` is the root.
    path: Option<RelPath>,
    /// What its parent's listing says; without that, its content is fetched without its name.
    listed: Option<Listed>,
}

impl Tree {
    /// Returns the name under which it is stored.
    fn name(&self) -> Option<RelPath> {
        let path = self.path.as_ref().filter(|_| self.listed.is_some())?;
        RelPath::single(path.name()).ok()
    }
}

impl Named {
    /// Sorts what the user named. `divides`: whether a file of this size in bytes is divided.
    fn new(
        paths: &[Vec<u8>],
        kinds: &HashMap<RelPath, Listed>,
        divides: impl Fn(u64) -> bool,
    ) -> Result<Self, Error> {
        let mut named = Self {
            directories: Vec::new(),
            files: BTreeMap::new(),
            large: Vec::new(),
            others: Vec::new(),
        };
        let mut names = HashSet::new();
        for path in paths {
            let below = below_root(path)?;
            let Some(below) = below.as_ref().filter(|_| !names_contents(path)) else {
                let from = path.clone();
                named.directories.push(Tree { from, path: below, listed: None });
                continue;
            };
            if !names.insert(below.name().to_vec()) {
                return Err(Error::Usage(format!(
                    "two of the paths have the name {}: fetch them one after the other",
                    shown(below.name())
                )));
            }
            let single = RelPath::single(below.name()).ok();
            match (kinds.get(below), single) {
                (Some(listed), _) if listed.kind == ListedKind::Directory => {
                    let (from, below) = (path.clone(), Some(below.clone()));
                    let listed = Some(listed.clone());
                    named.directories.push(Tree { from, path: below, listed });
                }
                (Some(listed), Some(name)) if listed.kind == ListedKind::File => {
                    let above = below.parent();
                    let above = above.as_ref().map_or(&b""[..], RelPath::as_bytes).to_vec();
                    if divides(listed.size) {
                        let place = (&remote(&above), None);
                        named.large.push(LargeFile::new(place, name, listed.size, true));
                        continue;
                    }
                    named.files.entry(above).or_default().push((name, listed.size));
                }
                _ => named.others.push(path.clone()),
            }
        }
        Ok(named)
    }
}

/// Expands patterns, and asks what the names are.
async fn find(
    client: &mut Client,
    from: &[Vec<u8>],
) -> Result<(Vec<Vec<u8>>, HashMap<RelPath, Listed>), Error> {
    let mut paths = Vec::new();
    for path in from {
        paths.extend(client.matching(path).await?);
    }
    let mut by_directory: BTreeMap<Option<RelPath>, HashSet<RelPath>> = BTreeMap::new();
    for path in &paths {
        if let Some(path) = below_root(path)?.filter(|_| !names_contents(path)) {
            by_directory.entry(path.parent()).or_default().insert(path);
        }
    }
    let mut kinds = HashMap::new();
    for (directory, wanted) in by_directory {
        let place = directory.as_ref().map_or(&b"."[..], RelPath::as_bytes);
        let listed = client.list(place, |listed| {
            let path = match &directory {
                Some(directory) => directory.join(&listed.path).ok(),
                None => Some(listed.path.clone()),
            };
            if let Some(path) = path.filter(|path| wanted.contains(path)) {
                kinds.insert(path, listed);
            }
        });
        match listed.await {
            // the request for its files reports what is wrong with it
            Ok(()) | Err(Error::OnServer { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((paths, kinds))
}

/// Fetches what is left of directories, and other paths.
async fn get_left<O: SpreadObserver + 'static>(
    client: &mut Client,
    trees: &[Tree],
    others: &[Vec<u8>],
    (root, to): (&Root, &Path),
    fsync: bool,
    last: &Arc<Last<O>>,
) -> Result<Summary, Error> {
    let mut all = Summary::default();
    for tree in trees {
        let left = get_tree(client, tree, root, fsync, last).await?;
        // what is the same, all servers have stored, and directories were made for it
        let stored = left.stored + left.unchanged;
        add_counts(&mut all, &Summary { stored, kept: 0, ..left });
    }
    for others in others.chunks(MAX_SOURCES) {
        // with a slash behind it, it is a directory for a single file, too
        let left = client.get(others, &to.join(""), fsync, last.clone()).await?;
        add_counts(&mut all, &left);
    }
    Ok(all)
}

fn add_counts(to: &mut Summary, more: &Summary) {
    add(to, more);
    to.stored += more.stored;
    to.failed += more.failed;
    to.left_out += more.left_out;
}

/// Fetches what is left of a directory, and gives it its mode and time.
async fn get_tree<O: SpreadObserver + 'static>(
    client: &mut Client,
    tree: &Tree,
    root: &Root,
    fsync: bool,
    last: &Last<O>,
) -> Result<Summary, Error> {
    let name = tree.name();
    let (observer, told) = (Arc::clone(&last.observer), Arc::clone(&last.told));
    let observer = Arc::new(Last { observer, told, directory: name.clone() });
    let to = (root, name.as_ref());
    let mut done = client.get_rest(&tree.from, to, fsync, observer).await?;
    let Some((name, listed)) = name.zip(tree.listed.as_ref()) else { return Ok(done) };
    let (root, sealed) = (root.clone(), name.clone());
    let (mode, mtime) = (listed.mode, listed.mtime);
    let sealing = move || root.seal_directory(&sealed, mode, mtime, fsync, None);
    match spawn_blocking(sealing).await.map_err(|error| Error::task(&error))? {
        Ok(()) => last.event(Event::Stored { path: &name }),
        // its content is stored: that counts
        Err(error) => last.event(Event::LeftOut { reason: &error.to_string() }),
    }
    done.stored += 1;
    Ok(done)
}

/// Makes a local directory; returns those that were missing.
async fn make(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let path = path.to_owned();
    let made = spawn_blocking(move || make_directories(&path)).await;
    made.map_err(|error| Error::task(&error))?
}

/// Opens a local directory.
async fn open(path: &Path) -> Result<Root, Error> {
    let path = path.to_owned();
    let opened = spawn_blocking(move || Root::open(&path)).await;
    Ok(opened.map_err(|error| Error::task(&error))??)
}

/// Returns a path of the servers, as it is written behind `HOST:`.
fn remote(path: &[u8]) -> Arc<Path> {
    Arc::from(Path::new(OsStr::from_bytes(path)))
}
