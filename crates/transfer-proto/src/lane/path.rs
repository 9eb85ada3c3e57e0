//! Validates the peer's address: it is used without limits only after a challenge sent there was
//! answered from there (RFC 9000, sections 8.2 and 9), or if the connection has shown that the
//! peer receives there.

use std::net::SocketAddr;
use std::time::Duration;

use super::payload::Path;

/// Bytes that may be sent for each byte received, before an address is validated (RFC 9000,
/// section 8).
const AMPLIFICATION: u64 = 3;
/// Responses that may wait for one address.
const MAX_RESPONSES: usize = 2;
/// Packets with challenges that are sent to a new address before giving up.
const MAX_CHALLENGES: u32 = 7;
/// Packets that carry the first challenge: without an answer the other end gets no more than its
/// limit, and a lost one would cost a timeout of three round trips.
const COPIES: u32 = 2;
/// Packets that an end which awaits data sends between these: with both, the other end may answer
/// by 21 600 bytes, which are its answers, its challenges and its initial window, one lost packet
/// included.
const OPENINGS: u8 = 4;

/// An address and the state of its validation.
#[derive(Debug)]
struct PathState {
    address: SocketAddr,
    validated: bool,
    /// The connection has shown that the peer receives there.
    is_known: bool,
    received: u64,
    sent: u64,
    /// The last challenge, and when it was first sent.
    challenge: Option<([u8; 8], Duration)>,
    challenges: u32,
    /// Whether all its challenges were sent, or the amplification limit forbids the next: another
    /// address may then replace it.
    spent: bool,
    responses: Vec<[u8; 8]>,
    /// When it was validated or last reminded to validate this end, and how many reminders it got.
    reminded: (Duration, u32),
}

impl PathState {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            validated: false,
            is_known: false,
            received: 0,
            sent: 0,
            challenge: None,
            challenges: 0,
            spent: false,
            responses: Vec::new(),
            reminded: (Duration::ZERO, 0),
        }
    }

    fn validate(&mut self, now: Duration) -> Duration {
        self.validated = true;
        self.reminded = (now, 0);
        self.challenge.take().map_or(Duration::ZERO, |(_, at)| now.saturating_sub(at))
    }

    /// Returns when the next reminder is due; intervals double.
    fn remind_at(&self, timeout: Duration) -> Option<Duration> {
        let (at, reminders) = self.reminded;
        self.validated.then(|| at + timeout * (1 << reminders.min(6)))
    }

    /// Returns how many bytes may be sent to it now.
    fn room(&self) -> u64 {
        if self.validated || self.is_known {
            return u64::MAX;
        }
        self.received.saturating_mul(AMPLIFICATION).saturating_sub(self.sent)
    }

    /// Whether this many bytes may be sent to it.
    fn may_get(&self, len: usize) -> bool {
        len as u64 <= self.room()
    }

    /// Returns when the next challenge is due; intervals double.
    fn challenge_at(&self, timeout: Duration) -> Option<Duration> {
        if self.validated {
            return None;
        }
        Some(self.challenge.map_or(Duration::ZERO, |(_, at)| {
            let timeouts = self.challenges.checked_sub(COPIES).map(|again| 1 << again.min(6));
            at + timeout * timeouts.unwrap_or(0)
        }))
    }
}

/// The peer's address, and a candidate that it may have moved to.
#[derive(Debug)]
pub(crate) struct Paths {
    /// Whether this end opened the lane: its first challenges are not limited.
    opener: bool,
    /// Whether the other end is known to have validated this one, or does not need to. Until then
    /// its amplification limit may be exhausted, and it waits for a packet.
    confirmed: bool,
    active: Option<PathState>,
    candidate: Option<PathState>,
    /// Empty packets that are still to be sent to the first address.
    openings: u8,
    seed: [u8; 32],
    tokens: u64,
}

/// A change of the path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// The first address is validated, with this round-trip time.
    Validated(Duration),
    /// The peer has moved to another address, which is validated.
    Moved {
        /// Whether more than the port changed: it may be another path.
        elsewhere: bool,
        /// The round-trip time to it.
        rtt: Duration,
    },
}

impl Paths {
    /// Makes the state. The end that opens the lane knows `peer`. Challenges are derived from
    /// `seed`, which is secret and random.
    pub(crate) fn new(peer: Option<SocketAddr>, seed: [u8; 32]) -> Self {
        let active = peer.map(PathState::new);
        let opener = peer.is_some();
        Self { opener, confirmed: !opener, active, candidate: None, openings: 0, seed, tokens: 0 }
    }

    /// Lets data go to the first address at once: the connection has shown that the peer receives
    /// there.
    pub(crate) fn knowing_peer(mut self) -> Self {
        self.active.iter_mut().for_each(|path_state| path_state.is_known = true);
        self
    }

    /// Opens the other end far enough for its first data.
    pub(crate) fn awaiting_data(mut self) -> Self {
        self.openings = if self.opener { OPENINGS } else { 0 };
        self
    }

    /// Returns the address that data may be sent to now, and how many bytes.
    pub(crate) fn data_to(&self) -> Option<(SocketAddr, u64)> {
        self.active.as_ref().map(|path_state| (path_state.address, path_state.room()))
    }

    /// Returns the address that was validated.
    pub(crate) fn validated(&self) -> Option<SocketAddr> {
        self.active
            .as_ref()
            .filter(|path_state| path_state.validated)
            .map(|path_state| path_state.address)
    }

    /// Returns the peer's address if `len` bytes may be sent to it, validated or not.
    pub(crate) fn reach(&self, len: usize) -> Option<SocketAddr> {
        let path_state = self.active.as_ref()?;
        path_state.may_get(len).then_some(path_state.address)
    }

    /// Notes an authenticated packet. `newest`: it has the highest number so far.
    pub(crate) fn received(&mut self, from: SocketAddr, len: usize, newest: bool) {
        if self.active.is_none() {
            self.active = Some(PathState::new(from));
        }
        for path_state in [&mut self.active, &mut self.candidate].into_iter().flatten() {
            if path_state.address == from {
                path_state.received += len as u64;
                return;
            }
        }
        // an old packet from elsewhere was delayed, or is being replayed
        let free = self.candidate.as_ref().is_none_or(|path_state| path_state.spent);
        if newest && free {
            self.candidate = Some(PathState { received: len as u64, ..PathState::new(from) });
        }
    }

    /// Whether more came than the other end may send before it has validated this one.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.active.as_ref().is_some_and(|path_state| {
            path_state.received > path_state.sent.saturating_mul(AMPLIFICATION)
        })
    }

    /// Notes that the other end has validated this address.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Handles a challenge or response from `from`.
    pub(crate) fn answer(
        &mut self,
        now: Duration,
        from: SocketAddr,
        path: &Path,
    ) -> Option<Change> {
        for path_state in [&mut self.active, &mut self.candidate].into_iter().flatten() {
            if let Some(challenge) = path.challenge
                && path_state.address == from
                && path_state.responses.len() < MAX_RESPONSES
            {
                path_state.responses.push(challenge);
            }
        }
        let response = path.response?;
        let answers = |path_state: &&mut PathState| {
            path_state.address == from
                && !path_state.validated
                && path_state.challenge.is_some_and(|(token, _)| token == response)
        };
        if let Some(path_state) = self.active.as_mut().filter(answers) {
            return Some(Change::Validated(path_state.validate(now)));
        }
        self.candidate.as_mut().filter(answers)?;
        let mut path_state = self.candidate.take()?;
        let rtt = path_state.validate(now);
        let before = self.active.replace(path_state)?;
        Some(Change::Moved { elsewhere: before.address.ip() != from.ip(), rtt })
    }

    /// Returns a path packet to send now, of `len` bytes sealed, and its destination.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        timeout: Duration,
        len: usize,
    ) -> Option<(SocketAddr, Path)> {
        if let Some(path_state) = &mut self.candidate {
            let is_due = path_state.challenge_at(timeout).is_some_and(|at| at <= now);
            let is_over = path_state.challenges >= MAX_CHALLENGES;
            path_state.spent = is_over || is_due && !path_state.may_get(len);
            if is_over && is_due {
                self.candidate = None;
            }
        }
        if let Some(path_state) = self.active.as_ref().filter(|path_state| self.opens(path_state)) {
            let to = path_state.address;
            self.openings -= 1;
            return Some((to, Path { challenge: None, response: None }));
        }
        let opener = self.opener;
        let (seed, tokens) = (self.seed, &mut self.tokens);
        for (path_state, first) in [(&mut self.active, true), (&mut self.candidate, false)] {
            let Some(path_state) = path_state else { continue };
            let challenge = path_state.challenge_at(timeout).is_some_and(|at| at <= now);
            let remind = first
                && !self.confirmed
                && path_state.remind_at(timeout).is_some_and(|at| at <= now);
            if !challenge && !remind && path_state.responses.is_empty() {
                continue;
            }
            if remind {
                path_state.reminded = (now, path_state.reminded.1.saturating_add(1));
            }
            if !(path_state.may_get(len) || opener && first) {
                continue;
            }
            let mut path = Path { response: path_state.responses.pop(), challenge: None };
            if challenge {
                let again = path_state.challenge.filter(|_| path_state.challenges < COPIES);
                let (token, _) = *path_state.challenge.insert(again.unwrap_or_else(|| {
                    *tokens += 1;
                    let hash = blake3::keyed_hash(&seed, &tokens.to_be_bytes());
                    let mut token = [0; 8];
                    token.copy_from_slice(&hash.as_bytes()[..8]);
                    (token, now)
                }));
                // a copy that waits for room would carry the time of the first
                let has_room = path_state.may_get(2 * len) || opener && first;
                let challenges = path_state.challenges.saturating_add(1);
                path_state.challenges = if has_room { challenges } else { challenges.max(COPIES) };
                path.challenge = Some(token);
            }
            return Some((path_state.address, path));
        }
        None
    }

    /// Whether an empty packet is to follow the first one.
    fn opens(&self, path_state: &PathState) -> bool {
        self.openings > 0 && path_state.challenges > 0 && !path_state.validated
    }

    /// Returns when [`Paths::poll`] is due without another packet.
    pub(crate) fn timeout(&self, timeout: Duration, len: usize) -> Option<Duration> {
        if self.active.as_ref().is_some_and(|path_state| self.opens(path_state)) {
            return Some(Duration::ZERO);
        }
        let path_states = [(&self.active, true), (&self.candidate, false)];
        path_states
            .into_iter()
            .filter_map(|(path_state, first)| Some((path_state.as_ref()?, first)))
            .filter(|(path_state, first)| {
                path_state.may_get(len)
                    || (self.opener && *first)
                    || (!*first && path_state.challenges >= MAX_CHALLENGES)
            })
            .filter_map(|(path_state, first)| {
                let may_get = path_state.may_get(len) || (self.opener && first);
                if may_get && !path_state.responses.is_empty() {
                    return Some(Duration::ZERO);
                }
                let reminder =
                    || path_state.remind_at(timeout).filter(|_| first && !self.confirmed);
                path_state.challenge_at(timeout).or_else(reminder)
            })
            .min()
    }

    /// Notes that a packet was sent.
    pub(crate) fn sent(&mut self, to: SocketAddr, len: usize) {
        for path_state in [&mut self.active, &mut self.candidate].into_iter().flatten() {
            if path_state.address == to {
                path_state.sent += len as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(100);
    const LEN: usize = 1200;

    fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn nothing_is_sent_to_an_address_beyond_three_times_what_came_from_it() {
        let mut paths = Paths::new(None, [1; 32]);
        assert_eq!((paths.reach(1), paths.poll(Duration::ZERO, TIMEOUT, LEN)), (None, None));
        paths.received(address(1), 500, true);
        let mut now = Duration::ZERO;
        let mut sent = 0;
        for _ in 0..100 {
            now += Duration::from_secs(1);
            while let Some((to, _)) = paths.poll(now, TIMEOUT, LEN) {
                paths.sent(to, LEN);
                sent += LEN;
            }
            while let Some(to) = paths.reach(100) {
                paths.sent(to, 100);
                sent += 100;
            }
        }
        assert!(sent <= 1500, "{sent}");
        assert_eq!(paths.validated(), None);
        assert_eq!(paths.timeout(TIMEOUT, LEN), None, "it waits for packets, not for time");
    }

    #[test]
    fn an_address_is_adopted_after_an_answer_from_there() {
        let mut paths = Paths::new(Some(address(1)), [1; 32]);
        let now = Duration::from_millis(10);
        let (to, path) = paths.poll(now, TIMEOUT, LEN).expect("a challenge");
        assert_eq!(to, address(1));
        let answer = Path { challenge: None, response: path.challenge };
        let later = now * 3;
        assert_eq!(paths.answer(later, address(2), &answer), None, "from elsewhere");
        let wrong = Path { challenge: None, response: Some([0; 8]) };
        assert_eq!(paths.answer(later, address(1), &wrong), None);
        assert_eq!(paths.validated(), None);
        let change = paths.answer(later, address(1), &answer);
        assert_eq!(change, Some(Change::Validated(now * 2)));
        assert_eq!(paths.validated(), Some(address(1)));
        // an old packet from elsewhere says nothing; a new one makes a challenge
        paths.received(address(2), LEN, false);
        assert_eq!(paths.poll(later, TIMEOUT, LEN), None);
        paths.received(address(2), LEN, true);
        let (to, path) = paths.poll(later, TIMEOUT, LEN).expect("a challenge");
        assert_eq!((to, paths.validated()), (address(2), Some(address(1))));
        let answer = Path { challenge: None, response: path.challenge };
        let change = paths.answer(later + now, address(2), &answer);
        assert_eq!(change, Some(Change::Moved { elsewhere: false, rtt: now }));
        assert_eq!(paths.validated(), Some(address(2)));
    }

    #[test]
    fn a_server_at_its_amplification_limit_gets_more_from_the_client() {
        let [mut client, mut server] =
            [Some(address(1)), None].map(|peer| Paths::new(peer, [1; 32]));
        let (_, path) = client.poll(Duration::ZERO, TIMEOUT, LEN).expect("a challenge");
        server.received(address(2), LEN, true);
        server.answer(Duration::ZERO, address(2), &path);
        // one answer comes back, and all that the server asks is lost
        let mut now = Duration::ZERO;
        while let Some(at) = server.timeout(TIMEOUT, LEN) {
            now = now.max(at);
            let (to, path) = server.poll(now, TIMEOUT, LEN).expect("it is due");
            server.sent(to, LEN);
            client.answer(now, address(1), &Path { challenge: None, ..path });
        }
        assert_eq!((client.validated(), server.validated()), (Some(address(1)), None));
        let at = client.timeout(TIMEOUT, LEN).expect("a reminder");
        assert!(client.poll(at, TIMEOUT, LEN).is_some() && client.poll(at, TIMEOUT, LEN).is_none());
        server.received(address(2), LEN, true);
        let at = server.timeout(TIMEOUT, LEN).expect("another challenge");
        assert!(server.poll(at.max(now), TIMEOUT, LEN).is_some());
        client.confirm();
        assert_eq!(client.timeout(TIMEOUT, LEN), None);
    }

    #[test]
    fn a_peer_whose_first_packet_came_from_another_port_is_validated() {
        let mut paths = Paths::new(None, [1; 32]);
        let now = Duration::from_millis(10);
        for port in [1, 2] {
            paths.received(address(port), LEN, true);
            let (mut challenges, mut copies) = (Vec::new(), 0);
            while let Some((to, path)) = paths.poll(now, TIMEOUT, LEN) {
                assert_eq!(to, address(port));
                challenges.extend(path.challenge);
                copies += 1;
            }
            challenges.dedup();
            assert_eq!((challenges.len(), copies), (1, COPIES), "{port}");
            let answer = Path { challenge: None, response: challenges.pop() };
            if port == 2 {
                let change = paths.answer(now * 2, address(port), &answer);
                let moved = Change::Moved { elsewhere: false, rtt: now };
                assert_eq!(change, Some(moved), "what was sent to the other is sent again");
            }
        }
    }

    #[test]
    fn an_address_at_its_limit_does_not_keep_others_out() {
        let mut paths = Paths::new(None, [1; 32]);
        for port in [1, 2] {
            // little comes from there, and no answer
            paths.received(address(port), LEN, true);
        }
        let mut now = Duration::ZERO;
        while let Some(at) = paths.timeout(TIMEOUT, LEN) {
            now = now.max(at);
            if let Some((to, _)) = paths.poll(now, TIMEOUT, LEN) {
                paths.sent(to, LEN);
            }
        }
        now += Duration::from_secs(10);
        assert_eq!(paths.poll(now, TIMEOUT, LEN), None);
        paths.received(address(3), LEN, true);
        let (to, path) = paths.poll(now, TIMEOUT, LEN).expect("a challenge");
        let answer = Path { challenge: None, response: path.challenge };
        assert_eq!((to, paths.answer(now, to, &answer).is_some()), (address(3), true));
        assert_eq!(paths.validated(), Some(address(3)));
    }

    #[test]
    fn an_address_from_which_only_short_packets_come_is_challenged_at_last() {
        let mut paths = Paths::new(Some(address(1)), [1; 32]);
        let (_, path) = paths.poll(Duration::ZERO, TIMEOUT, LEN).expect("a challenge");
        let answer = Path { challenge: None, response: path.challenge };
        paths.answer(Duration::ZERO, address(1), &answer).expect("validated");
        paths.confirm();
        let challenge = (1..20).find_map(|n| {
            paths.received(address(2), 72, true);
            paths.poll(TIMEOUT * n, TIMEOUT, LEN).map(|(to, _)| (n, to))
        });
        assert_eq!(challenge, Some((6, address(2))));
    }

    #[test]
    fn an_address_that_never_answers_is_given_up() {
        let mut paths = Paths::new(Some(address(1)), [1; 32]);
        let (_, path) = paths.poll(Duration::ZERO, TIMEOUT, LEN).expect("a challenge");
        let answer = Path { challenge: None, response: path.challenge };
        paths.answer(Duration::ZERO, address(1), &answer).expect("validated");
        paths.confirm();
        paths.received(address(2), 100 * LEN, true);
        let mut challenges = 0;
        while let Some(at) = paths.timeout(TIMEOUT, LEN) {
            challenges += u32::from(paths.poll(at, TIMEOUT, LEN).is_some());
        }
        assert_eq!(challenges, MAX_CHALLENGES);
        assert_eq!(paths.validated(), Some(address(1)));
    }

    #[test]
    fn only_more_than_the_limit_shows_that_the_other_end_has_validated_this_one() {
        let mut paths = Paths::new(Some(address(1)), [1; 32]);
        paths.sent(address(1), LEN);
        paths.received(address(1), 3 * LEN, true);
        assert!(!paths.exceeds_limit());
        paths.received(address(1), 1, true);
        assert!(paths.exceeds_limit());
    }

    #[test]
    fn data_may_go_to_a_known_address_at_once_and_elsewhere_within_the_limit() {
        let known = Paths::new(Some(address(1)), [1; 32]).knowing_peer();
        assert_eq!(known.data_to(), Some((address(1), u64::MAX)));
        assert_eq!(known.validated(), None, "it is challenged all the same");
        let [mut client, mut server] =
            [Some(address(1)), None].map(|peer| Paths::new(peer, [1; 32]).awaiting_data());
        assert_eq!((client.data_to(), server.data_to()), (Some((address(1), 0)), None));
        let mut opened = 0_u32;
        while client.timeout(TIMEOUT, LEN) == Some(Duration::ZERO) {
            let (to, _) = client.poll(Duration::ZERO, TIMEOUT, LEN).expect("it is due");
            client.sent(to, LEN);
            server.received(address(2), LEN, true);
            opened += 1;
        }
        assert_eq!(opened, COPIES + u32::from(OPENINGS));
        assert_eq!(server.data_to(), Some((address(2), 3 * LEN as u64 * u64::from(opened))));
    }
}
