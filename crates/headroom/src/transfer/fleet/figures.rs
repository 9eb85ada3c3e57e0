//! The figures of a job, and the words for its state.

use headroom_fleet::{Counts, Phase, State};
use headroom_transfer::server::Requests;
use serde_json::json;

use crate::transfer::progress::requests_json;

/// The figures for programs.
pub(super) fn figures(counts: &Counts) -> serde_json::Value {
    let Counts { is_listed, found_files, found_bytes, copied_files, copied_bytes, .. } = *counts;
    let Counts { unchanged_files, left_out, vanished, removed, .. } = *counts;
    let Counts { queued, leased, aside, requests, .. } = *counts;
    let mut figures = json!({
        "listed": is_listed,
        "found_files": found_files,
        "found_bytes": found_bytes,
        "copied_files": copied_files,
        "copied_bytes": copied_bytes,
        "unchanged_files": unchanged_files,
        "left_out": left_out,
        "vanished": vanished,
        "removed": removed,
        "queued_items": queued,
        "leased_items": leased,
        "set_aside": aside,
        "workers": counts.workers,
        "bytes_in_flight": counts.in_flight,
    });
    // a job without a store has none
    if requests != Requests::default() {
        figures["store"] = requests_json(&requests);
    }
    figures
}

pub(super) const fn state_name(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Paused => "paused",
        State::Cancelled => "cancelled",
    }
}

pub(super) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Finishing => "finishing",
        Phase::Deleting => "deleting",
        Phase::Done => "done",
    }
}
