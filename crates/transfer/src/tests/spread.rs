//! One transfer over several servers of one folder, some of which stop, refuse or are not there.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::TreeOptions;
use crate::client::SyncOptions;
use crate::files::{Excludes, Keep, Links};
use crate::retry::Retry;
use crate::spread::{Connecting, RANGE_BYTES, Returned, Servers, SpreadObserver};

const MIB: u64 = 1 << 20;

/// How long a piece that was moved is held at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a transfer waits for.
type Condition = Box<dyn Fn() -> bool + Send + Sync>;

/// Notes what happens, and stops a server when so much was moved.
pub(super) struct Watch {
    pub(super) notes: Notes,
    pub(super) offered: AtomicU64,
    moved: AtomicU64,
    stops: Option<(u64, Server)>,
    /// Until this is so, the server is not stopped, and the piece that was moved goes no further.
    until: Option<Condition>,
    /// Whether later pieces wait until the server is stopped.
    holds_later: AtomicBool,
}

impl Watch {
    pub(super) fn new(stops: Option<(u64, &Server)>) -> Arc<Self> {
        Self::with(stops, None, false)
    }

    /// Holds every piece that was moved until this is so, and until the server is stopped if it is
    /// to be.
    pub(super) fn holding(
        stops: Option<(u64, &Server)>,
        until: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with(stops, Some(Box::new(until)), true)
    }

    fn with(
        stops: Option<(u64, &Server)>,
        until: Option<Condition>,
        holds_later: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            notes: Notes::default(),
            offered: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            stops: stops.map(|(after, server)| (after, server.clone())),
            until,
            holds_later: AtomicBool::new(holds_later),
        })
    }

    /// Stops a server when 8 MiB were moved, and 6 MiB lie in this folder: there are whole spans
    /// of 1 MiB to resume from. Until then the piece that was moved goes no further.
    fn with_partial(server: &Server, folder: PathBuf) -> Arc<Self> {
        let is_there: Condition = Box::new(move || on_disk(&folder) >= 6 * MIB);
        Self::with(Some((8 * MIB, server)), Some(is_there), false)
    }

    /// Handles a piece that was moved: it may have to wait, and it may be the one with which the
    /// server is stopped.
    fn note_moved(&self, bytes: u64) {
        let before = self.moved.fetch_add(bytes, Ordering::SeqCst);
        let stops = self.stops.as_ref();
        let is_it = stops.is_none_or(|(after, _)| before < *after && before + bytes >= *after);
        if is_it {
            if let Some(until) = &self.until {
                hold_until(until);
            }
            if let Some((_, server)) = stops {
                server.stop();
                self.holds_later.store(false, Ordering::SeqCst);
            }
        } else if stops.is_some_and(|(after, _)| before >= *after) {
            hold_until(|| !self.holds_later.load(Ordering::SeqCst));
        }
    }

    fn note(&self, note: String) {
        self.notes.0.lock().expect("nobody panicked").push(note);
    }

    /// How often something was noted that has all of these words in it.
    pub(super) fn count(&self, words: &[&str]) -> usize {
        let notes = self.notes.0.lock().expect("nobody panicked");
        notes.iter().filter(|note| words.iter().all(|word| note.contains(word))).count()
    }
}

impl Observer for Watch {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Offered { bytes } => drop(self.offered.fetch_add(bytes, Ordering::SeqCst)),
            Event::Moved { bytes } => self.note_moved(bytes),
            _ => self.notes.event(event),
        }
    }
}

impl SpreadObserver for Watch {
    fn connected(&self) {
        self.note("connected".to_owned());
    }

    fn lost(&self, server: usize, error: &Error, is_final: bool) {
        let word = if is_final { "gone" } else { "lost" };
        self.note(format!("{word} {server}: {error}"));
    }

    fn returned(&self, returned: Returned) {
        self.offered.fetch_sub(returned.offered, Ordering::SeqCst);
        self.note(format!("returned {} files", returned.files));
    }

    fn restarted(&self) {
        self.note("restarted".to_owned());
    }
}

/// Keeps this thread of the runtime waiting until it is so.
fn hold_until(is_so: impl Fn() -> bool) {
    if is_so() {
        return;
    }
    tokio::task::block_in_place(|| {
        let begun = Instant::now();
        while !is_so() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Waits until it is so, or for too long.
pub(super) async fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Bytes that the files of a directory take, if it is there.
fn on_disk(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

/// A client with these options.
async fn connect(ground: &Ground, server: &Server, tree: TreeOptions) -> Result<Client, Error> {
    let mut client = ground.connect(server).await?;
    client.set_tree(tree);
    Ok(client)
}

/// Transfers over these servers, without retries.
macro_rules! over {
    ($ground:expr, $all:expr, $observer:expr, |$servers:ident| $transfer:expr) => {{
        let (ground, started): (&Ground, &[Server]) = (&$ground, &$all);
        let $servers = Servers {
            count: started.len(),
            connect: Box::new(move |n: usize, _: Option<SocketAddr>| {
                let connecting = connect(ground, &started[n], TreeOptions::default());
                Box::pin(connecting) as Connecting<'_>
            }),
            lanes: 1,
            retry: Retry::Never,
            rate_bps: None,
            range_bytes: RANGE_BYTES,
            observer: Arc::clone(&$observer),
        };
        $transfer.await
    }};
}

/// Makes a tree of 60 small files and three large ones, with an empty directory, one that its owner
/// may not write, and a link.
fn make_tree(tree: &Path) {
    for folder in 0..6 {
        for n in 0..10 {
            write(&tree.join(format!("{folder}/sub/{n}")), &content(5000 + 10 * folder + n));
        }
    }
    for (n, name) in ["large", "0/large", "9/sub/large"].into_iter().enumerate() {
        write(&tree.join(name), &content((6 << 20) + n));
    }
    std::fs::create_dir(tree.join("empty")).expect("a folder");
    symlink("0/large", tree.join("link")).expect("a link");
    let read_only = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(tree.join("1/sub"), read_only).expect("chmod");
    // directories have times of their own, whenever something was put into them
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["0", "0/sub", "empty", "1/sub"] {
        let directory = std::fs::File::open(tree.join(name)).expect("a folder");
        directory.set_modified(time).expect("a time");
    }
}

/// Files in such a tree, and directories below its top.
const FILES: u64 = 63;
const DIRECTORIES: u64 = 15;

/// The bytes of all files below a folder.
fn bytes_of(folder: &Path) -> u64 {
    let mut bytes = 0;
    let mut left = vec![folder.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a folder") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("it is there");
            match meta.is_dir() {
                true => left.push(path),
                false if meta.is_file() => bytes += meta.len(),
                false => {}
            }
        }
    }
    bytes
}

#[test]
fn files_are_put_by_all_servers_and_the_rest_by_one_when_others_stop() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    let bytes = bytes_of(&ground.here("tree"));
    run(async {
        let servers = [ground.start(), ground.start(), ground.start()];
        let watch = Watch::new(Some((7 * MIB, &servers[1])));
        let paths = [ground.here("tree")];
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"to/",
            TreeOptions::default(),
            false
        ));
        let put = put.expect("it is sent");
        assert_eq!(tree(&ground.served("to/tree")), tree(&ground.here("tree")));
        // the top, and a link
        assert_eq!((put.stored, put.failed), (FILES + DIRECTORIES + 2, 0), "{put:?}");
        assert!(put.moved + put.kept >= bytes, "{put:?}");
        // unless the others were so fast that it had nothing to do then
        assert!(watch.count(&["gone 1"]) <= 1, "{:?}", watch.notes);
        // each file is stored once
        for name in ["tree/large", "tree/0/large", "tree/9/sub/large", "tree/3/sub/7"] {
            assert_eq!(watch.count(&[&format!("stored: {name}")]), 1, "{:?}", watch.notes);
        }
        assert_eq!(watch.offered.load(Ordering::SeqCst), bytes);
    });
}

#[test]
fn files_are_fetched_from_all_servers_and_the_rest_from_others_when_one_stops() {
    let ground = Ground::new();
    make_tree(&ground.served("tree"));
    write(&ground.served("one"), &content(3000));
    write(&ground.served("two"), &content(4000));
    let bytes = bytes_of(&ground.served("tree"));
    run(async {
        let servers = [ground.start(), ground.start(), ground.start()];
        let watch = Watch::new(Some((7 * MIB, &servers[0])));
        let (from, to) = ([b"tree".to_vec(), b"{one,two}".to_vec()], ground.here("to"));
        let got = over!(ground, servers, watch, |all| all.get(&from, &to, false));
        let got = got.expect("it is fetched");
        assert_eq!(tree(&to.join("tree")), tree(&ground.served("tree")));
        for name in ["one", "two"] {
            let [here, there] = [to.join(name), ground.served(name)];
            assert_eq!(
                std::fs::read(here).expect("a file"),
                std::fs::read(there).expect("a file"),
                "{name}"
            );
        }
        assert_eq!((got.stored, got.failed), (FILES + DIRECTORIES + 4, 0), "{got:?}");
        assert!(got.moved + got.kept >= bytes + 7000, "{got:?}");
        for name in ["tree/large", "tree/0/large", "tree/3/sub/7", "one"] {
            assert_eq!(watch.count(&[&format!("stored: {name}")]), 1, "{:?}", watch.notes);
        }
        assert_eq!(watch.count(&["gone 0"]), 1, "{:?}", watch.notes);
    });
}

#[test]
fn a_sync_over_several_servers_removes_at_last_and_only_if_nothing_failed() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    write(&ground.served("to/surplus"), b"not at the source");
    write(&ground.served("to/large/precious"), b"in the way of a file");
    run(async {
        let servers = [ground.start(), ground.start()];
        let options = SyncOptions {
            excludes: Excludes::new(vec!["/2/".to_owned()]).expect("a pattern"),
            ..SyncOptions::default()
        };
        let (from, watch) = (ground.here("tree"), Watch::new(None));
        let (tree_options, to) = (TreeOptions::default(), b"to");
        let sync =
            over!(ground, servers, watch, |all| all.sync_to(&from, to, tree_options, &options));
        let sync = sync.expect("an answer");
        // without --delete the directory stays, and the file is not stored
        assert_eq!((sync.failed, sync.removed), (1, 0), "{sync:?} {:?}", watch.notes);
        assert_eq!(watch.count(&["failed", "large cannot be stored"]), 1, "{:?}", watch.notes);
        assert!(!ground.served("to/2").exists(), "it is excluded");

        let options = SyncOptions { delete: true, ..SyncOptions::default() };
        let watch = Watch::new(None);
        let sync =
            over!(ground, servers, watch, |all| all.sync_to(&from, to, tree_options, &options));
        let sync = sync.expect("an answer");
        assert_eq!(tree(&ground.served("to")), tree(&from));
        // a large file, and what was excluded: ten files, and directories that were made for them
        assert!((11..=13).contains(&sync.stored) && sync.failed == 0, "{sync:?}");
        assert_eq!(sync.unchanged + sync.stored, FILES + DIRECTORIES + 1, "{sync:?}");
        assert!(sync.removed >= 2, "{sync:?}");

        // and back, where one file differs
        let back = ground.here("back");
        let watch = Watch::new(None);
        let sync = over!(ground, servers, watch, |all| all.sync_from(to, &back, &options));
        let sync = sync.expect("an answer");
        assert!(sync.stored > FILES && sync.failed == 0, "{sync:?}");
        assert_eq!(sync.unchanged + sync.stored, FILES + DIRECTORIES + 1, "{sync:?}");
        assert_eq!(tree(&back), tree(&from));
        write(&back.join("3/sub/3"), b"other");
        write(&back.join("surplus"), b"surplus");
        let watch = Watch::new(None);
        let sync = over!(ground, servers, watch, |all| all.sync_from(to, &back, &options));
        let sync = sync.expect("an answer");
        assert_eq!((sync.stored, sync.removed, sync.failed), (1, 1, 0), "{sync:?}");
        assert_eq!(tree(&back), tree(&from));
    });
}

#[test]
fn a_single_file_is_resumed_at_another_server() {
    let ground = Ground::new();
    let whole = content(20 << 20);
    write(&ground.here("big"), &whole);
    run(async {
        let servers = [ground.start(), ground.start()];
        let watch = Watch::with_partial(&servers[0], ground.served(""));
        let paths = [ground.here("big")];
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"renamed",
            TreeOptions::default(),
            false
        ));
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (1, 0));
        assert!(put.kept >= MIB && put.kept + put.moved == 20 * MIB, "{put:?}");
        assert_eq!(watch.count(&["restarted"]), 1, "{:?}", watch.notes);
        assert!(std::fs::read(ground.served("renamed")).expect("a file") == whole);
    });
}

#[test]
fn a_large_file_of_a_tree_is_resumed_at_another_server() {
    let ground = Ground::new();
    let whole = content(20 << 20);
    write(&ground.here("tree/big"), &whole);
    run(async {
        // whichever of the two has the file
        for n in (0..20).map(|n| n % 2) {
            let servers = [ground.start(), ground.start()];
            let watch = Watch::with_partial(&servers[n], ground.served("to"));
            let paths = [ground.here("tree/.")];
            let put = over!(ground, servers, watch, |all| all.put(
                &paths,
                b"to",
                TreeOptions::default(),
                false
            ));
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.failed), (1, 0));
            assert!(std::fs::read(ground.served("to/big")).expect("a file") == whole);
            std::fs::remove_file(ground.served("to/big")).expect("it is there");
            if watch.count(&["returned 1 files"]) == 1 {
                assert!(put.kept >= MIB && put.kept + put.moved == 20 * MIB, "{put:?}");
                return;
            }
        }
        panic!("it was always at the other server");
    });
}

#[test]
fn a_server_that_stops_while_it_has_nothing_to_do_is_reported() {
    let ground = Ground::new();
    let whole = content(3 << 20);
    write(&ground.here("tree/only"), &whole);
    run(async {
        let servers = [ground.start(), ground.start()];
        let is_over = Arc::new(AtomicBool::new(false));
        let holds_until = Arc::clone(&is_over);
        let watch = Watch::holding(None, move || holds_until.load(Ordering::SeqCst));
        let paths = [ground.here("tree/.")];
        let stopping = async {
            let receives = |n: usize| servers[n].status().received.bytes > 0;
            until(|| receives(0) || receives(1)).await;
            let idle = usize::from(receives(0));
            servers[idle].stop();
            let gone = format!("gone {idle}");
            until(|| watch.count(&[&gone]) > 0).await;
            is_over.store(true, Ordering::SeqCst);
        };
        let put = over!(ground, servers, watch, |all| async {
            let putting = all.put(&paths, b"to", TreeOptions::default(), false);
            tokio::join!(putting, stopping).0
        });
        assert_eq!(put.expect("it is sent").failed, 0);
        assert_eq!(watch.count(&["gone"]), 1, "{:?}", watch.notes);
        assert_eq!(watch.count(&["returned"]), 0, "the other one receives it: {:?}", watch.notes);
        assert!(std::fs::read(ground.served("to/only")).expect("a file") == whole);
    });
}

#[test]
fn a_server_with_another_key_gets_nothing_and_others_do_its_part() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    let stranger = Identity::ephemeral().expect("a key");
    run(async {
        // the known hosts have the key of the others for it
        let foreign = Options { root: ground.here("").into(), ..ground.options() };
        let servers = [ground.start(), start(&stranger, foreign), ground.start()];
        let (watch, paths) = (Watch::new(None), [ground.here("tree/.")]);
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"to",
            TreeOptions::default(),
            false
        ));
        assert_eq!(put.expect("it is sent").failed, 0);
        assert_eq!(tree(&ground.served("to")), tree(&ground.here("tree")));
        assert!(!ground.here("to").exists());
        assert!(watch.count(&["gone 1", "KEY", "CHANGED"]) >= 1, "{:?}", watch.notes);
    });
}

#[test]
fn without_any_server_left_it_ends_with_the_error() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    run(async {
        let servers = [ground.start()];
        let watch = Watch::new(Some((3 * MIB, &servers[0])));
        let paths = [ground.here("tree/.")];
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"to",
            TreeOptions::default(),
            false
        ));
        let error = put.expect_err("it was stopped");
        assert!(matches!(error, Error::Lost(_)), "{error}");
        // none is there at first
        let watch = Watch::new(None);
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"to",
            TreeOptions::default(),
            false
        ));
        let error = put.expect_err("it is stopped");
        assert!(error.is_temporary(), "{error}");
        assert_eq!(watch.count(&["connected"]), 0);
    });
}

#[test]
fn a_server_that_is_started_again_takes_part_again() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    run(async {
        let first = ground.start();
        let second = std::sync::OnceLock::<Server>::new();
        let watch = Watch::new(Some((3 * MIB, &first)));
        let (ground, watching, begun, later) = (&ground, &watch, &first, &second);
        let connect = Box::new(move |_: usize, _: Option<SocketAddr>| {
            let connecting = async move {
                let server = match watching.count(&["lost 0"]) {
                    0 => begun.clone(),
                    _ => later.get_or_init(|| ground.start()).clone(),
                };
                connect(ground, &server, TreeOptions::default()).await
            };
            Box::pin(connecting) as Connecting<'_>
        });
        let (count, lanes, retry, observer) = (1, 1, Retry::Forever, Arc::clone(&watch));
        let (rate_bps, range_bytes) = (None, RANGE_BYTES);
        let all = Servers { count, connect, lanes, retry, rate_bps, range_bytes, observer };
        let paths = [ground.here("tree/.")];
        let put = all.put(&paths, b"to", TreeOptions::default(), false).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert_eq!(watch.count(&["lost 0"]), 1, "{:?}", watch.notes);
        assert_eq!(tree(&ground.served("to")), tree(&ground.here("tree")));
    });
}

#[test]
fn a_key_that_may_only_read_is_refused_by_all() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    run(async {
        let mut options = [ground.options(), ground.options()];
        for options in &mut options {
            let access = Access { read_only: true, ..Access::default() };
            options.policy.keys = AuthorizedKeys::default();
            options.policy.keys.insert(ground.client.public(), access);
        }
        let servers = options.map(|options| start(&ground.server, options));
        let (watch, paths) = (Watch::new(None), [ground.here("tree/.")]);
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"to",
            TreeOptions::default(),
            false
        ));
        let error = put.expect_err("it may only read");
        assert!(!error.is_temporary() && error.to_string().contains("refuses"), "{error}");
    });
}

#[test]
fn a_destination_that_several_servers_would_read_differently_is_refused() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    make_tree(&ground.served("tree"));
    write(&ground.served("x/tree"), b"a file");
    run(async {
        let servers = [ground.start(), ground.start()];
        let (watch, paths) = (Watch::new(None), [ground.here("tree")]);
        let put = over!(ground, servers, watch, |all| all.put(
            &paths,
            b"new",
            TreeOptions::default(),
            false
        ));
        let error = put.expect_err("it may be a name or a place").to_string();
        assert!(error.contains("ends with a slash"), "{error}");
        assert!(!ground.served("new").exists());
        let (from, to) = ([b"tree".to_vec()], ground.here("new"));
        let got = over!(ground, servers, watch, |all| all.get(&from, &to, false));
        let error = got.expect_err("it may be a name or a place").to_string();
        assert!(error.contains("ends with a slash"), "{error}");
        let from = [b"tree".to_vec(), b"x/tree".to_vec()];
        let got = over!(ground, servers, watch, |all| all.get(&from, &to, false));
        let error = got.expect_err("two have one name").to_string();
        assert!(error.contains("name tree"), "{error}");
        assert!(!to.exists());
    });
}

#[test]
fn failures_of_single_files_are_reported_once_and_hard_links_are_kept() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    std::fs::hard_link(ground.here("tree/large"), ground.here("tree/5/linked")).expect("a link");
    write(&ground.served("to/tree/3/sub/4/directory"), b"in the way of a file");
    run(async {
        let servers = [ground.start(), ground.start()];
        let watch = Watch::new(None);
        let (keep, links) = (Keep::HARD_LINKS, Links::Skip);
        let options = TreeOptions { keep, links, ..TreeOptions::default() };
        let (ground, started) = (&ground, &servers);
        let connect = Box::new(move |n: usize, _: Option<SocketAddr>| {
            Box::pin(connect(ground, &started[n], options)) as Connecting<'_>
        });
        let (count, lanes, observer) = (servers.len(), 1, Arc::clone(&watch));
        let (retry, rate_bps, range_bytes) = (Retry::Never, Some(1 << 30), RANGE_BYTES);
        let all = Servers { count, connect, lanes, retry, rate_bps, range_bytes, observer };
        let paths = [ground.here("tree"), ground.here("missing")];
        let put = all.put(&paths, b"to", options, false).await.expect("an answer");
        assert_eq!((put.failed, put.left_out), (2, 1), "{put:?} {:?}", watch.notes);
        assert_eq!(watch.count(&["failed", "tree/3/sub/4"]), 1, "{:?}", watch.notes);
        assert_eq!(watch.count(&["failed", "missing"]), 1, "{:?}", watch.notes);
        let [one, other] = ["to/tree/large", "to/tree/5/linked"]
            .map(|name| std::fs::metadata(ground.served(name)).expect("a file").ino());
        assert_eq!(one, other);
    });
}
