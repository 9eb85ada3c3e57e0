//! Any octets as what a gateway answers: what is understood can be shown, and is
//! the same when it is said again.
#![no_main]

use headroom_gateway::control::Response;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let mut from = octets;
    while let Ok(Some(answer)) = Response::read(&mut from) {
        if let Response::Status { status } = &answer {
            let _ = status.to_string();
        }
        let line = said(&answer);
        let again = Response::read(&mut &line[..]).expect("an answer").expect("a whole line");
        assert_eq!(said(&again), line);
    }
});

fn said(answer: &Response) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).expect("JSON");
    line.push(b'\n');
    line
}
