//! What goes wrong on the way, and what is left of it.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use headroom_testing::privileged;
use headroom_transfer_proto::message::{EntryKind, Inline, Listed, ListedKind, Message, Time};
use headroom_transfer_proto::path::RelPath;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::Verification;
use crate::access::AccessControl;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::idle_socket::ActivityFlag;

const MIB: usize = 1 << 20;

/// A server that answers the first request with these messages, and a client of it.
async fn answering(ground: &Ground, messages: Vec<Message>) -> Client {
    answering_later(ground, messages, Vec::new()).await
}

/// The same, where the server says some messages only when it knows all entries.
async fn answering_later(ground: &Ground, first: Vec<Message>, later: Vec<Message>) -> Client {
    let is_end = |message: &Message| matches!(message, Message::EntriesEnd { .. });
    answering_after(ground, first, is_end, later).await
}

/// The same, where the server says some messages only after one that `is_awaited`.
pub(super) async fn answering_after(
    ground: &Ground,
    first: Vec<Message>,
    mut is_awaited: impl FnMut(&Message) -> bool + Send + 'static,
    later: Vec<Message>,
) -> Client {
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let access_control = AccessControl::new(ground.options().policy);
    let (endpoint, _lanes) =
        crate::quic::listen(any, &ground.server, access_control, None, ActivityFlag::default())
            .expect("a port");
    let address = endpoint.local_addr().expect("an address");
    tokio::spawn(async move {
        let connection = endpoint.accept().await.expect("a client").await.expect("a handshake");
        let (send, receive) = connection.accept_bi().await.expect("a request");
        let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
        reader.recv_hello().await.expect("a greeting");
        for message in first {
            writer.queue(&message).await.expect("it is said");
        }
        writer.flush().await.expect("it is said");
        if !later.is_empty() {
            while !is_awaited(&reader.expect().await.expect("more")) {}
        }
        for message in later {
            writer.send(&message).await.expect("it is said");
        }
        connection.closed().await;
    });
    let host = Host::new(&address.ip().to_string(), address.port());
    let hosts = ground.hosts(&host);
    let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
    Client::connect(&host, &ground.client, trust).await.expect("it answers")
}

#[test]
fn a_port_belongs_to_one_server() {
    let ground = Ground::new();
    run(async {
        let first = ground.start();
        let listen = first.address().expect("an address");
        let second = Server::bind(&ground.server, Options { listen, ..ground.options() });
        let text = second.expect_err("the port is in use").to_string();
        assert!(text.contains(&listen.to_string()) && text.contains("in use"), "{text}");
    });
}

#[test]
fn a_server_of_another_version_is_told_apart() {
    let ground = Ground::new();
    run(async {
        let program = "headroom 9.9".to_owned();
        let hello =
            Message::Hello { version: 7, program, rate_bps: None, priority: None, counts: None };
        let mut client = answering(&ground, vec![hello]).await;
        let error = client.list(b"", |_| {}).await.expect_err("nobody knows what it says");
        let text = error.to_string();
        for word in ["headroom 9.9", "version 7", "version 1", "same version"] {
            assert!(text.contains(word), "{text}");
        }
    });
}

#[test]
fn a_server_of_an_older_version_verifies_by_blake3() {
    let ground = Ground::new();
    write(&ground.here("a"), b"content");
    let verification = Some(Verification::Crc64);
    let unasked = Message::Accepted {
        lanes: None,
        keep: None,
        ticket: None,
        verification,
        ranges: None,
        parts: None,
    };
    run(async {
        let (notes, end) = (Notes::new(), Message::End { stored: 1, failed: 0 });
        let said = vec![hello(Greeting::default()), Message::ACCEPTED];
        let later = vec![Message::Stored { id: 0 }, end];
        let mut client = answering_later(&ground, said, later).await;
        client.set_verification(Verification::Crc64);
        let put = client.put(&[ground.here("a")], b"", false, notes.clone()).await;
        let put = put.expect("it ends");
        assert_eq!((put.stored, put.by_crc), (1, 0));
        assert!(notes.has(&["warning: ", "CRC-64/NVME", "BLAKE3"]), "{notes:?}");

        // and none can weaken what the user wants
        let said = vec![hello(Greeting::default()), unasked];
        let mut client = answering(&ground, said).await;
        let put = client.put(&[ground.here("a")], b"", false, Arc::new(())).await;
        let error = put.expect_err("it was not requested");
        assert!(matches!(error, Error::Protocol(_)), "{error}");
    });
}

#[test]
fn messages_of_a_server_cannot_change_a_terminals_writing_direction() {
    let hostile = || "\u{202e}gpj.exe\u{200b}\x1b[2J".to_owned();
    let escaped = "\\u{202e}gpj.exe\\u{200b}\\u{1b}[2J";
    let ground = Ground::new();
    write(&ground.here("tree/a"), b"content");
    let greet = |then: Vec<Message>| [vec![hello(Greeting::default())], then].concat();
    let accept = || greet(vec![Message::ACCEPTED]);
    let failed = || Message::Failed { id: 0, reason: hostile(), code: None };
    let end = Message::End { stored: 0, failed: 1 };
    run(async {
        let notes = Notes::new();
        let said = vec![failed(), end.clone()];
        let mut client = answering_later(&ground, accept(), said).await;
        let put = client.put(&[ground.here("tree/a")], b"", false, notes.clone()).await;
        assert_eq!(put.expect("it ends").failed, 1);
        assert!(notes.has(&["failed: ", escaped]), "{notes:?}");

        let left =
            [false, true].map(|failed| Message::Left { reason: hostile(), failed, code: None });
        let said = [&[failed()], &left[..], &[end]].concat();
        let (notes, options) = (Notes::new(), crate::SyncOptions::default());
        let mut client = answering_later(&ground, accept(), said).await;
        let sync = client.sync_to(&ground.here("tree"), b"", &options, notes.clone()).await;
        assert_eq!(sync.expect("it ends").failed, 2);
        assert!(notes.has(&["failed: ", escaped]), "{notes:?}");
        assert!(notes.has(&["left out: ", escaped]), "{notes:?}");

        let said = vec![
            Message::Unreadable { reason: hostile(), path: None, code: None },
            Message::EntriesEnd { files: 0, bytes: 0 },
        ];
        let notes = Notes::new();
        let mut client = answering(&ground, [accept(), said].concat()).await;
        let got = client.get(&[b"a".to_vec()], &ground.here(""), false, notes.clone()).await;
        assert_eq!(got.expect("it ends").failed, 1);
        assert!(notes.has(&["failed: ", escaped]), "{notes:?}");

        let said =
            greet(vec![Message::Refused { reason: hostile(), about_files: None, code: None }]);
        let mut client = answering(&ground, said.clone()).await;
        let listed = client.list(b"", |_| {}).await.expect_err("refused");
        let mut client = answering(&ground, said).await;
        let put = client.put(&[ground.here("tree")], b"", false, Arc::new(())).await;
        for error in [listed, put.expect_err("refused")] {
            let text = error.to_string();
            assert!(text.contains(escaped) && !text.contains('\u{202e}'), "{text}");
        }
    });
}

#[test]
fn a_server_that_never_ends_is_not_waited_for() {
    let ground = Ground::new();
    run(async {
        let content = b"whole".to_vec();
        let inline = Some(Inline { root: *blake3::hash(&content).as_bytes(), content });
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let path = RelPath::parse(b"file").expect("a name");
        let kind = EntryKind::File {
            size: 5,
            mode: 0o644,
            mtime,
            inline,
            hash: None,
            data: None,
            more: None,
        };
        let said = vec![
            hello(Greeting::default()),
            Message::ACCEPTED,
            Message::Entry { id: 0, path, kind },
            Message::EntriesEnd { files: 1, bytes: 5 },
        ];
        let mut client = answering(&ground, said).await;
        let got = client.get(&[b"file".to_vec()], &ground.here(""), false, Arc::new(())).await;
        assert_eq!(got.expect("it came").stored, 1);
        assert_eq!(std::fs::read(ground.here("file")).expect("a file"), b"whole");
        client.close().await;
    });
}

#[test]
fn an_endless_listing_is_ended() {
    let ground = Ground::new();
    run(async {
        let path = RelPath::parse(b"name").expect("a name");
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let kind = ListedKind::File;
        let listed = Listed { path, kind, size: 1, mode: 0o644, mtime, target: None };
        for (entries, most, taken) in
            [(vec![], 50, 50), (vec![listed.clone()], 50, 50), (vec![listed; 20], 50, 2)]
        {
            let mut said = vec![hello(Greeting::default()), Message::ACCEPTED];
            said.extend(vec![Message::Listing { entries: entries.clone(), last: false }; 60]);
            let mut client = answering(&ground, said).await;
            let mut names = 0;
            let error = client.list_at_most(most, b"", |_| names += 1).await.expect_err("an end");
            assert!(error.to_string().contains("more than 50 entries"), "{error}");
            assert_eq!(names, taken * entries.len());
        }
    });
}

/// CVE-2019-6111 (scp): a server sends other names than were asked for, below the
/// directory into which they go.
#[test]
fn a_server_cannot_send_what_was_not_requested() {
    let ground = Ground::new();
    let bashrc = ground.here(".bashrc");
    write(&bashrc, b"before");
    run(async {
        for (asked, name, taken) in [
            (vec!["dir/file"], "file", true),
            (vec!["dir/file"], ".bashrc", false),
            (vec!["dir/file", "other"], "other", true),
            (vec!["dir/file", "other"], "dir", false),
            (vec!["tree"], "tree/.bashrc", true),
            (vec!["tree"], ".ssh/authorized_keys", false),
            (vec!["dir/."], ".bashrc", true),
        ] {
            let path = RelPath::parse(name.as_bytes()).expect("a name");
            let mtime = Time { seconds: 0, nanoseconds: 0 };
            let kind = EntryKind::Directory { mode: 0o755, mtime, more: None };
            let content = b"evil".to_vec();
            let root = *blake3::hash(&content).as_bytes();
            let inline = Some(Inline { content, root });
            let mut said = vec![hello(Greeting::default()), Message::ACCEPTED];
            if let Some(path) = path.parent() {
                said.push(Message::Entry { id: 0, path, kind });
            }
            let kind = EntryKind::File {
                size: 4,
                mode: 0o644,
                mtime,
                inline,
                hash: None,
                data: None,
                more: None,
            };
            said.push(Message::Entry { id: 1, path, kind });
            said.push(Message::EntriesEnd { files: 1, bytes: 4 });
            let mut client = answering(&ground, said).await;
            let from: Vec<_> = asked.iter().map(|asked| asked.as_bytes().to_vec()).collect();
            let got = client.get(&from, &ground.here(""), false, Arc::new(())).await;
            match got {
                Ok(summary) => assert_eq!((taken, summary.failed), (true, 0), "{asked:?} {name}"),
                Err(Error::Protocol(_)) => assert!(!taken, "{asked:?} {name}"),
                Err(error) => panic!("{asked:?} {name}: {error}"),
            }
            if asked != ["dir/."] {
                assert_eq!(std::fs::read(&bashrc).expect("a file"), b"before");
                assert!(!ground.here(".ssh").exists());
            }
        }
    });
}

/// A server sends a link that leaves the tree by one level, whatever that is called here.
#[test]
fn a_server_cannot_make_a_link_that_leaves_its_tree() {
    let ground = Ground::new();
    run(async {
        for (to, made) in [("", "proj/cache"), ("mine", "mine/cache"), ("in/", "in/proj/cache")] {
            let entry = |id, path: &[u8], kind| {
                let path = RelPath::parse(path).expect("a name");
                Message::Entry { id, path, kind }
            };
            let mtime = Time { seconds: 0, nanoseconds: 0 };
            let link = |target: &[u8]| EntryKind::Symlink {
                target: target.to_vec(),
                mtime: None,
                more: None,
            };
            let folder = EntryKind::Directory { mode: 0o755, mtime, more: None };
            let said = vec![
                hello(Greeting::default()),
                Message::ACCEPTED,
                entry(0, b"proj", folder),
                entry(1, b"proj/cache", link(b"../.ssh")),
                entry(2, b"proj/within", link(b"cache")),
                Message::EntriesEnd { files: 0, bytes: 0 },
            ];
            let mut client = answering(&ground, said).await;
            let from = [b"proj".to_vec()];
            let got = client.get(&from, &ground.here(to), false, Arc::new(())).await;
            let got = got.expect("the rest is made");
            assert_eq!((got.left_out, got.stored), (1, 2), "{to}");
            assert!(ground.here(made).symlink_metadata().is_err(), "{to}");
            assert!(ground.here(made).with_file_name("within").is_symlink(), "{to}");
        }
    });
}

/// A router that gives its clients other ports from one moment on, and does not tell.
struct Nat {
    address: SocketAddr,
    /// How often ports were given.
    generation: Arc<AtomicUsize>,
    /// Datagrams that came back to ports of the second time.
    came_back: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
}

impl Nat {
    fn before(server: SocketAddr) -> Self {
        let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let address = inside.local_addr().expect("an address");
        let nat = Self {
            address,
            generation: Arc::default(),
            came_back: Arc::default(),
            ends: Arc::default(),
        };
        let (generation, came_back, ends) =
            (Arc::clone(&nat.generation), Arc::clone(&nat.came_back), Arc::clone(&nat.ends));
        let tick = Some(Duration::from_millis(50));
        inside.set_read_timeout(tick).expect("a timeout");
        std::thread::spawn(move || {
            let mut ports = std::collections::HashMap::new();
            let mut datagram = vec![0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                let Ok((bytes, client)) = inside.recv_from(&mut datagram) else { continue };
                let now = generation.load(Ordering::Relaxed);
                let outside = ports.entry((client, now)).or_insert_with(|| {
                    let outside = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
                    outside.connect(server).expect("a way");
                    outside.set_read_timeout(tick).expect("a timeout");
                    let (inside, outside_too) = (Arc::clone(&inside), Arc::clone(&outside));
                    let (generation, came_back, ends) =
                        (Arc::clone(&generation), Arc::clone(&came_back), Arc::clone(&ends));
                    std::thread::spawn(move || {
                        let mut datagram = vec![0; 65_536];
                        while !ends.load(Ordering::Relaxed) {
                            let Ok(bytes) = outside_too.recv(&mut datagram) else { continue };
                            // what comes to a port that is no longer the client's is lost
                            if generation.load(Ordering::Relaxed) == now {
                                came_back.fetch_add(now, Ordering::Relaxed);
                                let _ = inside.send_to(&datagram[..bytes], client);
                            }
                        }
                    });
                    outside
                });
                let _ = outside.send(&datagram[..bytes]);
            }
        });
        nat
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Gives other ports when the first bytes of files have moved.
struct Rebind(Arc<AtomicUsize>);

impl Observer for Rebind {
    fn event(&self, event: Event<'_>) {
        if matches!(event, Event::Moved { .. }) {
            self.0.store(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_transfer_continues_when_a_nat_changes_ports() {
    let ground = Ground::new();
    write(&ground.here("file"), &content(12 * MIB));
    write(&ground.served("there"), &content(12 * MIB + 1));
    run(async {
        let server = ground.start();
        for is_put in [true, false] {
            let nat = Nat::before(server.address().expect("an address"));
            let host = Host::new(&nat.address.ip().to_string(), nat.address.port());
            let hosts = ground.hosts(&host);
            let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
            let client = Client::connect(&host, &ground.client, trust).await;
            let mut client = client.expect("it lets through");
            // slow enough that most of it comes after the first bytes
            client.limit(Some(200_000_000));
            let observer = Arc::new(Rebind(Arc::clone(&nat.generation)));
            let summary = match is_put {
                true => client.put(&[ground.here("file")], b"", false, observer).await,
                false => client.get(&[b"there".to_vec()], &ground.here(""), false, observer).await,
            };
            assert_eq!(summary.expect("it goes on").stored, 1);
            assert!(nat.came_back.load(Ordering::Relaxed) > 0, "nothing came by the other ports");
        }
    });
    for (here, there) in [("file", "file"), ("there", "there")] {
        let [here, there] = [ground.here(here), ground.served(there)].map(std::fs::read);
        assert!(here.expect("a file") == there.expect("a file"));
    }
}

#[test]
fn times_of_a_clock_that_was_wrong_are_kept() {
    let ground = Ground::new();
    let time = |seconds: i64| match u64::try_from(seconds) {
        Ok(after) => SystemTime::UNIX_EPOCH + Duration::from_secs(after),
        Err(_) => SystemTime::UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()),
    };
    // before 1970, beyond 32 bits, in the far future
    for (n, seconds) in [-1, -1_000_000_000, 0, 1 << 31, 1 << 33].into_iter().enumerate() {
        for size in [7, 2 * MIB] {
            let path = ground.here(&format!("clock/{n}-{size}"));
            write(&path, &content(size));
            let file = std::fs::File::options().write(true).open(path).expect("it is there");
            file.set_modified(time(seconds)).expect("a time");
        }
    }
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("clock")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("they are sent").failed, 0);
        let to = ground.here("back/");
        let got = client.get(&[b"clock".to_vec()], &to, false, Arc::new(())).await;
        assert_eq!(got.expect("they come").failed, 0);
    });
    assert_eq!(tree(&ground.here("clock")), tree(&ground.served("clock")));
    assert_eq!(tree(&ground.here("clock")), tree(&ground.here("back/clock")));
}

#[test]
fn a_full_disk_keeps_received_data_and_existing_files() {
    if !privileged() {
        return;
    }
    // mounts of this thread and those that it starts, which end with them
    let disk = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let nothing: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing).expect("private mounts");
        let ground = Ground::new();
        let served = ground.served("");
        let disk = |flags, size| {
            mount(Some("tmpfs"), &served, Some("tmpfs"), flags, Some(size)).expect("a disk");
        };
        disk(MsFlags::empty(), "size=6m");
        write(&ground.served("file"), b"what was there before");
        write(&ground.here("file"), &content(12 * MIB));
        write(&ground.here("small"), b"it has room");
        run(fill(&ground, || disk(MsFlags::MS_REMOUNT, "size=30m")));
    });
    disk.join().expect("no panic");
}

async fn fill(ground: &Ground, make_room: impl Fn()) {
    let server = ground.start();
    let mut client = ground.connect(&server).await.expect("a connection");
    let paths = [ground.here("small"), ground.here("file")];
    let notes = Notes::new();
    let put = client.put(&paths, b"", false, notes.clone()).await.expect("the rest is sent");
    assert_eq!((put.stored, put.failed, put.moved), (1, 1, 11), "{:?}", notes.0);
    assert!(notes.has(&["failed: on the server: file", "needs 12", "are free"]), "{:?}", notes.0);
    let names = || std::fs::read_dir(ground.served("")).expect("a folder").count();
    assert_eq!(names(), 2, "nothing that has no room takes any");

    // there is room for it, until somebody else takes that
    make_room();
    let ballast = Arc::new(Ballast {
        path: ground.served("ballast"),
        moved: AtomicU64::new(0),
        notes: Notes::default(),
    });
    client.limit(Some(50_000_000));
    let put = client.put(&paths, b"", false, ballast.clone()).await.expect("the rest is sent");
    client.limit(None);
    assert_eq!((put.stored, put.failed), (1, 1), "{:?}", ballast.notes.0);
    assert!(ballast.notes.has(&["failed: on the server: file", "disk is full", "resume"]));
    assert_eq!(std::fs::read(ground.served("file")).expect("a file"), b"what was there before");
    std::fs::remove_file(ground.served("ballast")).expect("it is there");
    let put = client.put(&paths, b"", false, Arc::new(())).await.expect("all is sent");
    assert_eq!((put.stored, put.failed), (2, 0));
    assert!(put.kept > 0, "what came stayed");
    assert!(std::fs::read(ground.served("file")).expect("a file") == content(12 * MIB));
    assert_eq!(names(), 2, "nothing unfinished is left");
}

/// Takes all the room there is, once a file has begun to come.
struct Ballast {
    path: std::path::PathBuf,
    moved: AtomicU64,
    notes: Notes,
}

impl Observer for Ballast {
    fn event(&self, event: Event<'_>) {
        let moved = match event {
            Event::Moved { bytes } => self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes,
            _ => 0,
        };
        if moved > 4 * MIB as u64 && !self.path.exists() {
            let mut ballast = std::fs::File::create(&self.path).expect("a file");
            while std::io::Write::write_all(&mut ballast, &[7; 1 << 16]).is_ok() {}
        }
        self.notes.event(event);
    }
}
