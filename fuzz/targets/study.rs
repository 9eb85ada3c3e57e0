//! Any text as a study, with any text as its one printed table: what is accepted is
//! accepted at every scale, or refused with a sentence.
#![no_main]

use headroom_lab::plan::Scale;
use headroom_lab::study::Study;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // the table stands behind the first line of dashes alone
    let (text, table) = text.split_once("\n---\n").unwrap_or((text, "a,b\n1,2\n"));
    let Ok(study) = Study::from_toml(text, "fuzz", &|_| Ok(table.to_owned())) else { return };
    for scale in Scale::ALL {
        if let Ok(study) = study.clone().at_scale(scale) {
            assert!(!study.parts.is_empty());
        }
    }
});
