//! Judges a link's self-test by probes captured before and after the bottleneck: rate,
//! delay and loss of one direction. Nothing here has a clock.

use std::collections::BTreeMap;

use headroom_lab_results::schema::{DelayTest, LossTest, RateTest};
use statrs::distribution::{Binomial, DiscreteCDF};

use headroom_link_spec::{LinkDirection, Loss};

/// Bytes of Ethernet framing that no capture shows: preamble, start of frame,
/// checksum, gap between frames (IEEE 802.3).
pub(super) const FRAMING: u32 = 24;
/// Bytes of the shortest frame with its framing.
const MIN_FRAME: u32 = 84;

/// A probe as a capture saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sighting {
    /// None: it is damaged, so that its number cannot be read.
    pub(super) number: Option<u32>,
    pub(super) time_ns: u64,
    pub(super) wire_len: u32,
}

/// One train of probes, seen on both sides of the bottleneck.
#[derive(Debug, Clone, Default)]
pub(super) struct Passage {
    pub(super) before: Vec<Sighting>,
    pub(super) behind: Vec<Sighting>,
}

/// Errors of the rate that pass: up to 1 Gbit/s, and above.
const RATE_TOLERANCE_PCT: [f64; 2] = [1.0, 2.0];

/// The rate behind the bottleneck, once what a token bucket lets through at
/// first has passed; none where too few frames came to tell. A duplicate may
/// pass beside the rate, so their share is allowed beyond the tolerance.
pub(super) fn rate(
    direction: &LinkDirection,
    asked_bps: u64,
    passage: &Passage,
) -> Option<RateTest> {
    let measured_bps = rate_behind(passage)?;
    let error_pct = 100.0 * (measured_bps / asked_bps as f64 - 1.0);
    let [low, high] = RATE_TOLERANCE_PCT;
    let tolerance = if asked_bps <= 1_000_000_000 { low } else { high };
    let allowed_pct = tolerance + direction.duplicate_pct;
    let passed = error_pct.abs() <= allowed_pct;
    Some(RateTest { asked_bps, measured_bps, error_pct, allowed_pct, passed })
}

/// Bits per second of the frames behind the bottleneck, framing counted.
pub(super) fn rate_behind(passage: &Passage) -> Option<f64> {
    const SKIPPED: f64 = 0.2;
    const MIN_FRAMES: usize = 8;
    let mut frames: Vec<&Sighting> = passage.behind.iter().collect();
    frames.sort_by_key(|frame| frame.time_ns);
    let window = &frames[(frames.len() as f64 * SKIPPED) as usize..];
    let (first, last) = (window.first()?, window.last()?);
    let seconds = (last.time_ns - first.time_ns) as f64 / 1e9;
    // the first frame's bytes passed before its time stamp
    let bytes: u64 = window[1..].iter().map(|frame| u64::from(on_the_wire(frame))).sum();
    (window.len() >= MIN_FRAMES && seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
}

/// The tolerance of a median without jitter, microseconds.
const DELAY_TOLERANCE_US: f64 = 100.0;

/// Judges the delays of probes. `serialises`: the bottleneck holds each frame for as long as
/// its bytes take at the rate; a token bucket does not.
///
/// Jitter is uniform, so it does not move the median; the median of n of them
/// scatters by jitter/√n, three of which are allowed beyond the tolerance.
pub(super) fn delay(
    direction: &LinkDirection,
    serialises: bool,
    passage: &Passage,
) -> Option<DelayTest> {
    let asked_ns = direction.delay.as_nanos() as f64;
    let rate_bps = direction.rate_bps.filter(|_| serialises);
    let behind = first_sightings(&passage.behind);
    let mut errors_us: Vec<f64> = first_sightings(&passage.before)
        .into_iter()
        .filter_map(|(number, before)| {
            let taken_ns = behind.get(&number)?.time_ns as f64 - before.time_ns as f64;
            let serialisation_ns =
                rate_bps.map_or(0.0, |bps| f64::from(on_the_wire(before)) * 8e9 / bps as f64);
            Some((taken_ns - serialisation_ns - asked_ns) / 1e3)
        })
        .collect();
    errors_us.sort_by(f64::total_cmp);
    let at = |share: f64| errors_us.get(((errors_us.len() - 1) as f64 * share).round() as usize);
    let (median_error_us, p99_error_us) = match errors_us.len() {
        0 => return None,
        _ => (*at(0.5)?, *at(0.99)?),
    };
    let jitter_us = direction.jitter.as_secs_f64() * 1e6;
    let allowed_us = DELAY_TOLERANCE_US + 3.0 * jitter_us / (errors_us.len() as f64).sqrt();
    Some(DelayTest {
        asked_us: asked_ns / 1e3,
        jitter_us,
        probes: errors_us.len(),
        median_error_us,
        p99_error_us,
        allowed_us,
        passed: median_error_us.abs() <= allowed_us,
    })
}

/// Judges the loss over all of a direction's spaced trains. A damaged probe was not lost.
pub(super) fn loss(direction: &LinkDirection, passages: &[&Passage]) -> LossTest {
    let count = |passage: &&Passage| {
        let sent = first_sightings(&passage.before).len() as u64;
        let behind = first_sightings(&passage.behind).len();
        let damaged = passage.behind.iter().filter(|probe| probe.number.is_none()).count();
        (sent, sent.saturating_sub((behind + damaged) as u64))
    };
    let (sent, lost) =
        passages.iter().map(count).fold((0, 0), |(s, l), (sent, lost)| (s + sent, l + lost));
    let interval = loss_interval(&direction.loss, sent);
    LossTest {
        asked_pct: direction.loss.average_pct(),
        sent,
        lost,
        interval,
        passed: sent > 0 && (interval[0]..=interval[1]).contains(&lost),
    }
}

/// The central 99 % of what a loss process makes of `sent` frames.
///
/// Random loss: the binomial quantiles. Gilbert–Elliott: losses come in bursts,
/// so that their number scatters more. With the probabilities p (good to bad), r
/// (bad to good), b and g (loss in either state), the share of time in the bad
/// state is π = p/(p+r), the mean loss is m = πb + (1−π)g, two losses k frames
/// apart have the covariance π(1−π)(b−g)²(1−p−r)ᵏ, and the variance of the
/// number of losses is n·(m(1−m) + 2π(1−π)(b−g)²·(1−p−r)/(p+r)); the interval is
/// 2.576 of its roots around n·m. For bursts in which everything is lost this is
/// the binomial variance times (2−p−r)/(p+r): nearly twice the mean burst.
fn loss_interval(loss: &Loss, sent: u64) -> [u64; 2] {
    match *loss {
        Loss::None => [0, 0],
        Loss::Random { pct } => Binomial::new(pct / 100.0, sent).map_or([0, sent], |binomial| {
            [binomial.inverse_cdf(0.005), binomial.inverse_cdf(0.995)]
        }),
        Loss::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
            let [p, r, bad, good] =
                [to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct].map(|v| v / 100.0);
            if p + r == 0.0 {
                return loss_interval(&Loss::Random { pct: loss_in_good_pct }, sent);
            }
            let in_bad = p / (p + r);
            let mean = loss.average_pct() / 100.0;
            let covariance = in_bad * (1.0 - in_bad) * (bad - good).powi(2);
            let variance = mean * (1.0 - mean) + 2.0 * covariance * (1.0 - p - r) / (p + r);
            let (n, z) = (sent as f64, 2.576);
            let half = z * (n * variance.max(0.0)).sqrt();
            let low = (n * mean - half).floor().max(0.0);
            [low as u64, (n * mean + half).ceil().min(n) as u64]
        }
    }
}

fn on_the_wire(frame: &Sighting) -> u32 {
    (frame.wire_len + FRAMING).max(MIN_FRAME)
}

/// Each probe when it was first seen.
fn first_sightings(sightings: &[Sighting]) -> BTreeMap<u32, &Sighting> {
    let mut first = BTreeMap::new();
    for sighting in sightings {
        let Some(number) = sighting.number else { continue };
        first.entry(number).or_insert(sighting);
    }
    first
}

#[cfg(test)]
mod tests {
    use headroom_lab_results::schema::{DirectionTest, SelfTest};

    use super::*;

    fn link(text: &str) -> LinkDirection {
        text.parse::<headroom_link_spec::LinkSpec>().expect(text).down
    }

    fn seen(number: u32, time_ns: u64, wire_len: u32) -> Sighting {
        Sighting { number: Some(number), time_ns, wire_len }
    }

    /// Probes of 100 bytes a millisecond apart, each behind after `taken_ns`.
    fn spaced(count: u32, taken_ns: impl Fn(u32) -> Option<u64>) -> Passage {
        let mut passage = Passage::default();
        for number in 0..count {
            let sent = u64::from(number) * 1_000_000;
            passage.before.push(seen(number, sent, 100));
            let arrival = taken_ns(number).map(|taken| seen(number, sent + taken, 100));
            passage.behind.extend(arrival);
        }
        passage
    }

    #[test]
    fn the_rate_is_that_of_the_frames_behind_with_framing() {
        let asked = 100_000_000;
        // 1514 and 24 bytes at 100 Mbit/s: one frame each 123.04 µs
        let frames = |gap_ns: u64| Passage {
            before: Vec::new(),
            behind: (0..500).map(|n| seen(n, u64::from(n) * gap_ns, 1514)).collect(),
        };
        let good = rate(&link("100mbit"), asked, &frames(123_040)).expect("500 frames");
        assert!(good.passed && good.error_pct.abs() < 0.001, "{good:?}");
        let fast = rate(&link("100mbit"), asked, &frames(121_000)).expect("500 frames");
        assert!(!fast.passed && (fast.error_pct - 1.686).abs() < 0.01, "{fast:?}");
        let slow = rate(&link("100mbit"), asked, &frames(125_000)).expect("500 frames");
        assert!(!slow.passed, "{slow:?}");
        assert!(rate(&link("100mbit"), asked, &Passage::default()).is_none());
    }

    #[test]
    fn what_a_bucket_lets_through_at_first_does_not_count() {
        let behind = (0..500u64).map(|n| seen(n as u32, n.max(50) * 123_040 + n, 1514)).collect();
        let passage = Passage { before: Vec::new(), behind };
        let found = rate(&link("100mbit"), 100_000_000, &passage).expect("500 frames");
        assert!(found.error_pct.abs() < 0.01, "{found:?}");
    }

    #[test]
    fn serialisation_is_not_delay_and_not_an_error() {
        // 124 bytes at 10 Mbit/s take 99.2 µs
        let passage = spaced(400, |_| Some(25_000_000 + 99_200 + 20_000));
        let true_link = delay(&link("10mbit,delay=25ms"), true, &passage).expect("probes");
        assert!((true_link.median_error_us - 20.0).abs() < 0.01, "{true_link:?}");
        assert!(true_link.passed);
        let bucket = delay(&link("10mbit,delay=25ms"), false, &passage).expect("probes");
        assert!((bucket.median_error_us - 119.2).abs() < 0.01 && !bucket.passed, "{bucket:?}");
    }

    #[test]
    fn a_delay_fails_by_its_median_and_reports_its_tail() {
        let tail = spaced(400, |n| Some(if n % 20 == 0 { 9_000_000 } else { 5_010_000 }));
        let found = delay(&link("unshaped,delay=5ms"), true, &tail).expect("probes");
        assert!(found.passed && (found.p99_error_us - 4000.0).abs() < 0.01, "{found:?}");
        let late = spaced(400, |_| Some(5_101_000));
        assert!(!delay(&link("unshaped,delay=5ms"), true, &late).expect("probes").passed);
        let early = spaced(400, |_| Some(4_899_000));
        assert!(!delay(&link("unshaped,delay=5ms"), true, &early).expect("probes").passed);
        assert!(delay(&link("unshaped,delay=5ms"), true, &spaced(4, |_| None)).is_none());
    }

    #[test]
    fn jitter_widens_what_the_median_may_be_off() {
        let uniform = spaced(400, |n| Some(4_000_000 + u64::from(n) * 5_000 + 150_000));
        let steady = delay(&link("unshaped,delay=5ms"), true, &uniform).expect("probes");
        assert!(!steady.passed, "{steady:?}");
        let jittery =
            delay(&link("unshaped,delay=5ms,jitter=1ms"), true, &uniform).expect("probes");
        assert!(jittery.passed && (jittery.allowed_us - 250.0).abs() < 0.01, "{jittery:?}");
    }

    #[test]
    fn loss_passes_inside_the_binomial_interval_only() {
        let losing = |each: u32| spaced(2000, move |n| (n % each != 0).then_some(1_000_000));
        let asked = link("unshaped,delay=1ms,loss=1%");
        let found = loss(&asked, &[&losing(100)]);
        assert_eq!((found.sent, found.lost, found.interval), (2000, 20, [10, 32]));
        assert!(found.passed);
        assert!(!loss(&asked, &[&losing(50)]).passed, "twice as much");
        assert!(!loss(&asked, &[&losing(3000)]).passed, "one of 2000");
        assert!(!loss(&asked, &[&Passage::default()]).passed, "nothing was sent");
        let none = link("unshaped,delay=1ms");
        assert!(!loss(&none, &[&losing(3000)]).passed, "not one may be lost");
        assert!(loss(&none, &[&spaced(100, |_| Some(1_000_000))]).passed);
    }

    #[test]
    fn a_duplicate_does_not_hide_a_loss_and_damage_is_none() {
        let mut passage = spaced(100, |n| (n != 7).then_some(1_000_000));
        passage.behind.push(passage.behind[3]);
        assert_eq!(loss(&link("unshaped,duplicate=1%"), &[&passage]).lost, 1);
        passage.behind[50].number = None;
        assert_eq!(loss(&link("unshaped,corrupt=1%"), &[&passage]).lost, 1);
    }

    #[test]
    fn bursts_widen_the_interval_by_nearly_twice_their_length() {
        let random = loss_interval(&link("unshaped,loss=2%").loss, 4000);
        let bursts = loss_interval(&link("unshaped,loss=2%,burst=8").loss, 4000);
        let width = |[low, high]: [u64; 2]| (high - low) as f64;
        let widened = (width(bursts) / width(random)).powi(2);
        assert!((13.0..17.0).contains(&widened), "{random:?} {bursts:?} {widened}");
        let good_only = loss_interval(&link("unshaped,ge=0%:0%:100%:1%").loss, 2000);
        assert_eq!(good_only, [10, 32]);
    }

    #[test]
    fn a_failed_test_says_its_figures() {
        let passage = spaced(400, |n| (n % 10 != 0).then_some(5_300_000));
        let asked = link("100mbit,delay=5ms");
        let slow = Passage {
            before: Vec::new(),
            behind: (0..500).map(|n| seen(n, u64::from(n) * 130_000, 1514)).collect(),
        };
        let test = |rate_passage| DirectionTest {
            rate: rate(&asked, 100_000_000, rate_passage),
            delay: delay(&asked, true, &passage).expect("probes"),
            loss: loss(&asked, &[&passage]),
        };
        let both = SelfTest::new(test(&slow), test(&slow), 3);
        let text = both.complaints().join("; ");
        for words in [
            "from server to client 94.6 Mbit/s passed instead of 100 Mbit/s (-5.4 %, allowed ±1 %)",
            "the median delay is +290 µs off 5 ms (allowed ±100 µs",
            "40 of 400 probes were lost, and 0 % asks for 0 to 0",
            "from client to server",
        ] {
            assert!(text.contains(words), "`{words}` is not in {text}");
        }
        assert!(!both.passed);
    }
}
