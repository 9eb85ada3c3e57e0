//! Big files on lanes, and where lanes fail or are misused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headroom_transfer_proto::message::{EntryKind, LanesOffer, Message, Time, Wanted};
use headroom_transfer_proto::path::RelPath;

use super::*;
use crate::control::{Greeting, MessageReader, MessageWriter, hello};
use crate::lanes::{LaneHandle, LaneOffer, Part, Source};

const BYTES: usize = (30 << 20) + 4321;

#[test]
fn big_files_travel_on_lanes_in_both_directions() {
    let ground = Ground::new();
    write(&ground.here("tree/big"), &content(BYTES));
    write(&ground.here("tree/bigger"), &content(BYTES + 12_345));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("tree")], b"", false, Arc::new(())).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (3, 0));
        assert_eq!((put.moved, put.on_lanes), ((2 * BYTES + 12_345) as u64, put.moved));
        assert_eq!(tree(&ground.here("tree")), tree(&ground.served("tree")));
        let back = ground.here("back/");
        let got = client.get(&[b"tree".to_vec()], &back, false, Arc::new(())).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.moved, got.on_lanes), (put.moved, put.moved));
        assert_eq!(tree(&ground.here("tree")), tree(&back.join("tree")));
    });
}

#[test]
fn lanes_are_not_used_if_not_wanted() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    run(async {
        for (by_server, by_client) in [(false, true), (true, false)] {
            let server = start(&ground.server, Options { lanes: by_server, ..ground.options() });
            let mut client = ground.connect(&server).await.expect("a connection");
            client.set_lanes(by_client);
            let to = format!("{by_server}");
            let put = client.put(&[ground.here("big")], to.as_bytes(), false, Arc::new(())).await;
            let put = put.expect("it is sent");
            assert_eq!((put.stored, put.moved, put.on_lanes), (1, BYTES as u64, 0));
            assert_eq!(std::fs::read(ground.served(&to)).expect(&to), content(BYTES));
        }
    });
}

/// Lets no packet of a lane through at the server, once so much was moved.
struct Block {
    server: Server,
    after: u64,
    moved: AtomicU64,
    told: AtomicU64,
}

impl Observer for Block {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Moved { bytes } => {
                let moved = self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes;
                (moved >= self.after).then(|| self.server.block_lanes());
            }
            Event::LanesSilent => {
                self.told.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[test]
fn blocked_lanes_are_replaced_by_streams() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    run(async {
        let server = ground.start();
        server.block_lanes();
        let mut client = ground.connect(&server).await.expect("a connection");
        let (after, moved, told) = (u64::MAX, AtomicU64::new(0), AtomicU64::new(0));
        let notes = Arc::new(Block { server: server.clone(), after, moved, told });
        let put = client.put(&[ground.here("big")], b"big", false, notes.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.moved, put.on_lanes), (1, BYTES as u64, 0));
        assert_eq!(notes.told.load(Ordering::Relaxed), 1);
        let to = ground.here("back");
        let got = client.get(&[b"big".to_vec()], &to, false, Arc::new(())).await;
        assert_eq!(got.expect("it is fetched").on_lanes, 0);
        assert_eq!(std::fs::read(to).expect("it is there"), content(BYTES));
    });
}

#[test]
fn nothing_is_lost_when_a_lane_falls_silent() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let (after, moved, told) = (8 << 20, AtomicU64::new(0), AtomicU64::new(0));
        let notes = Arc::new(Block { server: server.clone(), after, moved, told });
        let put = client.put(&[ground.here("big")], b"big", false, notes.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (1, 0));
        // what it carried and what did not arrive went on streams
        assert!(put.on_lanes > 0 && put.on_lanes < put.moved, "{put:?}");
        assert_eq!(notes.told.load(Ordering::Relaxed), 1);
        assert_eq!(std::fs::read(ground.served("big")).expect("it is there"), content(BYTES));
    });
}

#[test]
fn the_other_direction_falls_silent_too() {
    let ground = Ground::new();
    write(&ground.served("big"), &content(BYTES));
    run(async {
        let server = ground.start();
        let mut client = ground.connect(&server).await.expect("a connection");
        let (after, moved, told) = (8 << 20, AtomicU64::new(0), AtomicU64::new(0));
        let notes = Arc::new(Block { server: server.clone(), after, moved, told });
        let to = ground.here("big");
        let got = client.get(&[b"big".to_vec()], &to, false, notes).await.expect("it is fetched");
        assert!(got.on_lanes >= 8 << 20 && got.on_lanes < BYTES as u64, "{got:?}");
        assert_eq!(std::fs::read(to).expect("it is there"), content(BYTES));
    });
}

/// Bytes of anything.
struct Anything;

impl Source for Anything {
    fn read(&self, _offset: u64, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

#[test]
fn data_of_unknown_files_and_lanes_is_dropped() {
    let ground = Ground::new();
    write(&ground.here("big"), &content(BYTES));
    run(async {
        let server = ground.start();
        // strangers, and a lane that nobody opened
        let address = server.address().expect("an address");
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for n in 0..200_u8 {
            let mut packet = [n; 64];
            (packet[0], packet[1]) = (9, 0);
            stranger.send_to(&packet, address).expect("a datagram");
            stranger.send_to(&packet[..usize::from(n % 40)], address).expect("a datagram");
        }
        let unknown =
            |dropped: &crate::lanes::Dropped| dropped.unknown_lane.load(Ordering::Relaxed);
        wait_until(|| server.dropped_on_lanes(unknown) > 0).await;

        // somebody who is let in, and sends what nobody asked for
        let mut client = ground.connect(&server).await.expect("a connection");
        let (lane, writer, reader) = hostile_offer(&client, 3 << 20).await;
        assert!(lane.is_ready(true).await);
        let give = |file, offset| {
            let mut bytes = lane.buffer().expect("it is open");
            bytes.resize(100_000, 7);
            lane.push(Part { file, offset, bytes, source: Arc::new(Anything) }).expect("open");
        };
        for n in 0..20 {
            give(99, n * 100_000);
            give(1, (3 << 20) - 50_000 + n * 1_000_000);
            give(1, u64::MAX - 200_000);
        }
        let file = |dropped: &crate::lanes::Dropped| {
            dropped.unknown_file.load(Ordering::Relaxed).min(2_000_000)
                + dropped.beyond_end.load(Ordering::Relaxed).min(3_000_000)
        };
        wait_until(|| server.dropped_on_lanes(file) == 5_000_000).await;
        drop((lane, writer, reader));

        // and everybody else is served as before
        client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("big")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").on_lanes, BYTES as u64);
        assert_eq!(std::fs::read(ground.served("big")).expect("it is there"), content(BYTES));
    });
}

async fn wait_until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_lane_id_is_not_accepted_twice() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let client = ground.connect(&server).await.expect("a connection");
        let offer = LaneOffer::new(client.connection()).expect("names");
        for is_new in [true, false] {
            let (send, receive) = client.connection().open_bi().await.expect("a stream");
            let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
            let path = RelPath::parse(b"missing").ok();
            let from = vec![Wanted { path, contents: false }];
            let lanes = Some(offer.message());
            let get = Message::Get { from, compress: None, lanes, tree: None, ranges: None };
            for message in [hello(Greeting::default()), get, Message::End { stored: 0, failed: 1 }]
            {
                writer.send(&message).await.expect("it is sent");
            }
            reader.recv_hello().await.expect("it greets");
            let answer = reader.expect().await.expect("an answer");
            let Message::Accepted { lanes, .. } = answer else { panic!("{answer:?}") };
            assert_eq!(lanes.is_some(), is_new, "keys and numbers would come again");
            while reader.recv().await.expect("it goes on").is_some() {}
        }
    });
}

#[test]
fn knowing_a_lane_id_without_keys_has_no_effect() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let owner = ground.connect(&server).await.expect("a connection");
        let (lane, _speaker, _hearer) = hostile_offer(&owner, 3 << 20).await;
        assert!(lane.is_ready(true).await);
        // somebody else opens one of the same name, has files forgotten, and ends it
        let other = ground.connect(&server).await.expect("a connection");
        let offer = LaneOffer::new(other.connection()).expect("names");
        let offer = LanesOffer { lanes: vec![lane.name().0], ..offer.message() };
        let (send, receive) = other.connection().open_bi().await.expect("a stream");
        let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
        let get = Wanted { path: RelPath::parse(b"missing").ok(), contents: false };
        let (from, lanes) = (vec![get], Some(offer));
        let get = Message::Get { from, compress: None, lanes, tree: None, ranges: None };
        for message in [hello(Greeting::default()), get, Message::End { stored: 0, failed: 1 }] {
            writer.send(&message).await.expect("it is sent");
        }
        reader.recv_hello().await.expect("it greets");
        let answer = reader.expect().await.expect("an answer");
        assert!(matches!(answer, Message::Accepted { lanes: Some(_), .. }), "{answer:?}");
        while reader.recv().await.expect("it goes on").is_some() {}
        drop((writer, reader));
        other.close().await;
        let connections = || server.connections();
        wait_until(|| connections() == 1).await;
        // what comes on it is still known
        let mut bytes = lane.buffer().expect("it is open");
        bytes.resize(100_000, 7);
        lane.push(Part { file: 99, offset: 0, bytes, source: Arc::new(Anything) }).expect("open");
        let file = |dropped: &crate::lanes::Dropped| dropped.unknown_file.load(Ordering::Relaxed);
        wait_until(|| server.dropped_on_lanes(file) == 100_000).await;
    });
}

/// Offers file 1 of so many bytes as `put` does, with a lane that is open.
async fn hostile_offer(client: &Client, size: u64) -> (LaneHandle, MessageWriter, MessageReader) {
    let (send, receive) = client.connection().open_bi().await.expect("a stream");
    let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
    let offer = LaneOffer::new(client.connection()).expect("names");
    let lanes = Some(offer.message());
    let mtime = Time { seconds: 0, nanoseconds: 0 };
    let path = RelPath::parse(b"file").expect("a name");
    for message in [
        hello(Greeting::default()),
        Message::Put { to: None, rename: false, fsync: false, lanes, tree: None, parts: None },
        Message::Entry {
            id: 1,
            path,
            kind: EntryKind::File {
                size,
                mode: 0,
                mtime,
                inline: None,
                hash: None,
                data: None,
                more: None,
            },
        },
    ] {
        writer.send(&message).await.expect("it is sent");
    }
    reader.recv_hello().await.expect("it greets");
    let Message::Accepted { lanes: Some(answer), .. } = reader.expect().await.expect("an answer")
    else {
        panic!("it takes no lanes")
    };
    let lane = offer.accepted(&answer).expect("a lane");
    lane.start(None);
    while !matches!(reader.expect().await.expect("an answer"), Message::Have { last: true, .. }) {}
    (lane, writer, reader)
}
