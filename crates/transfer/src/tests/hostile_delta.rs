//! Peers that lie about the old version of a file, or ask too much of it; and peers of before.

use std::ops::Range;

use headroom_transfer_proto::message::{
    ChunkHash, ChunkKind, ChunkSize, DataHeader, MAX_COPY, MAX_INLINE, Message,
};
use headroom_transfer_proto::span::{ChainingValue, Spans};

use super::hostile::{Raw, assert_others_go_on, file};
use super::*;
use crate::control::{MessageReader, MessageWriter};

const MIB: u64 = 1 << 20;

fn sync(upload: bool) -> Message {
    Message::Sync {
        path: None,
        upload,
        delete: false,
        dry_run: false,
        checksum: false,
        fsync: false,
        exclude: Vec::new(),
        compress: None,
        tree: None,
    }
}

/// Offers a file of which the server has an old version of 1 MiB and 5 bytes.
async fn offered(ground: &Ground, server: &Server) -> (Raw, MessageWriter, MessageReader) {
    write(&ground.served("f1"), &content((1 << 20) + 5));
    let raw = Raw::connect(ground, server).await;
    let (mut writer, mut reader) = raw.ask(sync(true)).await;
    writer.send(&file(1, "f1", 2 * MIB)).await.expect("it is open");
    let have = reader.expect().await.expect("an answer");
    let Message::Have { id: 1, last: true, old, values, .. } = have else { panic!("{have:?}") };
    assert_eq!((old, values.is_empty()), (Some(MIB + 5), false));
    (raw, writer, reader)
}

fn describe(ranges: Vec<Range<u64>>) -> Message {
    Message::Describe { id: 1, size: ChunkSize::MIN, kind: ChunkKind::Chunk, ranges }
}

fn describe_to(end: u64) -> Message {
    describe(Vec::from([Range { start: 0, end }]))
}

fn copy(from: u64, to: u64, len: u64) -> Message {
    Message::Copy { id: 1, from, to, len }
}

fn literal(len: usize, content: Vec<u8>) -> Message {
    Message::Literal { id: 1, offset: 0, len: len as u32, content }
}

#[test]
fn a_sender_that_asks_too_much_of_an_old_file_is_rejected() {
    let ground = Ground::new();
    let whole = describe(vec![0..MIB, MIB + 1..MIB + 5]);
    run(async {
        let server = ground.start();
        for (messages, words) in [
            (vec![describe(vec![0..5, 9..MIB + 6])], "more of an old file than there is"),
            (vec![describe_to(u64::MAX)], "more of an old file than there is"),
            (vec![whole; 5], "more of an old file than there is"),
            (vec![copy(0, 0, MAX_COPY + 1)], "too many"),
            (vec![copy(0, 0, MIB), copy(0, 0, MIB), copy(0, 0, 1)], "too many"),
            (vec![literal(MAX_INLINE + 1, vec![1; 9])], "in one message"),
            (vec![literal(8, vec![1; 9])], "in one message"),
            (vec![literal(9, b"no frame".to_vec())], "decompressed"),
            (vec![literal(9, zstd::bulk::compress(&[0; 10_000], 1).expect("a frame"))], "in one"),
            (vec![literal(60_000, zstd::bulk::compress(&[0; 65_000], 1).expect("a frame"))], "dec"),
        ] {
            let (raw, mut writer, _reader) = offered(&ground, &server).await;
            for message in messages {
                // the server may have had enough before the last one
                let _ = writer.send(&message).await;
            }
            raw.expect_end(words).await;
        }
        assert_eq!(server.rejections().protocol, 10);
        assert_others_go_on(&ground, &server).await;
    });
    assert!(std::fs::read(ground.served("f1")).expect("a file") == content((1 << 20) + 5));
}

#[test]
fn a_copy_from_beyond_the_old_file_fails_that_file_alone() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        for beyond in [copy(MIB, 0, 6), copy(u64::MAX, 0, 1), copy(0, 2 * MIB, 1)] {
            let (_raw, mut writer, mut reader) = offered(&ground, &server).await;
            writer.send(&beyond).await.expect("it is open");
            let failed = reader.expect().await.expect("an answer");
            let Message::Failed { id: 1, reason, .. } = failed else { panic!("{failed:?}") };
            assert!(reason.contains("f1") && reason.contains("beyond its end"), "{reason}");
            // what follows of it is ignored
            writer.send(&describe_to(u64::MAX)).await.expect("it is open");
            writer.send(&copy(0, 0, MAX_COPY)).await.expect("it is open");
            let end = Message::EntriesEnd { files: 1, bytes: 2 * MIB };
            writer.send(&end).await.expect("it is open");
            let end = reader.expect().await.expect("an answer");
            assert!(matches!(end, Message::End { stored: 0, failed: 1 }), "{end:?}");
        }
    });
}

#[test]
fn old_files_are_described_in_a_sync_alone() {
    let ground = Ground::new();
    write(&ground.served("f1"), &content((1 << 20) + 5));
    run(async {
        let server = ground.start();
        for message in [describe_to(1), copy(0, 0, 1), literal(1, vec![1])] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, mut reader) = raw.put().await;
            writer.send(&file(1, "f1", 2 * MIB)).await.expect("it is open");
            let have = reader.expect().await;
            assert!(matches!(have, Ok(Message::Have { id: 1, last: true, old: None, .. })));
            writer.send(&message).await.expect("it is open");
            raw.expect_end("not allowed here").await;
        }
        assert_eq!(server.rejections().protocol, 3);
    });
}

#[test]
fn a_description_that_is_not_that_of_the_requested_ranges_ends_the_connection() {
    let ground = Ground::new();
    write(&ground.served("file"), &content(2 << 20));
    let chunk = |len| ChunkHash { len, hash: [7; 16] };
    run(async {
        let server = ground.start();
        for (old, chunks, last, words) in [
            (None, vec![chunk(9)], true, "without being asked"),
            (Some(0), Vec::new(), true, "without being asked"),
            (Some(MIB), vec![chunk(1 << 20), chunk(1)], true, "more of a file"),
            (Some(MIB), vec![chunk(u32::MAX)], true, "more of a file"),
            (Some(MIB), vec![chunk(1); 1026], true, "more chunks"),
            (Some(MIB), Vec::new(), false, "more chunks"),
        ] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, mut reader) = raw.ask(sync(false)).await;
            let entry = reader.expect().await.expect("an entry");
            let Message::Entry { id, .. } = entry else { panic!("{entry:?}") };
            if old.is_some() {
                let values = Vec::new();
                let have = Message::Have { id, first_span: 0, values, last: true, old };
                writer.send(&have).await.expect("it is open");
            }
            let mut is_asked = old != Some(MIB);
            while !is_asked {
                let message = reader.expect().await.expect("a request");
                is_asked = matches!(message, Message::Describe { .. });
            }
            writer.send(&Message::Described { id, chunks, last }).await.expect("it is open");
            raw.expect_end(words).await;
        }
        assert_eq!(server.rejections().protocol, 6);
        assert_others_go_on(&ground, &server).await;
    });
}

/// Chunks that are not there give another file, which gets no name.
#[test]
fn false_chunks_and_false_copies_give_no_file() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let (_raw, mut writer, mut reader) = offered(&ground, &server).await;
        writer.send(&describe_to(MIB + 5)).await.expect("it is open");
        let mut bytes = 0;
        loop {
            let described = reader.expect().await.expect("an answer");
            let Message::Described { id: 1, chunks, last } = described else { panic!() };
            bytes += chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
            if last {
                break;
            }
        }
        assert_eq!(bytes, MIB + 5);
        for message in [
            copy(0, 0, MIB),
            copy(5, MIB, MIB),
            Message::Sealed { id: 1, root: [7; 32], bytes: 2 * MIB },
        ] {
            writer.send(&message).await.expect("it is open");
        }
        let failed = reader.expect().await.expect("an answer");
        let Message::Failed { id: 1, reason, .. } = failed else { panic!("{failed:?}") };
        assert!(reason.contains("another BLAKE3 hash"), "{reason}");
    });
    assert!(std::fs::read(ground.served("f1")).expect("a file") == content((1 << 20) + 5));
    assert_eq!(tree(&ground.served("")).len(), 1, "what came is removed");
}

/// It knows nothing of old versions, and sends the spans that differ.
#[test]
fn a_sender_of_before_is_served_as_before() {
    let ground = Ground::new();
    let new = content(2 << 20);
    run(async {
        let server = ground.start();
        let (raw, mut writer, mut reader) = offered(&ground, &server).await;
        let mut stream = raw.connection.open_uni().await.expect("a stream");
        let mut head = Vec::new();
        let header = DataHeader { id: 1, offset: 0, len: 2 * MIB, zstd: None };
        header.frame(&mut head).expect("a header");
        stream.write_all(&head).await.expect("it is open");
        stream.write_all(&new).await.expect("it is open");
        stream.finish().expect("it is open");
        let root = *blake3::hash(&new).as_bytes();
        let sealed = Message::Sealed { id: 1, root, bytes: 2 * MIB };
        writer.send(&sealed).await.expect("it is open");
        let stored = reader.expect().await.expect("an answer");
        assert!(matches!(stored, Message::Stored { id: 1 }), "{stored:?}");
    });
    assert!(std::fs::read(ground.served("f1")).expect("a file") == new);
}

#[test]
fn a_receiver_reports_what_it_has_while_it_hashes_the_rest() {
    let ground = Ground::new();
    write(&ground.served("f1"), b"");
    let old = std::fs::File::options().write(true).open(ground.served("f1")).expect("a file");
    old.set_len(130 * MIB).expect("a hole");
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader) = raw.ask(sync(true)).await;
        writer.send(&file(1, "f1", 130 * MIB)).await.expect("it is open");
        let mut reported = Vec::new();
        loop {
            let have = reader.expect().await.expect("an answer");
            let Message::Have { id: 1, first_span, values, last, .. } = have else {
                panic!("{have:?}")
            };
            reported.push((first_span, values.len()));
            if last {
                break;
            }
        }
        assert_eq!(reported, [(0, 64), (64, 64), (128, 2)]);
    });
}

#[test]
fn a_sender_compares_what_several_messages_report() {
    let ground = Ground::new();
    let content = content((1 << 20) + 5);
    write(&ground.served("file"), &content);
    let spans = Spans::new(content.len() as u64);
    let first = spans.value(0, &content[..1 << 20]).expect("a span");
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader) = raw.ask(sync(false)).await;
        let entry = reader.expect().await.expect("an entry");
        let Message::Entry { id, .. } = entry else { panic!("{entry:?}") };
        for (first_span, values, last) in
            [(0, vec![first], false), (1, vec![ChainingValue([7; 32])], false), (0, vec![], true)]
        {
            let have = Message::Have { id, first_span, values, last, old: None };
            writer.send(&have).await.expect("it is open");
        }
        let sealed = loop {
            let message = reader.expect().await.expect("an answer");
            if matches!(message, Message::Sealed { .. }) {
                break message;
            }
        };
        let root = *blake3::hash(&content).as_bytes();
        assert_eq!(sealed, Message::Sealed { id, root, bytes: 5 });
    });
}
