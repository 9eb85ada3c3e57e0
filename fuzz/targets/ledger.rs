//! Any octets as a ledger's file, and as the lines of one with their right
//! checksum: what is read is written, and read again, as the same.
#![no_main]

use headroom_gateway::ledger::LedgerState;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let sum = blake3::hash(octets).to_hex();
    let summed = [octets, b"check ", sum.as_bytes(), b"\n"].concat();
    for content in [octets, &summed] {
        let Ok(book) = LedgerState::parse(content) else { continue };
        assert_eq!(LedgerState::parse(book.to_text().as_bytes()), Ok(book));
    }
});
