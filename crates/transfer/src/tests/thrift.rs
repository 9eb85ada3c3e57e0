//! What is not sent: holes, and what compression saves.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;
use crate::{Compress, Summary, SyncOptions};

const MIB: u64 = 1 << 20;

/// Moves `file` there, and back as `back`.
async fn there_and_back(ground: &Ground, how: Compress) -> [Summary; 2] {
    let server = ground.start();
    let mut client = ground.connect(&server).await.expect("a connection");
    client.compress(how);
    let put = client.put(&[ground.here("file")], b"file", false, Arc::new(())).await;
    let back = ground.here("back");
    let _ = std::fs::remove_file(&back);
    let got = client.get(&[b"file".to_vec()], &back, false, Arc::new(())).await;
    server.stop();
    [put.expect("it is sent"), got.expect("it is fetched")]
}

#[test]
fn holes_are_not_sent_and_stay_holes() {
    let ground = Ground::new();
    let file = std::fs::File::create(ground.here("file")).expect("a file");
    let size = 700 * MIB + 5;
    file.set_len(size).expect("a hole");
    file.write_all_at(&content(5000), 0).expect("an island");
    file.write_all_at(&content(3 << 20), 99 * MIB + 7).expect("an island");
    file.write_all_at(&content(10), 400 * MIB).expect("an island");
    assert!(file.metadata().expect("it is there").blocks() * 512 < 5 * MIB, "no holes here");
    run(async {
        for summary in there_and_back(&ground, Compress::Never).await {
            // the islands touch six spans
            assert_eq!((summary.stored, summary.moved), (1, 6 * MIB));
            assert_eq!(summary.holes, size - 6 * MIB);
            assert_eq!(summary.kept, 0);
        }
        for copy in [ground.served("file"), ground.here("back")] {
            let meta = copy.metadata().expect("it is there");
            assert_eq!(meta.len(), size);
            assert!(meta.blocks() * 512 < 7 * MIB, "{} bytes on the disk", meta.blocks() * 512);
        }
        assert_eq!(tree(&ground.here("")).len(), 2);
        let hash = |path: PathBuf| {
            let mut hasher = blake3::Hasher::new();
            std::io::copy(&mut std::fs::File::open(path).expect("it"), &mut hasher).expect("bytes");
            hasher.finalize()
        };
        assert_eq!(hash(ground.served("file")), hash(ground.here("file")));

        // what became a hole is cleared, what lay there is not sent again
        std::fs::remove_file(ground.here("back")).expect("it is there");
        file.set_len(50 * MIB).expect("a shorter one");
        file.set_len(size).expect("a hole");
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let options = SyncOptions::default();
        let (from, nobody) = (ground.here(""), Arc::new(()));
        let summary = client.sync_to(&from, b"", &options, nobody).await.expect("it is sent");
        assert_eq!((summary.stored, summary.moved), (1, 0), "{summary:?}");
        assert_eq!(hash(ground.served("file")), hash(ground.here("file")));
    });
}

#[test]
fn compressible_content_is_compressed_and_unchanged_on_arrival() {
    let ground = Ground::new();
    let words = "so many words that say so little, again and again; ".repeat(400_000);
    let noise = content(20 << 20);
    let mixed = [&noise[..5 << 20], words.as_bytes(), &noise[..3_333_333]].concat();
    run(async {
        for (how, content, saves) in [
            (Compress::Auto, words.as_bytes(), true),
            (Compress::Always, words.as_bytes(), true),
            (Compress::Never, words.as_bytes(), false),
            (Compress::Auto, &noise, false),
            (Compress::Always, &noise, false),
            (Compress::Always, &mixed, true),
        ] {
            write(&ground.here("file"), content);
            let _ = std::fs::remove_file(ground.served("file"));
            for summary in there_and_back(&ground, how).await {
                assert_eq!((summary.stored, summary.moved), (1, content.len() as u64));
                let most = if saves { summary.moved } else { 0 };
                let least = if saves { words.len() as u64 * 9 / 10 } else { 0 };
                assert!((least..=most).contains(&summary.saved), "{how:?}: {summary:?}");
            }
            assert!(std::fs::read(ground.here("back")).expect("it is there") == content);
            assert!(std::fs::read(ground.served("file")).expect("it is there") == content);
        }
    });
}

#[test]
fn a_frame_that_gives_more_than_its_span_ends_the_connection() {
    use crate::control::{Greeting, MessageReader, MessageWriter, hello};
    use headroom_transfer_proto::message::{DataHeader, EntryKind, Message, Time};
    use headroom_transfer_proto::path::RelPath;
    let ground = Ground::new();
    let size = 100_000;
    // a quarter of a gigabyte of zeros in few bytes
    let bomb = zstd::bulk::compress(&vec![0; 256 << 20], 19).expect("a frame");
    assert!(bomb.len() < size);
    let entry = Message::Entry {
        id: 7,
        path: RelPath::parse(b"file").expect("a name"),
        kind: EntryKind::File {
            size: size as u64,
            mode: 0o600,
            mtime: Time { seconds: 1, nanoseconds: 0 },
            inline: None,
            hash: None,
            data: None,
            more: None,
        },
    };
    run(async {
        let server = ground.start();
        let too_long = vec![1; size + 1];
        for frame in [&bomb[..], b"no frame", &too_long, b""] {
            let client = ground.connect(&server).await.expect("a connection");
            let (send, receive) = client.connection().open_bi().await.expect("a stream");
            let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
            let put = Message::Put {
                to: None,
                rename: false,
                fsync: false,
                lanes: None,
                tree: None,
                parts: None,
            };
            for message in [hello(Greeting::default()), put, entry.clone()] {
                writer.send(&message).await.expect("it is sent");
            }
            reader.recv_hello().await.expect("it greets");
            while !matches!(reader.expect().await, Ok(Message::Have { last: true, .. })) {}
            let mut bytes = Vec::new();
            let header = DataHeader { id: 7, offset: 0, len: size as u64, zstd: Some(true) };
            header.frame(&mut bytes).expect("a header");
            bytes.extend(u32::try_from(frame.len()).expect("few").to_be_bytes());
            bytes.extend(frame);
            let mut stream = client.connection().open_uni().await.expect("a stream");
            // the server may have had enough before the end
            let _ = stream.write_all(&bytes).await;
            let _ = stream.finish();
            let error = loop {
                match reader.expect().await {
                    Ok(Message::Stored { .. }) => panic!("it is stored"),
                    Ok(_) => {}
                    Err(error) => break error.to_string(),
                }
            };
            assert!(error.contains("decompressed") || error.contains("compresses"), "{error}");
        }
    });
}
