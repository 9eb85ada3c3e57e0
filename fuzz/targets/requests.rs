//! Any octets as what an asker sends to a gateway's socket: no more than a line of
//! it is read at a time, and what is understood is what was asked.
#![no_main]

use headroom_gateway::control::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let mut from = octets;
    loop {
        let before = from;
        let request = Request::read(&mut from);
        let line = &before[..before.len() - from.len()];
        assert!(line.len() <= 4096);
        let Ok(Some(request)) = request else { break };
        assert_eq!(line.iter().position(|&octet| octet == b'\n'), Some(line.len() - 1));
        let mut again = serde_json::to_vec(&request).expect("JSON");
        again.push(b'\n');
        assert_eq!(Request::read(&mut &again[..]).expect("a request"), Some(request));
    }
});
