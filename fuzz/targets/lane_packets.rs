//! Any bytes as packets of a lane with real keys: nobody knows them, so nothing is
//! opened, and a packet that was sealed is not opened when any of it was changed.
#![no_main]

mod lane_keys;

use headroom_transfer_proto::lane::{
    Direction, Dropped, HEADER_LEN, Header, OVERHEAD, Opener, Sealer, is_lane,
};
use lane_keys::{Aes, Exporter, context};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = Header::parse(bytes) {
        assert!(is_lane(bytes));
        assert_eq!(header.bytes(), bytes[..HEADER_LEN]);
    }
    let mut keys = Exporter::<Aes>::new();
    // nobody ever seals with this key: the fuzzer sees what it compares
    let mut opener = Opener::new(context(Direction::ToClient));
    assert!(opener.open(&mut keys, &mut bytes.to_vec()).is_err());
    let mut opener = Opener::new(context(Direction::ToServer));

    // a piece of it as the payload of a true packet, the rest as what is changed there
    let Some((&cut, rest)) = bytes.split_first() else { return };
    let (text, change) = rest.split_at(usize::from(cut).min(rest.len()));
    let mut sealer = Sealer::new(&mut keys, context(Direction::ToServer)).expect("a key");
    let mut packet = vec![0; OVERHEAD + text.len()];
    packet[HEADER_LEN..HEADER_LEN + text.len()].copy_from_slice(text);
    sealer.seal(&mut keys, &mut packet).expect("a number");
    let mut changed = packet.clone();
    for (byte, change) in changed.iter_mut().zip(change) {
        *byte ^= change;
    }
    if changed != packet {
        assert!(opener.open(&mut keys, &mut changed).is_err());
        changed.truncate(changed.len() - 1);
        assert!(opener.open(&mut keys, &mut changed).is_err());
    }
    let mut again = packet.clone();
    let (number, opened) = opener.open(&mut keys, &mut packet).expect("it is the sender's");
    assert_eq!((number.get(), &*opened), (0, text));
    assert_eq!(opener.open(&mut keys, &mut again).err(), Some(Dropped::Replayed));
});
