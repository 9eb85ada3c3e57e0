//! An SA of the configuration, and the packets of it seen so far.

use headroom_ipsec::replay::Window;
use headroom_ipsec::{Reason, SaSpec, SaTransform};
use headroom_suite::KeyError;

use super::report::Tally;

/// The most failing packets of one SA that are diagnosed.
const MAX_DIAGNOSES: u32 = 100;
/// High halves of the sequence number tried for each packet before one was opened: the capture may
/// begin in the middle.
pub(super) const HIGH_HALVES: u64 = 64;
/// The first packets of an SA for which all high halves are tried. Later ones are the fifth, the
/// ninth, the 17th and so on: forged packets at the beginning do not end the search.
const SEARCHES: u32 = 3;

/// Why a packet was not opened, and the findings.
pub(super) type Failure = (Reason, Vec<String>);

/// The high halves of extended sequence numbers tried for an SA before one of its packets was
/// opened: the capture may begin in the middle.
#[derive(Debug, Clone)]
pub struct Search {
    /// High halves that are likely; their neighbours are tried too.
    pub likely: Vec<u32>,
    /// Packets for which all high halves up to 65,535 are tried, over all SAs.
    pub thorough: u32,
}

impl Default for Search {
    fn default() -> Self {
        Self { likely: Vec::new(), thorough: 64 }
    }
}

/// An SA with its keys ready.
#[derive(Debug)]
pub(super) struct SaDecoder {
    /// Whether it is of Wireshark's table, which does not tell its mode, its encapsulation and the
    /// length of its sequence numbers.
    pub(super) is_from_table: bool,
    pub(super) spec: SaSpec,
    pub(super) transform: SaTransform,
    pub(super) tally: Tally,
    window: Window,
    /// Packets opened, without replays.
    distinct: u64,
    pub(super) diagnoses_left: u32,
    /// Packets that no likely high half opened.
    unopened: u32,
    pub(super) padding_reported: bool,
}

/// The decrypted payload of a packet.
pub(super) struct Decrypted {
    pub(super) next_header: u8,
    pub(super) payload: Vec<u8>,
    pub(super) number: u64,
}

impl SaDecoder {
    pub(super) fn new(spec: SaSpec, is_from_table: bool) -> Result<Self, KeyError> {
        Ok(Self {
            is_from_table,
            transform: SaTransform::bind(&spec.protection)?,
            tally: Tally { name: spec.name.clone(), ..Tally::default() },
            window: Window::new(spec.window, 0),
            distinct: 0,
            diagnoses_left: MAX_DIAGNOSES,
            unopened: 0,
            padding_reported: false,
            spec,
        })
    }

    pub(super) fn finish(&mut self) -> Tally {
        let mut tally = std::mem::take(&mut self.tally);
        if let (Some(first), Some(last)) = (tally.first, tally.last) {
            tally.missing = (last - first).saturating_add(1).saturating_sub(self.distinct);
        }
        tally
    }

    /// Records a packet with a correct ICV.
    pub(super) fn arrived(&mut self, number: u64, notes: &mut Vec<String>) {
        let tally = &mut self.tally;
        let before_all = self.spec.extended_sequence
            && tally.last.is_some()
            && self.window.infer(number as u32, true).is_none();
        if before_all {
            tally.stale += 1;
            notes.push(
                "stale: a receiver places the low half before the first number of the SA, left of the window, and drops \
                 the packet"
                    .into(),
            );
            return;
        }
        let last = tally.last.unwrap_or(0);
        match self.window.accept(number) {
            Ok(()) => {
                self.distinct += 1;
                if number < last {
                    tally.reordered += 1;
                    tally.furthest_behind = tally.furthest_behind.max(last - number);
                    notes.push(format!(
                        "reordered: {} behind the highest number so far",
                        last - number
                    ));
                }
            }
            Err(Reason::Replay) => {
                tally.replayed += 1;
                notes.push(
                    "replayed: an earlier packet has this number; a receiver drops this one".into(),
                );
            }
            Err(_) => {
                tally.stale += 1;
                let behind = last.saturating_sub(number);
                notes.push(format!(
                    "stale: {behind} behind the highest number so far, left of the window of {} packets; a receiver \
                     drops the packet",
                    self.spec.window
                ));
            }
        }
        tally.last = Some(tally.last.map_or(number, |last| last.max(number)));
        tally.first = Some(tally.first.map_or(number, |first| first.min(number)));
    }

    /// Checks whether the high half of the sequence number is still unknown.
    pub(super) fn searches(&self) -> bool {
        self.spec.extended_sequence && self.tally.last.is_none()
    }

    /// Decides whether all high halves are tried for a packet that no likely one opened.
    pub(super) fn searches_thoroughly(&mut self) -> bool {
        let before = self.unopened;
        self.unopened = before.saturating_add(1);
        before < SEARCHES || before.is_power_of_two()
    }

    /// Returns the possible sequence numbers of a packet, the most likely first.
    pub(super) fn numbers(&self, low: u32, search: &Search) -> Vec<u64> {
        let extended = self.spec.extended_sequence;
        let likely = self.window.infer(low, extended).unwrap_or(low.into());
        let mut numbers = vec![likely];
        if self.searches() {
            let given = search.likely.iter().flat_map(|high| {
                [Some(*high), high.checked_add(1), high.checked_sub(1)].into_iter().flatten()
            });
            let halves = given.map(u64::from).chain(1..HIGH_HALVES);
            numbers.extend(halves.map(|high| high << 32 | u64::from(low)));
        } else if extended {
            // A packet left of the window looks like one with the next high half.
            numbers.extend(likely.checked_sub(1 << 32));
        }
        numbers
    }
}
