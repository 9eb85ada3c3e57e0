//! Advice for many links and files at once, which a report shows without computing anything.

use serde::Serialize;

use super::advice::{Adviser, Question, StackFacts};
use super::basis::Basis;

/// Rates, bits per second.
const RATES_BPS: [f64; 10] = [1e6, 2e6, 5e6, 10e6, 20e6, 50e6, 100e6, 200e6, 500e6, 1e9];
/// Round-trip times without load, seconds.
const RTTS_S: [f64; 9] = [1e-3, 5e-3, 10e-3, 20e-3, 50e-3, 80e-3, 100e-3, 200e-3, 400e-3];
/// Bytes of one file.
const SIZES: [u64; 7] = [1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30, 10 << 30];

/// The fewest links from which round trips are fitted.
const MIN_LINKS: usize = 3;

/// Answers for links without loss and one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Grid {
    /// Rates, bits per second.
    pub rates_bps: Vec<f64>,
    /// Round-trip times, seconds.
    pub rtts_s: Vec<f64>,
    /// Sizes, bytes.
    pub sizes: Vec<u64>,
    /// Names of the stacks.
    pub stacks: Vec<String>,
    /// For each of them whether nothing encrypts its files; null: unknown.
    pub in_clear: Vec<Option<bool>>,
    /// Answers by rate, then round-trip time, then size; null: it lies outside what was measured.
    pub answers: Vec<Option<Vec<Place>>>,
    /// Whether the intervals are those of the shipped run.
    pub foreign_intervals: bool,
}

/// A stack in an answer, the fastest first: its index in [`Grid::stacks`], its rank, whether
/// another one shares it, predicted seconds, and the ends of the 95 % prediction interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Place(usize, usize, bool, f64, f64, f64);

impl Grid {
    /// Answers from a run; none where fewer than three of its links without loss tell how many round
    /// trips its sessions wait for, or where it answers for one stack or one link. `in_clear` says
    /// by the name of a stack whether nothing encrypts its files.
    pub fn of(basis: &Basis, in_clear: impl Fn(&str) -> Option<bool>) -> Option<Self> {
        let measured = |index: &usize| basis.cells.iter().any(|cell| cell.link == *index);
        let tells = |index: &usize| basis.links[*index].loss == 0.0 && measured(index);
        (0..basis.links.len()).filter(tells).nth(MIN_LINKS - 1)?;
        let adviser = Adviser::new(basis, false);
        let answer = |rate_bps: f64, rtt_s: f64, bytes: u64| {
            let question =
                Question { rate_bps, rtt_s, loss: 0.0, files: 1, bytes, needs: Vec::new() };
            // without needs and loss nothing is asked of them
            let facts = |_: &str| StackFacts { properties: None, in_clear: None };
            adviser.advise(&question, facts).ok()
        };
        let answers_one = |rate: f64, rtt: f64| answer(rate, rtt, SIZES[0]).is_some();
        let rates_bps: Vec<f64> = RATES_BPS
            .into_iter()
            .filter(|&rate| RTTS_S.iter().any(|&rtt| answers_one(rate, rtt)))
            .collect();
        let rtts_s: Vec<f64> = RTTS_S
            .into_iter()
            .filter(|&rtt| rates_bps.iter().any(|&rate| answers_one(rate, rtt)))
            .collect();
        let stacks: Vec<String> = basis.stacks.iter().map(|stack| stack.name.clone()).collect();
        if stacks.len() < 2 || rates_bps.len() * rtts_s.len() < 2 {
            return None;
        }
        let place = |ranked: &super::advice::Ranked| {
            let index = stacks.iter().position(|name| *name == ranked.stack)?;
            let [lo, hi] = ranked.interval_s;
            let [predicted, lo, hi] = [ranked.predicted_s, lo, hi].map(four_digits);
            Some(Place(index, ranked.rank, ranked.tied, predicted, lo, hi))
        };
        let questions = rates_bps.iter().flat_map(|&rate| {
            rtts_s.iter().flat_map(move |&rtt| SIZES.iter().map(move |&size| (rate, rtt, size)))
        });
        let answers = questions
            .map(|(rate, rtt, size)| {
                answer(rate, rtt, size)
                    .map(|advice| advice.stacks.iter().filter_map(place).collect())
            })
            .collect();
        Some(Self {
            rates_bps,
            rtts_s,
            sizes: SIZES.to_vec(),
            in_clear: stacks.iter().map(|name| in_clear(name)).collect(),
            stacks,
            answers,
            foreign_intervals: adviser.foreign_intervals,
        })
    }
}

/// Enough for every figure that is shown, in a third of the characters.
fn four_digits(seconds: f64) -> f64 {
    format!("{seconds:.3e}").parse().unwrap_or(seconds)
}

#[cfg(test)]
mod tests {
    use super::super::advice::advise;
    use super::super::tests::basis;
    use super::*;

    #[test]
    fn has_the_answers_that_the_command_gives() {
        let basis = basis();
        let in_clear = |name: &str| Some(name == "quick");
        let grid = Grid::of(&basis, in_clear).expect("eight links");
        let facts = |name: &str| StackFacts { properties: None, in_clear: in_clear(name) };
        assert_eq!(grid.rates_bps, [5e6, 10e6, 20e6, 50e6, 100e6, 200e6]);
        assert_eq!(grid.rtts_s, [1e-3, 5e-3, 10e-3, 20e-3, 50e-3, 80e-3, 100e-3, 200e-3]);
        assert_eq!(grid.answers.len(), 6 * 8 * SIZES.len());
        let at = (3 * grid.rtts_s.len() + 4) * SIZES.len() + 2;
        let question = Question {
            rate_bps: 50e6,
            rtt_s: 50e-3,
            loss: 0.0,
            files: 1,
            bytes: 1 << 20,
            needs: Vec::new(),
        };
        let advice = advise(&basis, &question, facts).expect("an answer");
        let places = grid.answers[at].as_ref().expect("the same");
        assert_eq!(places.len(), 2);
        for (place, ranked) in places.iter().zip(&advice.stacks) {
            assert_eq!(
                (&grid.stacks[place.0], grid.in_clear[place.0], place.1, place.2),
                (&ranked.stack, ranked.in_clear, ranked.rank, ranked.tied)
            );
            assert!((place.3 / ranked.predicted_s - 1.0).abs() < 1e-3, "{place:?} {ranked:?}");
        }
    }

    #[test]
    fn one_link_answers_for_no_other() {
        let mut one = basis();
        for link in (1..one.links.len()).rev() {
            one = one.without_link(link);
        }
        assert_eq!(Grid::of(&one, |_| None), None);
    }
}
