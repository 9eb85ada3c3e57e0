//! What became of one run of a campaign, read from its folder.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use headroom_lab_host::error::Result;
use headroom_lab_results::report;
use serde::{Deserialize, Serialize};

use crate::run::{self as lab_run, JOURNAL as RUN_JOURNAL};

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// All of the plan was measured.
    Measured {
        /// What failed all the same, such as samples; none: nothing.
        failed: Option<String>,
    },
    /// A part of the plan was measured.
    Partial {
        /// Why it ended.
        why: String,
    },
    /// Nothing was measured.
    Missed {
        /// Why.
        why: String,
    },
}

/// Bytes of a log's end that are searched, and characters of a reason.
const END_OF_LOG: u64 = 64 << 10;
const LONGEST_REASON: usize = 500;

/// Whether all of the plan was measured.
pub(super) fn is_complete(home: &Path) -> bool {
    home.join("results.json").exists() && !home.join(RUN_JOURNAL).exists()
}

/// Returns what became of a run whose process has ended, and removes a folder that nothing was
/// written to. `failed` has the reason if it ended with an error.
///
/// # Errors
/// The report of what was measured cannot be written.
pub(super) fn of_ended(home: &Path, failed: Option<String>) -> Result<Outcome> {
    if is_complete(home) {
        return Ok(Outcome::Measured { failed });
    }
    let why = failed.unwrap_or_else(|| "it was killed".to_owned());
    of_interrupted(home, why)
}

/// As [`of_ended`], of a run that was interrupted and will not be continued.
///
/// # Errors
/// The report of what was measured cannot be written.
pub(super) fn of_interrupted(home: &Path, why: String) -> Result<Outcome> {
    match lab_run::unfinished(home) {
        Ok(Some(results)) => {
            // a process that was killed has written none
            report::write(home, &results)?;
            Ok(Outcome::Partial { why })
        }
        _ => {
            let _ = std::fs::remove_dir(home);
            Ok(Outcome::Missed { why })
        }
    }
}

/// Returns the last error in a log.
pub(super) fn last_error(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END_OF_LOG))).ok()?;
    let mut end = Vec::new();
    file.take(END_OF_LOG).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    let line = end.lines().rev().find_map(|line| line.strip_prefix("headroom: "))?;
    let is_long = line.chars().count() > LONGEST_REASON;
    let short: String = line.chars().take(LONGEST_REASON).collect();
    Some(short + if is_long { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_error_of_a_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let long = format!("headroom: {}\n", "x".repeat(100_000));
        for (text, reason) in [
            ("", None),
            ("ftp is fast\n", None),
            ("headroom: this will take 5 s\nheadroom: no route\nmore\n", Some("no route")),
            ("\u{0}\nheadroom: cut", Some("cut")),
        ] {
            std::fs::write(&log, text).expect("written");
            assert_eq!(last_error(&log).as_deref(), reason, "{text}");
        }
        std::fs::write(&log, &long).expect("written");
        assert_eq!(last_error(&log), None, "its beginning is too far from the end");
        std::fs::write(&log, &long[..2000]).expect("written");
        assert_eq!(last_error(&log).map(|reason| reason.chars().count()), Some(501));
        std::fs::remove_file(&log).expect("removed");
        assert_eq!(last_error(&log), None);
    }

    #[test]
    fn a_folder_without_results_is_a_missed_run_and_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("run");
        std::fs::create_dir_all(&home).expect("a folder");
        let outcome = of_ended(&home, Some("no route".to_owned())).expect("an outcome");
        assert_eq!(outcome, Outcome::Missed { why: "no route".to_owned() });
        assert!(!home.exists());
        std::fs::create_dir_all(&home).expect("a folder");
        std::fs::write(home.join("results.json"), "").expect("a file");
        let outcome = of_ended(&home, None).expect("an outcome");
        assert_eq!(outcome, Outcome::Measured { failed: None });
    }
}
