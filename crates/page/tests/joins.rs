//! Uploads on several sessions of a browser.

mod ground;

use std::fs;

use ground::{Browser, Ground, accepted, framed, hello, open, recv, run};
use headroom_transfer::PublicKey;
use headroom_transfer::trust::{Access, AccessPolicy};
use headroom_transfer_proto::message::{DataHeader, EntryKind, Message, Time};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{SPAN_BYTES, Spans, Tree};
use wtransport::{Connection, RecvStream, SendStream};

const PIECE: usize = SPAN_BYTES as usize;

/// An upload of one file of two pieces, which has sent nothing of it.
struct Upload {
    session: Connection,
    send: SendStream,
    receive: RecvStream,
    ticket: [u8; 16],
    content: Vec<u8>,
}

impl Upload {
    async fn begin(ground: &Ground, browser: &Browser) -> Self {
        let session = signed_in(ground, browser).await;
        let put = Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: None,
            parts: None,
        };
        let (send, mut receive) = request(&session, put).await;
        let answer = recv(&mut receive).await.expect("an answer");
        let Message::Accepted { ticket: Some(ticket), .. } = answer else { panic!("{answer:?}") };
        let content = (0..2 * PIECE).map(|at| (at / 7) as u8).collect();
        let mut upload = Self { session, send, receive, ticket, content };
        let kind = EntryKind::File {
            size: 2 * SPAN_BYTES,
            mode: 0o644,
            mtime: Time { seconds: 0, nanoseconds: 0 },
            inline: None,
            hash: None,
            data: None,
            more: None,
        };
        let path = RelPath::parse(b"file").expect("a path");
        let end = Message::EntriesEnd { files: 1, bytes: 2 * SPAN_BYTES };
        let offer = framed(&[Message::Entry { id: 0, path, kind }, end]);
        upload.send.write_all(&offer).await.expect("it is sent");
        let answer = recv(&mut upload.receive).await;
        assert!(matches!(answer, Some(Message::Have { last: true, .. })), "{answer:?}");
        upload
    }

    /// Joins with another session; returns it, and what the server tells there.
    async fn joined(&self, ground: &Ground, browser: &Browser) -> (Connection, RecvStream) {
        let session = signed_in(ground, browser).await;
        let (answer, news) = join(&session, self.ticket).await;
        assert!(accepted(&answer), "{answer:?}");
        (session, news)
    }

    /// Sends a piece on a session.
    async fn piece(&self, number: usize, on: &Connection) {
        let offset = number * PIECE;
        let mut bytes = Vec::new();
        let header = DataHeader { id: 0, offset: offset as u64, len: SPAN_BYTES, zstd: None };
        header.frame(&mut bytes).expect("a header");
        bytes.extend_from_slice(&self.content[offset..offset + PIECE]);
        let mut stream = on.open_uni().await.expect("a stream").await.expect("a stream");
        stream.write_all(&bytes).await.expect("it is sent");
        stream.finish().await.expect("it is sent");
    }

    /// Says that all is sent, and waits until the file is stored.
    async fn seal(&mut self) -> Result<(), Option<Message>> {
        let spans = Spans::new(2 * SPAN_BYTES);
        let mut tree = Tree::new(spans);
        for (span, piece) in self.content.chunks(PIECE).enumerate() {
            tree.insert(span as u64, spans.value(span as u64, piece).expect("a span"));
        }
        let root = *tree.root().expect("all spans").as_bytes();
        let sealed = framed(&[Message::Sealed { id: 0, root, bytes: 2 * SPAN_BYTES }]);
        self.send.write_all(&sealed).await.expect("it is sent");
        loop {
            match recv(&mut self.receive).await {
                Some(Message::Arrived { .. } | Message::Stored { id: 0 }) => {}
                Some(Message::End { stored: 1, failed: 0 }) => return Ok(()),
                other => return Err(other),
            }
        }
    }
}

async fn signed_in(ground: &Ground, browser: &Browser) -> Connection {
    let session = ground.connect().await.expect("a session");
    let (answer, _) = browser.look(&session, &ground.pinned(), Message::Rights).await;
    assert!(matches!(answer, Message::Granted { .. }), "{answer:?}");
    session
}

async fn request(session: &Connection, message: Message) -> (SendStream, RecvStream) {
    let (mut send, mut receive) = open(session).await;
    send.write_all(&framed(&[hello(), message])).await.expect("it is sent");
    let greeting = recv(&mut receive).await;
    assert!(matches!(greeting, Some(Message::Hello { .. })), "{greeting:?}");
    (send, receive)
}

/// Joins, and returns the answer and what follows it.
async fn join(session: &Connection, ticket: [u8; 16]) -> (Message, RecvStream) {
    let (mut send, mut receive) = request(session, Message::Join { ticket }).await;
    ground::finish(&mut send).await;
    (recv(&mut receive).await.expect("an answer"), receive)
}

#[test]
fn an_upload_moves_on_all_sessions_that_join_it_and_each_is_told_what_arrived_there() {
    run(async {
        let ground = Ground::start();
        let browser = Browser::known(&ground);
        let mut upload = Upload::begin(&ground, &browser).await;
        let (joined, mut news) = upload.joined(&ground, &browser).await;
        upload.piece(1, &joined).await;
        upload.piece(0, &upload.session).await;
        upload.seal().await.expect("it is stored");
        assert_eq!(fs::read(ground.served("file")).expect("the file"), upload.content);
        // the last news may be too late, but no news is wrong
        let mut told = 0;
        loop {
            match recv(&mut news).await.expect("a message") {
                Message::Arrived { bytes, streams } => {
                    assert!((told..=SPAN_BYTES).contains(&bytes) && streams <= 1);
                    told = bytes;
                }
                Message::End { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        // late data of this upload can be taken for that of no other
        joined.closed().await;
        let late = signed_in(&ground, &browser).await;
        let (answer, _) = join(&late, upload.ticket).await;
        assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");
    });
}

#[test]
fn an_upload_is_joined_by_its_own_key_with_its_ticket_and_not_without_end() {
    run(async {
        let ground = Ground::start();
        let (browser, other) = (Browser::new(), Browser::new());
        let mut policy = AccessPolicy::default();
        for known in [&browser, &other] {
            policy.keys.insert(PublicKey::from(known.key()), Access::default());
        }
        ground.server.set_policy(policy);
        let mut upload = Upload::begin(&ground, &browser).await;
        for (who, ticket) in [(&browser, [7; 16]), (&other, upload.ticket)] {
            let session = signed_in(&ground, who).await;
            let (answer, _) = join(&session, ticket).await;
            assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");
        }
        let mut sessions = Vec::new();
        for number in 0..16 {
            let session = signed_in(&ground, &browser).await;
            let (answer, news) = join(&session, upload.ticket).await;
            assert_eq!(accepted(&answer), number < 15, "{number}: {answer:?}");
            sessions.push((session, news));
        }
        // those that were refused have disturbed nothing
        for number in 0..2 {
            upload.piece(number, &upload.session).await;
        }
        upload.seal().await.expect("it is stored");
    });
}

#[test]
fn an_upload_ends_when_a_session_that_joined_it_is_lost() {
    run(async {
        let ground = Ground::start();
        let browser = Browser::known(&ground);
        let mut upload = Upload::begin(&ground, &browser).await;
        let (joined, _news) = upload.joined(&ground, &browser).await;
        upload.piece(0, &upload.session).await;
        joined.close(0_u32.into(), b"");
        // so that it is sent again as a whole, with what is missing
        while let Some(message) = recv(&mut upload.receive).await {
            assert!(matches!(message, Message::Arrived { .. } | Message::Refused { .. }));
        }
        assert!(!ground.served("file").exists());
    });
}
