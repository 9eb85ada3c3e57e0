//! Parses arbitrary bytes as control messages and answers about routes, for fuzzing only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::control::Control;
use crate::inbox::{Arrival, CONTROL_WORDS, HEADER_SPACE, MAX_PACKET, read_common};
use crate::link_socket::{CONTROL, VNET_HEADER, read_control, read_offload};
use crate::route::{Hop, Route, body_of};
use crate::{errors, raw};

/// Parses a packet of a raw socket with its control messages, IPv4 and IPv6. Returns header and
/// body of the result, unless it is refused.
pub fn raw(v6: bool, packet: &[u8], control: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let packet = &packet[..packet.len().min(MAX_PACKET)];
    let mut slot = vec![0; HEADER_SPACE + packet.len()];
    slot[HEADER_SPACE..].copy_from_slice(packet);
    let control = Control::<CONTROL_WORDS>::of(control);
    let end = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 1]);
    let end = if v6 { end } else { Ipv4Addr::LOCALHOST.into() };
    let mut arrival = Arrival {
        source: SocketAddr::new(end, 50),
        destination: end,
        tos: 0,
        segment_len: packet.len(),
        header: HEADER_SPACE,
        body: HEADER_SPACE,
        end: slot.len(),
        truncated: false,
    };
    let mut overflowed = 0;
    for (level, kind, data) in control.messages() {
        read_common(&mut arrival, &mut overflowed, (level, kind), data);
        let _ = errors::read_extended_error(arrival.source, data);
    }
    let whole = match v6 {
        true => raw::rebuild_v6(&mut arrival, &mut slot, &control, 50),
        false => raw::split_v4(&mut arrival, &mut slot),
    };
    let header = slot[arrival.header..arrival.body].to_vec();
    whole.then(|| (header, slot[arrival.body..arrival.end].to_vec()))
}

/// Parses the control messages of a link frame.
pub fn link(header: &[u8; VNET_HEADER], control: &[u8; CONTROL], len: usize) {
    let mut words = [0; CONTROL / 8];
    for (word, bytes) in words.iter_mut().zip(control.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    let _ = (read_offload(header), read_control(&words, len.min(CONTROL)));
}

/// Parses an answer of rtnetlink; returns the length of the neighbour's address, if there is one.
pub fn route(answer: &[u8], sequence: u32) -> Option<u8> {
    let body = body_of(answer.to_vec(), sequence).ok()??;
    let _ = Route::read(&body);
    Hop::read(&body, 1).map(|hop| hop.address_len)
}
