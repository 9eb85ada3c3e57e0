//! Results as people see them.

use std::path::Path;

use headroom_lab::run;
use headroom_lab_results::report::{self, markdown, terminal};
use headroom_lab_results::schema::Results;

pub(crate) fn shown(mut results: Results) {
    // the work, not the memory, grows with these
    if results.samples.len() > 64 || results.plan.stacks.len() > 8 {
        return;
    }
    run::reanalyse(&mut results);
    let _ =
        (terminal::answer(&results, "", 80, terminal::Detail::Full), markdown::summary(&results));
    // what was written is read
    let text = serde_json::to_string(&results).expect("JSON");
    report::parse(&text, Path::new("results.json")).expect("what was written");
}
