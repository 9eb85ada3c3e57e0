//! What came stays when the connection is cut, and is not sent again.

use std::sync::atomic::{AtomicU64, Ordering};

use headroom_transfer_proto::message::{EntryKind, Message, Time};
use headroom_transfer_proto::path::RelPath;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::claims::ClaimTable;
use crate::connection::Connection;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};

/// Cuts the connection when so many bytes were moved, and some of them lie on the
/// receiver's disk. Until then the piece that they belong to goes no further, so the
/// transfer cannot be over before it is cut.
struct PipeError {
    left: AtomicU64,
    connection: quinn::Connection,
    /// The receiver's directory, and what is to lie there.
    receiver: (PathBuf, u64),
}

impl PipeError {
    fn after(bytes: u64, client: &Client, receiver: (PathBuf, u64)) -> Arc<Self> {
        let connection = client.connection().clone();
        Arc::new(Self { left: AtomicU64::new(bytes), connection, receiver })
    }
}

impl Observer for PipeError {
    fn event(&self, event: Event<'_>) {
        let Event::Moved { bytes } = event else { return };
        let take = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if !(1..=bytes).contains(&before.expect("it always changes")) {
            return;
        }
        tokio::task::block_in_place(|| {
            while on_disk(&self.receiver.0) < self.receiver.1 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        self.connection.close(0u32.into(), b"");
    }
}

/// Bytes that the files of a directory take.
fn on_disk(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a folder").flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

/// Spans of the file that lie whole in what came of it.
fn whole_spans(directory: &Path) -> u64 {
    let content = content(BYTES);
    let entries = std::fs::read_dir(directory).expect("a folder").flatten();
    let partial = entries.map(|entry| entry.path()).find(|path| path.is_file());
    let came = partial.map_or(Vec::new(), |path| std::fs::read(path).expect("what came"));
    let pairs = came.chunks_exact(SPAN as usize).zip(content.chunks_exact(SPAN as usize));
    pairs.filter(|(here, there)| here == there).count() as u64
}

const SPAN: u64 = 1 << 20;
const BYTES: usize = (40 << 20) + 4321;

#[test]
fn an_interrupted_put_resumes() {
    let ground = Ground::new();
    write(&ground.here("file"), &content(BYTES));
    run(async {
        let server = ground.start();
        for cut in 1..4 {
            let mut client = ground.connect(&server).await.expect("a connection");
            let cut = PipeError::after(4 * SPAN, &client, (ground.served(""), 4 * cut * SPAN));
            let put = client.put(&[ground.here("file")], b"file", false, cut).await;
            assert!(matches!(put, Err(Error::Lost(_))), "{put:?}");
            assert!(!ground.served("file").exists(), "nothing half-written under its name");
        }
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("file")], b"file", false, Arc::new(())).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (1, 0));
        assert_eq!(put.kept + put.moved, BYTES as u64);
        assert!(put.kept >= 8 * SPAN, "{} bytes were kept", put.kept);
    });
    assert_eq!(std::fs::read(ground.served("file")).expect("it is there"), content(BYTES));
    assert_eq!(tree(&ground.served("")).len(), 1, "no partial file is left");
}

/// Though the name that it was to get is that of a directory now.
#[test]
fn a_tree_resumes_under_its_new_name() {
    let ground = Ground::new();
    for folder in [ground.here("d"), ground.served("d")] {
        write(&folder.join("a"), b"a small file, which comes first");
        write(&folder.join("file"), &content(BYTES));
    }
    run(async {
        for paths in [PathPolicy::BeneathRoot, PathPolicy::FollowLinks] {
            let server = start(&ground.server, Options { paths, ..ground.options() });
            for put in [true, false] {
                let name = format!("{paths:?} {put}");
                let folder = if put { ground.served(&name) } else { ground.here(&name) };
                for nth in 0..4 {
                    let mut client = ground.connect(&server).await.expect("a connection");
                    let cut = PipeError::after(4 * SPAN, &client, (folder.clone(), SPAN));
                    let observer: Arc<dyn Observer> = if nth < 2 { cut } else { Arc::new(()) };
                    let moved = match put {
                        true => {
                            let from = [ground.here("d")];
                            client.put(&from, name.as_bytes(), false, observer).await
                        }
                        false => client.get(&[b"d".to_vec()], &folder, false, observer).await,
                    };
                    assert_eq!(moved.is_err(), nth < 2, "{name} {nth}: {moved:?}");
                    let is_whole = folder.join("file").is_file();
                    assert_eq!(is_whole, nth >= 2, "{name} {nth}: {:?}", tree(&folder));
                    // who has become it goes into it the next time, as with cp
                    assert_eq!(folder.join("d").exists(), nth == 3, "{name} {nth}");
                }
                let source = if put { ground.here("d") } else { ground.served("d") };
                assert_eq!(tree(&folder.join("d")), tree(&source), "{name}: nothing hidden stays");
                std::fs::remove_dir_all(folder.join("d")).expect("it is there");
                assert_eq!(tree(&folder).len(), tree(&source).len(), "{name}");
            }
        }
    });
}

#[test]
fn an_interrupted_get_resumes() {
    let ground = Ground::new();
    write(&ground.served("file"), &content(BYTES));
    run(async {
        let server = ground.start();
        let mut cuts = 0;
        // how much of what came is whole spans is chance
        while cuts < 3 || whole_spans(&ground.here("")) < 2 {
            assert!(cuts < 12, "nothing comes");
            let mut client = ground.connect(&server).await.expect("a connection");
            let cut = PipeError::after(3 * SPAN, &client, (ground.here(""), SPAN));
            let to = ground.here("file");
            let got = client.get(&[b"file".to_vec()], &to, false, cut).await;
            assert!(matches!(got, Err(Error::Lost(_))), "{got:?}");
            assert!(!to.exists(), "nothing half-written under its name");
            cuts += 1;
        }
        let whole = whole_spans(&ground.here(""));
        let mut client = ground.connect(&server).await.expect("a connection");
        let got = client.get(&[b"file".to_vec()], &ground.here("file"), false, Arc::new(())).await;
        let got = got.expect("it is fetched");
        assert_eq!(got.kept + got.moved, BYTES as u64);
        assert!(got.kept >= whole * SPAN, "{} bytes were kept of {whole} spans", got.kept);
    });
    assert_eq!(std::fs::read(ground.here("file")).expect("it is there"), content(BYTES));
}

#[test]
fn a_put_resumes_at_a_restarted_server() {
    let ground = Ground::new();
    write(&ground.here("file"), &content(BYTES));
    let cut = |bytes| {
        run(async {
            let server = ground.start();
            let mut client = ground.connect(&server).await.expect("a connection");
            let cut = PipeError::after(4 * SPAN, &client, (ground.served(""), bytes));
            let put = client.put(&[ground.here("file")], b"file", false, cut).await;
            assert!(matches!(put, Err(Error::Lost(_))), "{put:?}");
        });
    };
    // the server ends with the runtime
    cut(4 * SPAN);
    cut(8 * SPAN);
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("file")], b"file", false, Arc::new(())).await;
        let put = put.expect("it is sent");
        assert_eq!(put.kept + put.moved, BYTES as u64);
        assert!(put.kept >= 4 * SPAN, "{} bytes were kept", put.kept);
    });
    assert_eq!(std::fs::read(ground.served("file")).expect("it is there"), content(BYTES));
}

#[test]
fn a_client_that_reconnects_takes_over_from_its_former_connection() {
    let ground = Ground::new();
    write(&ground.here("file"), &content(BYTES));
    run(async {
        let server = ground.start();
        // this one says that it has a file, and then nothing more, as if it were dead
        let mut first = ground.connect(&server).await.expect("a connection");
        let silent = silent_offer(&mut first, BYTES as u64, &ground.here("file")).await;
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("file")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1);
        drop(silent);
        let gone = first.list(b"", |_| {}).await.expect_err("it was closed").to_string();
        assert!(gone.contains("took its place"), "{gone}");
    });
    assert_eq!(std::fs::read(ground.served("file")).expect("it is there"), content(BYTES));
}

/// What a client that died has left in its stream must not end the client that came
/// after it.
#[test]
fn a_transfer_that_began_earlier_does_not_take_over_from_a_later_one() {
    let ground = Ground::new();
    let file = ground.here("file");
    write(&file, &content(BYTES));
    run(async {
        let server = ground.start();
        let mut first = ground.connect(&server).await.expect("a connection");
        let (mut writer, mut reader) = begin_put(&mut first).await;
        let mut second = ground.connect(&server).await.expect("a connection");
        let mut later = silent_offer(&mut second, BYTES as u64, &file).await;
        offer(&mut writer, "file", BYTES as u64, &file).await;
        let answer = reader.expect().await.expect("an answer");
        assert!(matches!(answer, Message::Failed { .. }), "{answer:?}");
        // the later one goes on
        offer(&mut later.0, "another", BYTES as u64, &file).await;
        until_it_has(&mut later.1).await;
    });
}

/// The write that is in flight when one transfer ends may end after the next one has claimed the
/// file.
#[test]
fn a_claim_counts_although_it_was_made_beside_another_one_that_ends_first() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(ground.connect(&server).await.expect("a connection"));
        }
        let connections: Vec<_> =
            clients.iter().map(|client| Connection::from(client.connection().clone())).collect();
        let [one, other, third] = &connections[..] else { panic!("there are three") };
        let (table, root) = (ClaimTable::default(), ground.served(""));
        let path = RelPath::parse(b"file").expect("a name");
        let transfer = || table.of(ground.client.public());

        // two transfers of one connection
        let ended = transfer().claim(&root, &path, one);
        let claim = transfer().claim(&root, &path, one);
        assert!(!claim.supersedes());
        drop(ended);
        let (earlier, later) = (transfer(), transfer());
        let taken = later.claim(&root, &path, other);
        assert!(taken.supersedes() && one.close_reason().is_some());
        drop(claim);
        // one that began earlier, on another connection, and has the file at last
        let claim = earlier.claim(&root, &path, third);
        assert!(!claim.supersedes() && other.close_reason().is_none());
        drop(taken);
        assert!(transfer().claim(&root, &path, other).supersedes());
        assert!(third.close_reason().is_some());
        drop(claim);
    });
}

/// A crowd puts a file of one name at once, each with another content: whatever is said
/// to whom, one of them is there whole, and it can be put again.
#[test]
fn of_many_concurrent_puts_of_a_file_one_stores_it() {
    for is_one_client in [true, false] {
        let ground = Ground::new();
        let others: Vec<_> = (0..6).map(|_| Identity::ephemeral().expect("a key")).collect();
        run(async {
            let mut options = ground.options();
            for other in &others {
                options.policy.keys.insert(other.public(), Access::default());
            }
            let server = start(&ground.server, options);
            let host = host(&server);
            let hosts = ground.hosts(&host);
            let mut putting = tokio::task::JoinSet::new();
            for (n, other) in others.iter().enumerate() {
                let from = ground.here(&format!("{n}/file"));
                write(&from, &content(BYTES + n));
                let identity = if is_one_client { &ground.client } else { other };
                let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
                let mut client = Client::connect(&host, identity, trust).await.expect("it comes");
                putting.spawn(async move {
                    let put = client.put(&[from], b"", false, Arc::new(())).await;
                    match put {
                        Ok(put) => assert_eq!(put.stored + put.failed, 1),
                        Err(Error::Lost(_) | Error::Superseded) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            putting.join_all().await;
            let stored = std::fs::read(ground.served("file")).expect("somebody's is there");
            assert!((0..others.len()).any(|n| stored == content(BYTES + n)));
            let mut client = ground.connect(&server).await.expect("a connection");
            let put = client.put(&[ground.here("0/file")], b"", false, Arc::new(())).await;
            assert_eq!(put.expect("it is sent").stored, 1);
        });
        assert_eq!(std::fs::read(ground.served("file")).expect("a file"), content(BYTES));
    }
}

/// Begins what `put` does, offers nothing yet.
async fn begin_put(client: &mut Client) -> (MessageWriter, MessageReader) {
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
    for message in [hello(Greeting::default()), put] {
        writer.send(&message).await.expect("it is sent");
    }
    reader.recv_hello().await.expect("it greets");
    let accepted = reader.expect().await.expect("an answer");
    assert!(matches!(accepted, Message::Accepted { .. }), "{accepted:?}");
    (writer, reader)
}

/// Offers a file as `put` does.
async fn offer(writer: &mut MessageWriter, name: &str, size: u64, path: &Path) {
    let meta = path.metadata().expect("it is there");
    let nanoseconds = u32::try_from(meta.mtime_nsec()).expect("a part of a second");
    let mtime = Time { seconds: meta.mtime(), nanoseconds };
    let kind = EntryKind::File {
        size,
        mode: 0o644,
        mtime,
        inline: None,
        hash: None,
        data: None,
        more: None,
    };
    let path = RelPath::parse(name.as_bytes()).expect("a name");
    let id = name.len() as u64;
    writer.send(&Message::Entry { id, path, kind }).await.expect("it is sent");
}

async fn until_it_has(reader: &mut MessageReader) {
    while !matches!(reader.expect().await.expect("an answer"), Message::Have { last: true, .. }) {}
}

/// Offers a file, and waits until the server has said what it has of it.
async fn silent_offer(
    client: &mut Client,
    size: u64,
    path: &Path,
) -> (MessageWriter, MessageReader) {
    let (mut writer, mut reader) = begin_put(client).await;
    offer(&mut writer, "file", size, path).await;
    until_it_has(&mut reader).await;
    (writer, reader)
}
