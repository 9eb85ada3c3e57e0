//! Any bytes as frames of a browser's WebSocket: each is parsed or refused, what is parsed is
//! encoded as the same bytes, and no sequence of frames makes the server panic or grant without
//! end. The first byte of each piece is its length.
#![no_main]

use headroom_transfer::MuxConnection;
use headroom_transfer_proto::mux::Frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::parse(bytes) {
        assert_eq!(frame.encode(), bytes);
    }
    let peer = ([127, 0, 0, 1], 4861).into();
    let (connection, _outgoing) = MuxConnection::new(peer);
    let mut rest = bytes;
    while let Some((length, more)) = rest.split_first() {
        let (frame, after) = more.split_at(more.len().min(usize::from(*length)));
        rest = after;
        if connection.receive(&frame.to_vec().into()).is_err() {
            break;
        }
    }
});
