//! What is kept of trees, and what becomes of links and of files that change.

use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use headroom_testing::privileged;
use headroom_transfer_proto::message::{Keep, Links, Time, TreeOptions};

use super::*;
use crate::SyncOptions;
use crate::server::Allow;

const ALL: Keep = Allow::ALL.keep;

fn options(links: Links, keep: Keep) -> TreeOptions {
    TreeOptions { keep, links, ..TreeOptions::default() }
}

/// The targets of links below a folder.
fn links(folder: &Path) -> Vec<String> {
    let found = tree(folder).into_iter().filter_map(|(name, what)| {
        let target = what.strip_prefix("-> ")?;
        Some(format!("{} {target}", String::from_utf8_lossy(&name)))
    });
    found.collect()
}

/// A Python environment in short: a link within, an absolute one, and one by `..`.
fn environment(folder: &Path) {
    write(&folder.join("lib/module"), b"a module");
    write(&folder.join("bin/tool"), b"a tool");
    symlink("/usr/bin/python3", folder.join("bin/python3")).expect("a link");
    symlink("../../outside", folder.join("bin/up")).expect("a link");
    symlink("../lib", folder.join("bin/lib")).expect("a link");
}

#[test]
fn links_by_policy_in_both_directions() {
    let inside = ["bin/lib ../lib"];
    let all = ["bin/lib ../lib", "bin/python3 /usr/bin/python3", "bin/up ../../outside"];
    // what is made, left out, and failed
    let cases: [(Links, &[&str], u64, u64); 4] = [
        (Links::Inside, &inside, 2, 0),
        (Links::Keep, &all, 0, 0),
        (Links::Skip, &[], 3, 0),
        (Links::Refuse, &inside, 0, 2),
    ];
    let ground = Ground::new();
    environment(&ground.here("d"));
    environment(&ground.served("d"));
    run(async {
        let allow = Allow { links: true, ..Allow::default() };
        let server = start(&ground.server, Options { allow, ..ground.options() });
        let mut client = ground.connect(&server).await.expect("a connection");
        for (n, (policy, made, left_out, failed)) in cases.into_iter().enumerate() {
            client.set_tree(options(policy, Keep::NONE));
            let delete = SyncOptions { delete: true, ..SyncOptions::default() };
            for way in ["put", "get", "sync to", "sync from"] {
                let name = format!("{n} {way}");
                let (to, there) = (ground.here(&name), ground.served(&name));
                let notes = Notes::new();
                let (outcome, folder) = match way {
                    "put" => {
                        let from = [ground.here("d/.")];
                        let put = client.put(&from, name.as_bytes(), false, notes.clone());
                        (put.await, there)
                    }
                    "get" => {
                        let got = client.get(&[b"d/.".to_vec()], &to, false, notes.clone()).await;
                        (got, to)
                    }
                    "sync to" => {
                        write(&there.join("surplus"), b"to be removed");
                        let here = ground.here("d");
                        let sync = client.sync_to(&here, name.as_bytes(), &delete, notes.clone());
                        (sync.await, there)
                    }
                    _ => {
                        write(&to.join("surplus"), b"to be removed");
                        (client.sync_from(b"d", &to, &delete, notes.clone()).await, to)
                    }
                };
                let outcome = outcome.unwrap_or_else(|error| panic!("{policy:?} {way}: {error}"));
                let told = notes.0.lock().expect("nobody panicked").clone();
                assert_eq!(links(&folder), made, "{policy:?} {way}: {told:?}");
                assert_eq!(
                    (outcome.left_out, outcome.failed),
                    (left_out, failed),
                    "{policy:?} {way}: {told:?}"
                );
                let left = told.iter().filter(|note| note.starts_with("left out")).count();
                let is_told = usize::from(left_out > 0);
                // a failure keeps what is at the destination, and says so
                let is_kept = failed > 0 && way.starts_with("sync");
                assert_eq!(left, is_told + usize::from(is_kept), "{policy:?} {way}: {told:?}");
                if way.starts_with("sync") {
                    assert_eq!(folder.join("surplus").exists(), is_kept, "{policy:?} {way}");
                }
                assert_eq!(std::fs::read(folder.join("bin/tool")).expect("a file"), b"a tool");
            }
        }
    });
}

/// A tree from somebody else, whose name is no directory that its links may count.
#[test]
fn a_link_that_leaves_its_tree_by_one_level_is_left_out() {
    let ground = Ground::new();
    let out = [("cache", "../.ssh"), ("up", ".."), ("dots", "./../x"), ("slashes", ".//..")];
    for folder in [ground.here("d"), ground.served("d")] {
        write(&folder.join("a/file"), b"content");
        for (name, target) in out {
            symlink(target, folder.join(name)).expect("a link");
        }
        symlink("../../x", folder.join("a/deep")).expect("a link");
        symlink("../a", folder.join("a/within")).expect("a link");
    }
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        for source in ["d", "d/."] {
            for to in ["", "into/", "mine"] {
                for way in ["put", "get"] {
                    client.set_tree(options(Links::Inside, Keep::NONE));
                    let name = format!("{source} {way} {to}").replace("d/.", "content");
                    let to = name.as_str();
                    let (here, there) = (ground.here(to), ground.served(to));
                    let (outcome, folder) = match way {
                        "put" => {
                            let from = [ground.here(source)];
                            (client.put(&from, to.as_bytes(), false, Arc::new(())).await, there)
                        }
                        _ => {
                            let from = [source.as_bytes().to_vec()];
                            (client.get(&from, &here, false, Arc::new(())).await, here)
                        }
                    };
                    let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!((outcome.left_out, outcome.failed), (5, 0), "{name}");
                    let made = links(&folder);
                    assert_eq!(made.len(), 1, "{name}: {made:?}");
                    assert!(made[0].ends_with("a/within ../a"), "{name}: {made:?}");
                }
            }
        }
        for way in ["sync to", "sync from"] {
            let (here, there) = (ground.here(way), ground.served(way));
            let sync = SyncOptions::default();
            let (outcome, folder) = match way {
                "sync to" => {
                    let from = ground.here("d");
                    (client.sync_to(&from, way.as_bytes(), &sync, Arc::new(())).await, there)
                }
                _ => (client.sync_from(b"d", &here, &sync, Arc::new(())).await, here),
            };
            assert_eq!(outcome.expect(way).left_out, 5, "{way}");
            assert_eq!(links(&folder), ["a/within ../a"], "{way}");
        }
    });
}

#[test]
fn a_link_that_leads_out_is_made_where_the_server_allows_it_and_never_followed() {
    let ground = Ground::new();
    environment(&ground.here("d"));
    write(&ground.served("outside"), b"outside");
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_tree(options(Links::Keep, Keep::NONE));
        let notes = Notes::new();
        let put = client.put(&[ground.here("d")], b"", false, notes.clone()).await;
        assert_eq!(put.expect("it is sent").failed, 1);
        assert!(notes.has(&["failed", "bin/python3", "leads out"]));
        // out of `d`, but not out of where that lies
        assert_eq!(links(&ground.served("")), ["d/bin/lib ../lib", "d/bin/up ../../outside"]);

        let allow = Allow { links: true, ..Allow::default() };
        let server = start(&ground.server, Options { allow, ..ground.options() });
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_tree(options(Links::Keep, Keep::NONE));
        let put = client.put(&[ground.here("d")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert_eq!(links(&ground.served("")).len(), 3);
        let up = client.get(&[b"d/bin/up".to_vec()], &ground.here("up"), false, Arc::new(())).await;
        assert_eq!(up.expect("the link itself").failed, 0);
        assert!(ground.here("up").is_symlink());
        let put = client.put(&[ground.here("d/bin/tool")], b"d/bin/up", false, Arc::new(())).await;
        assert_eq!(put.expect("the link is replaced").failed, 0);
        assert!(!ground.served("d/bin/up").is_symlink());
        let outside = std::fs::read(ground.served("outside")).expect("a file");
        assert_eq!(outside, b"outside");
        // and it follows none for a client
        client.set_tree(options(Links::Follow, Keep::NONE));
        let got = client.get(&[b"d".to_vec()], &ground.here("got"), false, Arc::new(())).await;
        assert!(matches!(got, Err(Error::Refused(_))), "{got:?}");
        // which follows its own
        std::fs::remove_file(ground.here("d/bin/python3")).expect("a link");
        std::fs::remove_file(ground.here("d/bin/up")).expect("a link");
        let put = client.put(&[ground.here("d")], b"followed", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert!(ground.served("followed/bin/lib/module").is_file());
        assert!(links(&ground.served("followed")).is_empty());
    });
}

/// A tree of hard links, attributes, special directories and old links.
fn rich(folder: &Path) {
    write(&folder.join("a/large"), &content(300_000));
    write(&folder.join("a/small"), b"content");
    for (name, other) in [("a/large", "b/large too"), ("a/small", "z"), ("a/large", "a/large 3")] {
        std::fs::create_dir_all(folder.join(other).parent().expect("a parent")).expect("a folder");
        std::fs::hard_link(folder.join(name), folder.join(other)).expect("a hard link");
    }
    xattr::set(folder.join("a/large"), "user.note", b"large \0 note").expect("an attribute");
    xattr::set(folder.join("a/small"), "user.note", b"small").expect("an attribute");
    xattr::set(folder.join("b"), "user.note", b"directory").expect("an attribute");
    let mode = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.join(name), mode).expect("chmod");
    };
    std::fs::create_dir(folder.join("shared")).expect("a folder");
    mode("shared", 0o3775);
    mode("a/small", 0o440);
    write(&folder.join("program"), b"a program");
    mode("program", 0o6755);
    symlink("a", folder.join("link")).expect("a link");
    let old = Time { seconds: 1_000_000_000, nanoseconds: 5 };
    let parent = std::fs::File::open(folder).expect("a folder");
    crate::files::set_mtime_at(&parent, b"link", old).expect("a time");
}

/// Names of the same file, and attributes of all.
fn kept(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (name, _) in tree(folder) {
        let name = String::from_utf8(name).expect("a name");
        let path = folder.join(&name);
        let meta = path.symlink_metadata().expect("it is there");
        let mut attributes = Vec::new();
        if !meta.is_symlink() {
            for name in xattr::list(&path).expect("attributes") {
                let value = xattr::get(&path, &name).expect("an attribute");
                attributes.push(format!("{name:?} {value:?}"));
            }
        }
        attributes.sort();
        let owner = (meta.uid(), meta.gid());
        found.push(format!(
            "{name} {} {owner:?} {attributes:?}",
            meta.nlink() * u64::from(!meta.is_dir())
        ));
    }
    found
}

/// An access control list: owner, user 1234, group, mask, others.
fn acl() -> Vec<u8> {
    let entries = [
        (1u16, 7u16, u32::MAX),
        (2, 5, 1234),
        (4, 4, u32::MAX),
        (16, 5, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn requested_metadata_is_kept_and_nothing_else() {
    let ground = Ground::new();
    rich(&ground.here("d"));
    let is_root = privileged();
    if is_root {
        lchown(ground.here("d/z"), Some(1234), Some(4321)).expect("chown");
        lchown(ground.here("d/shared"), Some(1234), Some(4321)).expect("chown");
        let mode = std::fs::Permissions::from_mode(0o3775);
        std::fs::set_permissions(ground.here("d/shared"), mode).expect("chmod");
    }
    let has_acls = xattr::set(ground.here("d/a/large"), "system.posix_acl_access", &acl()).is_ok();
    let _ = xattr::set(ground.here("d/b"), "system.posix_acl_default", &acl());
    assert!(has_acls || !is_root, "this file system has no access control lists");
    run(async {
        let server = start(&ground.server, Options { allow: Allow::ALL, ..ground.options() });
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_tree(options(Links::Inside, ALL));
        let put = client.put(&[ground.here("d")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert_eq!(kept(&ground.here("d")), kept(&ground.served("d")));
        let meta = |path: &Path| path.symlink_metadata().expect("it is there");
        let link = meta(&ground.served("d/link"));
        assert_eq!((link.mtime(), link.mtime_nsec()), (1_000_000_000, 5));
        assert_eq!(meta(&ground.served("d/shared")).mode() & 0o7777, 0o3775);
        assert_eq!(meta(&ground.served("d/program")).mode() & 0o7777, 0o755, "no set-user-id");
        let got = client.get(&[b"d".to_vec()], &ground.here("back"), false, Arc::new(())).await;
        assert_eq!(got.expect("it is fetched").failed, 0);
        assert_eq!(kept(&ground.here("d")), kept(&ground.here("back")));

        // a sync of what is the same changes nothing, and of what changed only that
        let whole = SyncOptions { delete: true, ..SyncOptions::default() };
        let same = client.sync_to(&ground.here("d"), b"d", &whole, Arc::new(())).await;
        let same = same.expect("it is the same");
        assert_eq!((same.stored, same.failed, same.moved), (0, 0, 0), "{same:?}");
        xattr::set(ground.here("d/a/large"), "user.note", b"another").expect("an attribute");
        xattr::remove(ground.here("d/a/small"), "user.note").expect("an attribute");
        std::fs::remove_file(ground.here("d/b/large too")).expect("a hard link");
        write(&ground.here("d/b/large too"), b"a file of its own");
        std::fs::hard_link(ground.here("d/program"), ground.here("d/y")).expect("a hard link");
        for dry_run in [true, false] {
            let before = kept(&ground.served("d"));
            let whole = SyncOptions { dry_run, ..whole.clone() };
            let sync = client.sync_to(&ground.here("d"), b"d", &whole, Arc::new(())).await;
            let sync = sync.expect("it is sent");
            assert_eq!(sync.failed, 0, "{sync:?}");
            assert!(sync.moved <= 17, "only the new file is sent: {sync:?}");
            let after = if dry_run { before } else { kept(&ground.here("d")) };
            assert_eq!(after, kept(&ground.served("d")), "dry run: {dry_run}");
        }

        // nothing of it unless it is asked for
        client.set_tree(options(Links::Inside, Keep::NONE));
        let put = client.put(&[ground.here("d")], b"plain", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        let own = meta(&ground.served(""));
        for line in kept(&ground.served("plain")) {
            assert!(line.ends_with("[]"), "{line}");
        }
        assert_eq!(meta(&ground.served("plain/z")).uid(), own.uid());
        assert_eq!(meta(&ground.served("plain/z")).nlink(), 1);
    });
}

#[test]
fn a_client_sets_no_more_than_the_server_allows() {
    let ground = Ground::new();
    rich(&ground.here("d"));
    if privileged() {
        lchown(ground.here("d/z"), Some(1234), Some(4321)).expect("chown");
    }
    run(async {
        let allow = Allow { keep: Keep::HARD_LINKS, links: false };
        let server = start(&ground.server, Options { allow, ..ground.options() });
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_tree(options(Links::Inside, ALL));
        let notes = Notes::new();
        let put = client.put(&[ground.here("d")], b"", false, notes.clone()).await;
        assert_eq!(put.expect("it is sent").failed, 0);
        assert!(notes.has(&["warning", "extended attributes", "access control lists", "owners"]));
        for line in kept(&ground.served("d")) {
            assert!(line.ends_with("[]") && !line.contains("1234"), "{line}");
        }
        assert!(ground.served("d/z").symlink_metadata().expect("a file").nlink() == 2);
    });
}

/// The bytes of a log that grows.
const LOG_LEN: usize = 48 << 20;

/// A file that grows as long as it is told to.
fn growing(path: &Path, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    use std::io::Write;
    let mut file = std::fs::File::options().append(true).open(path).expect("a file");
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            file.write_all(b"one more line\n").expect("it is written");
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    })
}

#[test]
fn files_that_change_are_sent_as_read_if_allowed() {
    let ground = Ground::new();
    for folder in [ground.here("d"), ground.served("d")] {
        // long enough to be read for longer than a busy machine keeps a writer waiting
        write(&folder.join("log"), &content(LOG_LEN));
        write(&folder.join("other"), b"content");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let logs = [ground.here("d/log"), ground.served("d/log")];
    let writers = logs.map(|log| growing(&log, Arc::clone(&stop)));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let delete = SyncOptions { delete: true, ..SyncOptions::default() };
        for changing in [false, true] {
            client.set_tree(TreeOptions { changing, ..TreeOptions::default() });
            for way in ["put", "get", "sync to", "sync from"] {
                let name = format!("{changing} {way}");
                let (here, there) = (ground.here(&name), ground.served(&name));
                let notes = Notes::new();
                let (outcome, folder) = match way {
                    "put" => {
                        let from = [ground.here("d")];
                        let put = client.put(&from, name.as_bytes(), false, notes.clone());
                        (put.await, there)
                    }
                    "get" => {
                        (client.get(&[b"d".to_vec()], &here, false, notes.clone()).await, here)
                    }
                    "sync to" => {
                        write(&there.join("surplus"), b"to be removed");
                        write(&there.join("log"), b"an older log");
                        let from = ground.here("d");
                        let sync = client.sync_to(&from, name.as_bytes(), &delete, notes.clone());
                        (sync.await, there)
                    }
                    _ => {
                        write(&here.join("surplus"), b"to be removed");
                        write(&here.join("log"), b"an older log");
                        (client.sync_from(b"d", &here, &delete, notes.clone()).await, here)
                    }
                };
                let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
                let told = notes.0.lock().expect("nobody panicked").clone();
                assert_eq!(outcome.failed, u64::from(!changing), "{name}: {told:?}");
                if changing {
                    assert!(notes.has(&["warning", "log", "as it was read"]), "{name}: {told:?}");
                    let log = std::fs::read(folder.join("log")).expect("a file");
                    assert!(log.starts_with(&content(LOG_LEN)), "{name}");
                } else {
                    assert!(notes.has(&["failed", "log", "--allow-changing"]), "{name}: {told:?}");
                }
                assert!(folder.join("other").is_file(), "{name}");
                if way.starts_with("sync") {
                    assert!(folder.join("log").is_file(), "what could not be read stays");
                    assert!(!folder.join("surplus").exists(), "{name}: {told:?}");
                }
            }
        }
    });
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().expect("it ends");
    }
}

/// Makes a file shorter when some of it has moved.
struct PipeError {
    path: PathBuf,
    moved: AtomicU64,
    notes: Arc<Notes>,
}

impl Observer for PipeError {
    fn event(&self, event: Event<'_>) {
        if let Event::Moved { bytes } = event
            && self.moved.fetch_add(bytes, Ordering::Relaxed) >= 1 << 20
        {
            let file = std::fs::File::options().write(true).open(&self.path);
            file.and_then(|file| file.set_len(1000)).expect("it is cut");
        }
        self.notes.event(event);
    }
}

#[test]
fn a_file_that_becomes_shorter_on_streams_fails_alone() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_lanes(false);
        // most of it is still to be read when it is cut
        client.limit(Some(400_000_000));
        for changing in [false, true] {
            client.set_tree(TreeOptions { changing, ..TreeOptions::default() });
            for way in ["put", "get", "sync to"] {
                let name = format!("{changing} {way}");
                let (here, there) = (ground.here(&name), ground.served(&name));
                let source = if way == "get" { ground.served("t") } else { ground.here("t") };
                write(&source.join("a"), &content(48 << 20));
                write(&source.join("zzz"), b"the rest");
                let notes = Notes::new();
                let path = source.join("a");
                let cut =
                    Arc::new(PipeError { path, moved: AtomicU64::new(0), notes: notes.clone() });
                let outcome = match way {
                    "put" => client.put(&[source], name.as_bytes(), false, cut).await,
                    "get" => client.get(&[b"t".to_vec()], &here, false, cut).await,
                    _ => {
                        let sync = SyncOptions::default();
                        client.sync_to(&source, name.as_bytes(), &sync, cut).await
                    }
                };
                let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
                let told = notes.0.lock().expect("nobody panicked").clone();
                assert_eq!(outcome.failed, 1, "{name}: {told:?}");
                let folder = if way == "get" { here } else { there };
                assert!(folder.join("zzz").is_file() && !folder.join("a").exists(), "{name}");
                assert!(notes.has(&["failed", "a", "became shorter"]), "{name}: {told:?}");
                assert!(!notes.has(&["--allow-changing"]), "{name}: {told:?}");
            }
        }
    });
}
