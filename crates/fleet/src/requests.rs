//! Counts of requests to object stores, as engines keep them.

use headroom_transfer::files::Requests;
use serde::{Deserialize, Serialize};

/// How counts are written: their names and numbers.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Requests")]
pub(crate) struct RequestCounts {
    list: u64,
    head: u64,
    get: u64,
    put: u64,
    create: u64,
    part: u64,
    complete: u64,
    copy: u64,
    delete: u64,
    abort: u64,
    retried: u64,
    slowed: u64,
}

/// Counts as a text.
#[derive(Serialize, Deserialize)]
struct Text(#[serde(with = "RequestCounts")] Requests);

/// Writes counts as a text.
pub(crate) fn to_json(requests: &Requests) -> String {
    // numbers alone, which are always written
    serde_json::to_string(&Text(*requests)).unwrap_or_default()
}

/// Reads counts; `None` if they are damaged.
pub(crate) fn from_json(text: &str) -> Option<Requests> {
    serde_json::from_str(text).ok().map(|Text(requests)| requests)
}

/// Whether there are none.
pub(crate) fn are_none(requests: &Requests) -> bool {
    *requests == Requests::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        let requests = Requests { list: 1, abort: 2, slowed: u64::MAX, ..Requests::default() };
        assert_eq!(from_json(&to_json(&requests)), Some(requests));
        assert_eq!(from_json("{}"), None);
        assert!(are_none(&Requests::default()) && !are_none(&requests));
    }
}
