//! Ranges of one file that several clients send, as workers do that know nothing of one another.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use headroom_transfer_proto::path::RelPath;
use tokio::runtime::Handle;

use super::*;
use crate::client::SentRange;
use crate::files::Root;
use crate::server::Served;

const MIB: u64 = 1 << 20;

fn path(name: &str) -> RelPath {
    RelPath::parse(name.as_bytes()).expect("a path")
}

fn here(ground: &Ground) -> Root {
    Root::open(&ground.here("")).expect("a folder")
}

/// Sends a range of `a/big`.
async fn send(
    ground: &Ground,
    client: &mut Client,
    (size, bytes): (u64, Range<u64>),
    notes: &Arc<Notes>,
) -> Result<Option<SentRange>, Error> {
    let (from, big) = (here(ground), path("a/big"));
    client.put_range(&from, &big, (size, bytes), b"to", notes.clone()).await
}

/// Sends a range of `a/big` over a connection of its own, which is returned; all of it must be
/// stored. Returns the bytes that were sent, and those that were there.
async fn sent(ground: &Ground, server: &Server, range: (u64, Range<u64>)) -> (Client, (u64, u64)) {
    let mut client = ground.connect(server).await.expect("a connection");
    let sent = send(ground, &mut client, range, &Notes::new()).await.expect("an answer");
    let SentRange { summary, failure } = sent.expect("it takes ranges");
    assert_eq!(failure, None);
    (client, (summary.moved, summary.kept))
}

/// Completes `a/big`, which must succeed. Returns the bytes that were sent, and those that were
/// there.
async fn complete(ground: &Ground, server: &Server) -> (u64, u64) {
    let mut client = ground.connect(server).await.expect("a connection");
    let (from, paths, notes) = (here(ground), vec![path("a"), path("a/big")], Notes::new());
    let put = client.complete_ranges(&from, paths, b"to", false, notes.clone()).await;
    let put = put.expect("an answer");
    assert_eq!((put.stored, put.failed), (2, 0), "{put:?} {notes:?}");
    assert!(notes.has(&["stored", "a/big"]), "{notes:?}");
    client.close().await;
    (put.moved, put.kept)
}

#[test]
fn clients_send_ranges_of_one_file_to_a_directory_and_another_one_completes_it() {
    let ground = Ground::new();
    let size = 20 * MIB + 5;
    write(&ground.here("a/big"), &content(size as usize));
    run(async {
        let server = ground.start();
        // all at once: one of them begins the upload
        let (one, other) = tokio::join!(
            sent(&ground, &server, (size, 0..8 * MIB)),
            sent(&ground, &server, (size, 8 * MIB..16 * MIB)),
        );
        assert_eq!((one.1, other.1), ((8 * MIB, 0), (8 * MIB, 0)));
        // again, as after a lease that has ended
        let (_again, counts) = sent(&ground, &server, (size, 0..8 * MIB)).await;
        assert_eq!(counts, (0, 8 * MIB));
        assert!(!ground.served("to/a/big").exists());
        // what nobody has sent is sent at last
        assert_eq!(complete(&ground, &server).await, (4 * MIB + 5, 16 * MIB));
        assert!(is_same(&ground.here("a/big"), &ground.served("to/a/big")));
        let names = std::fs::read_dir(ground.served("to/a")).expect("a folder").count();
        assert_eq!(names, 1, "nothing is left over");
    });
}

#[test]
fn what_clients_have_sent_that_are_gone_is_not_sent_again() {
    let ground = Ground::new();
    let size = 12 * MIB;
    write(&ground.here("a/big"), &content(size as usize));
    run(async {
        let server = ground.start();
        let (client, _) = sent(&ground, &server, (size, 4 * MIB..12 * MIB)).await;
        client.close().await;
        // whether or not the server knows that yet
        let (client, counts) = sent(&ground, &server, (size, 0..8 * MIB)).await;
        assert_eq!(counts, (4 * MIB, 4 * MIB));
        client.close().await;
        assert_eq!(complete(&ground, &server).await, (0, size));
        assert!(is_same(&ground.here("a/big"), &ground.served("to/a/big")));
    });
}

/// Closes a connection as soon as so many bytes were sent over it.
struct Killed {
    connection: quinn::Connection,
    after: u64,
    moved: AtomicU64,
}

impl Observer for Killed {
    fn event(&self, event: Event<'_>) {
        if let Event::Moved { bytes } = event
            && self.moved.fetch_add(bytes, Ordering::SeqCst) + bytes >= self.after
        {
            self.connection.close(7_u32.into(), b"");
        }
    }
}

#[test]
fn a_range_whose_client_is_killed_is_sent_by_another_one() {
    let ground = Ground::new();
    let size = 40 * MIB;
    write(&ground.here("a/big"), &content(size as usize));
    run(async {
        let server = ground.start();
        let (_first, _) = sent(&ground, &server, (size, 0..8 * MIB)).await;
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_lanes(false);
        let connection = client.connection().clone();
        let killed = Killed { connection, after: 6 * MIB, moved: AtomicU64::new(0) };
        let (from, big, range) = (here(&ground), path("a/big"), (size, 8 * MIB..size));
        let lost = client.put_range(&from, &big, range.clone(), b"to", Arc::new(killed)).await;
        assert!(lost.is_err(), "{lost:?}");
        let (_other, (moved, kept)) = sent(&ground, &server, range).await;
        assert_eq!(moved + kept, size - 8 * MIB);
        assert_eq!(complete(&ground, &server).await, (0, size));
        assert!(is_same(&ground.here("a/big"), &ground.served("to/a/big")));
    });
}

#[test]
fn clients_store_ranges_of_one_object_by_several_servers() {
    let ground = Ground::new();
    // four parts, the last of less
    let size = 30 * MIB + 5;
    write(&ground.here("a/big"), &content(size as usize));
    run(async {
        let root = Root::in_memory(Handle::current());
        let serve = || {
            start(
                &ground.server,
                Options { root: Served::Opened(root.clone()), ..ground.options() },
            )
        };
        let servers = [serve(), serve()];
        // both at once; each part belongs to the range in which it begins
        let (one, other) = tokio::join!(
            sent(&ground, &servers[0], (size, 0..9 * MIB)),
            sent(&ground, &servers[1], (size, 9 * MIB..20 * MIB)),
        );
        assert_eq!((one.1, other.1), ((16 * MIB, 0), (8 * MIB, 0)));
        let (_between, counts) = sent(&ground, &servers[0], (size, 9 * MIB..16 * MIB)).await;
        assert_eq!(counts, (0, 0), "no part begins there");
        assert_eq!(complete(&ground, &servers[1]).await, (6 * MIB + 5, 24 * MIB));
        let mut client = ground.connect(&servers[0]).await.expect("a connection");
        let (from, back) = ([b"to/a/big".to_vec()], ground.here("back"));
        let got = client.get(&from, &back, false, Arc::new(())).await.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (1, 0));
        assert!(is_same(&ground.here("a/big"), &back));
        let unfinished = move || root.remove_unfinished(std::time::Duration::ZERO);
        let unfinished = tokio::task::spawn_blocking(unfinished).await.expect("it ends");
        assert_eq!(unfinished.removed, 0);
    });
}

#[test]
fn a_file_that_is_not_taken_in_ranges_can_be_sent_whole() {
    let ground = Ground::new();
    let size = 3 * MIB;
    write(&ground.here("a/big"), &content(size as usize));
    run(async {
        let (stranger, mut options) = (Identity::ephemeral().expect("a key"), ground.options());
        options.policy.keys.insert(stranger.public(), Access::default());
        let server = start(&ground.server, options);
        let root = Served::Opened(Root::in_memory(Handle::current()));
        let of_store = start(&ground.server, Options { root, ..ground.options() });
        let notes = Notes::new();
        // too small for parts, and another size than was found
        for (server, size) in [(&of_store, size), (&server, size + 1)] {
            let mut client = ground.connect(server).await.expect("a connection");
            let range = (size, 0..MIB);
            let sent = send(&ground, &mut client, range, &notes).await.expect("an answer");
            assert_eq!(sent, None);
        }
        assert!(notes.has(&["warning", "in one request"]), "{notes:?}");
        assert!(notes.has(&["warning", "it has changed"]), "{notes:?}");
        assert_eq!(complete(&ground, &of_store).await, (size, 0));

        // to another key it is a file that somebody else sends
        let (owner, _) = sent(&ground, &server, (size, 0..MIB)).await;
        let address = host(&server);
        let hosts = ground.hosts(&address);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        let mut other = Client::connect(&address, &stranger, trust).await.expect("a connection");
        let sent = send(&ground, &mut other, (size, MIB..size), &notes).await.expect("an answer");
        assert_eq!(sent, None);
        assert!(notes.has(&["warning", "another transfer"]), "{notes:?}");
        assert!(!owner.is_closed());
        assert_eq!(complete(&ground, &server).await, (2 * MIB, MIB));
    });
}
