//! An association of the configuration and what was seen of it.

use headroom_ipsec::replay::Window;
use headroom_ipsec::{Protocol, Reason, SaSpec, esp};
use headroom_suite::KeyError;

use super::attempt::{Guard, Sealed, own_guess};
use super::{Failure, Search, Tally, diagnose};

/// Packets of one association that fail and are looked into.
const MOST_DIAGNOSES: u32 = 100;
/// High halves of the number that are tried for each packet before anything was
/// opened: the capture may begin in the middle.
const HIGH_HALVES: u64 = 64;
/// Those that are tried for the first packets that fail (SEARCHES of each
/// association): at a million packets a second the last is reached in nine years.
const MOST_HIGH_HALVES: u64 = 1 << 16;
const SEARCHES: u32 = 3;

/// An association with its keys ready.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) spec: SaSpec,
    pub(super) guard: Guard,
    pub(super) tally: Tally,
    window: Window,
    /// Packets opened, of different numbers.
    distinct: u64,
    diagnoses_left: u32,
    searches_left: u32,
    padding_told: bool,
}

/// What was protected.
pub(super) struct Plain {
    pub(super) next_header: u8,
    pub(super) payload: Vec<u8>,
    pub(super) number: u64,
}

impl Known {
    pub(super) fn new(spec: SaSpec) -> Result<Self, KeyError> {
        Ok(Self {
            guard: Guard::new(&spec.protection)?,
            tally: Tally { name: spec.name.clone(), ..Tally::default() },
            window: Window::new(spec.window, 0),
            distinct: 0,
            diagnoses_left: MOST_DIAGNOSES,
            searches_left: SEARCHES,
            padding_told: false,
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

    /// Notes a packet whose check value is right.
    fn arrived(&mut self, number: u64, notes: &mut Vec<String>) {
        let tally = &mut self.tally;
        let before_all = self.spec.extended_sequence
            && tally.last.is_some()
            && self.window.infer(number as u32, true).is_none();
        if before_all {
            tally.stale += 1;
            notes.push(
                "stale: to a receiver its low half stands before the first number of the SA, left of the window; it \
                 drops it"
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
                    "replayed: a packet of this number was seen before; a receiver drops it".into(),
                );
            }
            Err(_) => {
                tally.stale += 1;
                let behind = last.saturating_sub(number);
                notes.push(format!(
                    "stale: {behind} behind the highest number so far, left of the window of {} packets; a receiver \
                     drops it",
                    self.spec.window
                ));
            }
        }
        tally.last = Some(tally.last.map_or(number, |last| last.max(number)));
        tally.first = Some(tally.first.map_or(number, |first| first.min(number)));
    }

    /// Whether the high half of its numbers has yet to be found.
    fn searches(&self) -> bool {
        self.spec.extended_sequence && self.tally.last.is_none()
    }

    /// Whole numbers that a packet may have, the likeliest first.
    fn numbers(&self, low: u32, search: &Search) -> Vec<u64> {
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
            // one left of the window looks like one of the next half
            numbers.extend(likely.checked_sub(1 << 32));
        }
        numbers
    }
}

/// Opens what `all[index]` should be able to open.
pub(super) fn open(
    all: &mut [Known],
    index: usize,
    sealed: &Sealed<'_>,
    low: u32,
    search: &mut Search,
    notes: &mut Vec<String>,
) -> Result<Plain, Failure> {
    let known = &mut all[index];
    let bare = |reason| (reason, Vec::new());
    sealed.clear().map_err(bare)?;
    let fits = sealed.fits(&known.guard);
    let candidates = known.numbers(low, search);
    let open = |known: &Known, number: u64| {
        sealed.open(&known.guard, own_guess(&known.spec, number)).map(|text| (number, text))
    };
    let mut opened = candidates.iter().find_map(|number| open(known, *number));
    let mut tried = HIGH_HALVES;
    if opened.is_none() && known.searches() && fits.is_ok() {
        let left = known.searches_left.min(search.thorough);
        if left > 0 {
            known.searches_left -= 1;
            search.thorough -= 1;
            tried = MOST_HIGH_HALVES;
            let mut further = HIGH_HALVES..MOST_HIGH_HALVES;
            opened = further.find_map(|high| open(known, high << 32 | u64::from(low)));
        }
    }
    let Some((number, mut text)) = opened else {
        let reason = fits.err().unwrap_or(Reason::Forged);
        let mut findings = if known.diagnoses_left == 0 {
            Vec::new()
        } else {
            diagnose::forged(sealed, all, index, candidates[0])
        };
        if findings.is_empty() && all[index].searches() && reason == Reason::Forged {
            findings.push(format!(
                "if the key is right, the high half of its sequence number is {tried} or more, or the packet was \
                 altered: `--esn-high N` tries N"
            ));
        }
        all[index].diagnoses_left = all[index].diagnoses_left.saturating_sub(1);
        return Err((reason, findings));
    };
    if all[index].tally.last.is_none() && number >> 32 > 0 {
        let high = number >> 32;
        notes.push(format!(
            "the capture begins in the middle: the high half of the sequence number is {high}"
        ));
    }
    if let Some(words) = diagnose::ah_padding(sealed, &all[index])
        && !std::mem::replace(&mut all[index].padding_told, true)
    {
        notes.push(words);
    }
    all[index].arrived(number, notes);
    if let Protocol::Ah = sealed.protocol {
        let next_header = *sealed.body.first().ok_or(bare(Reason::Truncated))?;
        return Ok(Plain { next_header, payload: text, number });
    }
    match esp::read_trailer(&text) {
        Ok((next_header, len)) => {
            text.truncate(len);
            Ok(Plain { next_header, payload: text, number })
        }
        Err(reason) => Err((reason, diagnose::bad_padding(sealed, &all[index], number))),
    }
}
