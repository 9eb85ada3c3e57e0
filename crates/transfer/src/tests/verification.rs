//! Files that are verified by CRC-64/NVME, and where BLAKE3 verifies them all the same.

use std::sync::atomic::{AtomicU64, Ordering};

use headroom_transfer_proto::message::{DataHeader, EntryKind, Message, Time, TreeOptions};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Spans, Tree};
use tokio::runtime::Handle;

use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::files::Root;
use crate::server::Served;
use crate::{Cipher, LaneOptions, SyncOptions, Verification};

const MIB: usize = 1 << 20;
const BYTES: usize = 20 * MIB + 4321;

/// Notes what verified files.
#[derive(Default)]
struct Verified {
    hashed: AtomicU64,
    summed: AtomicU64,
    notes: Notes,
}

impl Observer for Verified {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Hashed { bytes, .. } => {
                self.hashed.fetch_add(bytes, Ordering::Relaxed);
            }
            Event::Summed { bytes, .. } => {
                self.summed.fetch_add(bytes, Ordering::Relaxed);
            }
            event => self.notes.event(event),
        }
    }
}

impl Verified {
    /// Returns the bytes of files that BLAKE3 verified, and a CRC.
    fn bytes(&self) -> (u64, u64) {
        (self.hashed.load(Ordering::Relaxed), self.summed.load(Ordering::Relaxed))
    }

    fn warns(&self) -> bool {
        self.notes.has(&["warning: ", "BLAKE3 verifies"])
    }
}

async fn client_by_crc(ground: &Ground, server: &Server) -> Client {
    let mut client = ground.connect(server).await.expect("a connection");
    client.set_verification(Verification::Crc64);
    client
}

#[test]
fn a_crc_verifies_big_files_on_lanes_and_on_streams_in_both_directions() {
    for lanes in [true, false] {
        let ground = Ground::new();
        write(&ground.here("tree/big"), &content(BYTES));
        write(&ground.here("tree/one span"), &content(MIB));
        write(&ground.here("tree/behind the bound"), &content((64 << 10) + 1));
        write(&ground.here("tree/small"), b"small");
        let big = (BYTES + MIB + (64 << 10) + 1) as u64;
        run(async {
            let server = ground.start();
            let mut client = client_by_crc(&ground, &server).await;
            client.set_lanes(lanes);
            let seen = Arc::new(Verified::default());
            let put = client.put(&[ground.here("tree")], b"", false, seen.clone()).await;
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.failed, put.by_crc), (5, 0, big));
            assert_eq!(put.on_lanes > 0, lanes);
            assert_eq!(seen.bytes(), (5, big), "small files have a hash with their entry");
            assert!(!seen.warns());
            assert_eq!(tree(&ground.here("tree")), tree(&ground.served("tree")));

            let (back, seen) = (ground.here("back/"), Arc::new(Verified::default()));
            let got = client.get(&[b"tree".to_vec()], &back, false, seen.clone()).await;
            let got = got.expect("it is fetched");
            assert_eq!((got.stored, got.failed, got.by_crc), (5, 0, big));
            assert_eq!(seen.bytes(), (5, big));
            assert!(!seen.warns());
            assert_eq!(tree(&ground.here("tree")), tree(&back.join("tree")));
        });
    }
}

#[test]
fn holes_and_compressed_data_are_verified_by_a_crc() {
    let ground = Ground::new();
    let path = ground.here("sparse");
    write(&path, &content(MIB + 7));
    let file = std::fs::File::options().write(true).open(&path).expect("a file");
    file.set_len(9 * MIB as u64 + 5).expect("a hole");
    let from = std::slice::from_ref(&path);
    run(async {
        let server = ground.start();
        let mut client = client_by_crc(&ground, &server).await;
        let put = client.put(from, b"sparse", false, Arc::new(())).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.by_crc), (1, 9 * MIB as u64 + 5));
        client.compress(crate::Compress::Always);
        let put = client.put(from, b"compressed", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").by_crc, 9 * MIB as u64 + 5);
        let content = std::fs::read(&path).expect("a file");
        for name in ["sparse", "compressed"] {
            assert_eq!(std::fs::read(ground.served(name)).expect("a file"), content, "{name}");
        }
    });
}

#[test]
fn blake3_verifies_a_file_of_which_the_receiver_has_some() {
    let ground = Ground::new();
    let mut other = content(BYTES);
    write(&ground.here("big"), &other);
    write(&ground.here("new"), &content(2 * MIB));
    other[3 * MIB] ^= 1;
    write(&ground.served("big"), &other);
    run(async {
        let server = ground.start();
        let mut client = client_by_crc(&ground, &server).await;
        let paths = [ground.here("big"), ground.here("new")];
        let seen = Arc::new(Verified::default());
        let put = client.put(&paths, b"", false, seen.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (2, 0));
        // all spans but one of the first are there, and no byte of the second
        assert_eq!((put.kept, put.moved), ((BYTES - MIB) as u64, 3 * MIB as u64));
        assert_eq!(put.by_crc, 2 * MIB as u64);
        assert_eq!(seen.bytes(), (BYTES as u64, 2 * MIB as u64));
        assert_eq!(std::fs::read(ground.served("big")).expect("a file"), content(BYTES));
    });
}

#[test]
fn blake3_verifies_what_a_sync_or_a_store_has() {
    let ground = Ground::new();
    write(&ground.here("tree/big"), &content(BYTES));
    run(async {
        let server = ground.start();
        let mut client = client_by_crc(&ground, &server).await;
        let seen = Arc::new(Verified::default());
        let options = SyncOptions::default();
        let sync = client.sync_to(&ground.here("tree"), b"", &options, seen.clone()).await;
        let sync = sync.expect("it is sent");
        assert_eq!((sync.failed, sync.by_crc), (0, 0));
        assert_eq!(seen.bytes(), (BYTES as u64, 0));

        let root = Root::in_memory(Handle::current());
        let options = Options { root: Served::Opened(root), ..ground.options() };
        let server = start(&ground.server, options);
        let mut client = client_by_crc(&ground, &server).await;
        let seen = Arc::new(Verified::default());
        let put = client.put(&[ground.here("tree")], b"", false, seen.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!((put.failed, put.by_crc), (0, 0));
        assert!(seen.warns());
        let seen = Arc::new(Verified::default());
        let back = ground.here("back/");
        let got = client.get(&[b"tree".to_vec()], &back, false, seen.clone()).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.failed, got.by_crc), (0, 0));
        assert!(seen.warns());
        assert_eq!(std::fs::read(back.join("tree/big")).expect("a file"), content(BYTES));
    });
}

#[test]
fn without_encryption_only_blake3_verifies() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    run(async {
        let options = Options { insecure_measurement: true, ..ground.options() };
        let server = start(&ground.server, options);
        let mut client = client_by_crc(&ground, &server).await;
        let cipher = Some(Cipher::Null);
        let options = LaneOptions { cipher, insecure_measurement: true, ..LaneOptions::default() };
        client.set_lane_options(options).expect("it is allowed");
        let put = client.put(&[ground.here("big")], b"", false, Arc::new(())).await;
        let error = put.expect_err("nothing protects it");
        assert!(matches!(error, Error::Usage(_)), "{error}");
        assert!(error.to_string().contains("needs encryption"), "{error}");
        assert!(tree(&ground.served("")).is_empty());
    });
}

/// A client that sends one file by hand: what it announces as the CRC, and what it sends, are two
/// contents.
#[test]
fn a_file_that_changes_between_reading_and_writing_is_found_by_its_crc() {
    let ground = Ground::new();
    let sent = content(2 * MIB + 5);
    run(async {
        let server = ground.start();
        for (name, flipped) in [("right", None), ("first", Some(0)), ("last", Some(sent.len() - 1))]
        {
            let client = ground.connect(&server).await.expect("a connection");
            let connection = client.connection();
            let (send, receive) = connection.open_bi().await.expect("a stream");
            let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
            let verification = Some(Verification::Crc64);
            let options = TreeOptions { verification, ..TreeOptions::default() };
            let (to, lanes, tree_options) = (None, None, Some(options));
            let put = Message::Put {
                to,
                rename: false,
                fsync: false,
                lanes,
                tree: tree_options,
                parts: None,
            };
            let kind = EntryKind::File {
                size: sent.len() as u64,
                mode: 0o644,
                mtime: Time { seconds: 1, nanoseconds: 0 },
                inline: None,
                hash: None,
                data: None,
                more: None,
            };
            let path = RelPath::parse(name.as_bytes()).expect("a name");
            let entry = Message::Entry { id: 0, path, kind };
            for message in [hello(Greeting::default()), put, entry] {
                writer.send(&message).await.expect("it is sent");
            }
            reader.recv_hello().await.expect("it greets");
            let accepted = reader.expect().await.expect("an answer");
            let Message::Accepted { verification: agreed, .. } = accepted else {
                panic!("{accepted:?}")
            };
            assert_eq!(agreed, verification);
            let have = reader.expect().await.expect("an answer");
            assert!(matches!(&have, Message::Have { values, last: true, .. } if values.is_empty()));

            let mut read = sent.clone();
            if let Some(at) = flipped {
                read[at] ^= 0x10;
            }
            let header = DataHeader { id: 0, offset: 0, len: sent.len() as u64, zstd: None };
            let mut head = Vec::new();
            header.frame(&mut head).expect("a short header");
            let mut stream = connection.open_uni().await.expect("a stream");
            stream.write_all(&head).await.expect("it is sent");
            stream.write_all(&sent).await.expect("it is sent");
            stream.finish().expect("it is open");
            let root = crc_of(&read);
            let bytes = sent.len() as u64;
            let end = Message::EntriesEnd { files: 1, bytes };
            for message in [Message::Sealed { id: 0, root, bytes }, end] {
                writer.send(&message).await.expect("it is sent");
            }
            let answer = reader.expect().await.expect("an answer");
            let is_stored = matches!(answer, Message::Stored { id: 0 });
            assert_eq!(is_stored, flipped.is_none(), "{name}: {answer:?}");
            if let Message::Failed { reason, .. } = &answer {
                assert!(reason.contains(name), "{reason}");
            }
            let names = tree(&ground.served(""));
            assert_eq!(names.len(), 1, "of the others nothing is left: {names:?}");
        }
    });
}

/// Returns the CRC of a file, as a message has it.
fn crc_of(file: &[u8]) -> [u8; 32] {
    let spans = Spans::new(file.len() as u64).verified_by(Verification::Crc64);
    let mut tree = Tree::new(spans);
    for span in 0..spans.count() {
        let range = spans.range(span).expect("a span");
        let bytes = &file[range.start as usize..range.end as usize];
        tree.insert(span, spans.value(span, bytes).expect("all bytes"));
    }
    *tree.root().expect("all spans").as_bytes()
}
