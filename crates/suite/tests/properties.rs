//! What holds of every suite: what was sealed opens, anything else does not.

use headroom_suite::{AadInput, Forged, Key, SealError, Suite, Transform};
use proptest::prelude::*;

/// An association's suite with fresh keys, and what is bound to one packet.
struct Packet {
    transform: Box<dyn Transform>,
    header: Vec<u8>,
    sequence: u64,
    extended: bool,
    addresses: Vec<u8>,
    body: Vec<u8>,
}

impl Packet {
    /// Sealed, with `blocks` blocks of text that count up.
    fn sealed(suite: Suite, sequence: u64, extended: bool, qesp: bool, blocks: usize) -> Self {
        let mut body = vec![0; suite.iv_len()];
        body.extend(text(suite, blocks));
        body.resize(body.len() + suite.icv_len(), 0);
        let mut header = vec![0xab; if qesp { 12 } else { 4 }];
        header.extend((sequence as u32).to_be_bytes());
        let addresses = vec![0xcd; if qesp { 32 } else { 0 }];
        let transform = bind(suite);
        let mut packet = Self { transform, header, sequence, extended, addresses, body };
        let sealed = packet.change(|transform, aad, body| transform.seal(aad, body));
        assert_eq!(sealed, Ok(()));
        packet
    }

    /// Whether `body` opens in place of this packet's.
    fn opens(&self, body: &mut [u8]) -> Result<(), Forged> {
        self.transform.open(&self.aad(), body)
    }

    fn aad(&self) -> AadInput<'_> {
        AadInput {
            header: &self.header,
            sequence: self.sequence,
            extended: self.extended,
            addresses: &self.addresses,
        }
    }

    fn change<T>(&mut self, how: impl FnOnce(&dyn Transform, &AadInput<'_>, &mut [u8]) -> T) -> T {
        let mut body = std::mem::take(&mut self.body);
        let result = how(&*self.transform, &self.aad(), &mut body);
        self.body = body;
        result
    }
}

fn bind(suite: Suite) -> Box<dyn Transform> {
    let key = Key::generate(suite.key_len()).expect("random numbers");
    let mac_key = Key::generate(suite.mac_key_len()).expect("random numbers");
    let mac_key = (!mac_key.is_empty()).then_some(&mac_key);
    suite.bind(&key, mac_key).expect("keys of the right length")
}

fn text(suite: Suite, blocks: usize) -> Vec<u8> {
    (0..blocks * suite.block_len()).map(|at| at as u8).collect()
}

fn any_suite() -> impl Strategy<Value = Suite> {
    proptest::sample::select(Suite::ALL.to_vec())
}

proptest! {
    #[test]
    fn open_undoes_seal(
        suite in any_suite(),
        blocks in 0_usize..150,
        sequence in prop_oneof![1_u64.., 1..=u64::from(u32::MAX)],
        qesp: bool,
    ) {
        let extended = sequence > u64::from(u32::MAX) || blocks % 2 == 0;
        let packet = Packet::sealed(suite, sequence, extended, qesp, blocks);
        let plain = text(suite, blocks);
        let place = suite.iv_len()..suite.iv_len() + plain.len();
        let mut body = packet.body.clone();
        prop_assert!(plain.is_empty() || (body[place.clone()] != plain) == suite.encrypts());
        prop_assert_eq!(packet.opens(&mut body), Ok(()));
        prop_assert_eq!(&body[place], plain);
    }

    #[test]
    fn anything_else_does_not_open(
        suite in any_suite(),
        mut body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let packet = Packet::sealed(suite, 1, true, false, 1);
        prop_assert_eq!(packet.opens(&mut body), Err(Forged));
    }
}

#[test]
fn every_bit_counts() {
    for suite in Suite::ALL {
        let mut packet = Packet::sealed(suite, (5 << 32) + 1, true, true, 2);
        for bit in 0..packet.body.len() * 8 {
            let mut body = packet.body.clone();
            body[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(packet.opens(&mut body), Err(Forged), "{suite}, body bit {bit}");
        }
        // The header's sequence number counts, in the low half; `sequence` in the high.
        for bit in 0..packet.header.len() * 8 {
            packet.header[bit / 8] ^= 1 << (bit % 8);
            let opened = packet.opens(&mut packet.body.clone());
            assert_eq!(opened, Err(Forged), "{suite}, header bit {bit}");
            packet.header[bit / 8] ^= 1 << (bit % 8);
        }
        for bit in 0..packet.addresses.len() * 8 {
            packet.addresses[bit / 8] ^= 1 << (bit % 8);
            let opened = packet.opens(&mut packet.body.clone());
            assert_eq!(opened, Err(Forged), "{suite}, address bit {bit}");
            packet.addresses[bit / 8] ^= 1 << (bit % 8);
        }
        for bit in 32..64 {
            packet.sequence ^= 1 << bit;
            let opened = packet.opens(&mut packet.body.clone());
            assert_eq!(opened, Err(Forged), "{suite}, sequence bit {bit}");
            packet.sequence ^= 1 << bit;
        }
        packet.extended = false;
        assert_eq!(packet.opens(&mut packet.body.clone()), Err(Forged), "{suite}, not extended");
        packet.extended = true;
        assert_eq!(packet.opens(&mut packet.body.clone()), Ok(()), "{suite}, as it was");
        packet.transform = bind(suite);
        assert_eq!(packet.opens(&mut packet.body.clone()), Err(Forged), "{suite}, other keys");
    }
}

#[test]
fn no_part_of_a_packet_opens() {
    for suite in Suite::ALL {
        let packet = Packet::sealed(suite, 1, false, false, 3);
        for len in 0..packet.body.len() {
            let front = packet.opens(&mut packet.body[..len].to_vec());
            assert_eq!(front, Err(Forged), "{suite}, the first {len}");
            let back = packet.opens(&mut packet.body[packet.body.len() - len..].to_vec());
            assert_eq!(back, Err(Forged), "{suite}, the last {len}");
        }
        let mut longer = packet.body.clone();
        longer.push(0);
        assert_eq!(packet.opens(&mut longer), Err(Forged), "{suite}, one more");
    }
}

#[test]
fn only_whole_blocks_are_sealed() {
    for suite in Suite::ALL {
        let transform = bind(suite);
        let header = [0, 0, 0, 1, 0, 0, 0, 1];
        let aad = AadInput { header: &header, sequence: 1, extended: false, addresses: &[] };
        for len in 0..100 {
            let whole = len >= suite.overhead()
                && (len - suite.overhead()).is_multiple_of(suite.block_len());
            match transform.seal(&aad, &mut vec![0; len]) {
                Ok(()) => assert!(whole, "{suite}, {len}"),
                Err(error) => {
                    assert!(matches!(error, SealError::Length { found, .. } if found == len));
                    assert!(!whole, "{suite}, {len}");
                }
            }
        }
        let lengths = (transform.iv_len(), transform.block_len(), transform.icv_len());
        assert_eq!(lengths, (suite.iv_len(), suite.block_len(), suite.icv_len()));
    }
}

#[test]
fn aead_ivs_are_sequence_numbers_and_cbc_ivs_are_not() {
    for suite in Suite::ALL {
        for sequence in [1, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            let packet = Packet::sealed(suite, sequence, true, false, 1);
            let iv = &packet.body[..suite.iv_len()];
            if let Suite::Aead(_) = suite {
                assert_eq!(iv, sequence.to_be_bytes());
            } else {
                let next = Packet::sealed(suite, sequence, true, false, 1);
                assert!(iv.is_empty() || iv != &next.body[..suite.iv_len()]);
            }
        }
    }
}

#[test]
fn the_icv_covers_header_iv_ciphertext_high_half_and_addresses_in_this_order() {
    let sequence: u64 = 0x0102_0304_0506_0708;
    let header: Vec<u8> = [&[0xab; 12], &sequence.to_be_bytes()[4..]].concat();
    let addresses: Vec<u8> = (0..8).collect();
    for suite in Suite::ALL {
        let Suite::Separate(_, mac) = suite else { continue };
        let key = Key::generate(suite.key_len()).expect("random numbers");
        let mac_key = Key::generate(suite.mac_key_len()).expect("random numbers");
        let transform = suite.bind(&key, Some(&mac_key)).expect("keys of the right length");
        let authenticator = mac.bind(&mac_key).expect("a key of the right length");
        for extended in [true, false] {
            let sequence = if extended { sequence } else { sequence & 0xffff_ffff };
            let aad = AadInput { header: &header, sequence, extended, addresses: &addresses };
            let mut body = vec![0; suite.overhead() + 3 * suite.block_len()];
            assert_eq!(transform.seal(&aad, &mut body), Ok(()));
            let (covered, icv) = body.split_at(body.len() - suite.icv_len());
            let high: &[u8] = if extended { &[1, 2, 3, 4] } else { &[] };
            let covered = [&header, covered, high, &addresses].concat();
            assert_eq!(authenticator.verify(&[&covered], icv), Ok(()), "{suite}");
        }
    }
}

#[test]
fn a_wrapped_sequence_number_is_not_sealed() {
    for suite in Suite::ALL {
        let transform = bind(suite);
        let mut body = vec![0; suite.overhead()];
        for (sequence, extended) in [(0, true), (0, false), (1 << 32, false)] {
            let aad = AadInput { header: &[0; 8], sequence, extended, addresses: &[] };
            assert_eq!(transform.seal(&aad, &mut body), Err(SealError::Sequence(sequence)));
        }
    }
}

#[test]
fn one_association_serves_several_threads() {
    for suite in Suite::ALL {
        let transform = &*bind(suite);
        std::thread::scope(|scope| {
            for thread in 1..=4_u64 {
                scope.spawn(move || {
                    for sequence in (thread << 20)..(thread << 20) + 50 {
                        let header = sequence.to_be_bytes();
                        let aad =
                            AadInput { header: &header, sequence, extended: true, addresses: &[] };
                        let mut body = vec![7; suite.overhead() + 2 * suite.block_len()];
                        assert_eq!(transform.seal(&aad, &mut body), Ok(()));
                        assert_eq!(transform.open(&aad, &mut body), Ok(()));
                        let text = &body[suite.iv_len()..][..2 * suite.block_len()];
                        assert!(text.iter().all(|octet| *octet == 7));
                    }
                });
            }
        });
    }
}

#[test]
fn bound_suites_print_their_names_and_no_keys() {
    // "eeee", "238" and "0xee" are in no suite's name.
    for suite in Suite::ALL {
        let mut key = vec![0xee; suite.key_len()];
        // Three keys that differ, where there are three.
        key.iter_mut().enumerate().for_each(|(at, octet)| *octet ^= ((at / 8) as u8) << 1);
        let mac_key = Key::from_bytes(&vec![0xee; suite.mac_key_len()]);
        let mac_key = (!mac_key.is_empty()).then_some(&mac_key);
        let transform = suite.bind(&Key::from_bytes(&key), mac_key).expect("keys");
        let text = format!("{transform:?} {transform:#?}").to_lowercase();
        let (name, _) = suite.to_string().split_once('+').map_or_else(
            || (suite.to_string(), String::new()),
            |(cipher, mac)| (cipher.to_owned(), mac.to_owned()),
        );
        assert!(text.contains(&name), "{text}");
        assert!(["eeee", "238", "0xee"].iter().all(|octets| !text.contains(octets)), "{text}");
    }
}
