//! One server with which a client has several sessions, each with a lane of its own.

use headroom_transfer_proto::message::{DataHeader, Message, PartsRequest, Time, UPLOAD_BYTES};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans};
use quinn::Connection;

use super::hostile::{Raw, assert_others_go_on, file};
use super::spread::{Watch, until};
use super::*;
use crate::TreeOptions;
use crate::claims::{ClaimTable, Wake};
use crate::control::{MessageReader, MessageWriter};
use crate::files::{Offer, Root};
use crate::retry::Retry;
use crate::spread::{Connecting, Servers};

const MIB: u64 = 1 << 20;

/// What the end of a connection says whose file a newer transfer takes (`Closing::Superseded`).
const SUPERSEDED: &str = "closed by peer: 4";

/// The name of an upload, and the value of what is stored.
type UploadOf = ([u8; UPLOAD_BYTES], ChainingValue);

/// Connections, with what each was told of another one's address.
type Connections = Vec<(Connection, Option<SocketAddr>)>;

/// The connections of a transfer.
#[derive(Debug, Clone, Default)]
struct Made(Arc<Mutex<Connections>>);

impl Made {
    fn count(&self) -> usize {
        self.0.lock().expect("nobody panicked").len()
    }

    /// Closes the last one of so many, as soon as they are there. Returns whether they are.
    fn lose_last_of(&self, count: usize) -> bool {
        let made = self.0.lock().expect("nobody panicked");
        if let Some((lost, _)) = made.get(count - 1) {
            lost.close(7_u32.into(), b"");
        }
        made.len() >= count
    }

    fn besides(&self) -> Vec<Option<SocketAddr>> {
        self.0.lock().expect("nobody panicked").iter().map(|(_, beside)| *beside).collect()
    }
}

/// Up to three lanes to one server. Large files are divided into ranges of 1 MiB and more.
fn lanes<'a>(
    ground: &'a Ground,
    server: &'a Server,
    made: &'a Made,
    watch: &Arc<Watch>,
) -> Servers<'a, Watch> {
    sessions((ground, server), made, watch, true)
}

/// Up to three sessions with one server, which may have lanes or do everything on streams: there
/// pieces that are held hold no others.
fn sessions<'a>(
    (ground, server): (&'a Ground, &'a Server),
    made: &'a Made,
    watch: &Arc<Watch>,
    have_lanes: bool,
) -> Servers<'a, Watch> {
    let connect = move |_: usize, beside: Option<SocketAddr>| {
        let connecting = async move {
            let mut client = ground.connect(server).await?;
            client.set_lanes(have_lanes);
            let connection = client.connection().clone();
            made.0.lock().expect("nobody panicked").push((connection, beside));
            Ok(client)
        };
        Box::pin(connecting) as Connecting<'a>
    };
    Servers {
        count: 1,
        connect: Box::new(connect),
        lanes: 3,
        retry: Retry::Never,
        rate_bps: None,
        range_bytes: MIB,
        observer: Arc::clone(watch),
    }
}

#[test]
fn ranges_of_a_file_are_fetched_on_all_lanes_and_those_of_a_lost_one_on_others() {
    let ground = Ground::new();
    write(&ground.served("big"), &content((40 << 20) + 5));
    run(async {
        let (server, made) = (ground.start(), Made::default());
        // the first asks what the name is; nothing goes on until all lanes are there
        let losing = made.clone();
        let watch = Watch::holding(None, move || losing.lose_last_of(4));
        let all = sessions((&ground, &server), &made, &watch, false);
        let got = all.get(&[b"big".to_vec()], &ground.here("as"), false).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (1, 0), "{got:?} {:?}", watch.notes);
        assert!(is_same(&ground.here("as"), &ground.served("big")));
        let address = Some(server.address().expect("an address"));
        assert_eq!(made.besides(), [None, None, address, address]);
        // the server is not lost
        for words in ["gone", "lost", "warning"] {
            assert_eq!(watch.count(&[words]), 0, "{:?}", watch.notes);
        }
    });
}

#[test]
fn a_tree_is_fetched_on_several_lanes() {
    let ground = Ground::new();
    for n in 0..40 {
        write(&ground.served(&format!("tree/{}/{n}", n % 4)), &content(3000 + n));
    }
    write(&ground.served("tree/big"), &content(9 << 20));
    run(async {
        let (server, made) = (ground.start(), Made::default());
        let (watch, to) = (Watch::new(None), ground.here("to/"));
        let got = lanes(&ground, &server, &made, &watch).get(&[b"tree".to_vec()], &to, false).await;
        let got = got.expect("it is fetched");
        // 41 files, the tree and four directories in it
        assert_eq!((got.stored, got.failed), (46, 0), "{got:?} {:?}", watch.notes);
        assert_eq!(tree(&to.join("tree")), tree(&ground.served("tree")));
    });
}

#[test]
fn directories_have_no_more_permissions_than_at_the_server_while_files_are_fetched() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    const MODES: [(&str, u32); 4] =
        [("tree", 0o711), ("tree/a", 0o700), ("tree/a/b", 0o750), ("tree/a/c", 0o700)];
    let ground = Ground::new();
    write(&ground.served("tree/a/b/small"), &content(3000));
    write(&ground.served("tree/a/c/big"), &content(9 << 20));
    for (name, mode) in MODES {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(ground.served(name), permissions).expect("chmod");
    }
    run(async {
        let (server, made, to) = (ground.start(), Made::default(), ground.here("to/"));
        let (seen, folder) = (Arc::new(Mutex::new(Vec::new())), to.clone());
        let notes = Arc::clone(&seen);
        let watch = Watch::holding(None, move || {
            for (name, mode) in MODES {
                if let Ok(here) = folder.join(name).metadata() {
                    notes.lock().expect("nobody panicked").push((name, mode, here.mode() & 0o777));
                }
            }
            true
        });
        let got = lanes(&ground, &server, &made, &watch).get(&[b"tree".to_vec()], &to, false).await;
        assert_eq!(got.expect("it is fetched").failed, 0, "{:?}", watch.notes);
        let seen = seen.lock().expect("nobody panicked").clone();
        for (name, mode, here) in &seen {
            assert_eq!(here & !mode, 0, "{name} had the mode {here:o}");
        }
        assert!(MODES.iter().all(|(name, _)| seen.iter().any(|(seen, ..)| seen == name)));
        assert_eq!(tree(&to.join("tree")), tree(&ground.served("tree")));
    });
}

#[test]
fn lanes_are_opened_only_when_there_is_something_to_divide() {
    let ground = Ground::new();
    write(&ground.served("small"), &content(70_000));
    write(&ground.served("tree/a"), &content(3000));
    write(&ground.served("tree/b"), &content(80_000));
    run(async {
        let server = ground.start();
        // one asks for the names, and another one fetches a file; or it fetches the files of a
        // tree, and a third one what is left of that
        for (from, connections) in [("small", 2), ("tree", 3)] {
            let (made, watch) = (Made::default(), Watch::new(None));
            let (from, to) = ([from.as_bytes().to_vec()], ground.here("to/"));
            let got = lanes(&ground, &server, &made, &watch).get(&from, &to, false).await;
            let got = got.expect("it is fetched");
            assert_eq!(got.failed, 0, "{got:?} {:?}", watch.notes);
            assert_eq!(made.count(), connections, "{from:?}");
        }
    });
}

#[test]
fn ranges_of_a_file_are_stored_over_all_lanes_and_those_of_a_lost_one_over_others() {
    let ground = Ground::new();
    write(&ground.here("big"), &content((40 << 20) + 5));
    run(async {
        for is_lost in [false, true] {
            let (server, made) = (ground.start(), Made::default());
            let losing = made.clone();
            // nothing goes on until all lanes are there
            let watch = Watch::holding(None, move || match is_lost {
                true => losing.lose_last_of(3),
                false => losing.count() == 3,
            });
            let all = sessions((&ground, &server), &made, &watch, false);
            let (paths, to) = ([ground.here("big")], format!("to/as-{is_lost}"));
            let put = all.put(&paths, to.as_bytes(), TreeOptions::default(), false).await;
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.failed), (1, 0), "{put:?} {:?}", watch.notes);
            assert!(is_same(&ground.here("big"), &ground.served(&to)));
            for words in ["gone", "lost", "warning"] {
                assert_eq!(watch.count(&[words]), 0, "{:?}", watch.notes);
            }
            // one of them has stored all ranges, and no other request was made
            assert_eq!(made.count(), 3);
        }
        let names = std::fs::read_dir(ground.served("to")).expect("a folder").count();
        assert_eq!(names, 2, "nothing is left over");
    });
}

#[test]
fn a_tree_with_a_large_file_is_stored_over_several_lanes_and_replaced() {
    let ground = Ground::new();
    for n in 0..40 {
        write(&ground.here(&format!("tree/{}/{n}", n % 4)), &content(3000 + n));
    }
    write(&ground.here("tree/sub/sub/big"), &content(9 << 20));
    run(async {
        let server = ground.start();
        for changed in [false, true] {
            if changed {
                let mut big = content(9 << 20);
                big[5 << 20] ^= 1;
                write(&ground.here("tree/sub/sub/big"), &big);
            }
            let (made, watch) = (Made::default(), Watch::new(None));
            let (paths, tree_options) = ([ground.here("tree")], TreeOptions::default());
            let all = lanes(&ground, &server, &made, &watch);
            let put = all.put(&paths, b"to/", tree_options, false).await.expect("it is sent");
            // 41 files, the tree and six directories in it
            assert_eq!((put.stored, put.failed), (48, 0), "{put:?} {:?}", watch.notes);
            assert_eq!(watch.count(&["stored: tree/sub/sub/big"]), 1, "{:?}", watch.notes);
            assert_eq!(watch.count(&["warning"]), 0, "{:?}", watch.notes);
            assert_eq!(tree(&ground.served("to/tree")), tree(&ground.here("tree")));
        }
    });
}

/// Takes part in an upload, or begins one.
fn own(upload: Option<[u8; UPLOAD_BYTES]>) -> PartsRequest {
    PartsRequest { upload, completes: None, one_server: Some(true) }
}

/// Offers a file of 20 spans.
async fn offer(raw: &Raw, name: &str, parts: PartsRequest) -> (MessageWriter, MessageReader) {
    let put = Message::Put {
        to: None,
        rename: false,
        fsync: false,
        lanes: None,
        tree: None,
        parts: Some(parts),
    };
    let (mut writer, reader) = raw.ask(put).await;
    writer.send(&file(0, name, 20 * MIB)).await.expect("it is open");
    (writer, reader)
}

/// Begins an upload; returns its name.
async fn begin(raw: &Raw, name: &str) -> (MessageWriter, MessageReader, [u8; UPLOAD_BYTES]) {
    let (writer, mut reader) = offer(raw, name, own(None)).await;
    let begun = reader.expect().await.expect("an upload");
    let Message::PartsBegun { id: 0, upload, part_spans: 1 } = begun else { panic!("{begun:?}") };
    let have = reader.expect().await.expect("nothing is there");
    assert!(matches!(have, Message::Have { last: true, .. }), "{have:?}");
    (writer, reader, upload)
}

/// Reads that the only file has failed, and the end; returns why it failed. The request is then
/// over: as long as a client holds its stream, a session has no other.
async fn failure((mut writer, mut reader): (MessageWriter, MessageReader)) -> String {
    let end = Message::EntriesEnd { files: 1, bytes: 20 * MIB };
    writer.send(&end).await.expect("it is open");
    let failed = reader.expect().await.expect("an answer");
    let Message::Failed { reason, .. } = failed else { panic!("{failed:?}") };
    let end = reader.expect().await.expect("the end");
    assert_eq!(end, Message::End { stored: 0, failed: 1 });
    reason
}

/// Sends no more ranges: the upload waits for whoever completes it.
async fn leave((mut writer, mut reader): (MessageWriter, MessageReader)) {
    for message in [Message::RangesEnd { id: 0 }, Message::EntriesEnd { files: 1, bytes: 20 * MIB }]
    {
        writer.send(&message).await.expect("it is open");
    }
    let left = reader.expect().await.expect("an answer");
    assert_eq!(left, Message::Stored { id: 0 });
    let end = reader.expect().await.expect("the end");
    assert_eq!(end, Message::End { stored: 0, failed: 0 });
}

/// Sends bytes on a stream.
async fn send_bytes(raw: &Raw, offset: usize, bytes: &[u8]) {
    let mut head = Vec::new();
    let (offset, len) = (offset as u64, bytes.len() as u64);
    let header = DataHeader { id: 0, offset, len, zstd: None };
    header.frame(&mut head).expect("a header");
    let mut stream = raw.connection.open_uni().await.expect("a stream");
    stream.write_all(&head).await.expect("it is open");
    stream.write_all(bytes).await.expect("it is open");
    stream.finish().expect("it is open");
}

/// Sends the first span on a stream.
async fn send_span(raw: &Raw, span: &[u8]) {
    send_bytes(raw, 0, span).await;
}

/// Begins an upload of `file`, and has its first span stored.
async fn begin_with(raw: &Raw, span: &[u8]) -> (MessageWriter, MessageReader, UploadOf) {
    let (mut writer, mut reader, upload) = begin(raw, "file").await;
    let value = Spans::new(20 * MIB).value(0, span).expect("a span");
    send_span(raw, span).await;
    let sent = Message::RangeSent { id: 0, first_span: 0, values: vec![value] };
    writer.send(&sent).await.expect("it is open");
    let stored = reader.expect().await.expect("an answer");
    assert_eq!(stored, Message::RangeStored { id: 0, first_span: 0, spans: 1 });
    (writer, reader, (upload, value))
}

#[test]
fn who_completes_a_file_replaces_what_arrived_and_differs() {
    let ground = Ground::new();
    let span = MIB as usize;
    let whole = [vec![2_u8; span], vec![0; 19 * span]].concat();
    run(async {
        let server = ground.start();
        let one = Raw::connect(&ground, &server).await;
        // the file has another content when it is completed, and its old time
        let (writer, reader, (upload, value)) = begin_with(&one, &vec![1; span]).await;
        leave((writer, reader)).await;
        let other = Raw::connect(&ground, &server).await;
        let completes = PartsRequest { completes: Some(true), ..own(Some(upload)) };
        let (mut writer, mut reader) = offer(&other, "file", completes).await;
        for (values, last) in [(vec![value], false), (vec![], true)] {
            let have = reader.expect().await.expect("what is there");
            assert_eq!(have, Message::Have { id: 0, first_span: 0, values, last, old: None });
        }
        send_span(&other, &whole[..span]).await;
        for message in [
            Message::Hole { id: 0, offset: MIB, len: 19 * MIB },
            Message::Sealed { id: 0, root: *blake3::hash(&whole).as_bytes(), bytes: MIB },
            Message::EntriesEnd { files: 1, bytes: 20 * MIB },
        ] {
            writer.send(&message).await.expect("it is open");
        }
        let stored = reader.expect().await.expect("an answer");
        assert_eq!(stored, Message::Stored { id: 0 });
        assert!(std::fs::read(ground.served("file")).expect("a file") == whole);
    });
}

#[test]
fn what_a_lost_upload_has_stored_is_kept_by_one_over_other_lanes() {
    let ground = Ground::new();
    let whole = content(20 << 20);
    write(&ground.here("file"), &whole);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let file = std::fs::File::open(ground.here("file")).expect("a file");
    file.set_modified(time).expect("a time");
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let _request = begin_with(&raw, &whole[..MIB as usize]).await;
        raw.connection.close(0_u32.into(), b"");
        let (made, watch) = (Made::default(), Watch::new(None));
        let (paths, tree_options) = ([ground.here("file")], TreeOptions::default());
        let all = lanes(&ground, &server, &made, &watch);
        let put = all.put(&paths, b"file", tree_options, false).await.expect("it is sent");
        assert_eq!((put.stored, put.failed), (1, 0), "{put:?} {:?}", watch.notes);
        assert_eq!(put.kept, MIB, "{put:?}");
        assert!(is_same(&ground.here("file"), &ground.served("file")));
    });
}

#[test]
fn who_names_no_upload_of_the_file_fails_and_who_completes_it_writes_alone() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let (one, other) =
            (Raw::connect(&ground, &server).await, Raw::connect(&ground, &server).await);
        let (_writer, _reader, upload) = begin(&one, "file").await;
        let mut wrong = upload;
        wrong[0] ^= 1;
        for (name, upload) in [("file", wrong), ("other", upload)] {
            let reason = failure(offer(&other, name, own(Some(upload))).await).await;
            assert!(reason.contains("does not have its upload"), "{reason}");
        }
        let (_writer, mut reader) = offer(&other, "file", own(Some(upload))).await;
        let begun = reader.expect().await.expect("an answer");
        assert_eq!(begun, Message::PartsBegun { id: 0, upload, part_spans: 1 });

        // a third one says that all is there, while the others could still write
        let third = Raw::connect(&ground, &server).await;
        let completes = PartsRequest { completes: Some(true), ..own(Some(upload)) };
        let (mut writer, mut reader) = offer(&third, "file", completes).await;
        for former in [one, other] {
            former.expect_end(SUPERSEDED).await;
        }
        let have = reader.expect().await.expect("nothing is there");
        assert!(matches!(have, Message::Have { last: true, .. }), "{have:?}");
        let sealed = Message::Sealed { id: 0, root: [7; 32], bytes: 0 };
        writer.send(&sealed).await.expect("it is open");
        failure((writer, reader)).await;
        assert!(!ground.served("file").exists());
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn a_client_that_starts_again_ends_who_completes_a_file_and_not_who_began_it() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let one = Raw::connect(&ground, &server).await;
        let (writer, reader, (upload, value)) = begin_with(&one, &vec![1; MIB as usize]).await;
        leave((writer, reader)).await;
        // it has the file, and is silent
        let other = Raw::connect(&ground, &server).await;
        let completes = PartsRequest { completes: Some(true), ..own(Some(upload)) };
        let (_writer, mut silent) = offer(&other, "file", completes).await;
        let there =
            Message::Have { id: 0, first_span: 0, values: vec![value], last: false, old: None };
        assert_eq!(silent.expect().await.expect("what is there"), there);
        let again = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader) = again.put().await;
        writer.send(&file(0, "file", 20 * MIB)).await.expect("it is open");
        let have = reader.expect().await.expect("an answer");
        assert!(matches!(have, Message::Have { .. }), "{have:?}");
        other.expect_end(SUPERSEDED).await;
        assert!(one.connection.close_reason().is_none());
    });
}

#[test]
fn a_session_that_takes_part_again_is_known_when_its_first_part_ends_late() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raws = [Raw::connect(&ground, &server).await, Raw::connect(&ground, &server).await];
        let [one, other] = [&raws[0], &raws[1]]
            .map(|raw| crate::connection::Connection::from(raw.connection.clone()));
        let table = ClaimTable::default();
        let _open = table.open_session(&one);
        let claims = table.of(ground.client.public());
        let root = Root::open(&ground.served("")).expect("a folder");
        let path = RelPath::parse(b"file").expect("a path");
        let (size, mtime) = (20 * MIB, Time { seconds: 1, nanoseconds: 0 });
        let offer = Offer { size, mtime, data: 0, reuse: false };
        let partial = Arc::new(root.begin(&path, &offer).expect("a partial file"));
        let (name, file) = ([7; UPLOAD_BYTES], (root.path(), &path, size, mtime));
        let wake = || Box::new(|| {}) as Wake;
        let first = claims.begin_upload(name, file, (partial, None), &one, wake());
        let again = claims.join_upload(name, file, &one, wake()).expect("it takes part");
        // a write that was in flight has ended
        drop(first.expect("an upload"));
        let (_, _, others) = claims.end_upload(name, file, &other).expect("it is there");
        assert!(!others.is_empty());
        drop(again);
    });
}

#[test]
fn directories_of_a_divided_file_are_private_until_they_get_their_modes() {
    use std::os::unix::fs::MetadataExt;
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let _request = begin(&raw, "a/b/file").await;
        for name in ["a", "a/b"] {
            let made = ground.served(name).metadata().expect("a folder");
            assert_eq!(made.mode() & 0o777, 0o700, "{name}");
        }
    });
}

#[test]
fn a_range_is_stored_as_soon_as_another_session_has_written_the_rest_of_it() {
    let ground = Ground::new();
    let span = content(MIB as usize);
    run(async {
        let server = ground.start();
        let one = Raw::connect(&ground, &server).await;
        let other = Raw::connect(&ground, &server).await;
        let (_writer, _reader, upload) = begin(&one, "file").await;
        let (mut writer, mut reader) = offer(&other, "file", own(Some(upload))).await;
        let begun = reader.expect().await.expect("an answer");
        assert_eq!(begun, Message::PartsBegun { id: 0, upload, part_spans: 1 });
        let have = reader.expect().await.expect("nothing is there");
        assert!(matches!(have, Message::Have { last: true, .. }), "{have:?}");
        // it sends once more what the first session has written
        let (quarter, half) = (span.len() / 4, span.len() / 2);
        for (raw, bytes) in [(&one, &span[..quarter]), (&other, &span[..half])] {
            send_bytes(raw, 0, bytes).await;
            let folder = ground.served("");
            until(|| only_file(&folder).is_some_and(|file| file.starts_with(bytes))).await;
        }
        let value = Spans::new(20 * MIB).value(0, &span).expect("a span");
        let sent = Message::RangeSent { id: 0, first_span: 0, values: vec![value] };
        writer.send(&sent).await.expect("it is open");
        // the first session stays
        send_bytes(&one, half, &span[half..]).await;
        let stored = reader.expect().await.expect("an answer");
        assert_eq!(stored, Message::RangeStored { id: 0, first_span: 0, spans: 1 });
        assert!(one.connection.close_reason().is_none());
    });
}

/// The content of the only file in a folder.
fn only_file(folder: &Path) -> Option<Vec<u8>> {
    let entry = std::fs::read_dir(folder).ok()?.next()?.ok()?;
    std::fs::read(entry.path()).ok()
}

#[test]
fn another_key_takes_part_in_no_upload() {
    let ground = Ground::new();
    run(async {
        let (stranger, mut options) = (Identity::ephemeral().expect("a key"), ground.options());
        options.policy.keys.insert(stranger.public(), Access::default());
        let server = start(&ground.server, options);
        let own_raw = Raw::connect(&ground, &server).await;
        let (_writer, _reader, upload) = begin(&own_raw, "file").await;
        let other = Raw::connect_as(&stranger, &ground, &server).await;
        let reason = failure(offer(&other, "file", own(Some(upload))).await).await;
        assert!(reason.contains("does not have its upload"), "{reason}");
        // and completes none: to it the file is one that somebody else receives
        let completes = PartsRequest { completes: Some(true), ..own(Some(upload)) };
        failure(offer(&other, "file", completes).await).await;
        assert!(own_raw.connection.close_reason().is_none());
    });
}

#[test]
fn ranges_that_do_not_exist_are_rejected() {
    let ground = Ground::new();
    let sent = |first_span, count| Message::RangeSent {
        id: 0,
        first_span,
        values: vec![ChainingValue([7; 32]); count],
    };
    run(async {
        let server = ground.start();
        for (messages, words) in [
            (vec![sent(0, 0)], "no whole parts"),
            (vec![sent(19, 2)], "no whole parts"),
            (vec![sent(u64::MAX, 1)], "no whole parts"),
            (vec![sent(0, 1); 65], "more than 8 ranges"),
            (vec![Message::Sealed { id: 0, root: [7; 32], bytes: 0 }], "Sealed"),
            (vec![file(1, "other", 20 * MIB)], "not a single large file"),
        ] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, _reader, _) = begin(&raw, "file").await;
            for message in messages {
                // the server may have had enough before the last one
                let _ = writer.send(&message).await;
            }
            raw.expect_end(words).await;
        }
        assert_eq!(server.rejections().protocol, 6);
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn a_client_has_few_uploads_and_they_end_with_its_sessions() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        for n in 0..8 {
            let (writer, reader, _) = begin(&raw, &format!("file-{n}")).await;
            leave((writer, reader)).await;
        }
        let other = Raw::connect(&ground, &server).await;
        let reason = failure(offer(&other, "one-more", own(None)).await).await;
        assert!(reason.contains("8 other files of this client"), "{reason}");
        raw.connection.close(0_u32.into(), b"");
        // as soon as the server knows
        loop {
            let (mut writer, mut reader) = offer(&other, "one-more", own(None)).await;
            let answer = reader.expect().await.expect("an answer");
            if matches!(answer, Message::PartsBegun { .. }) {
                break;
            }
            let end = Message::EntriesEnd { files: 1, bytes: 20 * MIB };
            writer.send(&end).await.expect("it is open");
            reader.expect().await.expect("the end");
        }
    });
}
