//! Reassembles fragmented datagrams (RFC 791, section 3.2; RFC 815; RFC 8200, section 4.5) in
//! bounded memory. The caller provides the time.

use std::collections::btree_map::BTreeMap;
use std::collections::hash_map::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::bytes::put16;
use crate::{Fragment, Ip, Version, header, ipv6, protocol, tcp};

/// How long the first fragment waits for the others: 60 s in IPv6 (RFC 8200, section 4.5), 30 s in
/// IPv4 as in Linux (RFC 791 proposes 15 s, RFC 1122, section 3.3.2, at least 60 s).
const TIMEOUT_V4: Duration = Duration::from_secs(30);
const TIMEOUT_V6: Duration = Duration::from_secs(60);
/// Bytes counted for each fragment and datagram besides their content.
const FRAGMENT_COST: usize = 96;
const DATAGRAM_COST: usize = 1024;
/// The DF bit of IPv4.
const DONT_FRAGMENT: u16 = 0x4000;

/// ECN codepoints (RFC 3168, section 5) as bits of a set.
const NOT_ECT: u8 = 1;
const CE: u8 = 1 << 3;

/// The limits of a reassembler.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most incomplete datagrams.
    pub datagrams: usize,
    /// The most bytes of their fragments, including overhead.
    pub bytes: usize,
}

/// Why a fragment was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejected {
    /// The length of a fragment before the last is no multiple of 8.
    #[error("the length of a fragment before the last is not a multiple of 8")]
    Unaligned,
    /// The fragment is empty, or it is the first and does not contain the transport header
    /// (RFC 1858, section 3.1; RFC 8200, section 4.5).
    #[error("a fragment is too short for the headers it must contain")]
    Tiny,
    /// The datagram would be longer than 65,535 bytes.
    #[error("a fragment reaches beyond the longest datagram")]
    TooLong,
    /// The fragment overlaps another, or they disagree on the end of the datagram. All fragments
    /// are dropped, also later ones (RFC 5722, section 4).
    #[error("fragments of a datagram overlap")]
    Overlap,
    /// One fragment is marked "congestion experienced" and another is without ECN (RFC 3168,
    /// section 5.3).
    #[error("fragments of a datagram disagree on ECN")]
    Ecn,
    /// The fragment exceeds the limits.
    #[error("a fragment exceeds the memory limit")]
    LimitExceeded,
}

/// Reassembles datagrams.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    datagrams: HashMap<Key, Datagram>,
    /// By deadline, then by arrival.
    deadlines: BTreeMap<Turn, Key>,
    begun: u64,
    bytes: usize,
    given_up: u64,
}

type Turn = (Duration, u64);

/// The fields that all fragments of one datagram share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    /// In IPv4 only.
    protocol: Option<u8>,
}

#[derive(Debug)]
struct Datagram {
    turn: Turn,
    /// The fragments so far, by offset; none overlap.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// Their bytes.
    have: usize,
    /// The bytes counted for the datagram.
    cost: usize,
    /// The headers before the payload, from the first fragment.
    head: Option<Vec<u8>>,
    /// The length of the payload, from the last fragment.
    len: Option<usize>,
    /// Type of Service or Traffic Class of the first fragment.
    tos: u8,
    /// The ECN codepoints of the fragments.
    ecn: u8,
    /// Why later fragments are dropped.
    rejected: Option<Rejected>,
}

impl Reassembler {
    /// Makes an empty reassembler.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            datagrams: HashMap::new(),
            deadlines: BTreeMap::new(),
            begun: 0,
            bytes: 0,
            given_up: 0,
        }
    }

    /// Adds a fragment and returns the datagram if it is complete. Returns a packet that is no
    /// fragment unchanged. If a limit is reached, the datagram with the earliest deadline is
    /// dropped. `now` is any monotonic clock.
    ///
    /// # Errors
    /// The fragment was dropped.
    pub fn push(&mut self, ip: &Ip<'_>, now: Duration) -> Result<Option<Vec<u8>>, Rejected> {
        let Some(fragment) = ip.fragment() else { return Ok(Some(ip.bytes().to_vec())) };
        self.expire(now);
        let (key, head_len, payload) = parts(ip, fragment);
        check(ip, fragment, head_len, payload)?;
        let cost = payload.len() + FRAGMENT_COST + if fragment.offset == 0 { head_len } else { 0 };
        if DATAGRAM_COST + cost > self.limits.bytes {
            return Err(Rejected::LimitExceeded);
        }
        self.begin(key, ip.version(), now);
        self.make_room(cost);
        let datagram = self.datagrams.get_mut(&key).ok_or(Rejected::LimitExceeded)?;
        match datagram.add(ip, fragment, payload) {
            Ok(false) => Ok(None),
            Ok(true) => {
                datagram.cost += cost;
                self.bytes += cost;
                if datagram.len != Some(datagram.have) {
                    return Ok(None);
                }
                let whole = self.remove(&key).map(Datagram::join);
                whole.transpose()
            }
            Err(why) => {
                // Kept without its bytes, to reject later fragments.
                self.bytes -= datagram.reject(why);
                Err(why)
            }
        }
    }

    /// Drops datagrams whose deadline has passed.
    pub fn expire(&mut self, now: Duration) {
        while let Some(((deadline, _), key)) = self.deadlines.first_key_value() {
            if *deadline > now {
                break;
            }
            let key = *key;
            self.give_up(&key);
        }
    }

    /// Returns the number of datagrams dropped at a deadline or a limit.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the number of incomplete datagrams.
    pub fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// Returns the bytes held, counted as for [`Limits::bytes`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn assert_counts(&self) {
        assert_eq!(self.datagrams.len(), self.deadlines.len());
        let counted: usize = self.datagrams.values().map(|datagram| datagram.cost).sum();
        assert_eq!(self.bytes, counted);
        assert!(self.bytes <= self.limits.bytes);
        assert!(self.datagrams.len() <= self.limits.datagrams);
    }

    fn begin(&mut self, key: Key, version: Version, now: Duration) {
        if self.datagrams.contains_key(&key) {
            return;
        }
        while self.datagrams.len() >= self.limits.datagrams.max(1) {
            let Some(first) = self.deadlines.first_key_value().map(|(_, key)| *key) else { break };
            self.give_up(&first);
        }
        self.make_room(DATAGRAM_COST);
        let timeout = match version {
            Version::V4 => TIMEOUT_V4,
            Version::V6 => TIMEOUT_V6,
        };
        let turn = (now.saturating_add(timeout), self.begun);
        self.begun += 1;
        self.bytes += DATAGRAM_COST;
        self.deadlines.insert(turn, key);
        self.datagrams.insert(key, Datagram::new(turn));
    }

    /// Drops datagrams until `cost` fits; the fragment's own datagram comes last.
    fn make_room(&mut self, cost: usize) {
        while self.bytes + cost > self.limits.bytes {
            let Some(first) = self.deadlines.first_key_value().map(|(_, key)| *key) else { break };
            self.give_up(&first);
        }
    }

    fn give_up(&mut self, key: &Key) {
        self.remove(key);
        self.given_up += 1;
    }

    fn remove(&mut self, key: &Key) -> Option<Datagram> {
        let datagram = self.datagrams.remove(key)?;
        self.deadlines.remove(&datagram.turn);
        self.bytes -= datagram.cost;
        Some(datagram)
    }
}

/// Returns the datagram of a fragment, the length of the headers before the payload, and the
/// payload.
fn parts<'a>(ip: &Ip<'a>, fragment: Fragment) -> (Key, usize, &'a [u8]) {
    let (head_len, payload) = match ip.fragment_header() {
        Some((_, at)) => (at, at + ipv6::FRAGMENT_HEADER_LEN),
        None => (ip.upper_offset(), ip.upper_offset()),
    };
    let key = Key {
        source: ip.source(),
        destination: ip.destination(),
        id: fragment.id,
        protocol: (ip.version() == Version::V4).then_some(ip.upper()),
    };
    (key, head_len, &ip.bytes()[payload..])
}

/// Checks a fragment by itself.
fn check(ip: &Ip<'_>, part: Fragment, head_len: usize, payload: &[u8]) -> Result<(), Rejected> {
    if payload.is_empty() || part.offset == 0 && ip.payload().len() < least(ip.upper()) {
        return Err(Rejected::Tiny);
    }
    if part.more && !payload.len().is_multiple_of(8) {
        return Err(Rejected::Unaligned);
    }
    let fixed = if ip.version() == Version::V6 { ipv6::HEADER_LEN } else { 0 };
    if head_len - fixed + part.offset + payload.len() > crate::ip::MAX_PAYLOAD_LEN {
        return Err(Rejected::TooLong);
    }
    Ok(())
}

/// Returns the bytes of an upper-layer protocol that the first fragment must contain: the header, or
/// the bytes of it that RFC 792 quotes.
fn least(upper: u8) -> usize {
    match upper {
        protocol::TCP => tcp::MIN_HEADER_LEN,
        protocol::NO_NEXT_HEADER => 0,
        _ => 8,
    }
}

impl Datagram {
    fn new(turn: Turn) -> Self {
        Self {
            turn,
            pieces: BTreeMap::new(),
            have: 0,
            cost: DATAGRAM_COST,
            head: None,
            len: None,
            tos: 0,
            ecn: 0,
            rejected: None,
        }
    }

    /// Adds a fragment; false for an exact duplicate.
    fn add(&mut self, ip: &Ip<'_>, fragment: Fragment, payload: &[u8]) -> Result<bool, Rejected> {
        if let Some(why) = self.rejected {
            return Err(why);
        }
        let (start, end) = (fragment.offset, fragment.offset + payload.len());
        if self.pieces.get(&start).is_some_and(|piece| piece == payload) {
            return Ok(false);
        }
        let before = self.pieces.range(..=start).next_back();
        let behind = self.pieces.range(start..).next();
        if before.is_some_and(|(at, piece)| at + piece.len() > start)
            || behind.is_some_and(|(at, _)| *at < end)
        {
            return Err(Rejected::Overlap);
        }
        let is_beyond = self.len.is_some_and(|len| end > len || !fragment.more);
        let is_cut_off = !fragment.more && behind.is_some();
        if is_beyond || is_cut_off {
            return Err(Rejected::Overlap);
        }
        self.ecn |= 1 << (ip.tos() & 3);
        if self.ecn & (CE | NOT_ECT) == CE | NOT_ECT {
            return Err(Rejected::Ecn);
        }
        if !fragment.more {
            self.len = Some(end);
        }
        if start == 0 {
            self.head = Some(head(ip));
            self.tos = ip.tos();
        }
        self.have += payload.len();
        self.pieces.insert(start, payload.to_vec());
        Ok(true)
    }

    /// Drops the content and returns the bytes counted for it.
    fn reject(&mut self, why: Rejected) -> usize {
        let freed = self.cost - DATAGRAM_COST;
        let turn = self.turn;
        *self = Self { rejected: Some(why), ..Self::new(turn) };
        freed
    }

    /// Joins all fragments to the datagram.
    fn join(self) -> Result<Vec<u8>, Rejected> {
        let mut bytes = self.head.unwrap_or_default();
        if self.ecn & CE != 0 {
            header::set_tos(&mut bytes, self.tos | 3).map_err(|_| Rejected::TooLong)?;
        }
        bytes.reserve_exact(self.have);
        for piece in self.pieces.values() {
            bytes.extend_from_slice(piece);
        }
        let len = bytes.len();
        header::set_total_len(&mut bytes, len).map_err(|_| Rejected::TooLong)?;
        Ok(bytes)
    }
}

/// The headers of a first fragment as those of the datagram, but for the length.
fn head(ip: &Ip<'_>) -> Vec<u8> {
    match ip.fragment_header() {
        Some((field, at)) => {
            let mut head = ip.bytes()[..at].to_vec();
            head[field] = ip.bytes()[at];
            head
        }
        None => {
            let mut head = ip.bytes()[..ip.upper_offset()].to_vec();
            // a sender that forbids further cutting says so in each (RFC 791)
            let dont_fragment = u16::from_be_bytes([head[6], head[7]]) & DONT_FRAGMENT;
            put16(&mut head, 6, dont_fragment);
            head
        }
    }
}
