//! Peers that flood, dawdle and lie: each is rejected or bounded, what was done is
//! named, and others go on.

use std::net::UdpSocket;
use std::time::Duration;

use headroom_transfer_proto::message::{
    DataHeader, EntryKind, Inline, Keep, MAX_OPEN_FILES, Message, Time, TreeOptions,
};
use headroom_transfer_proto::path::RelPath;
use quinn::{Connection, ConnectionError, Endpoint};

use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::quic;
use crate::server::RejectionCounts;
use crate::trust::HostKeys;

const MTIME: Time = Time { seconds: 1_700_000_000, nanoseconds: 0 };
/// A server is given so long to answer.
const A_TIME: Duration = Duration::from_secs(60);
/// Nothing happens for so long: something waits.
const A_WHILE: Duration = Duration::from_millis(300);

/// A client that does what it wants.
pub(super) struct Raw {
    _endpoint: Endpoint,
    pub(super) connection: Connection,
}

impl Raw {
    pub(super) async fn connect(ground: &Ground, server: &Server) -> Self {
        Self::connect_as(&ground.client, ground, server).await
    }

    /// Connects with another key than that of the client.
    pub(super) async fn connect_as(client: &Identity, ground: &Ground, server: &Server) -> Self {
        let host_keys = HostKeys::Keys(vec![ground.server.public()]);
        let addresses = vec![server.address().expect("an address")];
        let identity = Some(client);
        let connected =
            quic::connect_to(&host(server), addresses, identity, host_keys, None, A_TIME).await;
        let (endpoint, connection) = connected.expect("a connection");
        Self { _endpoint: endpoint, connection }
    }

    /// Begins a request.
    pub(super) async fn ask(&self, request: Message) -> (MessageWriter, MessageReader) {
        let (send, receive) = self.connection.open_bi().await.expect("a stream");
        let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
        writer.queue(&hello(Greeting::default())).await.expect("it is open");
        writer.send(&request).await.expect("it is open");
        reader.recv_hello().await.expect("a greeting");
        let answer = reader.expect().await.expect("an answer");
        assert!(matches!(answer, Message::Accepted { .. }), "{answer:?}");
        (writer, reader)
    }

    pub(super) async fn put(&self) -> (MessageWriter, MessageReader) {
        self.ask(Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: None,
            parts: None,
        })
        .await
    }

    /// Waits until the server ends the connection, with these words.
    pub(super) async fn expect_end(&self, words: &str) {
        let reason = self.connection.closed().await;
        // A process that pauses for longer than the server remembers an ended connection (three
        // probe timeouts) receives the reason and a stateless reset at once. quinn reports the
        // later one.
        if reason != ConnectionError::Reset {
            assert!(reason.to_string().contains(words), "{reason}");
        }
    }
}

pub(super) fn file(id: u64, name: &str, size: u64) -> Message {
    let path = RelPath::parse(name.as_bytes()).expect("a name");
    Message::Entry {
        id,
        path,
        kind: EntryKind::File {
            size,
            mode: 0o644,
            mtime: MTIME,
            inline: None,
            hash: None,
            data: None,
            more: None,
        },
    }
}

/// An honest client comes, puts a file and fetches it.
pub(super) async fn assert_others_go_on(ground: &Ground, server: &Server) {
    let honest = content(300_000);
    write(&ground.here("honest"), &honest);
    let mut client = ground.connect(server).await.expect("a connection");
    let put = client.put(&[ground.here("honest")], b"", false, Arc::new(())).await;
    assert_eq!(put.expect("it is sent").stored, 1);
    let got = client.get(&[b"honest".to_vec()], &ground.here("back"), false, Arc::new(())).await;
    assert_eq!(got.expect("it is fetched").stored, 1);
    assert_eq!(std::fs::read(ground.here("back")).expect("a file"), honest);
    client.close().await;
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

/// First packets of clients that never answer, each from a port of its own.
fn knock(server: &Server, from: [u8; 4], count: usize) -> Vec<UdpSocket> {
    let ear = UdpSocket::bind("127.0.0.1:0").expect("a port");
    ear.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    let config = quic::quic_client(
        rustls::ClientConfig::builder_with_provider(crate::trust::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth(),
    );
    let config = config.expect("QUIC");
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
    let to = server.address().expect("an address");
    (0..count)
        .map(|_| {
            let connecting = endpoint
                .connect_with(config.clone(), ear.local_addr().expect("an address"), "localhost")
                .expect("it begins");
            // the first packet of it, and perhaps of one before
            let mut packet = [0; 2048];
            let len =
                tokio::task::block_in_place(|| headroom_netio::retried(|| ear.recv(&mut packet)))
                    .expect("a packet");
            drop(connecting);
            let socket = UdpSocket::bind((std::net::Ipv4Addr::from(from), 0)).expect("a port");
            socket.send_to(&packet[..len], to).expect("it is sent");
            socket
        })
        .collect()
}

#[test]
fn a_flood_of_initial_packets_leaves_no_state_and_others_connect() {
    let ground = Ground::new();
    run(async {
        let mut options = ground.options();
        options.limits.unvalidated = 8;
        let server = start(&ground.server, options);
        let _sockets = knock(&server, [127, 0, 0, 1], 200);
        wait_until("they are asked", || server.rejections().unvalidated_packets >= 40).await;
        assert!(server.connections() <= 16, "{} connections", server.connections());
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn handshakes_that_never_complete_keep_no_other_address_out() {
    let ground = Ground::new();
    run(async {
        let mut options = ground.options();
        options.limits.handshakes = 4;
        options.limits.handshakes_of_address = 2;
        options.limits.unvalidated = 1000;
        let server = start(&ground.server, options);
        let _sockets = knock(&server, [127, 0, 0, 2], 30);
        wait_until("they take their turns", || server.connections() >= 2).await;
        for _ in 0..5 {
            assert_others_go_on(&ground, &server).await;
        }
        // those that waited for their turn and those that had it are told apart from others
        let gone = || server.rejections().slow + server.rejections().failed;
        wait_until("they are given up", || gone() >= 2).await;
    });
}

#[test]
fn an_address_has_no_more_connections_than_it_may_have() {
    let ground = Ground::new();
    run(async {
        let mut options = ground.options();
        options.limits.of_address = 2;
        let server = start(&ground.server, options);
        let one = Raw::connect(&ground, &server).await;
        let _two = Raw::connect(&ground, &server).await;
        let refused = ground.connect(&server).await;
        assert!(refused.is_err(), "a third came in");
        assert_eq!(
            server.rejections(),
            RejectionCounts { full_for_address: 1, ..RejectionCounts::default() }
        );
        one.connection.close(0u32.into(), b"");
        wait_until("it is gone", || server.connections() < 2).await;
        let mut again = ground.connect(&server).await;
        // its place is given back a moment after the connection
        for _ in 0..100 {
            if again.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            again = ground.connect(&server).await;
        }
        again.expect("there is room again");
    });
}

#[test]
fn a_client_that_sends_half_a_message_is_rejected() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut send, _receive) = raw.connection.open_bi().await.expect("a stream");
        send.write_all(&[0, 0]).await.expect("it is open");
        assert_others_go_on(&ground, &server).await;
        raw.expect_end("does not say what it wants").await;
        assert_eq!(server.rejections().protocol, 1);
    });
}

#[test]
fn data_streams_need_an_accepted_put() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let opened = tokio::time::timeout(A_WHILE, raw.connection.open_uni()).await;
        assert!(opened.is_err(), "nothing was asked yet");
        let (mut writer, mut reader) = raw.put().await;
        writer.send(&file(1, "a", 30 << 20)).await.expect("it is open");
        assert!(matches!(reader.expect().await, Ok(Message::Have { id: 1, last: true, .. })));
        // all that there may be, each with a header and nothing behind it
        let mut head = Vec::new();
        DataHeader { id: 1, offset: 0, len: 30 << 20, zstd: None }
            .frame(&mut head)
            .expect("a header");
        let mut streams = Vec::new();
        for _ in 0..quic::DATA_STREAMS {
            let mut stream = raw.connection.open_uni().await.expect("a stream");
            stream.write_all(&head).await.expect("it is open");
            streams.push(stream);
        }
        let opened = tokio::time::timeout(A_WHILE, raw.connection.open_uni()).await;
        assert!(opened.is_err(), "more than there may be");
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn unread_answers_stop_further_offers() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        raw.connection.set_receive_window(4096u32.into());
        let (mut writer, _hearer) = raw.put().await;
        // each is refused at length, for its directory is missing
        let name = [b"missing".to_vec(), vec![b'x'; 250], vec![b'y'; 250], vec![b'z'; 250]];
        let path = RelPath::parse(&name.join(&b'/')).expect("a name");
        let mut is_heard = true;
        for id in 0..200_000 {
            let kind = EntryKind::Symlink { target: b"x".to_vec(), mtime: None, more: None };
            let link = Message::Entry { id, path: path.clone(), kind };
            let said = tokio::time::timeout(Duration::from_secs(2), writer.queue(&link)).await;
            is_heard = said.is_ok();
            if !is_heard {
                break;
            }
        }
        assert!(!is_heard, "all of them were taken");
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn wrong_sizes_and_reused_ids_are_protocol_violations() {
    let ground = Ground::new();
    let small = |id, size| {
        let content = b"four".to_vec();
        let inline = Inline { root: *blake3::hash(&content).as_bytes(), content };
        let Message::Entry { path, .. } = file(id, &format!("f{id}"), size) else { panic!() };
        let inline = Some(inline);
        let kind = EntryKind::File {
            size,
            mode: 0o644,
            mtime: MTIME,
            inline,
            hash: None,
            data: None,
            more: None,
        };
        Message::Entry { id, path, kind }
    };
    run(async {
        let server = ground.start();
        for (wrong, words) in [
            (small(8, 400), "4 bytes of f8 and says that they are 400"),
            (small(8, 0), "4 bytes of f8"),
            (small(7, 4), "numbers an entry 7"),
            (small(6, 4), "numbers an entry 6"),
            (file(7, "f7", 1 << 20), "numbers an entry 7"),
        ] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, mut reader) = raw.put().await;
            writer.send(&small(7, 4)).await.expect("it is open");
            assert!(matches!(reader.expect().await, Ok(Message::Stored { id: 7 })));
            writer.send(&wrong).await.expect("it is open");
            raw.expect_end(words).await;
        }
        assert_eq!(server.rejections().protocol, 5);
        assert!(!ground.served("f8").exists() && !ground.served("f6").exists());
        assert_others_go_on(&ground, &server).await;
    });
}

/// Neither to what was there before, nor to what it did not announce, nor unasked.
#[test]
fn hard_links_lead_only_to_files_of_the_same_transfer() {
    let ground = Ground::new();
    write(&ground.served("before"), b"what was there");
    std::os::unix::fs::symlink("before", ground.served("link")).expect("a link");
    let link = |id, to: &[u8]| {
        let to = RelPath::parse(to).expect("a name");
        let path = RelPath::parse(b"new").expect("a name");
        Message::Entry { id, path, kind: EntryKind::HardLink { to } }
    };
    let put = |keep| {
        let tree = TreeOptions { keep, ..TreeOptions::default() };
        Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: Some(tree),
            parts: None,
        }
    };
    run(async {
        let server = ground.start();
        for (keep, to) in [
            (Keep::HARD_LINKS, &b"before"[..]),
            (Keep::HARD_LINKS, b"link"),
            (Keep::HARD_LINKS, b"f1"),
            (Keep::NONE, b"f1"),
        ] {
            let raw = Raw::connect(&ground, &server).await;
            let (mut writer, mut reader) = raw.ask(put(keep)).await;
            // it does not say that others follow
            writer.send(&file(1, "f1", 1 << 20)).await.expect("it is open");
            assert!(matches!(reader.expect().await, Ok(Message::Have { id: 1, .. })));
            writer.send(&link(2, to)).await.expect("it is open");
            raw.expect_end("hard link to").await;
        }
        assert_eq!(server.rejections().protocol, 4);
        assert!(ground.served("new").symlink_metadata().is_err());
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn more_files_than_may_be_open_are_a_protocol_violation() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, _hearer) = raw.put().await;
        for id in 0..=MAX_OPEN_FILES as u64 {
            writer.send(&file(id, &format!("f{id}"), 1 << 20)).await.expect("it is open");
        }
        raw.expect_end("more than 64 files").await;
        wait_until("it is counted", || server.rejections().protocol == 1).await;
        assert_others_go_on(&ground, &server).await;
    });
}

#[test]
fn a_false_size_costs_no_memory() {
    // where files may have any size
    let memory = Path::new("/dev/shm");
    let Ok(folder) = tempfile::tempdir_in(memory) else { return };
    let ground = Ground::new();
    run(async {
        let mut options = ground.options();
        options.root = folder.path().to_owned().into();
        let server = start(&ground.server, options);
        let raw = Raw::connect(&ground, &server).await;
        let (mut writer, mut reader) = raw.put().await;
        for (id, size) in [(1, u64::MAX), (2, i64::MAX as u64), (3, 1 << 50), (4, 100_000)] {
            writer.send(&file(id, &format!("f{id}"), size)).await.expect("it is open");
            match reader.expect().await.expect("an answer") {
                Message::Have { id: answered, last: true, values, .. } => {
                    assert!(answered == id && values.is_empty());
                }
                Message::Failed { id: answered, reason, .. } => {
                    assert!(answered == id && id < 4, "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        // and more of it than it has
        let mut head = Vec::new();
        DataHeader { id: 4, offset: 1 << 20, len: u64::MAX, zstd: None }
            .frame(&mut head)
            .expect("a header");
        let mut stream = raw.connection.open_uni().await.expect("a stream");
        stream.write_all(&head).await.expect("it is open");
        let more = tokio::time::timeout(A_TIME, async {
            while stream.write_all(&[7; 1 << 16]).await.is_ok() {}
        });
        more.await.expect("the stream is stopped");
        let Message::Failed { id: 4, reason, .. } = reader.expect().await.expect("an answer")
        else {
            panic!("it was stored");
        };
        assert!(reason.contains("f4"), "{reason}");
        assert_others_go_on(&ground, &server).await;
    });
}
