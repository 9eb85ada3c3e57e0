//! The progress bar of a run, with the time left.

use std::time::Duration;

use headroom_lab::run::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error; invisible where that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        bar.set_style(style("{spinner} {elapsed_precise} {wide_msg}"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }
}

impl Progress for Bar {
    fn stage(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    fn expect(&self, ms: u64) {
        self.0.set_style(style(
            "{elapsed_precise} {bar:30} {percent:>3} % · {eta} left · {wide_msg}",
        ));
        self.0.inc_length(ms);
    }

    fn advance(&self, ms: u64, what: &str) {
        self.0.inc(ms);
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
