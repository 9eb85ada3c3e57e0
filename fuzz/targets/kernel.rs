//! Any octets as what the kernel hands over with a packet (cmsg(3)), and as what
//! it answers about routes (rtnetlink(7)): what is read is in bounds.
#![no_main]

use headroom_netio::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some(([kind, len], rest)) = octets.split_first_chunk::<2>() else { return };
    let (control, packet) = rest.split_at((usize::from(*len) * 8).min(rest.len()));
    let v6 = kind & 1 == 1;
    if let Some((header, body)) = fuzzing::raw(v6, packet, control) {
        assert!(packet.ends_with(&body));
        assert!(header.len() >= if v6 { 40 } else { 20 });
        assert_eq!(header[0] >> 4, if v6 { 6 } else { 4 });
    }
    if let Some((head, rest)) = rest.split_first_chunk() {
        let mut control = [0; 128];
        let len = rest.len().min(control.len());
        control[..len].copy_from_slice(&rest[..len]);
        fuzzing::link(head, &control, len);
    }
    if let Some(octets) = fuzzing::route(rest, u32::from(*kind)) {
        assert!(octets <= 8);
    }
});
