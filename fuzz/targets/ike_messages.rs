//! Any bytes as an IKE message: what is read keeps to its bounds, and is written and read again as
//! the same.
#![no_main]

use headroom_ike::wire::{MAX_PAYLOADS, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Message::parse(bytes) else { return };
    assert!(message.payloads.len() <= MAX_PAYLOADS);
    let emitted = message.emit();
    // reserved bits, unknown attributes and unknown selectors are not kept
    let again = Message::parse(&emitted);
    if let Ok(again) = again {
        assert_eq!(again.emit(), emitted);
    }
});
