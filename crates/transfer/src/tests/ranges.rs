//! Large files whose ranges come from several servers at once, some of which stop or have another
//! file; and clients that ask for ranges that do not exist.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use headroom_transfer_proto::message::{Message, Wanted};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans};

use super::hostile::{Raw, assert_others_go_on};
use super::spread::Watch;
use super::*;
use crate::client::SyncOptions;
use crate::control::{MessageReader, MessageWriter};
use crate::retry::Retry;
use crate::server::RequestCount;
use crate::spread::{Connecting, Servers};

const MIB: u64 = 1 << 20;
/// All servers together.
const RATE_BPS: u64 = 400_000_000;

/// These servers, with a limit of the rate and therefore without lanes: pieces that are held hold
/// no others. Large files are divided into ranges of 1 MiB and more.
fn all<'a>(ground: &'a Ground, started: &'a [Server], watch: &Arc<Watch>) -> Servers<'a, Watch> {
    let connect = move |n: usize, _: Option<SocketAddr>| {
        Box::pin(ground.connect(&started[n])) as Connecting<'a>
    };
    Servers {
        count: started.len(),
        connect: Box::new(connect),
        lanes: 1,
        retry: Retry::Never,
        rate_bps: Some(RATE_BPS),
        range_bytes: MIB,
        observer: Arc::clone(watch),
    }
}

#[test]
fn a_file_comes_from_all_servers_at_once_and_from_others_when_one_stops() {
    let ground = Ground::new();
    write(&ground.served("dir/big"), &content((40 << 20) + 5));
    run(async {
        let servers = [ground.start(), ground.start(), ground.start()];
        // the first range of each has more spans than one: none is complete until all have sent
        // something and one is stopped
        let sending = servers.clone();
        let all_send = move || sending.iter().all(|server| server.status().sent.bytes > 0);
        let watch = Watch::holding(Some((1, &servers[1])), all_send);
        let from = [b"dir/big".to_vec()];
        let got = all(&ground, &servers, &watch).get(&from, &ground.here("as"), false).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (1, 0), "{got:?} {:?}", watch.notes);
        assert!(is_same(&ground.here("as"), &ground.served("dir/big")));
        let [here, there] = [ground.here("as"), ground.served("dir/big")]
            .map(|path| std::fs::metadata(path).expect("a file").modified().expect("a time"));
        assert_eq!(here, there);
        assert_eq!(watch.count(&["stored: as"]), 1, "{:?}", watch.notes);
        assert_eq!(watch.count(&["gone 1"]), 1, "{:?}", watch.notes);
        assert_eq!(watch.count(&["warning"]), 0, "{:?}", watch.notes);
        assert_eq!(watch.offered.load(Ordering::SeqCst), 40 * MIB + 5);
        let sent = servers.each_ref().map(|server| server.status().sent.bytes);
        assert!(sent.iter().all(|bytes| *bytes > 0), "{sent:?}");
    });
}

#[test]
fn an_interrupted_file_is_resumed_by_ranges_and_holes_are_kept() {
    let ground = Ground::new();
    let size = 200 * MIB + 7;
    let file = std::fs::File::create(ground.served("big")).expect("a file");
    file.set_len(size).expect("a size");
    for (n, bytes) in [(0, 20 << 20), (90 * MIB + 5, 3 << 20), (size - 9, 9)] {
        file.write_all_at(&content(bytes), n).expect("it is written");
    }
    let from = [b"big".to_vec()];
    run(async {
        let server = ground.start();
        // both are the one that stops
        let servers = [server.clone(), server];
        let watch = Watch::new(Some((10 * MIB, &servers[0])));
        let got = all(&ground, &servers, &watch).get(&from, &ground.here(""), false).await;
        let error = got.expect_err("it was stopped");
        assert!(matches!(error, Error::Lost(_)), "{error}");
        assert!(!ground.here("big").exists());

        let servers = [ground.start(), ground.start(), ground.start()];
        let watch = Watch::new(None);
        let got = all(&ground, &servers, &watch).get(&from, &ground.here(""), false).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (1, 0), "{got:?} {:?}", watch.notes);
        assert!(got.kept >= MIB && got.moved < 20 * MIB, "{got:?}");
        assert_eq!(got.kept + got.moved + got.holes, size, "{got:?}");
        assert!(is_same(&ground.here("big"), &ground.served("big")));
    });
}

#[test]
fn a_file_that_differs_at_one_server_is_named_and_comes_whole_from_another() {
    let ground = Ground::new();
    write(&ground.served("big"), &content(40 << 20));
    write(&ground.here("other/big"), &content((40 << 20) + 1));
    std::fs::create_dir(ground.here("empty")).expect("a folder");
    run(async {
        for (folder, words) in [("other", "41943041 bytes"), ("empty", "")] {
            let elsewhere = Options { root: ground.here(folder).into(), ..ground.options() };
            let servers = [ground.start(), ground.start(), start(&ground.server, elsewhere)];
            let address = servers[2].address().expect("an address").to_string();
            // the others complete no range until that one has answered
            let other = servers[2].clone();
            let is_get = |ended: &RequestCount| ended.operation == "get" && ended.count > 0;
            let has_answered = move || other.status().requests.iter().any(is_get);
            let (watch, to) = (Watch::holding(None, has_answered), ground.here("to/"));
            let got = all(&ground, &servers, &watch).get(&[b"big".to_vec()], &to, false).await;
            let got = got.expect("it is fetched");
            assert_eq!((got.stored, got.failed), (1, 0), "{got:?} {:?}", watch.notes);
            assert!(is_same(&to.join("big"), &ground.served("big")));
            let warned = watch.count(&["warning", "big", &address, words, "fetched whole"]);
            assert_eq!(warned, 1, "{:?}", watch.notes);
            if folder == "other" {
                let others = [0, 1].map(|n| servers[n].address().expect("an address").to_string());
                let named = others.map(|other| watch.count(&["differs", &other, "41943040 bytes"]));
                assert_eq!(named[0] + named[1], 1, "{:?}", watch.notes);
            }
            std::fs::remove_file(to.join("big")).expect("it is there");
        }
    });
}

#[test]
fn large_files_of_trees_are_divided_and_small_ones_are_not() {
    let ground = Ground::new();
    for n in 0..20 {
        write(&ground.served(&format!("tree/{n}")), &content(3000 + n));
    }
    for (n, name) in ["big", "sub/big", "sub/sub/big"].into_iter().enumerate() {
        write(&ground.served("tree").join(name), &content((9 << 20) + n));
    }
    write(&ground.served("alone"), &content(5 << 20));
    run(async {
        let servers = [ground.start(), ground.start(), ground.start()];
        let (watch, to) = (Watch::new(None), ground.here("to"));
        let from = [b"tree".to_vec(), b"alone".to_vec()];
        // by lanes
        let unlimited = Servers { rate_bps: None, ..all(&ground, &servers, &watch) };
        let got = unlimited.get(&from, &to, false).await;
        let got = got.expect("it is fetched");
        // 24 files, the tree and two directories in it
        assert_eq!((got.stored, got.failed), (27, 0), "{got:?} {:?}", watch.notes);
        assert_eq!(tree(&to.join("tree")), tree(&ground.served("tree")));
        assert!(is_same(&to.join("alone"), &ground.served("alone")));
        for name in ["tree/big", "tree/sub/sub/big", "tree/7", "alone"] {
            assert_eq!(watch.count(&[&format!("stored: {name}")]), 1, "{:?}", watch.notes);
        }

        write(&ground.served("tree/sub/big"), &content((9 << 20) + 100));
        let watch = Watch::new(None);
        let options = SyncOptions::default();
        let to = to.join("tree");
        let sync = all(&ground, &servers, &watch).sync_from(b"tree", &to, &options).await;
        let sync = sync.expect("an answer");
        assert_eq!((sync.stored, sync.failed), (1, 0), "{sync:?} {:?}", watch.notes);
        assert_eq!(tree(&to), tree(&ground.served("tree")));
    });
}

/// Asks for a file of three spans, by ranges or not; returns its ID.
async fn offered(raw: &Raw, ranges: Option<bool>) -> (MessageWriter, MessageReader, u64) {
    let path = RelPath::parse(b"file").ok();
    let from = vec![Wanted { path, contents: false }];
    let get = Message::Get { from, compress: None, lanes: None, tree: None, ranges };
    let (writer, mut reader) = raw.ask(get).await;
    let entry = reader.expect().await.expect("an entry");
    let Message::Entry { id, .. } = entry else { panic!("{entry:?}") };
    (writer, reader, id)
}

#[test]
fn a_client_that_asks_for_ranges_that_there_are_not_is_rejected() {
    let ground = Ground::new();
    write(&ground.served("file"), &content((2 << 20) + 1));
    let ask = |id, first_span, spans| Message::AskRange { id, first_span, spans };
    let have = |id, first_span, last| Message::Have {
        id,
        first_span,
        values: vec![ChainingValue([7; 32])],
        last,
        old: None,
    };
    run(async {
        let server = ground.start();
        for (ranges, messages, words) in [
            (Some(true), vec![ask(0, 0, 0)], "does not have"),
            (Some(true), vec![ask(0, 0, 4)], "does not have"),
            (Some(true), vec![ask(0, u64::MAX, 2)], "does not have"),
            (Some(true), vec![ask(77, 0, 1)], "not offered"),
            (Some(true), vec![ask(0, 0, 2), ask(0, 1, 2)], "overlaps"),
            (Some(true), vec![have(0, 2, false), ask(0, 0, 1)], "outside of it"),
            (Some(true), vec![have(0, 0, true), ask(0, 0, 1)], "as a whole"),
            (Some(true), vec![ask(0, 0, 1), have(0, 0, true)], "said so before"),
            (None, vec![ask(0, 0, 1)], "whole files"),
        ] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, _reader, id) = offered(&raw, ranges).await;
            assert_eq!(id, 0);
            for message in messages {
                // the server may have had enough before the last one
                let _ = writer.send(&message).await;
            }
            raw.expect_end(words).await;
        }
        assert_eq!(server.rejections().protocol, 9);
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn a_client_gets_the_values_of_the_range_that_it_asked_for() {
    let ground = Ground::new();
    let whole = content((2 << 20) + 1);
    write(&ground.served("file"), &whole);
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader, id) = offered(&raw, Some(true)).await;
        let end = reader.expect().await.expect("the end");
        assert!(matches!(end, Message::EntriesEnd { files: 1, .. }), "{end:?}");
        // a single byte: nobody reads the stream that it comes on
        writer.send(&Message::AskRange { id, first_span: 2, spans: 1 }).await.expect("it is open");
        let sent = reader.expect().await.expect("a range");
        let value = Spans::new(whole.len() as u64).value(2, &whole[2 << 20..]);
        let values = vec![value.expect("a value")];
        assert_eq!(sent, Message::RangeSent { id, first_span: 2, values });
        writer.send(&Message::Stored { id }).await.expect("it is open");
        writer.send(&Message::End { stored: 0, failed: 0 }).await.expect("it is open");
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn what_a_client_asks_for_while_a_file_is_withdrawn_is_ignored() {
    let ground = Ground::new();
    write(&ground.served("file"), &content((2 << 20) + 1));
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader, id) = offered(&raw, Some(true)).await;
        let end = reader.expect().await.expect("the end");
        assert!(matches!(end, Message::EntriesEnd { files: 1, .. }), "{end:?}");
        write(&ground.served("file"), &content(3 << 20));
        let ask = |first_span| Message::AskRange { id, first_span, spans: 1 };
        writer.send(&ask(0)).await.expect("it is open");
        let withdrawn = reader.expect().await.expect("an answer");
        assert!(matches!(withdrawn, Message::Withdrawn { .. }), "{withdrawn:?}");
        let failed = Message::Failed { id, reason: "not now".to_owned(), code: None };
        for message in [ask(1), failed, Message::End { stored: 0, failed: 1 }] {
            writer.send(&message).await.expect("it is open");
        }
        let _ = writer.close().await;
        assert!(reader.recv().await.expect("it is closed").is_none());
        assert_others_go_on(&ground, &server).await;
    });
}

/// As a client does that learns from the answer that the server is of an older version.
#[test]
fn a_file_that_is_declined_is_not_sent() {
    let ground = Ground::new();
    write(&ground.served("file"), &content((2 << 20) + 1));
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader, id) = offered(&raw, None).await;
        let reason = "not now".to_owned();
        let failed = Message::Failed { id, reason, code: None };
        writer.send(&failed).await.expect("it is open");
        let end = reader.expect().await.expect("the end");
        assert!(matches!(end, Message::EntriesEnd { files: 1, .. }), "{end:?}");
        writer.send(&Message::End { stored: 0, failed: 1 }).await.expect("it is open");
        let _ = writer.close().await;
        assert!(reader.recv().await.expect("it is closed").is_none());
        assert_eq!(server.status().sent.bytes, 0);
    });
}
