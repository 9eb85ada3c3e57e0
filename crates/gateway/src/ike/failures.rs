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
    /// Notes why IKE with an unauthenticated peer is over, if it failed to authenticate, or broke the
    /// protocol before it did. Returns a line for the log, unless there was one just now.
    pub(super) fn note(
        &mut self,
        from: SocketAddr,
        reason: Reason,
        now: Instant,
    ) -> Option<String> {
        if !reason.is_failed_authentication() && !matches!(reason, Reason::Protocol(_)) {
            return None;
        }
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
            1 => format!("IKE with an unauthenticated peer at {from} is refused: {reason}"),
            _ => format!(
                "IKE with unauthenticated peers is refused, {count} times since the last such line; the last at {from}: {reason}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use headroom_ike::eap::EapError;

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

    #[test]
    fn wrong_passwords_are_in_the_log_and_what_is_no_failure_is_not() {
        let (start, mut log) = (Instant::now(), FailureLog::default());
        let from = SocketAddr::from(([192, 0, 2, 7], 4500));
        for other in [Reason::Peer, Reason::Command] {
            assert_eq!(log.note(from, other, start), None);
        }
        let wrong = || Reason::Eap(EapError::Password("an\nna".to_owned()));
        let line = log.note(from, wrong(), start).expect("a line");
        assert!(line.contains("192.0.2.7:4500") && line.contains("user an\\nna has"), "{line}");
        assert_eq!(log.note(from, wrong(), start + INTERVAL / 2), None);
        assert!(log.line(start + INTERVAL).is_some());
        for (reason, words) in [
            (Reason::NoPpk, "post-quantum pre-shared key"),
            (Reason::OtherPpk, "post-quantum pre-shared key"),
            (Reason::Protocol("a malformed request"), "a malformed request"),
        ] {
            let line = FailureLog::default().note(from, reason, start).expect("a line");
            assert!(line.contains(words), "{line}");
        }
    }
}
