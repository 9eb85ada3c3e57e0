//! Decides whether to hold a share beside flows that do not yield to losses.
//!
//! CUBIC yields when it loses packets and BBR version 1 does not. In a queue that is shorter than
//! what BBR keeps in flight losses never end, and in the simulation CUBIC's window falls to a tenth
//! of the link. Only a trial shows whether other flows yield (elastic and inelastic cross traffic,
//! as Nimbus calls them: Goyal et al., SIGCOMM 2022): for some rounds the window is held at the
//! share that is due, in spite of losses. If the other flows yield, the hold ends, and the window
//! is CUBIC's again.
//!
//! Senders must not hold their shares against each other, nor against a path that has become slower.
//! Neither empties the queue; BBR does, for its `ProbeRTT` every ten seconds. So the share is held
//! only after the queue was empty for a round since others came, and no longer than until BBR would
//! have emptied it again.

use std::time::Duration;

/// BBR's interval of `ProbeRTT`, 10 s, and some round trips.
const EMPTIES_WITHIN: Duration = Duration::from_secs(12);
/// Rounds in which the window grows to its share and other flows may yield, and the length of the
/// periods after them, in rounds, whose losses decide. Ours: BBR's `ProbeRTT` takes a quarter of
/// these,
/// `beside_bbr_in_a_short_queue_each_gets_at_least_a_quarter`.
const SETTLES: u64 = 16;
const SPELL: u64 = 32;
/// Other flows do not yield if they have more in flight than this many TCP connections have at the
/// same loss (Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance
/// Algorithm", 1997). Ours: simulated, one BBR flow at 100 Mbit/s and 50 ms
/// has as much as 24 to 110 of them.
const CONNECTIONS: f64 = 16.0;
/// Mean share of packets lost in a round above which the hold ends, whatever the other flows are.
/// Ours: twice what is lost beside one simulated BBR flow.
const MAX_LOSS: f64 = 0.1;
/// Rounds until the next trial, at least and, after many that failed, at most. Ours.
const WAIT: u64 = 64;
const MAX_WAIT: u64 = 1024;
/// A hold that ends before this many judged periods has failed: other senders may hold a share,
/// too. Ours: from 50 ms on these periods take longer than [`EMPTIES_WITHIN`].
const LONG: u64 = 8;

/// Decides whether the share is held.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    spell: Option<Spell>,
    /// The round from which on it may be tried.
    not_before: u64,
    wait: u64,
}

/// Rounds that are judged together.
#[derive(Clone, Copy, Debug)]
struct Spell {
    /// 0 for the trial.
    nth: u64,
    /// The round after which they count.
    after: u64,
    /// Sums over rounds, as in [`Round`].
    lost: f64,
    others: f64,
}

/// What a round showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    /// Share of packets lost, beyond chance.
    pub(super) lost: f64,
    /// Packets that others had in flight.
    pub(super) others: f64,
    /// Whether the window is much smaller than the share that is due.
    pub(super) is_low: bool,
    /// How long ago others last left the queue empty for a round.
    pub(super) empty_ago: Option<Duration>,
}

impl Hold {
    pub(super) fn new() -> Self {
        Self { spell: None, not_before: 0, wait: WAIT }
    }

    pub(super) fn is_on(&self) -> bool {
        self.spell.is_some()
    }

    /// Ends a hold, as the other flows may have changed.
    pub(super) fn stop(&mut self) {
        self.spell = None;
    }

    /// Decides at the end of a round.
    pub(super) fn end_round(&mut self, round: Round) {
        let empties = round.empty_ago.is_some_and(|ago| ago <= EMPTIES_WITHIN);
        let Some(spell) = &mut self.spell else {
            if round.is_low && round.lost > 0.0 && empties && round.number >= self.not_before {
                self.spell = Some(Spell::new(0, round.number + SETTLES));
            }
            return;
        };
        if round.number > spell.after {
            spell.lost += round.lost;
            spell.others += round.others;
        }
        let is_over = round.number >= spell.after + SPELL;
        if !empties || spell.loses_too_much() || (is_over && spell.others_yield()) {
            let failed = spell.nth < LONG;
            self.spell = None;
            self.wait = if failed { (2 * self.wait).min(MAX_WAIT) } else { WAIT };
            self.not_before = round.number + self.wait;
        } else if is_over {
            *spell = Spell::new(spell.nth + 1, round.number);
        }
    }
}

impl Spell {
    fn new(nth: u64, after: u64) -> Self {
        Self { nth, after, lost: 0.0, others: 0.0 }
    }

    fn loses_too_much(&self) -> bool {
        self.lost > MAX_LOSS * SPELL as f64
    }

    fn others_yield(&self) -> bool {
        let [lost, others] = [self.lost, self.others].map(|sum| sum / SPELL as f64);
        others < CONNECTIONS * (1.5 / lost).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: Round = Round {
        number: 0,
        lost: 0.05,
        others: 400.0,
        is_low: true,
        empty_ago: Some(Duration::ZERO),
    };

    /// Lets such rounds pass; returns whether the share is held then.
    fn passes(hold: &mut Hold, rounds: std::ops::Range<u64>, like: Round) -> bool {
        rounds.for_each(|number| hold.end_round(Round { number, ..like }));
        hold.is_on()
    }

    #[test]
    fn it_holds_while_losses_last_and_others_empty_the_queue() {
        let mut hold = Hold::new();
        assert!(!passes(&mut hold, 0..100, Round { lost: 0.0, ..LOSSES }), "nothing is lost");
        assert!(!passes(&mut hold, 0..100, Round { is_low: false, ..LOSSES }), "it has its share");
        assert!(passes(&mut hold, 100..1000, LOSSES));
        let stands = Round { empty_ago: Some(Duration::from_secs(13)), ..LOSSES };
        assert!(!passes(&mut hold, 1000..2000, stands), "nobody empties the queue");
        assert!(passes(&mut hold, 2000..2001, LOSSES));
    }

    #[test]
    fn it_tries_ever_more_rarely_beside_others_that_yield() {
        // few lose little, and many have little in flight each
        for (lost, others) in [(0.0005, 400.0), (0.02, 100.0)] {
            let (mut hold, mut began) = (Hold::new(), Vec::new());
            for number in 0..10_000 {
                let was_on = hold.is_on();
                let round = Round { lost, others, ..LOSSES };
                if passes(&mut hold, number..number + 1, round) && !was_on {
                    began.push(number);
                }
            }
            let pauses: Vec<u64> =
                began.windows(2).map(|pair| pair[1] - pair[0] - SETTLES - SPELL).collect();
            assert_eq!(pauses[..5], [128, 256, 512, 1024, 1024], "{lost}: {pauses:?}");
        }
    }

    #[test]
    fn it_stops_when_too_much_is_lost() {
        let mut hold = Hold::new();
        let half = Round { lost: 0.5, ..LOSSES };
        assert!(passes(&mut hold, 0..SETTLES, half));
        assert!(!passes(&mut hold, SETTLES..SETTLES + 10, half));
    }
}
