//! What sealing and opening cost on one core: every suite at three lengths, the
//! AEADs beside the bare function of the library, in turns within each round.
//! `cargo run --release -p headroom-suite --example bench-suite`; a part of a
//! suite's name as argument measures only those.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use headroom_suite::{AadInput, Aead, Key, Suite, Transform};

/// Bytes of text, rounded up to whole blocks.
const LENGTHS: [usize; 3] = [64, 512, 1400];
/// Packets that are timed together: they stay in the cache, as a train does.
const BATCH: usize = 64;
/// Rounds of one batch each, of which the median counts, and when to stop sooner.
const ROUNDS: usize = 1001;
const PATIENCE: Duration = Duration::from_millis(50);
/// What is authenticated beside the text, with extended sequence numbers: ESP's
/// header, or Q-ESP's with two addresses of IPv6, the most there is.
const PROTOCOLS: [(&str, AadInput<'static>); 2] = [
    (
        "ESP",
        AadInput { header: &[0, 0, 0, 1, 0, 0, 0, 1], sequence: 1, extended: true, addresses: &[] },
    ),
    (
        "Q-ESP",
        AadInput {
            header: &[0x13, 0x8c, 0x13, 0x8c, 17, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
            sequence: 1,
            extended: true,
            addresses: &[0xfd; 32],
        },
    ),
];

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    println!(
        "| suite | packet | bytes | seal, ns | Gbit/s | of bare | open, ns | Gbit/s | of bare |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for suite in Suite::ALL.into_iter().filter(|suite| suite.to_string().contains(&wanted)) {
        for len in LENGTHS {
            let len = len.next_multiple_of(suite.block_len());
            for (protocol, aad) in &PROTOCOLS {
                let [seal, open] = measure(suite, aad, len);
                println!("| {suite} | {protocol} | {len} {} {} |", seal.show(len), open.show(len));
            }
        }
    }
}

/// Medians of the rounds.
struct Cost {
    packet: Duration,
    of_bare: Option<f64>,
}

impl Cost {
    fn show(&self, len: usize) -> String {
        let nanoseconds = self.packet.as_secs_f64() * 1e9;
        let of_bare =
            self.of_bare.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0));
        format!("| {nanoseconds:.0} | {:.2} | {of_bare}", len as f64 * 8.0 / nanoseconds)
    }
}

/// What one packet with `len` bytes of text costs to seal and to open.
fn measure(suite: Suite, aad: &AadInput<'_>, len: usize) -> [Cost; 2] {
    let key = Key::generate(suite.key_len()).expect("random numbers");
    let mac_key = Key::generate(suite.mac_key_len()).expect("random numbers");
    let mac_key = (!mac_key.is_empty()).then_some(&mac_key);
    let transform = suite.bind(&key, mac_key).expect("keys of the right length");
    let bare = match suite {
        Suite::Aead(aead) => Some(Bare::new(aead, &key)),
        Suite::Separate(..) => None,
    };
    let mut bodies = vec![vec![0; suite.overhead() + len]; BATCH];
    let mut rounds = [Vec::new(), Vec::new()];
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let mut bare_times = [Duration::ZERO; 2];
        let mut times = [Duration::ZERO; 2];
        // Whoever comes first is another in each round.
        for turn in [round % 2, 1 - round % 2] {
            match (&bare, turn) {
                (Some(bare), 0) => {
                    bare_times[0] = timed(&mut bodies, |body| bare.seal(body));
                    bare_times[1] = timed(&mut bodies, |body| bare.open(body));
                }
                (None, 0) => {}
                _ => {
                    times[0] = timed(&mut bodies, |body| seal(&*transform, aad, body));
                    times[1] = timed(&mut bodies, |body| open(&*transform, aad, body));
                }
            }
        }
        for (rounds, (time, bare)) in rounds.iter_mut().zip(times.into_iter().zip(bare_times)) {
            rounds.push((time, bare.as_secs_f64() / time.as_secs_f64()));
        }
        if begun.elapsed() > PATIENCE && round >= 10 {
            break;
        }
    }
    rounds.map(|rounds| Cost {
        packet: median(rounds.iter().map(|(time, _)| *time)) / BATCH as u32,
        of_bare: bare.as_ref().map(|_| median(rounds.iter().map(|(_, share)| *share))),
    })
}

fn timed(bodies: &mut [Vec<u8>], mut what: impl FnMut(&mut [u8])) -> Duration {
    let begun = Instant::now();
    for body in bodies {
        what(body);
    }
    begun.elapsed()
}

fn median<T: PartialOrd + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
    values[values.len() / 2]
}

fn seal(transform: &dyn Transform, aad: &AadInput<'_>, body: &mut [u8]) {
    transform.seal(aad, body).expect("a whole body");
}

fn open(transform: &dyn Transform, aad: &AadInput<'_>, body: &mut [u8]) {
    transform.open(aad, body).expect("what was sealed");
}

/// The library's function on the same bytes, with a nonce and additional data
/// of ESP's lengths that are already there.
struct Bare(LessSafeKey);

impl Bare {
    const NONCE: [u8; 12] = [7; 12];
    const ADDITIONAL: [u8; 12] = [9; 12];

    fn new(aead: Aead, key: &Key) -> Self {
        let algorithm = match aead {
            Aead::Aes128Gcm => &aead::AES_128_GCM,
            Aead::Aes192Gcm => &aead::AES_192_GCM,
            Aead::Aes256Gcm => &aead::AES_256_GCM,
            Aead::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let key = &key.as_bytes()[..key.len() - 4];
        Self(LessSafeKey::new(UnboundKey::new(algorithm, key).expect("a key")))
    }

    fn seal(&self, body: &mut [u8]) {
        let nonce = Nonce::assume_unique_for_key(Self::NONCE);
        let (text, icv) = body[8..].split_last_chunk_mut::<16>().expect("a whole body");
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(&Self::ADDITIONAL), text);
        icv.copy_from_slice(tag.expect("a tag").as_ref());
    }

    fn open(&self, body: &mut [u8]) {
        let nonce = Nonce::assume_unique_for_key(Self::NONCE);
        let opened = self.0.open_in_place(nonce, Aad::from(&Self::ADDITIONAL), &mut body[8..]);
        opened.expect("what was sealed");
    }
}
