//! Any text as a link: what is read is written, and read again, as the same.
#![no_main]

use headroom_link_spec::LinkSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(link) = text.parse::<LinkSpec>() else { return };
    assert_eq!(link.to_string().parse(), Ok(link));
});
