//! IPsec in UDP, in other tunnels, in UDP GSO trains and in fragments.

use headroom_packet::fragment::Fragmenter;
use headroom_packet::{Ip, protocol, udp};

use super::{GCM, decode, packet, sa, seal, sender};
use crate::decode::Outcome;
use crate::decode::attempt::rebuild;

#[test]
fn opens_esp_in_udp_on_other_ports_with_a_note() {
    let sas = sa("a", "esp", "tunnel", GCM, "udp = { source = 4500, destination = 4500 }\n");
    let mut sealed = seal(&sender(&sas), &packet(false, 100));
    sealed[20..24].copy_from_slice(&[0x17, 0x70, 0x17, 0x71]);
    let (report, inside, _) = decode(&sas, std::slice::from_ref(&sealed));
    assert_eq!(inside[0], Some(packet(false, 100)), "{}", report[0]);
    assert!(report[0].notes[0].contains("UDP destination port 6001"), "{:?}", report[0].notes);
    let none = sa("a", "esp", "tunnel", GCM, "");
    let (report, ..) = decode(&none, std::slice::from_ref(&sealed));
    assert!(
        report[0].notes[0].contains("has no `udp`, but the packet is in UDP"),
        "{:?}",
        report[0].notes
    );
    // another destination is another association
    sealed[19] = 9;
    headroom_packet::header::refresh_checksum(&mut sealed).expect("a header");
    assert!(matches!(decode(&sas, &[sealed]).0[0].outcome, Outcome::NotIpsec { .. }));
}

#[test]
fn opens_esp_inside_gre_and_vxlan() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let sealed = seal(&sender(&sas), &packet(false, 100));
    let header = &packet(false, 0)[..20];
    let in_gre =
        |gre: &[u8], packet: &[u8]| rebuild(header, 47, &[gre, packet].concat()).expect("a packet");
    let frame = [&[0; 12][..], &[0x81, 0, 0, 7, 8, 0], &sealed].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &frame].concat();
    let mut datagram = vec![0; udp::HEADER_LEN];
    udp::write(40_000, 4789, vxlan.len(), &mut datagram).expect("room");
    let in_vxlan = rebuild(header, protocol::UDP, &[&datagram[..], &vxlan].concat());
    let packets = [
        in_gre(&[0, 0, 8, 0], &sealed),
        in_gre(&[0xb0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &sealed),
        in_gre(&[0, 0, 0x65, 0x58], &frame),
        in_gre(&[0, 0, 8, 0], &in_gre(&[0, 0, 8, 0], &sealed)),
        in_vxlan.expect("a packet"),
    ];
    for packet_of in &packets {
        let (report, inside, summary) = decode(&sas, std::slice::from_ref(packet_of));
        assert!(summary.all_opened(), "{}", report[0]);
        assert_eq!(inside[0], Some(packet(false, 100)));
    }
    // in two fragments
    let whole = in_gre(&[0, 0, 8, 0], &sealed);
    let cut = 20 + 48;
    let part = |body: &[u8], flags: u16| {
        let mut packet = rebuild(header, 47, body).expect("a packet");
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet
    };
    let parts = [part(&whole[20..cut], 0x2000), part(&whole[cut..], 48 / 8)];
    let (_, inside, summary) = decode(&sas, &parts);
    assert_eq!((summary.opened, inside.last()), (1, Some(&Some(packet(false, 100)))));
    // as deep as anybody builds, and no deeper
    let deep = (0..6).fold(sealed, |inner, _| in_gre(&[0, 0, 8, 0], &inner));
    assert_eq!(decode(&sas, &[deep]).2.others, 1);
}

#[test]
fn recognises_trains_fragments_and_keepalives() {
    let sas = sa("a", "esp", "tunnel", GCM, "udp = { source = 4500, destination = 4500 }\n");
    let engine = sender(&sas);
    let sealed: Vec<_> = (0..3).map(|_| seal(&engine, &packet(false, 400))).collect();
    // what a host sees of its own UDP GSO
    let body: Vec<u8> = sealed.iter().flat_map(|packet| packet[28..].to_vec()).collect();
    let in_udp = |body: &[u8]| {
        let mut datagram = vec![0; udp::HEADER_LEN];
        udp::write(4500, 4500, body.len(), &mut datagram).expect("room");
        rebuild(&sealed[0][..20], protocol::UDP, &[&datagram, body].concat()).expect("a packet")
    };
    let packets = [in_udp(&body), in_udp(&[0xff]), in_udp(&[0, 0, 0, 0, 1, 2]), packet(false, 5)];
    let (report, inside, summary) = decode(&sas, &packets);
    assert_eq!((summary.opened, summary.others, summary.frames), (3, 3, 4));
    assert_eq!(summary.ike.messages, 0, "no header");
    assert!(
        report[2].notes[0].contains("UDP GSO")
            && inside[2].as_deref() == Some(&packet(false, 400)[..])
    );
    assert!(matches!(report[3].outcome, Outcome::Keepalive));
    assert!(matches!(report[4].outcome, Outcome::NotIpsec { .. }));
    assert!(matches!(report[5].outcome, Outcome::NotIpsec { .. }));

    let sas = sa("a", "esp", "tunnel", GCM, "dont_fragment = \"clear\"\n");
    let long = seal(&sender(&sas), &packet(false, 3000));
    let cut = Fragmenter::new(Ip::parse(&long).expect("a packet"), 1500, 9).expect("fragments");
    let mut pieces: Vec<Vec<u8>> = (0..cut.fragments())
        .map(|index| {
            let mut piece = vec![0; 1500];
            let len = cut.copy(index, &mut piece).expect("room");
            piece.truncate(len);
            piece
        })
        .collect();
    pieces.reverse();
    let (report, _, summary) = decode(&sas, &pieces);
    assert!(summary.opened == 1 && summary.all_opened(), "{summary}");
    assert!(matches!(report.last().map(|report| &report.outcome), Some(Outcome::Opened { .. })));
    pieces.pop();
    assert_eq!(decode(&sas, &pieces).2.fragments_left, 1);
}

/// The fragments of a packet, each of at most 600 bytes.
fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
    let cut = Fragmenter::new(Ip::parse(packet).expect("a packet"), 600, 9).expect("fragments");
    let piece = |index| {
        let mut piece = vec![0; 600];
        let len = cut.copy(index, &mut piece).expect("room");
        piece.truncate(len);
        piece
    };
    (0..cut.fragments()).map(piece).collect()
}

/// RFC 8200, section 4.5: destination options may stand in the part that is cut, and
/// the fragment header then names them.
#[test]
fn reassembles_fragments_that_begin_with_destination_options() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let sas = sas.replace("192.0.2.1", "fd00::1").replace("192.0.2.2", "fd00::2");
    let sealed = seal(&sender(&sas), &packet(false, 1500));
    let options = [50, 0, 1, 4, 0, 0, 0, 0];
    let behind = [&options[..], &sealed[40..]].concat();
    let long = rebuild(&sealed[..40], protocol::DESTINATION_OPTIONS, &behind).expect("a packet");
    let pieces = fragments(&long);
    assert!(pieces.len() > 2 && pieces[1][40] == protocol::DESTINATION_OPTIONS);
    let (_, inside, summary) = decode(&sas, &pieces);
    assert!(summary.all_opened() && summary.others == 0, "{summary}");
    assert_eq!(inside.last(), Some(&Some(packet(false, 1500))));
}

#[test]
fn reassembled_datagrams_keep_the_df_bit() {
    let sas = sa("a", "esp", "transport", GCM, "");
    let mut pieces = fragments(&seal(&sender(&sas), &packet(false, 1500)));
    for piece in &mut pieces {
        piece[6] |= 0x40;
        headroom_packet::header::refresh_checksum(piece).expect("a header");
    }
    let (_, inside, summary) = decode(&sas, &pieces);
    let whole = inside.last().and_then(Option::as_ref).expect("opened");
    assert!(summary.all_opened() && whole[6] & 0x40 != 0, "{summary}");
}
