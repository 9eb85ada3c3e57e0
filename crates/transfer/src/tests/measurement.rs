//! What is for measurement alone: ciphers that are none, chunks; and the ports and
//! ciphers that anybody may choose.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};

use headroom_transfer_proto::message::{LanesAnswer, LanesOffer, Message, Wanted};
use headroom_transfer_proto::path::RelPath;

use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::lanes::LaneOffer;
use crate::{Chunk, Cipher, Compress, LaneOptions, SyncOptions};

const BYTES: usize = (5 << 20) + 4321;

const NONE: LaneOptions =
    LaneOptions { cipher: Some(Cipher::Null), chunk: None, insecure_measurement: true };

/// Notes how lanes are.
#[derive(Default)]
struct Told(Mutex<Option<(Cipher, Option<Chunk>)>>, AtomicU16);

impl Observer for Told {
    fn event(&self, event: Event<'_>) {
        if let Event::Lanes { cipher, chunk, port } = event {
            *self.0.lock().expect("nobody panicked") = Some((cipher, chunk));
            self.1.store(port, Ordering::Relaxed);
        }
    }
}

/// Puts a file and fetches it, all of it on lanes that are so.
async fn there_and_back(ground: &Ground, server: &Server, lane_options: LaneOptions) -> Arc<Told> {
    let mut client = ground.connect(server).await.expect("a connection");
    client.set_lane_options(lane_options).expect("it may");
    let (from, back) = (ground.here("big"), ground.here("back"));
    write(&from, &content(BYTES));
    let told = Arc::new(Told::default());
    let put = client.put(&[from], b"big", false, told.clone()).await.expect("it is sent");
    assert_eq!((put.stored, put.failed, put.on_lanes), (1, 0, BYTES as u64), "{lane_options:?}");
    assert_eq!(std::fs::read(ground.served("big")).expect("it is there"), content(BYTES));
    let got = client.get(&[b"big".to_vec()], &back, false, told.clone()).await;
    let got = got.expect("it is fetched");
    assert_eq!((got.stored, got.on_lanes), (1, BYTES as u64), "{lane_options:?}");
    assert_eq!(std::fs::read(&back).expect("it is there"), content(BYTES));
    std::fs::remove_file(back).and(std::fs::remove_file(ground.served("big"))).expect("removed");
    let (cipher, chunk) = told.0.lock().expect("nobody panicked").expect("it is told");
    assert_eq!((put.cipher, got.cipher), (Some(cipher), Some(cipher)));
    assert_eq!(lane_options.cipher.unwrap_or(cipher), cipher);
    assert_eq!(chunk, lane_options.chunk);
    told
}

#[test]
fn every_cipher_moves_files_where_both_sides_allow_it() {
    let ground = Ground::new();
    run(async {
        let secure = ground.start();
        let options = Options { insecure_measurement: true, ..ground.options() };
        let insecure = start(&ground.server, options);
        for cipher in Cipher::ALL {
            let lane_options = LaneOptions { cipher: Some(cipher), ..LaneOptions::default() };
            if cipher.is_secure() {
                there_and_back(&ground, &secure, lane_options).await;
            }
            let lane_options = LaneOptions { insecure_measurement: true, ..lane_options };
            there_and_back(&ground, &insecure, lane_options).await;
        }
        // whoever asks for nothing is served as ever
        let told = there_and_back(&ground, &insecure, LaneOptions::default()).await;
        let cipher = told.0.lock().expect("nobody panicked").map(|(cipher, _)| cipher);
        assert!(cipher.is_some_and(Cipher::is_secure), "{cipher:?}");
    });
}

#[test]
fn chunks_of_every_length_arrive() {
    let ground = Ground::new();
    run(async {
        let options = Options { insecure_measurement: true, ..ground.options() };
        let server = start(&ground.server, options);
        for bytes in [200, 1000, 1453, 4000] {
            let lane_options =
                LaneOptions { cipher: None, chunk: Chunk::new(bytes), insecure_measurement: true };
            there_and_back(&ground, &server, lane_options).await;
        }
    });
}

#[test]
fn a_client_that_does_not_allow_it_offers_nothing_insecure() {
    let ground = Ground::new();
    run(async {
        let options = Options { insecure_measurement: true, ..ground.options() };
        let server = start(&ground.server, options);
        let mut client = ground.connect(&server).await.expect("a connection");
        let chunk = Chunk::new(1000);
        for (cipher, chunk) in
            [(Some(Cipher::Null), None), (Some(Cipher::SimpleCrypt), None), (None, chunk)]
        {
            let lane_options = LaneOptions { cipher, chunk, insecure_measurement: false };
            let refused = client.set_lane_options(lane_options).expect_err("nobody allowed it");
            assert!(matches!(refused, Error::Usage(_)), "{refused:?}");
            assert!(refused.to_string().contains("--insecure-measurement"), "{refused}");
        }
        // and nothing of it stays
        there_and_back(&ground, &server, LaneOptions::default()).await;
    });
}

#[test]
fn a_server_that_does_not_allow_it_refuses_and_says_why() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    write(&ground.served("there"), &content(BYTES));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let chunk = LaneOptions { cipher: None, chunk: Chunk::new(1000), ..NONE };
        let simple = LaneOptions { cipher: Some(Cipher::SimpleCrypt), ..NONE };
        for (lane_options, word) in
            [(NONE, "`none`"), (simple, "`simplecrypt`"), (chunk, "packets")]
        {
            client.set_lane_options(lane_options).expect("it may");
            let told = Arc::new(Told::default());
            let put = client.put(&[ground.here("big")], b"big", false, told.clone()).await;
            let to = ground.here("there");
            let got = client.get(&[b"there".to_vec()], &to, false, told.clone()).await;
            for refused in [put, got] {
                let refused = refused.expect_err("it encrypts always");
                assert!(matches!(refused, Error::Refused(_)), "{refused:?}");
                let text = refused.to_string();
                assert!(text.contains("--insecure-measurement") && text.contains(word), "{text}");
            }
            assert!(told.0.lock().expect("nobody panicked").is_none());
            assert!(!ground.served("big").exists() && !to.exists());
        }
        // it serves this client as before
        client.set_lane_options(LaneOptions::default()).expect("it may");
        let put = client.put(&[ground.here("big")], b"big", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").on_lanes, BYTES as u64);
    });
}

/// Says a `get` with these lanes, and hears what the server makes of it.
async fn offered(client: &Client, change: impl FnOnce(&mut LanesOffer)) -> Message {
    let (send, receive) = client.connection().open_bi().await.expect("a stream");
    let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
    let mut offer = LaneOffer::new(client.connection()).expect("names").message();
    change(&mut offer);
    let from = vec![Wanted { path: RelPath::parse(b"missing").ok(), contents: false }];
    let lanes = Some(offer);
    let get = Message::Get { from, compress: None, lanes, tree: None, ranges: None };
    for message in [hello(Greeting::default()), get, Message::End { stored: 0, failed: 1 }] {
        writer.send(&message).await.expect("it is sent");
    }
    reader.recv_hello().await.expect("it greets");
    let answer = reader.expect().await.expect("an answer");
    while reader.recv().await.expect("it goes on").is_some() {}
    answer
}

#[test]
fn no_encryption_offered_beside_ciphers_is_not_chosen() {
    let ground = Ground::new();
    run(async {
        let bare = [Cipher::Null.number(), Cipher::SimpleCrypt.number()];
        let secure = ground.start();
        let client = ground.connect(&secure).await.expect("a connection");
        for suites in [vec![bare[0]], vec![bare[1], 0], vec![1, bare[0]], vec![99, bare[1]]] {
            let answer = offered(&client, |offer| offer.suites = suites).await;
            assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");
        }
        let answer = offered(&client, |offer| offer.chunk = Some(1000)).await;
        assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");

        // where it is allowed, it is what is taken last, and chunks are bounded
        let options = Options { insecure_measurement: true, ..ground.options() };
        let insecure = start(&ground.server, options);
        let client = ground.connect(&insecure).await.expect("a connection");
        let answer = offered(&client, |offer| offer.suites = vec![bare[0], bare[1], 1]).await;
        let Message::Accepted { lanes: Some(answer), .. } = answer else { panic!("{answer:?}") };
        assert_eq!((answer.suite, answer.chunk, answer.port), (1, None, None));
        for wrong in [0, 199, 4001, u32::MAX] {
            let answer = offered(&client, |offer| offer.chunk = Some(wrong)).await;
            assert!(matches!(answer, Message::Refused { .. }), "{answer:?}");
        }
    });
}

#[test]
fn a_server_that_chooses_what_was_not_offered_gets_nothing() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let client = ground.connect(&server).await.expect("a connection");
        let answer = LanesAnswer { suite: 1, receive_buffer: None, chunk: None, port: None };
        let accepts = |lane_options, answer: LanesAnswer| {
            let offer =
                LaneOffer::new(client.connection()).expect("names").with_options(lane_options);
            offer.accepted(&answer).map(|handle| handle.params())
        };
        let usual = LaneOptions::default();
        assert!(accepts(usual, answer.clone()).is_ok());
        for suite in [Cipher::Null, Cipher::SimpleCrypt, Cipher::Aes256Gcm].map(Cipher::number) {
            let wrong = accepts(usual, LanesAnswer { suite, ..answer.clone() });
            assert!(matches!(wrong, Err(Error::Protocol(_))), "{suite}: {wrong:?}");
        }
        // not even one who allows it gets another than was asked for
        let suite = Cipher::SimpleCrypt.number();
        assert!(accepts(NONE, LanesAnswer { suite, ..answer.clone() }).is_err());
        for (wished, chunk) in [(None, Some(1000)), (Some(1000), None), (Some(1000), Some(200))] {
            let lane_options =
                LaneOptions { chunk: wished.and_then(Chunk::new), cipher: None, ..NONE };
            assert!(
                accepts(lane_options, LanesAnswer { chunk, ..answer.clone() }).is_err(),
                "{chunk:?}"
            );
        }
        assert!(accepts(usual, LanesAnswer { port: Some(0), ..answer.clone() }).is_err());
    });
}

#[test]
fn data_that_would_not_use_the_requested_lanes_is_not_sent() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    write(&ground.served("there"), &content(BYTES));
    run(async {
        let none = Options { lanes: false, ..ground.options() };
        let server = start(&ground.server, none);
        let mut client = ground.connect(&server).await.expect("a connection");
        let cipher = Some(Cipher::ChaCha20Poly1305);
        client.set_lane_options(LaneOptions { cipher, ..LaneOptions::default() }).expect("it may");
        let put = client.put(&[ground.here("big")], b"", false, Arc::new(())).await;
        assert!(matches!(put, Err(Error::Refused(_))), "{put:?}");

        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        client.set_lane_options(LaneOptions { cipher, ..LaneOptions::default() }).expect("it may");
        let (here, to) = (ground.here(""), ground.here("back"));
        let sync = client.sync_to(&here, b"", &SyncOptions::default(), Arc::new(())).await;
        let pipe = client.put_stream(&b"pipe"[..], b"pipe", false, Arc::new(())).await;
        client.compress(Compress::Always);
        let small = client.put(&[ground.here("big")], b"", false, Arc::new(())).await;
        client.compress(Compress::Never);
        client.limit(Some(1_000_000));
        let slow = client.get(&[b"there".to_vec()], &to, false, Arc::new(())).await;
        for outcome in [sync, pipe, small, slow] {
            assert!(matches!(outcome, Err(Error::Usage(_))), "{outcome:?}");
        }
        client.list(b"", |_| {}).await.expect("it is no transfer");
    });
}

#[test]
fn each_transfer_has_a_port_of_the_range() {
    let ground = Ground::new();
    run(async {
        // an address that is this process's alone, so that nobody else has the ports
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let listen = SocketAddr::new(Ipv4Addr::new(127, high, low, 1).into(), 0);
        let first = 20_000;
        let lane_ports = Some(first..=first + 2);
        let server = start(&ground.server, Options { listen, lane_ports, ..ground.options() });
        let listens = server.address().expect("an address").port();
        let mut ports = Vec::new();
        for _ in 0..4 {
            let told = there_and_back(&ground, &server, LaneOptions::default()).await;
            ports.push(told.1.load(Ordering::Relaxed));
        }
        // there and back are two transfers
        assert_eq!(ports, [1, 0, 2, 1].map(|turn| first + turn));
        assert!(!ports.contains(&listens));
        for wrong in [0..=10, RangeInclusive::new(300, 200), 1..=u16::MAX] {
            let options = Options { lane_ports: Some(wrong), ..ground.options() };
            let refused = Server::bind(&ground.server, options);
            assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
        }
    });
}
