//! Share links: what their holders can do, honest and hostile, over loopback.

mod ground;

use std::fs;

use headroom_transfer::PublicKey;
use headroom_transfer::trust::{Access, AccessPolicy, Shares};
use headroom_transfer_proto::message::{ErrorCode, Message, ShareTerms, TreeOptions, Wanted};
use headroom_transfer_proto::mux::{Frame, StreamId};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Spans, Tree};
use tokio::io::AsyncReadExt;

use self::ground::{Browser, Ground, LOOK, Socket, accepted, framed, hello, look_again, recv, run};

/// A server with share links, and the session of a key that may make some.
struct Sharing {
    ground: Ground,
    maker: Browser,
    session: wtransport::Connection,
}

impl Sharing {
    async fn start() -> Self {
        Self::with(Access::default()).await
    }

    /// Serves `docs/a`, `docs/b` and `secret`; the maker has these rights.
    async fn with(access: Access) -> Self {
        let ground = Ground::start();
        fs::create_dir(ground.served("docs")).expect("a folder");
        for (name, content) in [("docs/a", "content of a"), ("docs/b", "of b"), ("secret", "no")] {
            fs::write(ground.served(name), content).expect("a file");
        }
        let file = ground.authorized_keys().with_file_name("shares");
        let shares = Shares::open(&file).expect("a file").expect("no other server");
        ground.server.set_shares(PublicKey::from([1; 32]), shares, &ground.page.url());
        let maker = Browser::new();
        allow(&ground, &maker, Some(access));
        let session = ground.connect().await.expect("a session");
        let (answer, _) = maker.look(&session, &ground.pinned(), LOOK).await;
        assert!(accepted(&answer), "{answer:?}");
        Self { ground, maker, session }
    }

    async fn share(&self, path: &str, write: bool, uses: Option<u32>) -> (ShareTerms, [u8; 32]) {
        let answer = ask(&self.session, new_share(path, write, 600, uses)).await;
        let Message::Shared { terms, secret, page } = answer else { panic!("{answer:?}") };
        assert_eq!(page, self.ground.page.url());
        (*terms, secret)
    }

    /// Opens a session by the link with this secret.
    async fn open(
        &self,
        guest: &Browser,
        secret: [u8; 32],
    ) -> Result<(wtransport::Connection, ShareTerms), ErrorCode> {
        let session = self.ground.connect().await.expect("a session");
        let shown = Message::ShareSecret { secret };
        match guest.show(&session, &self.ground.pinned(), shown).await {
            Message::Granted {
                known: false, may_share: Some(false), share: Some(share), ..
            } => Ok((session, *share)),
            Message::Refused { code: Some(code), .. } => Err(code),
            other => panic!("{other:?}"),
        }
    }
}

fn allow(ground: &Ground, browser: &Browser, access: Option<Access>) {
    let mut policy = AccessPolicy::default();
    if let Some(access) = access {
        policy.keys.insert(PublicKey::from(browser.key()), access);
    }
    ground.server.set_policy(policy);
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn new_share(at: &str, write: bool, seconds: u64, uses: Option<u32>) -> Message {
    let path = RelPath::typed(at.as_bytes()).expect("a path");
    Message::Share { path, write, seconds, uses, name: "for Alice".to_owned() }
}

/// Sends a request, and returns the answer.
async fn ask(session: &wtransport::Connection, request: Message) -> Message {
    let (mut send, mut receive) = ground::open(session).await;
    send.write_all(&framed(&[hello(), request])).await.expect("it is sent");
    ground::finish(&mut send).await;
    ground::after_hello(&mut receive).await.expect("an answer")
}

fn code(answer: &Message) -> Option<ErrorCode> {
    let Message::Refused { code, .. } = answer else { panic!("{answer:?}") };
    *code
}

/// Fetches a file.
async fn fetch(session: &wtransport::Connection, from: &str) -> Result<String, Message> {
    let (mut send, mut receive) = ground::open(session).await;
    let request = Message::GetStream { from: path(from), tree: None };
    send.write_all(&framed(&[hello(), request])).await.expect("it is sent");
    match ground::after_hello(&mut receive).await.expect("an answer") {
        Message::Accepted { .. } => {}
        other => return Err(other),
    }
    let mut content = String::new();
    let mut data = session.accept_uni().await.expect("a stream");
    data.read_to_string(&mut content).await.expect("the content");
    assert!(matches!(recv(&mut receive).await, Some(Message::Sealed { .. })));
    Ok(content)
}

/// Sends a file.
async fn send_file(
    session: &wtransport::Connection,
    to: &str,
    content: &[u8],
) -> Result<(), Message> {
    let (mut send, mut receive) = ground::open(session).await;
    let request = Message::PutStream { to: path(to), fsync: false };
    send.write_all(&framed(&[hello(), request])).await.expect("it is sent");
    match ground::after_hello(&mut receive).await.expect("an answer") {
        Message::Accepted { .. } => {}
        other => return Err(other),
    }
    let mut data = session.open_uni().await.expect("a stream").await.expect("a stream");
    data.write_all(content).await.expect("it is sent");
    ground::finish(&mut data).await;
    let spans = Spans::new(content.len() as u64);
    let mut tree = Tree::new(spans);
    tree.insert(0, spans.value(0, content).expect("one span"));
    let root = *tree.root().expect("the hash").as_bytes();
    let sealed = Message::Sealed { id: 0, root, bytes: content.len() as u64 };
    send.write_all(&framed(&[sealed])).await.expect("it is sent");
    match recv(&mut receive).await.expect("an answer") {
        Message::Stored { .. } => Ok(()),
        other => Err(other),
    }
}

fn get(wanted: Option<&str>, contents: bool) -> Message {
    let from = vec![Wanted { path: wanted.map(path), contents }];
    let tree = Some(TreeOptions::default());
    Message::Get { from, compress: None, lanes: None, tree, ranges: None }
}

fn changes() -> Vec<Message> {
    let sync = |upload| Message::Sync {
        path: None,
        upload,
        delete: upload,
        dry_run: false,
        checksum: false,
        fsync: false,
        exclude: Vec::new(),
        compress: None,
        tree: None,
    };
    vec![
        Message::Rename { from: path("a"), to: Some(path("c")), replace: true },
        Message::Remove { path: path("a"), recursive: true },
        sync(true),
        sync(false),
        Message::Share { path: None, write: false, seconds: 60, uses: None, name: String::new() },
        Message::Shares,
        Message::Revoke { id: "aaaaaaaa".to_owned() },
    ]
}

#[test]
fn a_shared_directory_is_all_that_its_link_shows_and_nothing_in_it_can_be_changed() {
    run(async {
        let sharing = Sharing::start().await;
        std::os::unix::fs::symlink("../secret", sharing.ground.served("docs/out")).expect("a link");
        std::os::unix::fs::symlink("..", sharing.ground.served("docs/up")).expect("a link");
        let (made, secret) = sharing.share("docs", false, None).await;
        assert_eq!(
            (made.path, made.used, made.by.starts_with("SHA256:")),
            (Some(path("docs")), 0, true)
        );
        let guest = Browser::new();
        let (session, terms) = sharing.open(&guest, secret).await.expect("it is open");
        assert_eq!((terms.name.as_str(), terms.write, terms.is_file), ("for Alice", false, false));
        let (_, names) = look_again(&session).await;
        assert_eq!(names, ["a", "b", "out", "up"]);
        assert_eq!(fetch(&session, "a").await.expect("the file"), "content of a");
        for outside in ["secret", "docs/a", "out", "up/secret"] {
            assert!(fetch(&session, outside).await.is_err(), "{outside}");
        }
        let answer = ask(&session, Message::List { path: Some(path("up")) }).await;
        assert!(!accepted(&answer) || look_again(&session).await.1.len() == 4);
        let put = Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: None,
            parts: None,
        };
        let stream = Message::PutStream { to: path("new"), fsync: false };
        let directory = Message::MakeDirectory { path: path("new"), parents: true };
        for request in [changes(), vec![put, stream, directory]].concat() {
            let answer = ask(&session, request.clone()).await;
            assert!(matches!(answer, Message::Refused { .. }), "{request:?}: {answer:?}");
        }
        assert_eq!(fs::read_dir(sharing.ground.served("docs")).expect("it").count(), 4);
    });
}

#[test]
fn a_shared_file_is_that_file_alone_whatever_takes_its_name() {
    run(async {
        let sharing = Sharing::start().await;
        let file = sharing.ground.served("docs/a");
        let (_, secret) = sharing.share("docs/a", false, None).await;
        let (session, terms) = sharing.open(&Browser::new(), secret).await.expect("it is open");
        assert_eq!((terms.path, terms.is_file), (Some(path("a")), true));
        assert_eq!(look_again(&session).await.1, ["a"]);
        assert_eq!(fetch(&session, "a").await.expect("the file"), "content of a");
        let beside = fetch(&session, "b").await.expect_err("it is not shared");
        assert_eq!(code(&beside), Some(ErrorCode::NOT_SHARED));
        for all in [get(None, true), get(None, false), get(Some("b"), false)] {
            assert_eq!(code(&ask(&session, all).await), Some(ErrorCode::NOT_SHARED));
        }
        let listed = ask(&session, Message::List { path: Some(path("b")) }).await;
        assert_eq!(code(&listed), Some(ErrorCode::NOT_SHARED));

        fs::remove_file(&file).expect("it is there");
        assert_eq!(code(&ask(&session, LOOK).await), Some(ErrorCode::NOT_FOUND));
        std::os::unix::fs::symlink("../secret", &file).expect("a link");
        assert_eq!(code(&ask(&session, LOOK).await), Some(ErrorCode::NOT_FOUND));
        assert!(fetch(&session, "a").await.is_err());
        fs::remove_file(&file).expect("it is there");
        fs::create_dir(&file).expect("a folder");
        fs::write(file.join("within"), "not shared").expect("a file");
        assert_eq!(code(&ask(&session, LOOK).await), Some(ErrorCode::NOT_FOUND));
        assert!(fetch(&session, "a").await.is_err());
        // a directory is an error of the walk, and no entry is sent
        let (mut send, mut receive) = ground::open(&session).await;
        send.write_all(&framed(&[hello(), get(Some("a"), false)])).await.expect("it is sent");
        assert!(accepted(&ground::after_hello(&mut receive).await.expect("an answer")));
        let told = recv(&mut receive).await;
        assert!(matches!(told, Some(Message::Unreadable { .. })), "{told:?}");
    });
}

#[test]
fn a_wrong_secret_and_one_of_another_server_open_nothing() {
    run(async {
        let (sharing, other) = (Sharing::start().await, Sharing::start().await);
        let (_, secret) = other.share("docs", false, None).await;
        let guest = Browser::new();
        for wrong in [secret, [0; 32]] {
            let refused = sharing.open(&guest, wrong).await.expect_err("wrong");
            assert_eq!(refused, ErrorCode::SHARE_ENDED);
        }
        // nor does a known key get anything but what the link allows
        let refused = sharing.open(&sharing.maker, [0; 32]).await.expect_err("wrong");
        assert_eq!(refused, ErrorCode::SHARE_ENDED);
        assert!(other.open(&guest, secret).await.is_ok());
    });
}

#[test]
fn a_share_for_one_use_serves_the_browser_that_first_fetches() {
    run(async {
        let sharing = Sharing::start().await;
        let (made, secret) = sharing.share("docs", false, Some(1)).await;
        let (first, second) = (Browser::new(), Browser::new());
        // looking takes no use
        let (late, _) = sharing.open(&second, secret).await.expect("it is open");
        let (session, _) = sharing.open(&first, secret).await.expect("it is open");
        assert_eq!(fetch(&session, "a").await.expect("the file"), "content of a");
        let refused = fetch(&late, "a").await.expect_err("it is used");
        assert_eq!(code(&refused), Some(ErrorCode::SHARE_USED));
        let refused = sharing.open(&second, secret).await.expect_err("it is used");
        assert_eq!(refused, ErrorCode::SHARE_USED);
        // the same browser resumes on another connection
        let (again, _) = sharing.open(&first, secret).await.expect("it is its use");
        assert_eq!(fetch(&again, "b").await.expect("the file"), "of b");
        let listed = ask(&sharing.session, Message::Shares).await;
        let Message::SharesListed { shares, .. } = listed else { panic!("{listed:?}") };
        assert_eq!((shares.len(), &shares[0].id, shares[0].used), (1, &made.id, 1));
    });
}

#[test]
fn a_revoked_and_an_expired_share_end_their_sessions() {
    run(async {
        let sharing = Sharing::start().await;
        let (made, secret) = sharing.share("docs", false, None).await;
        let guest = Browser::new();
        let (session, _) = sharing.open(&guest, secret).await.expect("it is open");
        let revoke = |id: &str| Message::Revoke { id: id.to_owned() };
        let unknown = ask(&sharing.session, revoke("aaaaaaaa")).await;
        assert_eq!(code(&unknown), Some(ErrorCode::NOT_FOUND));
        assert!(accepted(&ask(&sharing.session, revoke(&made.id)).await));
        session.closed().await;
        let refused = sharing.open(&guest, secret).await.expect_err("it is revoked");
        assert_eq!(refused, ErrorCode::SHARE_ENDED);

        let answer = ask(&sharing.session, new_share("docs", false, 2, None)).await;
        let Message::Shared { secret, .. } = answer else { panic!("{answer:?}") };
        // on a machine that is too slow it has expired before
        if let Ok((session, _)) = sharing.open(&guest, secret).await {
            session.closed().await;
        }
        let refused = sharing.open(&guest, secret).await.expect_err("it has expired");
        assert_eq!(refused, ErrorCode::SHARE_ENDED);
    });
}

#[test]
fn a_share_for_sending_gives_each_browser_a_folder_of_its_own_and_shows_nothing() {
    run(async {
        let sharing = Sharing::start().await;
        let (_, secret) = sharing.share("docs", true, Some(2)).await;
        let (first, second) = (Browser::new(), Browser::new());
        let (session, terms) = sharing.open(&first, secret).await.expect("it is open");
        assert!(terms.write);
        send_file(&session, "a", b"from the first").await.expect("it is stored");
        for request in [changes(), vec![LOOK, get(None, true), get(Some("a"), false)]].concat() {
            let answer = ask(&session, request.clone()).await;
            assert!(matches!(answer, Message::Refused { .. }), "{request:?}: {answer:?}");
        }
        assert!(fetch(&session, "a").await.is_err());
        let (other, _) = sharing.open(&second, secret).await.expect("it is open");
        send_file(&other, "a", b"from the second").await.expect("it is stored");
        let third = sharing.open(&Browser::new(), secret).await.expect_err("it is used");
        assert_eq!(third, ErrorCode::SHARE_USED);
        let mut found = Vec::new();
        for entry in fs::read_dir(sharing.ground.served("docs")).expect("the folder") {
            let entry = entry.expect("an entry");
            if entry.file_name().to_string_lossy().starts_with("upload-") {
                found.push(fs::read_to_string(entry.path().join("a")).expect("the file"));
                // the log names where it is
                let name = format!("/docs/{}/a", entry.file_name().display());
                let logged = sharing.ground.requests.paths("put");
                assert!(logged.contains(&name), "{logged:?}");
            }
        }
        found.sort();
        assert_eq!(found, ["from the first", "from the second"]);
        assert_eq!(fs::read(sharing.ground.served("docs/a")).expect("it"), b"content of a");

        // a link in the place of the folder is not followed
        let (_, secret) = sharing.share("docs", true, None).await;
        for entry in fs::read_dir(sharing.ground.served("docs")).expect("the folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                fs::remove_dir_all(&path).expect("it is there");
                std::os::unix::fs::symlink("..", &path).expect("a link");
            }
        }
        let (session, _) = sharing.open(&first, secret).await.expect("it is open");
        assert!(send_file(&session, "escaped", b"x").await.is_err());
        assert!(!sharing.ground.served("escaped").exists());
    });
}

#[test]
fn a_share_ends_with_the_key_that_made_it_and_loses_what_the_key_loses() {
    run(async {
        let sharing = Sharing::start().await;
        let (_, read) = sharing.share("docs", false, None).await;
        let (_, write) = sharing.share("docs", true, None).await;
        let guest = Browser::new();
        let (reading, _) = sharing.open(&guest, read).await.expect("it is open");
        let (writing, _) = sharing.open(&guest, write).await.expect("it is open");
        let read_only = Access { read_only: true, ..Access::default() };
        allow(&sharing.ground, &sharing.maker, Some(read_only));
        writing.closed().await;
        assert_eq!(look_again(&reading).await.1, ["a", "b"]);
        assert_eq!(sharing.open(&guest, write).await.expect_err("lost"), ErrorCode::SHARE_ENDED);
        let elsewhere = Access { root: Some(path("other")), ..Access::default() };
        allow(&sharing.ground, &sharing.maker, Some(elsewhere));
        reading.closed().await;
        allow(&sharing.ground, &sharing.maker, None);
        assert_eq!(sharing.open(&guest, read).await.expect_err("gone"), ErrorCode::SHARE_ENDED);
        // what was shared is there no more
        allow(&sharing.ground, &sharing.maker, Some(Access::default()));
        fs::remove_dir_all(sharing.ground.served("docs")).expect("it is there");
        assert_eq!(sharing.open(&guest, read).await.expect_err("gone"), ErrorCode::NOT_FOUND);
    });
}

#[test]
fn a_key_shares_no_more_than_it_may_do_itself() {
    run(async {
        let access =
            Access { root: Some(path("docs")), read_only: true, rate_bps: Some(1_000_000_000) };
        let sharing = Sharing::with(access).await;
        let (made, secret) = sharing.share("a", false, None).await;
        assert_eq!(made.path, Some(path("a")), "below its own root");
        let (session, _) = sharing.open(&Browser::new(), secret).await.expect("it is open");
        assert_eq!(look_again(&session).await.1, ["a"]);
        std::os::unix::fs::symlink("../secret", sharing.ground.served("docs/out")).expect("a link");
        let refused = ask(&sharing.session, new_share("", true, 60, None)).await;
        assert_eq!(code(&refused), Some(ErrorCode::READ_ONLY));
        let missing = ask(&sharing.session, new_share("secret", false, 60, None)).await;
        assert_eq!(code(&missing), Some(ErrorCode::NOT_FOUND));
        for request in [
            new_share("out", false, 60, None),
            new_share("a", false, 0, None),
            new_share("a", false, 367 * 24 * 3600, None),
            new_share("a", false, 60, Some(0)),
            new_share("a", false, 60, Some(101)),
        ] {
            let answer = ask(&sharing.session, request.clone()).await;
            assert!(matches!(answer, Message::Refused { .. }), "{request:?}: {answer:?}");
        }
        // a key that is not listed, where anybody may read
        let policy = AccessPolicy { anonymous_read: true, ..AccessPolicy::default() };
        sharing.ground.server.set_policy(policy);
        let session = sharing.ground.connect().await.expect("a session");
        let request = new_share("secret", false, 60, None);
        let (answer, _) = Browser::new().look(&session, &sharing.ground.pinned(), request).await;
        let Message::Refused { reason, .. } = answer else { panic!("{answer:?}") };
        assert!(reason.contains("authorized keys"), "{reason}");
    });
}

#[test]
fn the_servers_own_key_makes_shares_and_sees_and_revokes_all() {
    run(async {
        let ground = Ground::start();
        fs::write(ground.served("a"), "content").expect("a file");
        let file = ground.authorized_keys().with_file_name("shares");
        let shares = Shares::open(&file).expect("a file").expect("no other server");
        let (own, other) = (Browser::new(), Browser::new());
        ground.server.set_shares(PublicKey::from(own.key()), shares, &ground.page.url());
        allow(&ground, &other, Some(Access::default()));
        let mut sessions = Vec::new();
        for browser in [&own, &other] {
            let session = ground.connect().await.expect("a session");
            let (answer, _) = browser.look(&session, &ground.pinned(), LOOK).await;
            assert!(accepted(&answer), "{answer:?}");
            assert!(matches!(
                ask(&session, new_share("a", false, 60, None)).await,
                Message::Shared { .. }
            ));
            sessions.push(session);
        }
        let mut ids = Vec::new();
        for (session, count) in sessions.iter().zip([2, 1]) {
            let listed = ask(session, Message::Shares).await;
            let Message::SharesListed { shares, .. } = listed else { panic!("{listed:?}") };
            assert_eq!(shares.len(), count);
            ids.push(shares.into_iter().map(|terms| terms.id).collect::<Vec<_>>());
        }
        let [all, theirs] = &ids[..] else { panic!("two") };
        let mine = all.iter().find(|id| !theirs.contains(id)).expect("its own");
        let refused = ask(&sessions[1], Message::Revoke { id: mine.clone() }).await;
        assert_eq!(code(&refused), Some(ErrorCode::NOT_FOUND), "of another key");
        for id in all {
            assert!(accepted(&ask(&sessions[0], Message::Revoke { id: id.clone() }).await));
        }
    });
}

#[test]
fn a_share_works_over_a_websocket() {
    run(async {
        let sharing = Sharing::start().await;
        let (_, secret) = sharing.share("docs", false, Some(1)).await;
        let (ground, guest) = (&sharing.ground, Browser::new());
        let mut socket = Socket::connect(ground, &ground.host(), Some(&ground.origin()))
            .await
            .expect("a WebSocket");
        let stream = StreamId::new(0, false, false);
        let first = framed(&[hello()]);
        let frame = Frame::Data { stream, end: false, bytes: &first }.encode();
        socket.send(frame).await.expect("it is sent");
        let Some(Message::Challenge { nonce }) = socket.recv(stream).await else {
            panic!("a challenge")
        };
        let proof = guest.proof(&ground.by_origin(), &nonce);
        let rest = framed(&[proof, Message::ShareSecret { secret }, LOOK]);
        let frame = Frame::Data { stream, end: true, bytes: &rest }.encode();
        socket.send(frame).await.expect("it is sent");
        let mut answers = Vec::new();
        while let Some(answer) = socket.recv(stream).await {
            answers.push(answer);
        }
        let [Message::Hello { .. }, Message::Accepted { .. }, Message::Listing { entries, .. }, ..] =
            &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(entries.len(), 2);
    });
}
