//! Any bytes as what a peer says on the control stream and at the head of a data
//! stream: what is read keeps to its bounds, and is written and read again as the same.
#![no_main]

use headroom_transfer_proto::message::{DataHeader, MAX_BYTES, Message, body_len};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::parse(bytes) {
        let mut framed = Vec::new();
        message.frame(&mut framed).expect("what was read keeps to its bounds");
        let (length, body) = framed.split_first_chunk().expect("a length");
        assert_eq!(body_len(*length), Ok(body.len()));
        assert_eq!(Message::parse(body), Ok(message));
    }
    if let Ok(header) = DataHeader::parse(bytes) {
        let mut framed = Vec::new();
        header.frame(&mut framed).expect("a header is short");
        assert_eq!(DataHeader::parse(&framed[4..]), Ok(header));
    }
    if let Some(length) = bytes.first_chunk() {
        assert!(body_len(*length).is_ok() == (u32::from_be_bytes(*length) as usize <= MAX_BYTES));
    }
});
