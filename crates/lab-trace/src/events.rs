//! Finds the packets that carried the request, the file's first byte and the completion.
//! Timestamps by client and server help where encryption hides them.

use crate::expectation::{Expectation, Login};
use crate::phases::{Phase, State};
use crate::trace::{Head, Packet, Trace};

/// Returns the index of the packet that completes the transfer.
///
/// For an upload it is the server's reply: the last payload from the server that the client
/// had read when it reported completion. For a download it is the client's next payload or
/// FIN: when the last packet has passed, megabytes may wait in the client's socket buffer to
/// be decrypted. A client that reports nothing (SFTP) receives an answer to its last close;
/// if the session has a close exchange, that answer is the one before it.
pub(crate) fn completion(packets: &[Packet], expected: &Expectation) -> Option<usize> {
    let payload = |p: &Packet| p.payload_len > 0 && !is_close_notify(p);
    let reply = |p: &Packet| !p.from_client && payload(p);
    let sends = |p: &Packet| p.from_client && payload(p);
    let last = packets.iter().rposition(reply)?;
    let Some(done) = expected.hints.done_ns else {
        let close = packets[..last].iter().rposition(sends).filter(|_| expected.has_close_exchange);
        return close.and_then(|at| packets[..at].iter().rposition(reply)).or(Some(last));
    };
    let replied = packets.iter().rposition(|p| reply(p) && p.time_ns <= done).unwrap_or(last);
    let ends = |p: &Packet| p.from_client && (p.fin || p.payload_len > 0) && p.time_ns >= done;
    let ended = packets[replied..].iter().position(ends).map(|after| replied + after);
    Some(if expected.upload { replied } else { ended.unwrap_or(replied) })
}

/// Tells whether a packet is a lone TLS 1.3 close_notify (RFC 8446 §6.1): header (5), alert
/// (2), type (1) and tag (16). stunnel sends it after SSH's close exchange.
fn is_close_notify(packet: &Packet) -> bool {
    packet.payload_len == 24 && packet.head == Head::TlsData
}

/// Returns the index of the packet that carried the first data command.
pub(crate) fn request(
    packets: &[Packet],
    states: &[State],
    expected: &Expectation,
    rtt_s: f64,
) -> usize {
    let sends = |p: &Packet| p.from_client && p.payload_len > 0;
    let from_mark =
        if let Some(mark) = expected.hints.request_ns.filter(|_| expected.data_connections) {
            // FTP: the client takes the timestamp after it has written
            packets
                .iter()
                .rposition(|p| sends(p) && p.time_ns <= mark)
                .or_else(|| packets.iter().position(|p| sends(p) && p.time_ns >= mark))
        } else if let Some(mark) = expected.hints.login_ns {
            // the server logs its answer, which passes the router half a round trip later;
            // the client sends next
            let mark = mark + (rtt_s * 0.5e9) as u64;
            packets
                .iter()
                .enumerate()
                .filter(|(_, p)| !p.from_client && p.payload_len > 0)
                .min_by_key(|(_, p)| p.time_ns.abs_diff(mark))
                .and_then(|(success, _)| {
                    packets[success..].iter().position(sends).map(|next| success + next)
                })
                // on a busy host the line is read when the file has already passed
                .filter(|&next| carry_file(&packets[next..], expected))
                .or_else(|| expected.login.and_then(|login| after_login(packets, login)))
        } else {
            expected.login.and_then(|login| after_login(packets, login))
        };
    // HTTP: the client's first payload after the handshake
    let first_payload = || {
        packets
            .iter()
            .zip(states)
            .position(|(p, state)| sends(p) && state.phase != Phase::Handshake)
    };
    from_mark.or_else(first_payload).unwrap_or(0)
}

/// Tells whether packets have as many bytes as the file, in its direction.
fn carry_file(packets: &[Packet], expected: &Expectation) -> bool {
    let of_file = packets.iter().filter(|p| p.from_client == expected.upload);
    of_file.map(|p| u64::from(p.payload_len)).sum::<u64>() >= expected.size
}

/// Returns the index of the client's first payload after a login was granted.
fn after_login(packets: &[Packet], login: Login) -> Option<usize> {
    let answer = |from: usize, bytes: u32| {
        let of_size = |p: &Packet| !p.from_client && p.payload_len == bytes;
        packets[from..].iter().position(of_size).map(|after| from + after)
    };
    let granted = answer(answer(0, login.opened)? + 1, login.granted)?;
    let sends = |p: &Packet| p.from_client && p.payload_len > 0;
    packets[granted..].iter().position(sends).map(|after| granted + after)
}

/// Bytes of payload that no message of set-up has in one packet: two TLS session tickets fit in
/// 500 bytes.
pub(crate) const SURELY_DATA: u64 = 1000;

/// Returns the index of the first packet with content of the file: large enough, in the
/// file's direction, after the request and outside handshakes.
pub(crate) fn first_body(
    trace: &Trace,
    states: &[State],
    request: usize,
    expected: &Expectation,
) -> Option<usize> {
    let least = expected.size.min(SURELY_DATA) as u32;
    // a smaller file cannot be told from set-up when both are encrypted
    let hidden = states.iter().any(|state| state.opens_handshake) && expected.size < SURELY_DATA;
    if least == 0 || hidden {
        return None;
    }
    trace.packets.iter().zip(states).enumerate().skip(request).find_map(|(index, (p, state))| {
        let port = trace.connections[p.connection as usize];
        let right_connection = (port != expected.port) == expected.data_connections;
        let carries = p.payload_len >= least
            && p.from_client == expected.upload
            && state.phase != Phase::Handshake;
        (right_connection && carries).then_some(index)
    })
}
