//! Any octets as the journal of a run that was cut: what is read of it can be
//! analysed and shown, and is the same when it is written and read again.
#![no_main]

mod shown;

use std::path::Path;

use headroom_lab::run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Ok(results) = run::measured(octets, Path::new("journal.jsonl")) else { return };
    shown::shown(results);
});
