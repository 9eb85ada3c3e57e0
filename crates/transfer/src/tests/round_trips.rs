//! How often a small file waits for the other end, shown without a clock. QUIC's handshake takes
//! one round trip (`streams/tests.rs`); after it each end sends all it has at once, which takes
//! another one. So 1 KiB takes two.

use headroom_transfer_proto::message::{EntryKind, Inline, Message, Time, Wanted};
use headroom_transfer_proto::path::RelPath;

use super::faults::answering_after;
use super::hostile::Raw;
use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};

/// Bytes of the file.
const SMALL: usize = 1024;
const ENTRIES_END: Message = Message::EntriesEnd { files: 1, bytes: SMALL as u64 };

fn path() -> RelPath {
    RelPath::parse(b"small").expect("a name")
}

/// The file's entry with its content.
fn entry() -> Message {
    let content = content(SMALL);
    let kind = EntryKind::File {
        size: SMALL as u64,
        mode: 0o644,
        mtime: Time { seconds: 1_700_000_000, nanoseconds: 0 },
        inline: Some(Inline { root: *blake3::hash(&content).as_bytes(), content }),
        hash: None,
        data: None,
        more: None,
    };
    Message::Entry { id: 0, path: path(), kind }
}

/// Whether a message is an entry with the file's content.
fn has_content(message: &Message) -> bool {
    match message {
        Message::Entry { kind: EntryKind::File { inline: Some(inline), .. }, .. } => {
            inline.content == content(SMALL)
        }
        _ => false,
    }
}

/// Sends all of a request at once, and returns the answers up to the last, to which nothing is
/// sent.
async fn answers(
    client: &Raw,
    request: &[Message],
    is_last: impl Fn(&Message) -> bool,
) -> Vec<Message> {
    let (send, receive) = client.connection.open_bi().await.expect("a stream");
    let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
    writer.queue(&hello(Greeting::default())).await.expect("it is open");
    for message in request {
        writer.queue(message).await.expect("it is open");
    }
    writer.flush().await.expect("it is open");
    let mut answers = Vec::new();
    while !answers.last().is_some_and(&is_last) {
        answers.push(reader.expect().await.expect("an answer"));
    }
    answers
}

#[test]
fn a_client_puts_a_small_file_before_anything_is_answered() {
    let ground = Ground::new();
    write(&ground.here("small"), &content(SMALL));
    run(async {
        let end = Message::End { stored: 1, failed: 0 };
        let said =
            vec![hello(Greeting::default()), Message::ACCEPTED, Message::Stored { id: 0 }, end];
        let mut came = false;
        let is_all = move |message: &Message| {
            came |= has_content(message);
            let is_all = matches!(message, Message::EntriesEnd { .. });
            assert!(came || !is_all, "the content does not come with the entry");
            is_all
        };
        let mut client = answering_after(&ground, Vec::new(), is_all, said).await;
        let put = client.put(&[ground.here("small")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1);
    });
}

#[test]
fn a_client_gets_a_small_file_by_one_request_and_its_answer() {
    let ground = Ground::new();
    run(async {
        let said = vec![hello(Greeting::default()), Message::ACCEPTED, entry(), ENTRIES_END];
        let is_all = |message: &Message| matches!(message, Message::Get { .. });
        let mut client = answering_after(&ground, Vec::new(), is_all, said).await;
        let got = client.get(&[b"small".to_vec()], &ground.here(""), false, Arc::new(())).await;
        assert_eq!(got.expect("it comes").stored, 1);
        assert_eq!(std::fs::read(ground.here("small")).expect("a file"), content(SMALL));
    });
}

#[test]
fn a_server_stores_a_small_file_that_came_with_the_request() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let client = Raw::connect(&ground, &server).await;
        let put = Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: None,
            parts: None,
        };
        let is_last = |answer: &Message| matches!(answer, Message::End { .. });
        let answers = answers(&client, &[put, entry(), ENTRIES_END], is_last).await;
        assert!(answers.contains(&Message::Stored { id: 0 }), "{answers:?}");
        assert_eq!(std::fs::read(ground.served("small")).expect("a file"), content(SMALL));
    });
}

#[test]
fn a_server_sends_a_small_file_with_its_answer() {
    let ground = Ground::new();
    write(&ground.served("small"), &content(SMALL));
    run(async {
        let server = ground.start();
        let client = Raw::connect(&ground, &server).await;
        let from = vec![Wanted { path: Some(path()), contents: false }];
        let get = Message::Get { from, compress: None, lanes: None, tree: None, ranges: None };
        let is_last = |answer: &Message| matches!(answer, Message::EntriesEnd { .. });
        let answers = answers(&client, &[get], is_last).await;
        assert!(answers.iter().any(has_content), "{answers:?}");
    });
}
