//! Which packet carried an event: the request, the file's first octet, the
//! completion. Marks help where encryption hides it.

use crate::expectation::{Expectation, Login};
use crate::phases::{Phase, State};
use crate::trace::{Head, Packet, Trace};

/// Index of the packet that says that the transfer is complete.
///
/// For an upload it is the server's reply: the last payload from the server that
/// the client had read when it said that it was done. For a download it is the
/// client's first word or FIN after it: megabytes can wait in the client's socket
/// buffer, still to be decrypted, when the last packet has passed. A client that
/// says nothing (SFTP) has an answer to its last close; where the session parts
/// with an exchange of its own, that answer is the one before it.
pub(crate) fn completion(packets: &[Packet], expected: &Expectation) -> Option<usize> {
    let speech = |p: &Packet| p.payload_len > 0 && !is_close_notify(p);
    let reply = |p: &Packet| !p.from_client && speech(p);
    let speaks = |p: &Packet| p.from_client && speech(p);
    let last = packets.iter().rposition(reply)?;
    let Some(done) = expected.marks.done_ns else {
        let goodbye = packets[..last].iter().rposition(speaks).filter(|_| expected.parting);
        return goodbye.and_then(|at| packets[..at].iter().rposition(reply)).or(Some(last));
    };
    let replied = packets.iter().rposition(|p| reply(p) && p.time_ns <= done).unwrap_or(last);
    let parts = |p: &Packet| p.from_client && (p.fin || p.payload_len > 0) && p.time_ns >= done;
    let parted = packets[replied..].iter().position(parts).map(|after| replied + after);
    Some(if expected.upload { replied } else { parted.unwrap_or(replied) })
}

/// Whether a packet is TLS 1.3's goodbye and nothing else (RFC 8446 §6.1): header
/// (5), alert (2), type (1) and tag (16). stunnel says it behind SSH's own.
fn is_close_notify(packet: &Packet) -> bool {
    packet.payload_len == 24 && packet.head == Head::TlsData
}

/// Index of the packet that carried the first data command.
pub(crate) fn request(
    packets: &[Packet],
    states: &[State],
    expected: &Expectation,
    rtt_s: f64,
) -> usize {
    let speaks = |p: &Packet| p.from_client && p.payload_len > 0;
    let from_mark =
        if let Some(mark) = expected.marks.request_ns.filter(|_| expected.data_connections) {
            // FTP: the client takes the time after it has written
            packets
                .iter()
                .rposition(|p| speaks(p) && p.time_ns <= mark)
                .or_else(|| packets.iter().position(|p| speaks(p) && p.time_ns >= mark))
        } else if let Some(mark) = expected.marks.login_ns {
            // the server logs when it answers, the answer passes here half a round
            // trip later, and the client speaks next
            let mark = mark + (rtt_s * 0.5e9) as u64;
            packets
                .iter()
                .enumerate()
                .filter(|(_, p)| !p.from_client && p.payload_len > 0)
                .min_by_key(|(_, p)| p.time_ns.abs_diff(mark))
                .and_then(|(success, _)| {
                    packets[success..].iter().position(speaks).map(|next| success + next)
                })
        } else {
            expected.login.and_then(|login| after_login(packets, login))
        };
    // HTTP: the first that the client says when hands are shaken
    let first_word = || {
        packets
            .iter()
            .zip(states)
            .position(|(p, state)| speaks(p) && state.phase != Phase::Handshake)
    };
    from_mark.or_else(first_word).unwrap_or(0)
}

/// Index of the client's first word after a login was granted.
fn after_login(packets: &[Packet], login: Login) -> Option<usize> {
    let answer = |from: usize, octets: u32| {
        let of_size = |p: &Packet| !p.from_client && p.payload_len == octets;
        packets[from..].iter().position(of_size).map(|after| from + after)
    };
    let granted = answer(answer(0, login.opened)? + 1, login.granted)?;
    let speaks = |p: &Packet| p.from_client && p.payload_len > 0;
    packets[granted..].iter().position(speaks).map(|after| granted + after)
}

/// Index of the first packet with the file's octets: big enough, in the file's
/// direction, after the request, outside any handshake.
pub(crate) fn first_body(
    trace: &Trace,
    states: &[State],
    request: usize,
    expected: &Expectation,
) -> Option<usize> {
    // two TLS session tickets may come in one packet of 500 octets
    const SURELY_DATA: u64 = 1000;
    let least = expected.size.min(SURELY_DATA) as u32;
    // what is smaller cannot be told from set-up where both are encrypted
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
