//! What the log says about authentications that fail: one line an interval about all peers that do not
//! authenticate, and one about each peer that refuses this host.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_ike::{Connection, LocalAuth, Reason};

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
        if is_recent(self.said_at, now) {
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

/// How often one peer has refused this host since the last line.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    said_at: Option<Instant>,
    count: u64,
}

impl RefusalLog {
    /// Notes that the peer of a connection did not accept this host's proof of identity. Returns a line
    /// for the log, unless there was one just now. The peer does not say why (RFC 7296 §2.21.2).
    pub(super) fn note(
        &mut self,
        connection: &Connection,
        peer: SocketAddr,
        now: Instant,
    ) -> Option<String> {
        self.count += 1;
        if is_recent(self.said_at, now) {
            return None;
        }
        self.said_at = Some(now);
        let times = match std::mem::take(&mut self.count) {
            1 => String::new(),
            count => format!(", {count} times since the last such line"),
        };
        let Connection { name, local, .. } = connection;
        let checks = checks(connection).join("; ");
        Some(format!(
            "IKE authentication with `{name}` at {peer} failed: the peer refuses this host, which calls itself {local} \
             (AUTHENTICATION_FAILED){times}. Check at both ends: {checks}. The peer's log may say why"
        ))
    }
}

/// Returns what must hold for a peer to accept this host, and names no secret.
fn checks(connection: &Connection) -> Vec<String> {
    let mut checks = vec![match &connection.auth.local {
        LocalAuth::SharedKey(_) => "the pre-shared key is the same on both hosts".to_owned(),
        LocalAuth::Certificate(_) => {
            "the peer's `ca_file` contains the authority of this host's certificate".to_owned()
        }
    }];
    if connection.ppk.is_some() {
        checks.push("`ppk_id` and the key in `ppk_file` are the same on both hosts".to_owned());
    }
    checks.push(format!("the peer accepts the name {} (its `remote_id`)", connection.local));
    let remote = connection.remote.as_ref();
    checks.extend(remote.map(|remote| format!("the peer calls itself {remote} (its `local_id`)")));
    checks
}

/// Tells whether a line is younger than an interval.
fn is_recent(said_at: Option<Instant>, now: Instant) -> bool {
    said_at.is_some_and(|at| now.duration_since(at) < INTERVAL)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headroom_ike::eap::EapError;
    use headroom_ike::{Auth, Credential, Identity, Ppk, PpkExchange, VirtualAddresses};
    use headroom_suite::Key;

    use super::*;

    /// A peer that has the same pre-shared key.
    fn connection() -> Connection {
        Connection {
            name: "office".to_owned(),
            local: Identity::from_text("here.example"),
            remote: Some(Identity::from_text("192.0.2.7")),
            remote_address: None,
            auth: Auth::shared_key(&Key::from_bytes(b"what nobody may read in the log")),
            ike: Vec::new(),
            ppk: None,
            mobike: true,
            virtual_addresses: VirtualAddresses::None,
            children: Vec::new(),
            rekey: None,
            reauthenticate: None,
            liveness: None,
        }
    }

    #[test]
    fn a_refusal_by_a_peer_is_logged_with_what_to_check_and_once_an_interval() {
        let (start, mut log, connection) = (Instant::now(), RefusalLog::default(), connection());
        let peer = SocketAddr::from(([192, 0, 2, 7], 4500));
        assert_eq!(
            log.note(&connection, peer, start).as_deref(),
            Some(
                "IKE authentication with `office` at 192.0.2.7:4500 failed: the peer refuses this host, which \
                 calls itself here.example (AUTHENTICATION_FAILED). Check at both ends: the pre-shared key is the \
                 same on both hosts; the peer accepts the name here.example (its `remote_id`); the peer calls \
                 itself 192.0.2.7 (its `local_id`). The peer's log may say why"
            )
        );
        for _ in 0..1000 {
            assert_eq!(log.note(&connection, peer, start + INTERVAL / 2), None);
        }
        let next = log.note(&connection, peer, start + INTERVAL).expect("a line");
        assert!(next.contains("(AUTHENTICATION_FAILED), 1001 times since"), "{next}");
    }

    #[test]
    fn a_refusal_names_the_credentials_of_this_host_to_check() {
        let of = |connection: &Connection| {
            let peer = SocketAddr::from(([192, 0, 2, 7], 4500));
            RefusalLog::default().note(connection, peer, Instant::now()).expect("a line")
        };
        let id = b"us".to_vec();
        let (key, exchange) = (Key::from_bytes(&[7; 32]), PpkExchange::Either);
        let ppk = Some(Ppk { id, key, is_required: true, exchange });
        let line = of(&Connection { ppk, remote: None, ..connection() });
        assert!(line.contains("pre-shared key") && line.contains("`ppk_id`"), "{line}");
        assert!(!line.contains("`local_id`"), "any name is accepted of the peer: {line}");

        let own = rcgen::generate_simple_self_signed(["here.example".to_owned()]);
        let own = own.expect("a certificate");
        let chain = vec![own.cert.der().to_vec()];
        let credential = Credential::new(chain, &own.signing_key.serialize_der());
        let mut certified = connection();
        certified.auth.local = LocalAuth::Certificate(Arc::new(credential.expect("a credential")));
        let line = of(&certified);
        assert!(line.contains("`ca_file`") && !line.contains("pre-shared key"), "{line}");
    }

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
