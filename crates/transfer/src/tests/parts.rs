//! Large files whose parts several servers of one object store receive at once, some of which
//! stop; and clients that take part in uploads in ways that they may not.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use headroom_transfer_proto::message::{MAX_VALUES, Message, PartsRequest, UPLOAD_BYTES};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::ChainingValue;
use tokio::runtime::Handle;

use super::hostile::{Raw, assert_others_go_on, file};
use super::spread::Watch;
use super::*;
use crate::TreeOptions;
use crate::client::SyncOptions;
use crate::control::{MessageReader, MessageWriter};
use crate::delivery::{DividedFile, FileVersion};
use crate::files::Root;
use crate::retry::Retry;
use crate::server::Served;
use crate::spread::{Connecting, Servers};

const MIB: u64 = 1 << 20;
/// Eight parts: two and more for each of three servers.
const SIZE: usize = (60 << 20) + 4321;

/// Starts a server over a store.
fn serve(ground: &Ground, root: &Root) -> Server {
    start(&ground.server, Options { root: Served::Opened(root.clone()), ..ground.options() })
}

/// These servers, without lanes: pieces that are held hold no others.
fn all<'a>(ground: &'a Ground, started: &'a [Server], watch: &Arc<Watch>) -> Servers<'a, Watch> {
    over(ground, started, watch, false)
}

/// These servers. Large files are divided into ranges of one part and more.
fn over<'a>(
    ground: &'a Ground,
    started: &'a [Server],
    watch: &Arc<Watch>,
    lanes: bool,
) -> Servers<'a, Watch> {
    let connect = move |n: usize, _: Option<SocketAddr>| {
        let connecting = async move {
            let mut client = ground.connect(&started[n]).await?;
            client.set_lanes(lanes);
            Ok(client)
        };
        Box::pin(connecting) as Connecting<'a>
    };
    Servers {
        count: started.len(),
        connect: Box::new(connect),
        lanes: 1,
        retry: Retry::Never,
        rate_bps: None,
        range_bytes: MIB,
        observer: Arc::clone(watch),
    }
}

/// Fetches a file, and compares it.
async fn assert_is_at(ground: &Ground, root: &Root, name: &str, expected: &[u8]) {
    let server = serve(ground, root);
    let mut client = ground.connect(&server).await.expect("a connection");
    let back = ground.here("fetched");
    let from = [name.as_bytes().to_vec()];
    let got = client.get(&from, &back, false, Arc::new(())).await.expect("it is fetched");
    assert_eq!((got.stored, got.failed), (1, 0));
    assert!(std::fs::read(&back).expect("a file") == expected, "{name}");
    std::fs::remove_file(back).expect("it is there");
}

/// How many uploads are unfinished: they are given up.
async fn unfinished(root: &Root) -> u64 {
    let root = root.clone();
    let removed = tokio::task::spawn_blocking(move || root.remove_unfinished(Duration::ZERO));
    removed.await.expect("it ends").removed
}

#[test]
fn a_file_is_stored_by_all_servers_and_by_others_when_any_of_them_stops() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(SIZE));
    run(async {
        // none, the one that begins the upload, and one that takes part in it
        for stopped in [None, Some(0), Some(1)] {
            let root = Root::in_memory(Handle::current());
            let servers = [(); 3].map(|()| serve(&ground, &root));
            // no part is whole until all have received something
            let receiving = servers.clone();
            let all_receive =
                move || receiving.iter().all(|server| server.status().received.bytes > 0);
            let stops = stopped.map(|n: usize| (1, &servers[n]));
            let watch = Watch::holding(stops, all_receive);
            let paths = [ground.here("big")];
            let tree = TreeOptions::default();
            let put = all(&ground, &servers, &watch).put(&paths, b"as", tree, false).await;
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.failed), (1, 0), "{put:?} {:?}", watch.notes);
            assert!(put.moved >= SIZE as u64 && put.kept == 0, "{put:?}");
            assert_eq!(watch.count(&["stored: big"]), 1, "{:?}", watch.notes);
            assert_eq!(watch.count(&["warning"]), 0, "{:?}", watch.notes);
            assert_eq!(watch.offered.load(Ordering::SeqCst), SIZE as u64);
            let received = servers.each_ref().map(|server| server.status().received.bytes);
            assert!(received.iter().all(|bytes| *bytes > 0), "{received:?}");
            if stopped.is_none() {
                assert_eq!(put.range_servers, 3, "{put:?}");
            }
            if let Some(stopped) = stopped {
                let gone = format!("gone {stopped}");
                assert_eq!(watch.count(&[&gone]), 1, "{:?}", watch.notes);
            }
            assert_is_at(&ground, &root, "as", &content(SIZE)).await;
            assert_eq!(unfinished(&root).await, 0);
        }
    });
}

#[test]
fn processes_fetch_parts_of_one_object_and_a_transfer_of_the_whole_keeps_them() {
    let ground = Ground::new();
    // four parts, the last of less
    let size = 30 * MIB + 5;
    write(&ground.served("big"), &content(size as usize));
    let name = RelPath::parse(b"big").expect("a path");
    run(async {
        let server = ground.start();
        let root = Root::in_memory(Handle::current());
        let mut client = ground.connect(&server).await.expect("a connection");
        let mut listed = None;
        client.list(b"big", |found| listed = Some(found)).await.expect("a listing");
        let listed = listed.expect("a file");
        let version = FileVersion { size: listed.size, mtime: listed.mtime };
        let begin = async |bytes: Range<u64>| {
            let (there, named, mode) = (root.clone(), name.clone(), listed.mode);
            let begin =
                move || DividedFile::begin_part(&there, &named, (version, "it"), mode, bytes);
            let begun = tokio::task::spawn_blocking(begin).await.expect("it ends");
            begun.expect("a store").expect("an upload")
        };
        let fetch = async |bytes: Range<u64>| {
            let part = begin(bytes).await;
            let mut client = ground.connect(&server).await.expect("a connection");
            let got = client.get_ranges(b"", (None, &name), &part, Arc::new(())).await;
            assert!(got.expect("an answer").is_some(), "it sends ranges");
            assert!(part.is_complete(), "{:?}", part.failure());
            let finished = tokio::task::spawn_blocking(move || part.finish_part(false)).await;
            finished.expect("it ends").expect("it is stored");
        };
        // both at once, and one of them begins the upload; each part belongs to where it begins
        tokio::join!(fetch(0..9 * MIB), fetch(9 * MIB..20 * MIB));
        assert!(!begin(9 * MIB..16 * MIB).await.has_left(), "no part begins there");
        // again, as after a lease that has ended, and stopped before anything has come
        drop(begin(0..9 * MIB).await);

        let names = [name.clone()];
        let got = client.get_listed(b"", None, &names, &root, false, Arc::new(())).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (1, 0), "{got:?}");
        assert_eq!((got.kept, got.moved), (24 * MIB, size - 24 * MIB), "{got:?}");
        assert_is_at(&ground, &root, "big", &content(size as usize)).await;
        assert_eq!(unfinished(&root).await, 0);
    });
}

#[test]
fn an_interrupted_file_is_resumed_by_ranges_and_whole() {
    let ground = Ground::new();
    let size = 120 << 20;
    write(&ground.here("big"), &content(size));
    let (paths, tree) = ([ground.here("big")], TreeOptions::default());
    run(async {
        for servers_after in [3, 1] {
            let root = Root::in_memory(Handle::current());
            let server = serve(&ground, &root);
            // both are the one that stops, once parts are stored
            let servers = [server.clone(), server];
            let counted = root.clone();
            let are_stored = move || counted.requests().is_some_and(|counts| counts.part >= 2);
            let watch = Watch::holding(Some((60 * MIB, &servers[0])), are_stored);
            let put = all(&ground, &servers, &watch).put(&paths, b"as", tree, false).await;
            let error = put.expect_err("it was stopped");
            assert!(matches!(error, Error::Lost(_)), "{error}");

            let servers: Vec<_> = (0..servers_after).map(|_| serve(&ground, &root)).collect();
            let watch = Watch::new(None);
            let put = all(&ground, &servers, &watch).put(&paths, b"as", tree, false).await;
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.failed), (1, 0), "{put:?} {:?}", watch.notes);
            assert!(put.kept >= 8 * MIB, "{put:?}");
            assert_eq!(put.kept + put.moved, size as u64, "{put:?}");
            assert_is_at(&ground, &root, "as", &content(size)).await;
            assert_eq!(unfinished(&root).await, 0);
        }
    });
}

#[test]
fn large_files_of_trees_are_divided_and_a_sync_sends_only_what_differs() {
    let ground = Ground::new();
    for n in 0..20 {
        write(&ground.here(&format!("tree/{n}")), &content(3000 + n));
    }
    for (n, name) in ["big", "sub/sub/big"].into_iter().enumerate() {
        write(&ground.here("tree").join(name), &content(SIZE + n));
    }
    run(async {
        let root = Root::in_memory(Handle::current());
        let servers = [(); 3].map(|()| serve(&ground, &root));
        let watch = Watch::new(None);
        let (paths, options) = ([ground.here("tree/.")], TreeOptions::default());
        let by_lanes = over(&ground, &servers, &watch, true);
        let put = by_lanes.put(&paths, b"to", options, false).await.expect("it is sent");
        // 22 files and two directories; the top has no name
        assert_eq!((put.stored, put.failed), (24, 0), "{put:?} {:?}", watch.notes);
        for name in ["big", "sub/sub/big", "7"] {
            assert_eq!(watch.count(&[&format!("stored: {name}")]), 1, "{:?}", watch.notes);
        }
        assert_eq!(watch.count(&["warning"]), 0, "{:?}", watch.notes);
        let mut client = ground.connect(&servers[0]).await.expect("a connection");
        let back = ground.here("back");
        client.get(&[b"to/.".to_vec()], &back, false, Arc::new(())).await.expect("it is fetched");
        assert_eq!(super::tree(&back), super::tree(&ground.here("tree")));

        let (from, sync_options) = (ground.here("tree"), SyncOptions::default());
        let sync = async |watch: &Arc<Watch>| {
            let servers = all(&ground, &servers, watch);
            servers.sync_to(&from, b"to", options, &sync_options).await.expect("an answer")
        };
        let watch = Watch::new(None);
        let same = sync(&watch).await;
        assert_eq!((same.stored, same.moved, same.failed), (0, 0, 0), "{:?}", watch.notes);
        let mut changed = content(SIZE);
        changed[30 << 20] ^= 1;
        write(&ground.here("tree/big"), &changed);
        let some = sync(&watch).await;
        assert_eq!((some.stored, some.failed), (1, 0), "{some:?} {:?}", watch.notes);
        // one span of its old version differs
        assert_eq!(some.moved, MIB, "{some:?}");
        assert_is_at(&ground, &root, "to/big", &changed).await;
        assert_eq!(unfinished(&root).await, 0);
    });
}

#[test]
fn servers_of_a_directory_store_whole_files() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(SIZE));
    write(&ground.here("tree/big"), &content(SIZE));
    run(async {
        let servers = [ground.start(), ground.start(), ground.start()];
        let tree = TreeOptions::default();
        for (path, to, name) in [("big", "as", "as"), ("tree/.", "to", "to/big")] {
            let (watch, paths) = (Watch::new(None), [ground.here(path)]);
            let put = all(&ground, &servers, &watch).put(&paths, to.as_bytes(), tree, false).await;
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.failed), (1, 0), "{put:?} {:?}", watch.notes);
            assert_eq!((put.moved, put.range_servers), (SIZE as u64, 0), "{put:?}");
            assert!(std::fs::read(ground.served(name)).expect("a file") == content(SIZE));
            assert_eq!(watch.count(&["warning"]), 0, "{:?}", watch.notes);
            assert_eq!(watch.offered.load(Ordering::SeqCst), SIZE as u64);
        }
    });
}

#[test]
fn a_file_that_cannot_be_stored_is_reported_once() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(SIZE));
    write(&ground.here("inner"), b"a directory is in the way");
    run(async {
        let root = Root::in_memory(Handle::current());
        let servers = [serve(&ground, &root), serve(&ground, &root)];
        let mut client = ground.connect(&servers[0]).await.expect("a connection");
        let put = client.put(&[ground.here("inner")], b"d/big/", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1);
        let (watch, paths) = (Watch::new(None), [ground.here("big")]);
        let tree = TreeOptions::default();
        let put = all(&ground, &servers, &watch).put(&paths, b"d/", tree, false).await;
        let put = put.expect("an answer");
        assert_eq!((put.stored, put.failed), (0, 1), "{put:?} {:?}", watch.notes);
        assert_eq!(watch.count(&["failed", "big"]), 1, "{:?}", watch.notes);
        assert_eq!(watch.count(&["warning", "sent whole"]), 1, "{:?}", watch.notes);
        assert_eq!(unfinished(&root).await, 0);
    });
}

/// Takes part in an upload of a file of 20 spans, or begins one.
async fn take_part(raw: &Raw, parts: PartsRequest) -> (MessageWriter, MessageReader) {
    let put = Message::Put {
        to: None,
        rename: false,
        fsync: false,
        lanes: None,
        tree: None,
        parts: Some(parts),
    };
    let (mut writer, reader) = raw.ask(put).await;
    writer.send(&file(0, "file", 20 * MIB)).await.expect("it is open");
    (writer, reader)
}

/// Begins an upload; returns its name.
async fn begin(raw: &Raw) -> (MessageWriter, MessageReader, [u8; UPLOAD_BYTES]) {
    let (writer, mut reader) = take_part(raw, PartsRequest::default()).await;
    let begun = reader.expect().await.expect("an upload");
    let Message::PartsBegun { id: 0, upload, part_spans: 8 } = begun else { panic!("{begun:?}") };
    let have = reader.expect().await.expect("nothing is there");
    assert!(matches!(have, Message::Have { last: true, .. }), "{have:?}");
    (writer, reader, upload)
}

#[test]
fn who_takes_part_in_no_upload_fails_and_the_upload_stays() {
    let ground = Ground::new();
    run(async {
        let root = Root::in_memory(Handle::current());
        let [one, other] = [serve(&ground, &root), serve(&ground, &root)];
        let raw = Raw::connect(&ground, &one).await;
        let (mut writer, mut reader, upload) = begin(&raw).await;
        let mut wrong = upload;
        wrong[0] ^= 1;
        let stranger = Raw::connect(&ground, &other).await;
        for (parts, words) in [
            (
                PartsRequest { upload: Some(wrong), ..PartsRequest::default() },
                "does not have the upload",
            ),
            (
                PartsRequest { upload: Some([1; 16]), ..PartsRequest::default() },
                "does not have the upload",
            ),
        ] {
            let (mut writer, mut reader) = take_part(&stranger, parts).await;
            writer.send(&Message::EntriesEnd { files: 1, bytes: 20 * MIB }).await.expect("open");
            let failed = reader.expect().await.expect("an answer");
            let Message::Failed { reason, .. } = failed else { panic!("{failed:?}") };
            assert!(reason.contains(words), "{reason}");
            let end = reader.expect().await.expect("the end");
            assert_eq!(end, Message::End { stored: 0, failed: 1 });
        }
        // the first one is at work all the same, and leaves
        writer.send(&Message::RangesEnd { id: 0 }).await.expect("it is open");
        writer.send(&Message::EntriesEnd { files: 1, bytes: 20 * MIB }).await.expect("it is open");
        let left = reader.expect().await.expect("an answer");
        assert_eq!(left, Message::Stored { id: 0 });
        let end = reader.expect().await.expect("the end");
        assert_eq!(end, Message::End { stored: 0, failed: 0 });
        // what is not there has no name
        let mut client = ground.connect(&one).await.expect("a connection");
        let mut names = 0;
        client.list(b"", |_| names += 1).await.expect("a list");
        assert_eq!((names, unfinished(&root).await), (0, 1));
        assert_others_go_on(&ground, &one).await;
    });
}

#[test]
fn ranges_that_are_no_parts_are_rejected() {
    let ground = Ground::new();
    let sent = |first_span, count| Message::RangeSent {
        id: 0,
        first_span,
        values: vec![ChainingValue([7; 32]); count],
    };
    let flood = vec![sent(0, 8); 9];
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = serve(&ground, &root);
        for (messages, words) in [
            (vec![sent(0, 0)], "no whole parts"),
            (vec![sent(0, 7)], "no whole parts"),
            (vec![sent(1, 8)], "no whole parts"),
            (vec![sent(16, 5)], "no whole parts"),
            (vec![sent(u64::MAX - 7, 8)], "no whole parts"),
            (vec![sent(0, MAX_VALUES)], "no whole parts"),
            (flood, "more than 8 ranges"),
            (vec![Message::Sealed { id: 0, root: [7; 32], bytes: 0 }], "Sealed"),
            (vec![file(1, "other", 20 * MIB)], "not a single large file"),
        ] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, _reader, _) = begin(&raw).await;
            for message in messages {
                // the server may have had enough before the last one
                let _ = writer.send(&message).await;
            }
            raw.expect_end(words).await;
            drop(writer);
            // otherwise the next one finds it at work
            while unfinished(&root).await == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(server.rejections().protocol, 9);
        assert_others_go_on(&ground, &server).await;
    });
}
