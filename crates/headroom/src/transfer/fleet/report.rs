//! `headroom fleet status` and `receipts`.

use data_encoding::HEXLOWER;
use headroom_fleet::{Aside, Control, Counts, Engine, Job, Phase, Receipt, State, now_ms};
use headroom_units::{rate, size};
use serde_json::{Value, json};

use super::figures::{figures, phase_name, state_name};
use crate::log::utc;
use crate::output::print_line as say;
use crate::transfer::names;
use crate::transfer::progress::requests_to;

/// What was set aside is listed up to so many times.
pub(super) const MAX_ASIDE: usize = 1000;

/// Prints how far a job is.
pub(super) fn status(job: &Job, engine: &mut impl Engine, as_json: bool) -> anyhow::Result<()> {
    let (control, counts) = (engine.control()?, engine.counts(now_ms())?);
    print(job, &control, &counts, &engine.aside(MAX_ASIDE)?, as_json);
    Ok(())
}

/// Prints what is known of a job.
pub(super) fn print(job: &Job, control: &Control, counts: &Counts, aside: &[Aside], as_json: bool) {
    if as_json {
        let mut status = figures(counts);
        status["job"] = job.name.clone().into();
        status["from"] = job.from.clone().into();
        status["to"] = job.to.clone().into();
        status["state"] = state_name(control.state).into();
        status["phase"] = phase_name(control.phase).into();
        status["rate_bps"] = control.rate_bps.into();
        status["aside"] = aside.iter().map(about).collect();
        say(&names::line(&status));
        return;
    }
    say(&text(&job.name, control, counts));
    for Aside { reason, .. } in aside {
        say(&format!("  {reason}"));
    }
    let named = aside.len() as u64;
    if counts.aside > named {
        say(&format!("  and {} more", counts.aside - named));
    }
}

fn about(aside: &Aside) -> Value {
    let about = json!({"reason": aside.reason});
    match &aside.path {
        Some(path) => names::with(about, "path", path.as_bytes()),
        None => about,
    }
}

/// Describes a job for people.
fn text(name: &str, control: &Control, counts: &Counts) -> String {
    let state = match (control.state, control.phase) {
        (State::Running, phase) | (State::Paused, phase @ Phase::Done) => phase_name(phase),
        (state, _) => state_name(state),
    };
    let listed = if counts.is_listed { "" } else { " so far" };
    let limit = control.rate_bps.map(|rate_bps| rate(rate_bps as f64));
    let requests = match counts.requests.total() {
        0 => None,
        _ => Some(requests_to(&counts.requests, "stores")),
    };
    let lines = [
        format!("{name}: {state}"),
        format!("found      {} files, {}{listed}", counts.found_files, size(counts.found_bytes)),
        format!(
            "copied     {} files, {}, of which {} were up to date",
            counts.copied_files,
            size(counts.copied_bytes),
            counts.unchanged_files
        ),
        format!("queue      {} items wait, workers have {}", counts.queued, counts.leased),
        format!("workers    {}", counts.workers),
        format!("rate       {}", limit.as_deref().unwrap_or("no limit")),
        format!("left out   {}", counts.left_out),
        format!("vanished   {}", counts.vanished),
        format!("removed    {}", counts.removed),
        format!("set aside  {}", counts.aside),
    ];
    lines.into_iter().chain(requests).collect::<Vec<_>>().join("\n")
}

/// Prints the receipts, a line for each file.
pub(super) fn receipts(engine: &mut impl Engine) -> anyhow::Result<()> {
    engine.receipts(&mut |receipt| say(&names::line(&object(&receipt))))?;
    Ok(())
}

fn object(receipt: &Receipt) -> Value {
    let Receipt { file, worker, time_ms, attempts, ranges } = receipt;
    let time = i64::try_from(*time_ms).ok().map(jiff::Timestamp::from_millisecond);
    let time = time.and_then(Result::ok).map(|time| utc(time).to_string());
    let mut object = json!({
        "size": file.size,
        "blake3": file.hash.map(|hash| HEXLOWER.encode(&hash)),
        "worker": worker,
        "time": time,
        "attempts": attempts,
    });
    // of most there are none
    if *ranges > 0 {
        object["ranges"] = (*ranges).into();
    }
    names::with(object, "path", file.path.as_bytes())
}

#[cfg(test)]
mod tests {
    use headroom_fleet::CopiedFile;
    use headroom_transfer::path::RelPath;
    use headroom_transfer::server::Requests;

    use super::*;

    #[test]
    fn a_status_for_people() {
        let counts = Counts {
            is_listed: true,
            found_files: 34,
            found_bytes: 34 << 20,
            copied_files: 12,
            copied_bytes: 12 << 20,
            unchanged_files: 2,
            queued: 3,
            leased: 2,
            workers: 2,
            aside: 1,
            ..Counts::default()
        };
        let control =
            Control { state: State::Paused, phase: Phase::Copying, rate_bps: Some(100_000_000) };
        insta::assert_snapshot!(text("archive", &control, &counts), @r"
        archive: paused
        found      34 files, 34 MiB
        copied     12 files, 12 MiB, of which 2 were up to date
        queue      3 items wait, workers have 2
        workers    2
        rate       100 Mbit/s
        left out   0
        vanished   0
        removed    0
        set aside  1
        ");
        let requests = Requests { list: 2, get: 7, ..Requests::default() };
        let told = text("archive", &control, &Counts { requests, ..counts });
        let last = told.lines().last();
        assert_eq!(last, Some("9 requests to stores: 2 list, 7 get"));
    }

    #[test]
    fn a_receipt_gives_any_name_back() {
        let file = CopiedFile {
            number: 7,
            path: RelPath::parse(b"a/\xff").expect("a path"),
            size: 3,
            hash: Some([0xab; 32]),
        };
        let worker = "host.77".to_owned();
        let receipt = Receipt { file, worker, time_ms: 1_000_000_000_999, attempts: 2, ranges: 0 };
        assert_eq!(object(&Receipt { ranges: 8, ..receipt.clone() })["ranges"], 8);
        let object = object(&receipt);
        assert_eq!(object.get("ranges"), None);
        assert_eq!(object["path_base64"], "YS//");
        assert_eq!(object["blake3"], "ab".repeat(32));
        assert_eq!(object["time"], "2001-09-09T01:46:40Z");
        assert_eq!(
            (&object["size"], &object["attempts"], &object["worker"]),
            (&json!(3), &json!(2), &json!("host.77"))
        );
    }
}
