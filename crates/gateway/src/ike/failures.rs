//! What the log says about peers that fail to authenticate: one line an interval.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_ike::Reason;

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// The failures since the last line.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    said_at: Option<Instant>,
    count: u64,
    last: Option<(SocketAddr, Reason)>,
}

impl FailureLog {
    /// Notes a failure. Returns a line for the log, unless there was one just now.
    pub(super) fn note(
        &mut self,
        from: SocketAddr,
        reason: Reason,
        now: Instant,
    ) -> Option<String> {
        self.count += 1;
        self.last = Some((from, reason));
        self.line(now)
    }

    /// Returns a line about what was not said yet.
    pub(super) fn line(&mut self, now: Instant) -> Option<String> {
        if self.said_at.is_some_and(|at| now.duration_since(at) < INTERVAL) {
            return None;
        }
        let (from, reason) = self.last.take()?;
        let count = std::mem::take(&mut self.count);
        self.said_at = Some(now);
        Some(match count {
            1 => format!("IKE with a stranger at {from} is refused: {reason}"),
            _ => format!(
                "IKE with strangers is refused, {count} times since the last such line; the last at {from}: {reason}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_make_one_line_an_interval() {
        let (start, mut log) = (Instant::now(), FailureLog::default());
        let from = SocketAddr::from(([192, 0, 2, 7], 500));
        let reason = || Reason::Identity("stranger".to_owned());
        assert!(log.line(start).is_none(), "nothing has failed");
        let first = log.note(from, reason(), start).expect("a line");
        assert!(first.contains("192.0.2.7:500") && first.contains("stranger"), "{first}");
        for _ in 0..1000 {
            assert_eq!(log.note(from, reason(), start + INTERVAL / 2), None);
        }
        let next = log.line(start + INTERVAL).expect("a line");
        assert!(next.contains("1000 times"), "{next}");
        assert_eq!(log.line(start + 3 * INTERVAL), None);
    }
}
