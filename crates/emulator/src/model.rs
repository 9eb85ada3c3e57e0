//! Models one direction of the link, without I/O and without a clock: a frame's arrival
//! time and length go in, its disposition comes out.
//!
//! A frame passes, in this order: loss (before the queue, as netem has it), the
//! queue, serialisation at the rate or by the trace, delay with jitter. `schedule` may then hold
//! it back to reorder it. Times are nanoseconds of any one clock, on which a trace begins at 60 s.
//! A queue that is managed actively stands between the two halves, [`Model::loses`] and
//! [`Model::deliver`]: see [`crate::managed`].

use std::collections::VecDeque;

use headroom_link_spec::{LinkDirection, Loss, Queue};
use headroom_packet::ethernet::HEADER_LEN;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::line::Line;

/// The disposition of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The loss process removed it.
    Lost,
    /// The queue was full.
    DroppedByQueue,
    /// It arrives.
    Delivered(Delivery),
}

/// How and when a frame arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// When its last bit arrives, nanoseconds. Never before that of an earlier
    /// frame.
    pub at_ns: u64,
    /// Whether it arrives twice. The copy is made after the bottleneck and uses none of
    /// its capacity.
    pub twice: bool,
    /// The bit to flip, in both copies. It lies after the Ethernet header, so that the
    /// frame still reaches its destination.
    pub flipped_bit: Option<u32>,
    /// Whether `schedule` holds it back.
    pub held_back: bool,
}

/// The state of one direction.
#[derive(Debug)]
pub struct Model {
    loss: LossProcess,
    bottleneck: Option<Bottleneck>,
    delay_ns: u64,
    jitter_ns: u64,
    duplicate: Chance,
    reorder: Chance,
    corrupt: Chance,
    jitter: ChaCha8Rng,
    last_arrival_ns: u64,
    last_due_ns: u64,
}

impl Model {
    /// Makes the model of a direction. The same `seed`, `index` and arrivals give the same
    /// dispositions. Each random process has a stream of its own, so the lost frames are
    /// the same whatever the queue does.
    pub fn new(direction: &LinkDirection, seed: u64, index: u8) -> Self {
        let stream = |purpose: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(u64::from(index) << 8 | purpose);
            random
        };
        let chance = |pct: f64, purpose| Chance { share: pct / 100.0, random: stream(purpose) };
        Self {
            loss: LossProcess { loss: direction.loss, bad: false, random: stream(0) },
            bottleneck: Line::of(direction)
                .filter(|_| direction.aqm.is_none())
                .map(|line| Bottleneck::new(line, direction.queue())),
            delay_ns: nanos(direction.delay),
            jitter_ns: nanos(direction.jitter),
            duplicate: chance(direction.duplicate_pct, 1),
            reorder: chance(direction.reorder_pct, 2),
            corrupt: chance(direction.corrupt_pct, 3),
            jitter: stream(4),
            last_arrival_ns: 0,
            last_due_ns: 0,
        }
    }

    /// Offers a frame of `len` bytes (Ethernet header counted, checksum not)
    /// that arrived at `arrival_ns`. A clock that goes backwards counts as standing still.
    pub fn offer(&mut self, arrival_ns: u64, len: usize) -> Disposition {
        self.last_arrival_ns = self.last_arrival_ns.max(arrival_ns);
        let arrival_ns = self.last_arrival_ns;
        if self.loses() {
            return Disposition::Lost;
        }
        let sent_ns = match &mut self.bottleneck {
            None => arrival_ns,
            Some(bottleneck) => match bottleneck.serialise(arrival_ns, len as u64) {
                Some(sent_ns) => sent_ns,
                None => return Disposition::DroppedByQueue,
            },
        };
        Disposition::Delivered(self.deliver(sent_ns, len))
    }

    /// Whether the loss process removes the next frame.
    pub fn loses(&mut self) -> bool {
        self.loss.next()
    }

    /// How a frame arrives whose last bit left the bottleneck at `sent_ns`.
    pub fn deliver(&mut self, sent_ns: u64, len: usize) -> Delivery {
        let delay_ns = match self.jitter_ns {
            0 => self.delay_ns,
            // link-spec guarantees jitter <= delay
            j => (self.delay_ns + self.jitter.random_range(0..=2 * j)).saturating_sub(j),
        };
        self.last_due_ns = self.last_due_ns.max(sent_ns.saturating_add(delay_ns));
        Delivery {
            at_ns: self.last_due_ns,
            twice: self.duplicate.next(),
            flipped_bit: self.corrupt.next().then(|| self.corrupt.bit(len)),
            held_back: self.reorder.next(),
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// A random process that affects a share of the frames.
#[derive(Debug)]
struct Chance {
    share: f64,
    random: ChaCha8Rng,
}

impl Chance {
    fn next(&mut self) -> bool {
        self.share > 0.0 && self.random.random::<f64>() < self.share
    }

    fn bit(&mut self, len: usize) -> u32 {
        let bits = u32::try_from(len).unwrap_or(u32::MAX / 8).max(1) * 8;
        let header = HEADER_LEN as u32 * 8;
        self.random.random_range(if bits > header { header..bits } else { 0..bits })
    }
}

#[derive(Debug)]
struct LossProcess {
    loss: Loss,
    bad: bool,
    random: ChaCha8Rng,
}

impl LossProcess {
    /// Whether the next frame is lost.
    fn next(&mut self) -> bool {
        let mut happens = |pct: f64| self.random.random::<f64>() * 100.0 < pct;
        match self.loss {
            Loss::None => false,
            Loss::Random { pct } => happens(pct),
            Loss::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
                let lost = happens(if self.bad { loss_in_bad_pct } else { loss_in_good_pct });
                self.bad ^= happens(if self.bad { to_good_pct } else { to_bad_pct });
                lost
            }
        }
    }
}

/// The bottleneck with a queue that drops frames that arrive when it is full.
#[derive(Debug)]
struct Bottleneck {
    line: Line,
    queue: Queue,
    /// Start of transmission and length of each waiting frame.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
}

impl Bottleneck {
    fn new(line: Line, queue: Queue) -> Self {
        Self { line, queue, waiting: VecDeque::new(), waiting_bytes: 0 }
    }

    /// Returns when the frame's last bit leaves; none: the queue is full. The frame in
    /// transmission does not occupy the queue.
    fn serialise(&mut self, arrival_ns: u64, len: u64) -> Option<u64> {
        while let Some(&(_, octets)) = self.waiting.front().filter(|(at, _)| *at <= arrival_ns) {
            self.waiting.pop_front();
            self.waiting_bytes -= octets;
        }
        let begun_ns = self.line.begin_ns(arrival_ns);
        if begun_ns > arrival_ns {
            let fits = match self.queue {
                Queue::Packets(packets) => self.waiting.len() < packets as usize,
                Queue::Bytes(bytes) => self.waiting_bytes + len <= bytes,
            };
            if !fits {
                return None;
            }
            self.waiting.push_back((begun_ns, len));
            self.waiting_bytes += len;
        }
        Some(self.line.send(begun_ns, len))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use headroom_link_spec::Trace;

    use super::*;
    use crate::line::CLOCK_START_NS;
    use proptest::prelude::*;

    fn delivery(disposition: Disposition) -> Delivery {
        match disposition {
            Disposition::Delivered(delivery) => delivery,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_frame_takes_serialisation_time_and_delay() {
        let direction = LinkDirection {
            rate_bps: Some(100_000_000),
            delay: Duration::from_millis(25),
            ..LinkDirection::default()
        };
        let mut model = Model::new(&direction, 1, 0);
        assert_eq!(delivery(model.offer(5_000, 1514)).at_ns, 5_000 + 123_040 + 25_000_000);
        // the second waits for the first; a short frame counts as 84 bytes
        assert_eq!(delivery(model.offer(5_000, 42)).at_ns, 5_000 + 123_040 + 6_720 + 25_000_000);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut model = Model::new(&LinkDirection::default(), 1, 0);
        assert_eq!(delivery(model.offer(7, 65_549)).at_ns, 7);
        assert_eq!(delivery(model.offer(7, 65_549)).at_ns, 7);
    }

    #[test]
    fn a_queue_of_bytes_counts_bytes() {
        let direction = LinkDirection {
            rate_bps: Some(1_000_000),
            queue: Some(Queue::Bytes(3000)),
            ..LinkDirection::default()
        };
        let mut model = Model::new(&direction, 1, 0);
        let delivered: Vec<bool> =
            (0..5).map(|_| matches!(model.offer(0, 1000), Disposition::Delivered(_))).collect();
        assert_eq!(delivered, [true, true, true, true, false]); // one on the line, three wait
    }

    /// A direction that follows a trace.
    fn traced(text: &str) -> LinkDirection {
        let trace = Trace::parse(Path::new("/"), "a.trace", text.as_bytes()).expect("a trace");
        LinkDirection { trace: Some(trace), ..LinkDirection::default() }
    }

    /// Milliseconds of the trace's clock.
    fn ms(ms: u64) -> u64 {
        CLOCK_START_NS + ms * 1_000_000
    }

    #[test]
    fn a_frame_waits_for_an_opportunity_of_the_trace_and_its_delay() {
        let direction = LinkDirection { delay: Duration::from_millis(20), ..traced("4\n10\n") };
        let mut model = Model::new(&direction, 1, 0);
        assert_eq!(delivery(model.offer(ms(1), 1514)).at_ns, ms(4 + 20));
        assert_eq!(delivery(model.offer(ms(1), 1514)).at_ns, ms(10 + 20));
        assert_eq!(delivery(model.offer(ms(1), 60)).at_ns, ms(14 + 20));
        // an idle second saves nothing up
        let sent: Vec<u64> = (0..4).map(|_| delivery(model.offer(ms(1001), 1514)).at_ns).collect();
        assert_eq!(sent, [ms(1024), ms(1030), ms(1034), ms(1040)]);
    }

    #[test]
    fn the_queue_before_a_trace_has_its_limit() {
        let direction = LinkDirection { queue: Some(Queue::Packets(2)), ..traced("10\n") };
        let mut model = Model::new(&direction, 1, 0);
        let mut taken = |at_ms| model.offer(ms(at_ms), 1514) != Disposition::DroppedByQueue;
        let taken: Vec<bool> = [1, 1, 1, 11, 11].into_iter().map(&mut taken).collect();
        assert_eq!(taken, [true, true, false, true, false], "one has left at 10 ms");
    }

    #[test]
    fn a_busy_trace_delivers_its_mean_rate() {
        let direction =
            LinkDirection { queue: Some(Queue::Packets(10_000)), ..traced("3\n7\n7\n12\n") };
        let mut model = Model::new(&direction, 1, 0);
        let sent: Vec<u64> = (0..4000).map(|_| delivery(model.offer(ms(0), 1514)).at_ns).collect();
        // four opportunities in twelve milliseconds
        assert_eq!(sent[3999], ms(12 * 1000));
        let bits = 4000 * 1500 * 8;
        assert_eq!(direction.mean_bps(), Some(bits / 12));
    }

    #[test]
    fn bursts_of_loss_have_the_mean_loss_and_length() {
        let loss = Loss::in_bursts(5.0, 8.0).expect("possible");
        let mut model = Model::new(&LinkDirection { loss, ..LinkDirection::default() }, 42, 0);
        let lost: Vec<bool> =
            (0..400_000).map(|t| model.offer(t, 100) == Disposition::Lost).collect();
        let share = lost.iter().filter(|&&lost| lost).count() as f64 / lost.len() as f64;
        assert!((0.047..0.053).contains(&share), "{share}"); // ± 3 %: losses come in 2500 bursts
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let mean = share * lost.len() as f64 / bursts as f64;
        assert!((7.5..8.5).contains(&mean), "{mean}");
    }

    #[test]
    fn both_states_lose_their_share() {
        let loss = Loss::GilbertElliott {
            to_bad_pct: 1.0,
            to_good_pct: 10.0,
            loss_in_bad_pct: 50.0,
            loss_in_good_pct: 0.5,
        };
        let mut model = Model::new(&LinkDirection { loss, ..LinkDirection::default() }, 7, 1);
        let lost: Vec<bool> =
            (0..400_000).map(|t| model.offer(t, 100) == Disposition::Lost).collect();
        let share = 100.0 * lost.iter().filter(|&&lost| lost).count() as f64 / 400_000.0;
        assert!((share - loss.average_pct()).abs() < 0.2, "{share} {}", loss.average_pct());
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let mean = share * 4000.0 / bursts as f64;
        let expected = loss.mean_burst().expect("some");
        assert!((mean - expected).abs() < 0.05, "{mean} {expected}");
    }

    #[test]
    fn loss_is_within_its_binomial_bounds() {
        for (pct, seed) in [(0.1, 1), (1.0, 2), (10.0, 3), (60.0, 4)] {
            let direction =
                LinkDirection { loss: Loss::Random { pct }, ..LinkDirection::default() };
            let mut model = Model::new(&direction, seed, 0);
            let n = 200_000.0;
            let lost =
                (0..n as u64).filter(|&t| model.offer(t, 100) == Disposition::Lost).count() as f64;
            let share = pct / 100.0;
            let bound = 2.576 * (n * share * (1.0 - share)).sqrt(); // 99 %
            assert!((lost - n * share).abs() < bound, "{pct} %: {lost} of {n}");
        }
    }

    #[test]
    fn the_frames_lost_do_not_depend_on_the_queue() {
        let lossy = LinkDirection { loss: Loss::Random { pct: 5.0 }, ..LinkDirection::default() };
        let slow = LinkDirection {
            rate_bps: Some(1_000_000),
            queue: Some(Queue::Packets(1)),
            ..lossy.clone()
        };
        let (mut fast, mut slow) = (Model::new(&lossy, 9, 0), Model::new(&slow, 9, 0));
        for t in 0..10_000u64 {
            let [fast, slow] = [&mut fast, &mut slow].map(|m| m.offer(t, 900) == Disposition::Lost);
            assert_eq!(fast, slow);
        }
    }

    #[test]
    fn the_directions_lose_different_frames() {
        let direction =
            LinkDirection { loss: Loss::Random { pct: 50.0 }, ..LinkDirection::default() };
        let [a, b] = [0, 1].map(|index| {
            let mut model = Model::new(&direction, 9, index);
            (0..64).map(|t| model.offer(t, 900) == Disposition::Lost).collect::<Vec<_>>()
        });
        assert_ne!(a, b);
    }

    prop_compose! {
        fn arrivals()(gaps in proptest::collection::vec((0u64..50_000, 0usize..9_000), 1..300)) -> Vec<(u64, usize)> {
            let mut now = 1_000_000_000;
            gaps.into_iter().map(|(gap, len)| { now += gap; (now, len) }).collect()
        }
    }

    prop_compose! {
        fn direction()(
            rate_bps in 1_000u64..20_000_000_000,
            (delay_us, jitter) in (0u64..50_000, 0.0f64..=1.0),
            loss_pct in 0.0f64..50.0,
            chances in (0.0f64..20.0, 0.0f64..20.0, 0.0f64..20.0),
            packets in 1u32..50,
        ) -> LinkDirection {
            let delay = Duration::from_micros(delay_us);
            LinkDirection {
                rate_bps: Some(rate_bps),
                delay,
                jitter: delay.mul_f64(jitter).min(delay),
                loss: Loss::Random { pct: loss_pct },
                duplicate_pct: chances.0,
                reorder_pct: chances.1,
                corrupt_pct: chances.2,
                queue: Some(Queue::Packets(packets)),
                ..LinkDirection::default()
            }
        }
    }

    proptest! {
        #[test]
        fn is_deterministic(direction in direction(), arrivals in arrivals(), seed: u64) {
            let (mut one, mut two) = (Model::new(&direction, seed, 0), Model::new(&direction, seed, 0));
            for &(at, len) in &arrivals {
                prop_assert_eq!(one.offer(at, len), two.offer(at, len));
            }
        }

        #[test]
        fn the_rate_is_exact(rate_bps in 1_000u64..=1_000_000_000_000, lens in proptest::collection::vec(0usize..65_600, 1..300)) {
            let direction = LinkDirection { rate_bps: Some(rate_bps), queue: Some(Queue::Packets(1000)), ..LinkDirection::default() };
            let mut model = Model::new(&direction, 0, 0);
            let mut bits = 0u128;
            for &len in &lens {
                bits += (len as u128 + 24).max(84) * 8;
                let at = delivery(model.offer(0, len)).at_ns;
                prop_assert_eq!(u128::from(at), bits * 1_000_000_000 / u128::from(rate_bps));
            }
        }

        #[test]
        fn keeps_order_and_delivers_nothing_early(direction in direction(), arrivals in arrivals(), seed: u64) {
            let mut model = Model::new(&direction, seed, 0);
            let least = nanos(direction.delay) - nanos(direction.jitter);
            let mut last = 0;
            for &(at, len) in &arrivals {
                if let Disposition::Delivered(delivery) = model.offer(at, len) {
                    prop_assert!(delivery.at_ns >= last && delivery.at_ns >= at + least);
                    last = delivery.at_ns;
                    if let Some(bit) = delivery.flipped_bit {
                        prop_assert!(bit < (len.max(1) * 8) as u32 && (bit >= 112 || len <= 14));
                    }
                }
            }
        }

        #[test]
        fn the_queue_never_exceeds_its_limit(arrivals in arrivals(), rate_bps in 1_000u64..1_000_000_000, bytes in 1u64..100_000, packets in 1u32..20) {
            for queue in [Queue::Packets(packets), Queue::Bytes(bytes)] {
                let direction = LinkDirection { rate_bps: Some(rate_bps), queue: Some(queue), ..LinkDirection::default() };
                let mut model = Model::new(&direction, 0, 0);
                let mut sent: Vec<(u64, u64)> = Vec::new(); // when begun, bytes
                let mut free = 0;
                for &(at, len) in &arrivals {
                    let disposition = model.offer(at, len);
                    let waiting = sent.iter().filter(|(begun, _)| *begun > at);
                    let (count, octets) = waiting.fold((0, 0), |(n, o), w| (n + 1, o + w.1));
                    let fits = free <= at || match queue {
                        Queue::Packets(packets) => count < packets,
                        Queue::Bytes(bytes) => octets + len as u64 <= bytes,
                    };
                    match disposition {
                        Disposition::Delivered(delivery) => {
                            prop_assert!(fits);
                            sent.push((free.max(at), len as u64));
                            free = delivery.at_ns;
                        }
                        Disposition::DroppedByQueue => prop_assert!(!fits),
                        Disposition::Lost => prop_assert!(false, "nothing is lost here"),
                    }
                }
            }
        }

        #[test]
        fn a_clock_that_goes_backwards_does_not_change_the_rate(arrivals in arrivals()) {
            let direction = LinkDirection { rate_bps: Some(10_000_000), queue: Some(Queue::Packets(1000)), ..LinkDirection::default() };
            let mut model = Model::new(&direction, 0, 0);
            let mut last = 0;
            for &(at, len) in arrivals.iter().rev() {
                let now = delivery(model.offer(at, len)).at_ns;
                prop_assert!(now >= last + (len as u64 + 24).max(84) * 800 - 1);
                last = now;
            }
        }
    }
}
