//! Nothing goes faster than it may, whoever should see to that.

use std::time::{Duration, Instant};

use headroom_transfer_proto::message::{DataHeader, EntryKind, Message};
use headroom_transfer_proto::path::RelPath;

use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::files::Time;

/// Bytes of each file.
const BYTES: usize = 1_000_000;
/// These would take a second.
const RATE_BPS: u64 = 8_000_000;
/// What may be missing of that: what is caught up, and the last slice.
const MIN: Duration = Duration::from_millis(900);

/// How long something took.
async fn time<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let output = work.await;
    (start.elapsed(), output)
}

async fn put(ground: &Ground, client: &mut Client) -> Duration {
    let paths = [ground.here("file")];
    let (took, summary) = time(client.put(&paths, b"", false, Arc::new(()))).await;
    let summary = summary.expect("it is sent");
    assert_eq!((summary.stored, summary.moved), (1, BYTES as u64));
    std::fs::remove_file(ground.served("file")).expect("it is there");
    took
}

async fn get(ground: &Ground, client: &mut Client) -> Duration {
    let (from, to) = ([b"there".to_vec()], ground.here("got"));
    let (took, summary) = time(client.get(&from, &to, false, Arc::new(()))).await;
    assert_eq!(summary.expect("it comes").stored, 1);
    std::fs::remove_file(to).expect("it is there");
    took
}

#[test]
fn a_client_keeps_to_its_own_limit() {
    let ground = Ground::new();
    write(&ground.here("file"), &content(BYTES));
    write(&ground.served("there"), &content(BYTES));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        client.limit(Some(RATE_BPS));
        let took = put(&ground, &mut client).await;
        assert!(took >= MIN, "{took:?}");
        let took = get(&ground, &mut client).await;
        assert!(took >= MIN, "{took:?}");
    });
}

#[test]
fn a_server_enforces_its_limit_and_that_of_each_key() {
    let ground = Ground::new();
    write(&ground.here("file"), &content(BYTES));
    write(&ground.served("there"), &content(BYTES));
    run(async {
        for of_key in [true, false] {
            let mut options = ground.options();
            if of_key {
                let access = Access { rate_bps: Some(RATE_BPS), ..Access::default() };
                options.policy.keys.insert(ground.client.public(), access);
            } else {
                options.rate_bps = Some(RATE_BPS);
            }
            let server = start(&ground.server, options);
            let mut one = ground.connect(&server).await.expect("a connection");
            let mut two = ground.connect(&server).await.expect("a connection");
            let took = put(&ground, &mut one).await;
            assert!(took >= MIN, "{took:?}");
            // two connections are no faster than one
            let again = [b"there".to_vec()];
            let to = ground.here("another");
            let (took, _) = time(async {
                let other = two.get(&again, &to, false, Arc::new(()));
                let (_, other) = tokio::join!(get(&ground, &mut one), other);
                assert_eq!(other.expect("it comes").stored, 1);
            })
            .await;
            assert!(took >= 2 * MIN, "{took:?}");
            std::fs::remove_file(to).expect("it is there");
        }
    });
}

#[test]
fn small_files_count() {
    let ground = Ground::new();
    for n in 0..20 {
        write(&ground.here(&format!("small/{n}")), &content(50_000));
    }
    run(async {
        let mut options = ground.options();
        options.rate_bps = Some(RATE_BPS);
        let server = start(&ground.server, options);
        let mut client = ground.connect(&server).await.expect("a connection");
        let paths = [ground.here("small")];
        let (took, summary) = time(client.put(&paths, b"", false, Arc::new(()))).await;
        assert_eq!(summary.expect("they are sent").stored, 21);
        assert!(took >= MIN, "{took:?}");
    });
}

/// A client that was told the limit and does not care: all is written at once, and
/// the server takes its time.
#[test]
fn a_server_reads_no_faster_than_its_limit() {
    let ground = Ground::new();
    run(async {
        let mut options = ground.options();
        options.rate_bps = Some(RATE_BPS);
        let server = start(&ground.server, options);
        let client = ground.connect(&server).await.expect("a connection");
        let connection = client.connection();
        let (send, receive) = connection.open_bi().await.expect("a stream");
        let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
        writer.queue(&hello(Greeting::default())).await.expect("it is said");
        let request = Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: None,
            parts: None,
        };
        writer.send(&request).await.expect("it is said");
        assert_eq!(reader.recv_hello().await.expect("a greeting").rate_bps, Some(RATE_BPS));
        assert_eq!(reader.expect().await.expect("an answer"), Message::ACCEPTED);
        let content = content(BYTES);
        let path = RelPath::parse(b"file").expect("a name");
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let kind = EntryKind::File {
            size: BYTES as u64,
            mode: 0o600,
            mtime,
            inline: None,
            hash: None,
            data: None,
            more: None,
        };
        writer.send(&Message::Entry { id: 0, path, kind }).await.expect("it is said");
        assert!(matches!(reader.expect().await, Ok(Message::Have { last: true, .. })));
        let start = Instant::now();
        let mut data = connection.open_uni().await.expect("a stream");
        let mut bytes = Vec::new();
        let header = DataHeader { id: 0, offset: 0, len: BYTES as u64, zstd: None };
        header.frame(&mut bytes).expect("a header");
        bytes.extend_from_slice(&content);
        data.write_all(&bytes).await.expect("there is room for all of it");
        data.finish().expect("once");
        let root = *blake3::hash(&content).as_bytes();
        let sealed = Message::Sealed { id: 0, root, bytes: BYTES as u64 };
        writer.send(&sealed).await.expect("it is said");
        assert_eq!(reader.expect().await.expect("an answer"), Message::Stored { id: 0 });
        assert!(start.elapsed() >= MIN, "{:?}", start.elapsed());
    });
}
