//! Sessions of browsers, honest and hostile, over loopback.

mod ground;

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::mux::{Frame, StreamId};
use headroom_transfer_proto::proof::{
    Binding, EXPORTER_LABEL, WEBTRANSPORT_EXPORTER_LABEL, webtransport_exporter_context,
};
use tokio::io::AsyncWriteExt;

use self::ground::{
    Browser, Ground, LOOK, Proof, Socket, accepted, framed, hello, recv, run, sha256,
};

#[test]
fn a_browser_proves_its_key_bound_to_the_pinned_certificate() {
    run(async {
        let ground = Ground::start();
        std::fs::write(ground.served("a file"), "content").expect("a file");
        let known = Browser::known(&ground);
        let session = ground.connect().await.expect("a session");
        let (answer, names) = known.look(&session, &ground.pinned(), LOOK).await;
        assert!(accepted(&answer), "{answer:?}");
        assert_eq!(names, ["a file"]);
        // the second request needs no proof
        let (answer, _) = ground::look_again(&session).await;
        assert!(accepted(&answer), "{answer:?}");

        let stranger = Browser::new();
        let session = ground.connect().await.expect("a session");
        let (answer, _) = stranger.look(&session, &ground.pinned(), LOOK).await;
        let Message::Refused { reason, .. } = answer else { panic!("{answer:?}") };
        assert!(reason.contains("does not know this key"), "{reason}");
    });
}

#[test]
fn a_browser_with_an_exporter_binds_its_proof_to_the_session() {
    run(async {
        let ground = Ground::start();
        let known = Browser::known(&ground);
        let exported = |session: &wtransport::Connection| {
            let number = session.session_id().into_u64();
            let context = webtransport_exporter_context(number, EXPORTER_LABEL, b"");
            let mut bytes = [0; 32];
            session
                .export_keying_material(
                    &mut bytes,
                    WEBTRANSPORT_EXPORTER_LABEL,
                    &context.expect("it is short"),
                )
                .expect("32 bytes");
            bytes
        };
        let session = ground.connect().await.expect("a session");
        let of_this = Proof { kind: Some(Binding::Exporter), bound_to: exported(&session) };
        let (answer, _) = known.look(&session, &of_this, LOOK).await;
        assert!(accepted(&answer), "{answer:?}");

        let other = ground.connect().await.expect("a session");
        let (answer, _) = known.look(&other, &of_this, LOOK).await;
        assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");
    });
}

#[test]
fn a_browsers_proof_can_neither_be_relayed_nor_replayed() {
    run(async {
        let (ground, other) = (Ground::start(), Ground::start());
        let known = Browser::known(&ground);
        let refused = async |proof: &Message, what: &str| {
            let session = ground.connect().await.expect("a session");
            let (mut send, mut receive) = ground::open(&session).await;
            assert!(matches!(recv(&mut receive).await, Some(Message::Challenge { .. })));
            send.write_all(&framed(&[hello(), proof.clone(), LOOK])).await.expect("it is sent");
            let answer = ground::after_hello(&mut receive).await;
            assert!(matches!(answer, Some(Message::Refused { .. })), "{what}: {answer:?}");
            // not even as anybody: the connection is over
            assert!(session.accept_uni().await.is_err(), "{what}");
        };

        // one that was accepted, again
        let session = ground.connect().await.expect("a session");
        let (mut send, mut receive) = ground::open(&session).await;
        let Some(Message::Challenge { nonce }) = recv(&mut receive).await else {
            panic!("a challenge")
        };
        let used = known.proof(&ground.pinned(), &nonce);
        send.write_all(&framed(&[hello(), used.clone(), LOOK])).await.expect("it is sent");
        let answer = ground::after_hello(&mut receive).await.expect("an answer");
        assert!(accepted(&answer), "{answer:?}");
        refused(&used, "replayed").await;

        // each is right for a nonce that the server might use; it cannot be for this server
        for (what, proof) in [
            ("for another server", other.pinned()),
            ("by origin, which counts only for a WebSocket", ground.by_origin()),
            ("for no certificate", Proof { kind: Some(Binding::Certificate), bound_to: [0; 32] }),
            ("for no session", Proof { kind: Some(Binding::Exporter), bound_to: [0; 32] }),
            ("as of a client of our own", Proof { kind: None, bound_to: ground.pinned().bound_to }),
        ] {
            let session = ground.connect().await.expect("a session");
            let (answer, _) = known.look(&session, &proof, LOOK).await;
            assert!(matches!(answer, Message::Refused { .. }), "{what}: {answer:?}");
        }

        // a damaged one, and one that names the key of somebody else
        let mallory = Browser::new();
        let session = ground.connect().await.expect("a session");
        let (_, mut receive) = ground::open(&session).await;
        let Some(Message::Challenge { nonce }) = recv(&mut receive).await else {
            panic!("a challenge")
        };
        let Message::Proof { signature, binding, nonce, .. } =
            mallory.proof(&ground.pinned(), &nonce)
        else {
            panic!("a proof")
        };
        let forged = Message::Proof { key: known.key(), signature, binding, nonce };
        refused(&forged, "forged").await;
    });
}

#[test]
fn a_page_of_another_origin_gets_no_session() {
    run(async {
        let ground = Ground::start();
        let port = ground.port();
        for origin in [
            Some("https://evil.example".to_owned()),
            Some(format!("http://127.0.0.1:{port}")),
            Some(format!("https://127.0.0.1:{}", port ^ 1)),
            Some("null".to_owned()),
            None,
        ] {
            let session = ground.connect_from("127.0.0.1", "/transfer", origin.as_deref()).await;
            assert!(session.is_err(), "{origin:?}");
        }
        // a name that resolves to this address, but is not one of this server
        let rebound = format!("https://evil.example:{port}");
        let session = ground.connect_from("evil.example", "/transfer", Some(&rebound)).await;
        assert!(session.is_err(), "rebound");
        let own = ground.origin();
        assert!(ground.connect_from("127.0.0.1", "/other", Some(&own)).await.is_err());
        assert!(ground.connect_from("127.0.0.1", "/transfer", Some(&own)).await.is_ok());
    });
}

#[test]
fn an_invitation_adds_the_key_of_one_browser() {
    run(async {
        let ground = Ground::start();
        let secret = ground.invite("read-only");
        let (first, second) = (Browser::new(), Browser::new());
        let invited =
            |secret: [u8; 32]| Message::Invited { secret, name: "my\nbrowser".to_owned() };
        let session = ground.connect().await.expect("a session");
        let answer = first.show(&session, &ground.pinned(), invited([7; 32])).await;
        assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");

        let session = ground.connect().await.expect("a session");
        let answer = first.show(&session, &ground.pinned(), invited(secret)).await;
        let granted = Message::Granted {
            known: true,
            read_only: true,
            rate_bps: None,
            may_share: Some(false),
            share: None,
        };
        assert_eq!(answer, granted);
        let lines = std::fs::read_to_string(ground.authorized_keys()).expect("the file");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.starts_with("read-only ssh-ed25519 "), "{lines}");

        let session = ground.connect().await.expect("a session");
        let answer = second.show(&session, &ground.pinned(), invited(secret)).await;
        assert!(matches!(answer, Message::Refused { .. }), "it was used: {answer:?}");
        // the key needs it no more
        let session = ground.connect().await.expect("a session");
        assert_eq!(first.show(&session, &ground.pinned(), invited(secret)).await, granted);
    });
}

#[test]
fn garbage_on_any_stream_ends_that_session_alone() {
    run(async {
        let ground = Ground::start();
        let known = Browser::known(&ground);
        let stays = ground.connect().await.expect("a session");
        let (answer, _) = known.look(&stays, &ground.pinned(), LOOK).await;
        assert!(accepted(&answer), "{answer:?}");
        for garbage in [vec![0xff; 64], vec![0, 0, 0, 1, 0xf6], vec![0x00, 0x20, 0, 0]] {
            let session = ground.connect().await.expect("a session");
            let (mut send, _receive) = ground::open(&session).await;
            let _ = send.write_all(&garbage).await;
            let _ = send.shutdown().await;
            assert!(session.accept_bi().await.is_err(), "{garbage:?}");
        }
        // while files are expected, from a client that may send some
        let session = ground.connect().await.expect("a session");
        let put = Message::Put {
            to: None,
            rename: false,
            fsync: false,
            lanes: None,
            tree: None,
            parts: None,
        };
        let (answer, _) = known.look(&session, &ground.pinned(), put).await;
        assert!(accepted(&answer), "{answer:?}");
        let data = session.open_uni().await.expect("a stream").await;
        let _ = data.expect("a stream").write_all(&[0xff; 300]).await;
        assert!(session.accept_bi().await.is_err());
        let (answer, _) = ground::look_again(&stays).await;
        assert!(accepted(&answer), "{answer:?}");
    });
}

#[test]
fn a_websocket_carries_a_session_whose_proof_is_bound_to_the_origin() {
    run(async {
        let ground = Ground::start();
        std::fs::write(ground.served("a file"), "content").expect("a file");
        let known = Browser::known(&ground);
        let mut socket = Socket::connect(&ground, &ground.host(), Some(&ground.origin()))
            .await
            .expect("a WebSocket");
        let answers = known.look_by_socket(&mut socket, &ground.by_origin()).await;
        let [Message::Hello { .. }, Message::Accepted { .. }, Message::Listing { entries, .. }, ..] =
            &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(entries[0].path.as_bytes(), b"a file");

        for (what, proof) in [
            (
                "of another origin",
                Proof { kind: Some(Binding::Origin), bound_to: sha256(b"https://evil.example") },
            ),
            ("bound to a certificate, which it does not show", ground.pinned()),
        ] {
            let mut socket = Socket::connect(&ground, &ground.host(), Some(&ground.origin()))
                .await
                .expect("a WebSocket");
            let answers = known.look_by_socket(&mut socket, &proof).await;
            assert!(matches!(answers[..], [_, Message::Refused { .. }]), "{what}: {answers:?}");
        }
    });
}

#[test]
fn a_websocket_of_a_foreign_page_is_refused() {
    run(async {
        let ground = Ground::start();
        let (host, origin) = (ground.host(), ground.origin());
        for (host, origin) in [
            (host.as_str(), Some("https://evil.example")),
            (host.as_str(), Some("null")),
            (host.as_str(), None),
            ("evil.example", Some(origin.as_str())),
            ("evil.example", Some("https://evil.example")),
        ] {
            let socket = Socket::connect(&ground, host, origin).await;
            assert!(socket.is_err(), "{host} {origin:?}");
        }
    });
}

#[test]
fn frames_that_violate_the_protocol_end_a_websocket() {
    run(async {
        let ground = Ground::start();
        let request = StreamId::new(0, false, false);
        let frame = |stream, bytes: &[u8]| Frame::Data { stream, end: false, bytes }.encode();
        let much: Vec<_> = (0..3).map(|_| frame(request, &[0; 64 << 10])).collect();
        for (what, frames) in [
            ("no frame", vec![vec![1, 2, 3]]),
            ("an unknown kind", vec![vec![9, 0, 0, 0, 0]]),
            ("a message longer than any frame", vec![vec![0; 100 << 10]]),
            ("a stream out of order", vec![frame(StreamId::new(1, false, false), b"x")]),
            ("a stream of the server", vec![frame(StreamId::new(0, true, true), b"x")]),
            ("more than a stranger may have on the way", much),
        ] {
            let mut socket = Socket::connect(&ground, &ground.host(), Some(&ground.origin()))
                .await
                .expect("a WebSocket");
            for frame in frames {
                let _ = socket.send(frame).await;
            }
            assert!(socket.is_closed_by_server().await, "{what}");
        }
    });
}
