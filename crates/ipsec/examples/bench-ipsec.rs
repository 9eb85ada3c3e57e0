//! What protecting and opening a packet costs on one core in memory, beside the
//! bare AEAD of the library on as many bytes, in turns within each round; and
//! what a decision costs with 1000 associations and 1000 policies.
//! `cargo run --release -p headroom-ipsec --example bench-ipsec [-- --json]`.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use headroom_ipsec::spec::{
    Action, Addresses, Direction, Mode, Protection, Secrets, Selector, UdpPorts,
};
use headroom_ipsec::{Engine, FlowCache, Headers, OpenScratch, Outer, PolicySpec, SaSpec, Verdict};
use headroom_packet::header::IpHeader;
use headroom_packet::ip::Ip;
use headroom_suite::{Key, Mac, Suite};

/// Bytes of an inner packet.
const LENGTHS: [usize; 3] = [64, 512, 1400];
/// Packets that are timed together; they stay in the cache, as a train does.
const BATCH: usize = 45;
/// Rounds of one batch each, of which the median counts.
const ROUNDS: usize = 2001;
/// Associations and policies of the look-ups.
const MANY: u16 = 1000;

fn main() {
    let kinds = [Kind::Esp, Kind::EspInUdp, Kind::QEsp, Kind::AhEsp];
    let rows: Vec<Row> =
        LENGTHS.into_iter().flat_map(|len| kinds.map(|kind| measure(kind, len))).collect();
    let decisions = decisions();
    if std::env::args().any(|word| word == "--json") {
        let rows: Vec<String> = rows.iter().map(Row::json).collect();
        let decisions: Vec<String> = decisions
            .iter()
            .map(|(what, ns)| format!(r#"{{"what":"{what}","ns":{ns:.1}}}"#))
            .collect();
        println!(r#"{{"packets":[{}],"decisions":[{}]}}"#, rows.join(","), decisions.join(","));
        return;
    }
    println!("AES-128-GCM, ESN, tunnel mode over IPv4; medians of {ROUNDS} rounds.\n");
    println!("| protocol | bytes | seal, ns | of bare | open, ns | of bare |");
    println!("|---|--:|--:|--:|--:|--:|");
    for row in &rows {
        println!("{}", row.line());
    }
    println!("\n| decision, {MANY} associations and {MANY} policies | ns |");
    println!("|---|--:|");
    for (what, ns) in decisions {
        println!("| {what} | {ns:.0} |");
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Esp,
    EspInUdp,
    QEsp,
    AhEsp,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Esp => "ESP",
            Self::EspInUdp => "ESP in UDP",
            Self::QEsp => "Q-ESP",
            Self::AhEsp => "AH over ESP",
        }
    }
}

struct Row {
    kind: Kind,
    len: usize,
    seal: Cost,
    open: Cost,
}

/// Nanoseconds for a packet, and how much of the bare AEAD's speed that is.
#[derive(Clone, Copy)]
struct Cost {
    ns: f64,
    of_bare: f64,
}

impl Row {
    fn line(&self) -> String {
        let cost = |cost: Cost| format!("{:.0} | {:.1} %", cost.ns, cost.of_bare * 100.0);
        let Self { kind, len, seal, open } = self;
        format!("| {} | {len} | {} | {} |", kind.name(), cost(*seal), cost(*open))
    }

    fn json(&self) -> String {
        let Self { kind, len, seal, open } = self;
        format!(
            r#"{{"protocol":"{}","bytes":{len},"seal_ns":{:.1},"seal_of_bare":{:.4},"open_ns":{:.1},"open_of_bare":{:.4}}}"#,
            kind.name(),
            seal.ns,
            seal.of_bare,
            open.ns,
            open.of_bare
        )
    }
}

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn key(len: usize, seed: u8) -> Key {
    Key::from_bytes(&(0..len).map(|n| seed ^ n as u8).collect::<Vec<_>>())
}

fn secrets() -> Secrets {
    let suite: Suite = "aes-128-gcm".parse().expect("a suite");
    Secrets { key: key(suite.key_len(), 1), suite, mac_key: None }
}

fn associations(kind: Kind, direction: Direction) -> Vec<SaSpec> {
    let protection = match kind {
        Kind::QEsp => Protection::QEsp { number: 253, secrets: secrets() },
        _ => Protection::Esp(secrets()),
    };
    let mut esp = SaSpec::new("esp", direction, Mode::Tunnel, 0x1000, (NEAR, FAR), protection);
    esp.window = 8192;
    if kind == Kind::EspInUdp {
        esp.udp = Some(UdpPorts { source: 4500, destination: 4500 });
    }
    if kind != Kind::AhEsp {
        return vec![esp];
    }
    let protection = Protection::Ah { mac: Mac::HmacSha256, key: key(32, 2) };
    vec![esp, SaSpec::new("ah", direction, Mode::Transport, 0x1001, (NEAR, FAR), protection)]
}

fn engine(associations: Vec<SaSpec>) -> Engine {
    let names = |direction| {
        let of = |sa: &&SaSpec| sa.direction == direction;
        associations.iter().filter(of).map(|sa| sa.name.clone()).collect()
    };
    let (out, inbound) = (names(Direction::Out), names(Direction::In));
    let action = Action::Protect { out, inbound };
    let policy = PolicySpec { name: "all".into(), selector: Selector::ANY, action };
    let engine = Engine::new(associations, vec![policy], None, Duration::ZERO).expect("an engine");
    engine.associations().for_each(|sa| sa.sequence().grant(u64::MAX));
    engine
}

/// A UDP packet of `len` bytes.
fn packet(len: usize, destination: [u8; 4]) -> Vec<u8> {
    let header = IpHeader {
        source: IpAddr::from([10, 1, 0, 1]),
        destination: IpAddr::from(destination),
        tos: 0,
        hop_limit: 64,
        protocol: 17,
        id: 1,
        dont_fragment: true,
        flow_label: 0,
    };
    let mut packet = vec![0x5a; len];
    header.write(len - 20, &mut packet).expect("a header");
    packet
}

fn measure(kind: Kind, len: usize) -> Row {
    let sender = engine(associations(kind, Direction::Out));
    let receiver = engine(associations(kind, Direction::In));
    let packet = packet(len, [10, 2, 0, 1]);
    let headers = Headers::read(&Ip::parse(&packet).expect("a packet"));
    let mut cache = FlowCache::default();
    let bare = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a key"));
    let mut train = vec![vec![0; len + 120]; BATCH];
    // padded, as the text of such a packet is
    let text_len = (len + 2).next_multiple_of(4);
    let mut texts = vec![vec![0; text_len + 16]; BATCH];
    let mut rounds: [Vec<(Duration, f64)>; 2] = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let mut own = [Duration::ZERO; 2];
        let mut library = [Duration::ZERO; 2];
        for turn in [round % 2, 1 - round % 2] {
            if turn == 0 {
                library[0] = timed(|| texts.iter_mut().for_each(|text| seal_bare(&bare, text)));
                library[1] = timed(|| texts.iter_mut().for_each(|text| open_bare(&bare, text)));
                continue;
            }
            let mut lens = [0; BATCH];
            own[0] = timed(|| {
                // as a gateway does with a train: one decision, one reservation
                let verdict = sender.decide(&headers, &mut cache);
                let Verdict::Protect(_, bundle) = verdict else { unreachable!("it protects") };
                let octets = (len * BATCH) as u64;
                let mut reservation = bundle.reserve(BATCH as u64, octets).expect("numbers");
                for (out, sealed) in train.iter_mut().zip(&mut lens) {
                    let write = |room: &mut [u8]| room.copy_from_slice(&packet);
                    *sealed =
                        bundle.seal(&mut reservation, &headers, len, out, write).expect("sealed");
                }
            });
            let mut room = OpenScratch::default();
            own[1] = timed(|| {
                for (out, len) in train.iter_mut().zip(lens) {
                    let (header, body) = out[..len].split_at_mut(20);
                    let (mut header, mut udp, mut body) = (&*header, None, body);
                    let mut protocol = header[9];
                    if kind == Kind::EspInUdp {
                        (header, udp, body, protocol) =
                            (&[], Some((4500, 4500)), &mut body[8..], 50);
                    }
                    let outer = Outer { source: NEAR, destination: FAR, tos: 0, header, udp };
                    black_box(receiver.open(&outer, protocol, body, &mut room).expect("opened"));
                }
            });
        }
        for ((rounds, own), library) in rounds.iter_mut().zip(own).zip(library) {
            rounds.push((own, library.as_secs_f64() / own.as_secs_f64()));
        }
    }
    let [seal, open] = rounds.map(|rounds| Cost {
        ns: median(rounds.iter().map(|(time, _)| time.as_secs_f64() * 1e9 / BATCH as f64)),
        of_bare: median(rounds.iter().map(|(_, share)| *share)),
    });
    Row { kind, len, seal, open }
}

fn seal_bare(key: &LessSafeKey, text: &mut [u8]) {
    let nonce = Nonce::assume_unique_for_key([7; 12]);
    let (text, icv) = text.split_last_chunk_mut::<16>().expect("room for the tag");
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from([9; 12]), text).expect("sealed");
    icv.copy_from_slice(tag.as_ref());
}

fn open_bare(key: &LessSafeKey, text: &mut [u8]) {
    let nonce = Nonce::assume_unique_for_key([7; 12]);
    key.open_in_place(nonce, Aad::from([9; 12]), text).expect("opened");
}

/// Nanoseconds of a decision for the flow of the last policy but one, known and
/// unknown, and of refusing a packet of an unknown association.
fn decisions() -> Vec<(&'static str, f64)> {
    let mut associations = Vec::new();
    let mut policies = Vec::new();
    for n in 0..MANY {
        let [a, b] = n.to_be_bytes();
        let name = format!("sa-{n}");
        let mut octets = vec![3; 18];
        octets.extend([a, b]);
        let secrets = Secrets { key: Key::from_bytes(&octets), ..secrets() };
        let direction = if n % 2 == 0 { Direction::Out } else { Direction::In };
        let spi = 0x1000 + u32::from(n);
        let ends = (NEAR, FAR);
        let protection = Protection::Esp(secrets);
        associations.push(SaSpec::new(&name, direction, Mode::Tunnel, spi, ends, protection));
        let (out, inbound) = if n % 2 == 0 { (vec![name], vec![]) } else { (vec![], vec![name]) };
        let [low, high] = [0, 255].map(|host| IpAddr::from([10, 128 + a, b, host]));
        let selector = Selector { remote: Addresses::Range(low, high), ..Selector::ANY };
        let action = Action::Protect { out, inbound };
        policies.push(PolicySpec { name: format!("policy-{n}"), selector, action });
    }
    let engine = Engine::new(associations, policies, None, Duration::ZERO).expect("an engine");
    let [a, b] = (MANY - 2).to_be_bytes();
    let flow = |host: u8| {
        let packet = packet(64, [10, 128 + a, b, host]);
        Headers::read(&Ip::parse(&packet).expect("a packet"))
    };
    let mut cache = FlowCache::default();
    let same = flow(1);
    let known = per_call(|_| {
        black_box(engine.decide(&same, &mut cache));
    });
    let mut other = flow(2);
    let unknown = per_call(|call| {
        other.ports = Some((call as u16, (call >> 16) as u16)); // never seen before
        black_box(engine.decide(&other, &mut cache));
    });
    let outer = Outer { source: NEAR, destination: FAR, tos: 0, header: &[], udp: None };
    let mut body = [0u8; 64];
    body[..4].copy_from_slice(&0x0fff_0000u32.to_be_bytes());
    let mut room = OpenScratch::default();
    let no_spi = per_call(|_| {
        let _ = black_box(engine.open(&outer, 50, &mut body, &mut room));
    });
    vec![
        ("a flow that was decided before", known),
        ("a new flow, decided by the last policy but one", unknown),
        ("an SPI that is not known, refused", no_spi),
    ]
}

fn per_call(mut what: impl FnMut(u32)) -> f64 {
    const CALLS: u32 = 2000;
    let rounds = (0..101u32).map(|round| {
        let time = timed(|| (0..CALLS).for_each(|call| what(round * CALLS + call)));
        time.as_secs_f64() * 1e9 / f64::from(CALLS)
    });
    median(rounds)
}

fn timed(what: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    what();
    begun.elapsed()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
