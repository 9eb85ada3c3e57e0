//! The progress bar of a run, with the time left.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headroom_lab::run::{Progress, rounded};
use headroom_mutex::lock;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// A bar on standard error; invisible where that is not a terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    began: Instant,
    /// When the run will probably be done; none as long as nobody knows.
    ends: Arc<Mutex<Option<Instant>>>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        bar.set_style(style("{spinner} {elapsed_precise} {wide_msg}"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar, began: Instant::now(), ends: Arc::default() }
    }
}

impl Progress for Bar {
    fn stage(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    fn left(&self, time: Duration) {
        let (now, elapsed) = (Instant::now(), self.began.elapsed());
        let mut ends = lock(&self.ends);
        let is_first = ends.is_none();
        *ends = now.checked_add(time);
        drop(ends);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.bar.set_length(ms(elapsed.saturating_add(time)));
        self.bar.set_position(ms(elapsed));
        if is_first {
            let ends = Arc::clone(&self.ends);
            let left = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
                let ends = *lock(&ends);
                let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
                let _ = out.write_str(&left.map_or_else(String::new, rounded));
            };
            let shown =
                style("{elapsed_precise} {bar:30} {percent:>3} % · about {left} left · {wide_msg}");
            self.bar.set_style(shown.with_key("left", left));
        }
    }

    fn done(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
