//! Any bytes as the decrypted payloads of an IKE message, and as a signature in AUTH.
#![no_main]

use headroom_ike::wire::{DigitalSignature, Payload, emit_chain, parse_decrypted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let Ok(payloads) = parse_decrypted(first.into(), rest) else { return };
    assert!(payloads.iter().all(|payload| !matches!(payload, Payload::Encrypted(_))));
    let mut emitted = Vec::new();
    let first = emit_chain(&payloads, &mut emitted);
    if let Ok(again) = parse_decrypted(first, &emitted) {
        let mut twice = Vec::new();
        emit_chain(&again, &mut twice);
        assert_eq!(twice, emitted);
    }
    for payload in &payloads {
        if let Payload::Authentication(auth) = payload
            && let Ok(signature) = DigitalSignature::parse(auth.data)
        {
            assert_eq!(signature.emit(), auth.data);
        }
    }
});
