//! What an endpoint counts, and the peers that failed to prove who they are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::path::site;

/// What an endpoint has counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Cookies that initiators were asked for.
    pub cookies_sent: u64,
    /// First messages that were ignored because of the limits of IKE SAs.
    pub refused_by_limit: u64,
    /// First messages that were ignored because their source had failed too often.
    pub refused_after_failures: u64,
    /// Peers that did not prove who they are.
    pub authentication_failures: u64,
    /// Requests that were sent again.
    pub retransmits: u64,
    /// Datagrams that are no message of IKE.
    pub malformed: u64,
}

/// The time for which failures count.
const WINDOW: Duration = Duration::from_secs(60);
/// The failures after which first messages of a source are ignored.
const MAX_OF_SOURCE: u32 = 10;
/// The failures of all sources after which one of a source is enough.
const MAX_OF_ALL: u32 = 1000;
/// The most sources that are kept.
const MAX_SOURCES: usize = 4096;

/// Failures to authenticate, by source. A source has answered at its address, so nobody can make
/// another one fail.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    by_source: HashMap<IpAddr, Recent>,
    all: Option<Recent>,
}

/// Failures since a time.
#[derive(Clone, Copy, Debug)]
struct Recent {
    since: Instant,
    count: u32,
}

impl Recent {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }

    /// Counts one more than those that are not over.
    fn with_one(former: Option<Self>, now: Instant) -> Self {
        let former = former.filter(|former| !former.is_over(now));
        let former = former.unwrap_or(Self { since: now, count: 0 });
        Self { count: former.count.saturating_add(1), ..former }
    }
}

impl Failures {
    /// Notes a failure.
    pub(crate) fn note(&mut self, source: IpAddr, now: Instant) {
        self.all = Some(Recent::with_one(self.all, now));
        let source = site(source);
        if self.by_source.len() >= MAX_SOURCES && !self.by_source.contains_key(&source) {
            self.by_source.retain(|_, recent| !recent.is_over(now));
            if self.by_source.len() >= MAX_SOURCES {
                return;
            }
        }
        let recent = Recent::with_one(self.by_source.get(&source).copied(), now);
        self.by_source.insert(source, recent);
    }

    /// Tells whether first messages of a source are ignored.
    pub(crate) fn refuses(&self, source: IpAddr, now: Instant) -> bool {
        let count = |recent: Option<&Recent>| {
            recent.filter(|one| !one.is_over(now)).map_or(0, |one| one.count)
        };
        let most = if count(self.all.as_ref()) < MAX_OF_ALL { MAX_OF_SOURCE } else { 1 };
        !self.by_source.is_empty() && count(self.by_source.get(&site(source))) >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_fails_often_is_refused_for_a_while_and_others_are_not() {
        let start = Instant::now();
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut failures = Failures::default();
        for _ in 0..MAX_OF_SOURCE {
            assert!(!failures.refuses(one, start));
            failures.note(one, start);
        }
        assert!(failures.refuses(one, start) && !failures.refuses(other, start));
        assert!(!failures.refuses(one, start + WINDOW));
        let [near, far]: [IpAddr; 2] =
            ["2001:db8::7", "2001:db8:0:1::7"].map(|text| text.parse().expect("an address"));
        for last in 0..MAX_OF_SOURCE {
            failures.note(format!("2001:db8::{last}").parse().expect("an address"), start);
        }
        assert!(failures.refuses(near, start) && !failures.refuses(far, start));
    }

    #[test]
    fn a_flood_of_failures_leaves_little_and_refuses_no_one_else() {
        let start = Instant::now();
        let mut failures = Failures::default();
        for number in 0..100_000_u32 {
            failures.note(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), start);
        }
        assert!(failures.by_source.len() <= MAX_SOURCES);
        assert!(failures.refuses(IpAddr::from([10, 0, 0, 1]), start), "one failure is enough");
        assert!(!failures.refuses(IpAddr::from([192, 0, 2, 1]), start));
    }
}
