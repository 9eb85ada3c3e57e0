//! Any text as a link: what is read is written, and read again, as the same. And as a trace,
//! which has what everything that follows it relies on.
#![no_main]

use std::path::Path;

use headroom_link_spec::{LinkSpec, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(trace) = Trace::parse(Path::new("/"), "a.trace", text.as_bytes()) {
        assert!(trace.times_ms().is_sorted() && trace.mean_bps() > 0);
        assert!(!trace.period().is_zero() && trace.longest_gap() <= trace.period());
    }
    let Ok(link) = text.parse::<LinkSpec>() else { return };
    assert_eq!(link.to_string().parse(), Ok(link));
});
