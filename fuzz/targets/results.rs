//! Any text as results: what is read of it can be analysed and shown.
#![no_main]

mod shown;

use std::path::Path;

use headroom_lab_results::report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(results) = report::parse(text, Path::new("results.json")) else { return };
    shown::shown(results);
});
