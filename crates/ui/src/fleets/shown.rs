//! What the page is shown of a job, as JSON.

use std::time::Duration;

use headroom_fleet::{Aside, Counts, Error, Look, Phase, State, WorkerReport};
use serde_json::{Value, json};

use crate::error::ApiError;

/// Of what was set aside so much is shown.
pub(super) const MAX_REASONS: usize = 10;
/// Workers that are shown.
const MAX_WORKERS: usize = 100;
/// The most characters of a reason or an error, and of a worker's name: others write them.
const MAX_TEXT: usize = 500;
const MAX_NAME: usize = 100;

/// Describes a job. `place` says where its state is.
pub(super) fn shown(id: &str, place: &str, look: &Look) -> Value {
    let Look { job, time_ms, control, counts, workers, aside, bytes_per_s, left } = look;
    let Counts { found_files, found_bytes, copied_files, copied_bytes, .. } = *counts;
    let workers = workers.iter().take(MAX_WORKERS).map(|worker| {
        let WorkerReport { name, heard_ms, has_item, in_flight } = worker;
        let silent_s = time_ms.saturating_sub(*heard_ms) / 1000;
        let name = shortened(name, MAX_NAME);
        json!({"name": name, "silent": silent_s, "item": has_item, "bytes": if *has_item { *in_flight } else { 0 }})
    });
    let workers: Vec<_> = workers.collect();
    let reason = |it: &Aside| shortened(&it.reason, MAX_TEXT);
    let reasons: Vec<_> = aside.iter().map(reason).collect();
    let limit = control.rate_bps.map(|rate_bps| headroom_units::rate(rate_bps as f64));
    json!({
        "id": id, "place": place, "name": job.name, "from": job.from, "to": job.to,
        "state": state_of(control.state, control.phase, counts.is_listed), "listed": counts.is_listed,
        "files": found_files, "bytes": found_bytes, "copied_files": copied_files, "copied_bytes": copied_bytes,
        "in_flight": counts.in_flight, "unchanged": counts.unchanged_files, "left_out": counts.left_out,
        "vanished": counts.vanished, "removed": counts.removed, "queued": counts.queued, "leased": counts.leased,
        "aside": counts.aside, "reasons": reasons, "limit": limit,
        "rate": bytes_per_s.round(), "left": left.as_ref().map(Duration::as_secs), "workers": workers, "live": counts.workers,
        "error": Value::Null,
    })
}

/// Describes a job whose state cannot be read.
pub(super) fn failed(id: &str, place: &str, name: &str, error: &Error) -> Value {
    let message = shortened(&error.to_string(), MAX_TEXT);
    let error = json!({"code": code_of(error), "message": message});
    json!({"id": id, "place": place, "name": name, "state": "unknown", "error": error})
}

/// Returns the first characters of a text, at most so many.
fn shortened(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Returns the page's word for what a job does.
const fn state_of(state: State, phase: Phase, is_listed: bool) -> &'static str {
    match (state, phase) {
        (State::Cancelled, _) => "cancelled",
        (_, Phase::Done) => "done",
        (State::Paused, _) => "paused",
        (State::Running, Phase::Copying) if is_listed => "copying",
        (State::Running, Phase::Copying) => "listing",
        (State::Running, Phase::Finishing) => "directories",
        (State::Running, Phase::Deleting) => "deleting",
    }
}

const fn code_of(error: &Error) -> &'static str {
    match error {
        Error::NoJob(_) => "not-found",
        Error::Nats { .. } => "unreachable",
        Error::Full(_) => "no-space",
        _ => "refused",
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::new(code_of(&error), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_bounded() {
        assert_eq!(shortened("größe", 3), "grö");
        let long = Error::DestinationFull("ü".repeat(MAX_TEXT + 1));
        let job = failed("id", "place", "name", &long);
        assert_eq!(job["error"]["message"], "ü".repeat(MAX_TEXT));
    }

    #[test]
    fn a_job_has_one_word_for_what_it_does() {
        use Phase::{Copying, Deleting, Done, Finishing};
        for (state, phase, is_listed, word) in [
            (State::Running, Copying, false, "listing"),
            (State::Running, Copying, true, "copying"),
            (State::Running, Finishing, true, "directories"),
            (State::Running, Deleting, true, "deleting"),
            (State::Paused, Copying, false, "paused"),
            (State::Paused, Done, true, "done"),
            (State::Cancelled, Copying, true, "cancelled"),
        ] {
            assert_eq!(state_of(state, phase, is_listed), word);
        }
    }
}
