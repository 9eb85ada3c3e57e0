//! What is seen of a run: a bar on a terminal, or JSON, or only what fails.

use std::time::{Duration, Instant};

use headroom_fleet::run::Ended;
use headroom_fleet::{Aside, Control, Counts, Phase, State};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::figures::{figures, phase_name, state_name};
use crate::output::print_line as say;
use crate::transfer::frame::Frame;
use crate::transfer::names;
use crate::transfer::progress::requests_to;

/// How often JSON tells how far it is.
const TELL: Duration = Duration::from_secs(1);
/// How often the rate is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// A run, as its user sees it.
pub(super) struct Progress {
    bar: ProgressBar,
    json: bool,
    started: Instant,
    told: Option<Instant>,
    pace: Pace,
}

/// How fast it goes.
struct Pace {
    at: Instant,
    done: u64,
    bytes_per_s: f64,
    /// When something was done last.
    moved: Instant,
    last: u64,
}

impl Pace {
    fn update(&mut self, done: u64) {
        let now = Instant::now();
        if done != self.last {
            (self.last, self.moved) = (done, now);
        }
        let elapsed = now - self.at;
        if elapsed >= MEASURE {
            let measured = done.saturating_sub(self.done) as f64 / elapsed.as_secs_f64();
            self.bytes_per_s = 0.7 * self.bytes_per_s + 0.3 * measured;
            (self.at, self.done) = (now, done);
        }
    }
}

impl Progress {
    pub(super) fn new(json: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let started = Instant::now();
        let pace = Pace { at: started, done: 0, bytes_per_s: 0.0, moved: started, last: 0 };
        Self { bar, json, started, told: None, pace }
    }

    /// Shows the figures.
    pub(super) fn show(&mut self, control: &Control, counts: &Counts) {
        let done = counts.copied_bytes.saturating_add(counts.in_flight);
        // what was there before is not fast
        if self.told.is_none() {
            (self.pace.done, self.pace.last) = (done, done);
            if !self.json {
                // nobody is asked anything any longer
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        }
        self.pace.update(done);
        let is_due = self.told.is_none_or(|told| told.elapsed() >= TELL);
        if is_due {
            self.told = Some(Instant::now());
        }
        if self.json {
            if is_due {
                say(&event("progress", control, counts).to_string());
            }
            return;
        }
        let width = usize::from(console::Term::stderr().size().1).saturating_sub(1);
        self.bar.set_message(self.line(control, counts, width));
    }

    /// Returns the figures that were shown last as a line of at most so many columns.
    pub(super) fn line(&self, control: &Control, counts: &Counts, width: usize) -> String {
        let done = counts.copied_bytes.saturating_add(counts.in_flight);
        let word = match (control.state, control.phase) {
            (State::Running, Phase::Copying) => "",
            (State::Running, phase) => phase_name(phase),
            (state, _) => state_name(state),
        };
        let frame = Frame {
            elapsed: self.started.elapsed(),
            files: counts.found_files,
            offered: counts.found_bytes,
            done: if counts.is_listed { done.min(counts.found_bytes) } else { done },
            total: counts.is_listed.then_some(counts.found_bytes),
            bytes_per_s: self.pace.bytes_per_s,
            quiet: self.pace.moved.elapsed(),
            name: Some(word).filter(|word| !word.is_empty()),
        };
        frame.render(width)
    }

    /// Takes the bar away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The end of it.
    pub(super) fn end(&self, ended: &Ended, counts: &Counts, aside: &[Aside]) {
        if self.json {
            for Aside { path, reason } in aside {
                let mut failed = json!({"event": "failed", "reason": reason});
                if let Some(path) = path {
                    failed = names::with(failed, "path", path.as_bytes());
                }
                say(&names::line(&failed));
            }
            let mut end = figures(counts);
            end["event"] = "end".into();
            end["ended"] = word(ended).into();
            end["seconds"] = self.started.elapsed().as_secs_f64().into();
            say(&end.to_string());
        } else {
            for Aside { reason, .. } in aside {
                eprintln!("headroom: set aside: {reason}");
            }
            let named = aside.len() as u64;
            if counts.aside > named {
                eprintln!("headroom: {} more were set aside", counts.aside - named);
            }
        }
        match ended {
            Ended::Done if !self.is_shown() => {}
            Ended::Done => eprintln!("{}", summary(counts, self.started.elapsed())),
            Ended::Paused => eprintln!("headroom: paused. Repeat the command to resume"),
            Ended::Cancelled => eprintln!("headroom: the job was cancelled"),
            Ended::WorkerFailed(_) => {
                eprintln!(
                    "headroom: a worker failed, as it says above. Repeat the command to resume"
                );
            }
            Ended::NotDeleted(reason) => eprintln!(
                "headroom: the delete pass did not succeed: {reason}. Repeat the command to try again"
            ),
        }
    }

    /// Whether somebody sees a bar.
    pub(super) fn is_shown(&self) -> bool {
        !self.json && console::Term::stderr().is_term()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Makes an event with the figures.
fn event(name: &str, control: &Control, counts: &Counts) -> serde_json::Value {
    let mut event = figures(counts);
    event["event"] = name.into();
    event["state"] = state_name(control.state).into();
    event["phase"] = phase_name(control.phase).into();
    event["rate_bps"] = control.rate_bps.into();
    event
}

const fn word(ended: &Ended) -> &'static str {
    match ended {
        Ended::Done => "done",
        Ended::Paused => "paused",
        Ended::Cancelled => "cancelled",
        Ended::WorkerFailed(_) => "worker failed",
        Ended::NotDeleted(_) => "not deleted",
    }
}

/// Summarizes a job for a terminal.
fn summary(counts: &Counts, elapsed: Duration) -> String {
    let Counts { copied_files, copied_bytes, unchanged_files, removed, left_out, .. } = *counts;
    let bytes = HumanBytes(copied_bytes);
    let mut text = format!("{copied_files} files of {bytes} have receipts");
    for (count, what) in [
        (unchanged_files, "unchanged"),
        (removed, "removed"),
        (left_out, "left out"),
        (counts.vanished, "gone from the source"),
        (counts.aside, "SET ASIDE"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text.push_str(&format!("; this run took {:.1} s", elapsed.as_secs_f64()));
    if counts.requests.total() > 0 {
        let requests = requests_to(&counts.requests, "stores by all runs and workers of the job");
        text.push_str(&format!("\n{requests}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use headroom_transfer::server::Requests;

    use super::*;

    #[test]
    fn a_summary_names_what_there_is() {
        let counts = Counts { copied_files: 12, copied_bytes: 5 << 20, ..Counts::default() };
        let long = Duration::from_millis(1500);
        insta::assert_snapshot!(summary(&counts, long), @"12 files of 5.00 MiB have receipts; this run took 1.5 s");
        let counts = Counts { unchanged_files: 4, removed: 3, left_out: 2, aside: 1, ..counts };
        insta::assert_snapshot!(summary(&counts, long), @"12 files of 5.00 MiB have receipts, 4 unchanged, 3 removed, 2 left out, 1 SET ASIDE; this run took 1.5 s");
        let requests = Requests { list: 2, part: 20_000, retried: 3, ..Requests::default() };
        let counts =
            Counts { copied_files: 12, copied_bytes: 5 << 20, requests, ..Counts::default() };
        insta::assert_snapshot!(summary(&counts, long), @r"
        12 files of 5.00 MiB have receipts; this run took 1.5 s
        20002 requests to stores by all runs and workers of the job: 2 list, 20000 part; 3 repeated
        ");
    }
}
