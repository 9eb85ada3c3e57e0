//! Trains of probes through the link, seen by captures on both interfaces of the
//! router: before the bottleneck and behind it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_link_spec::{LinkDirection, LinkSpec, Loss};
use headroom_netio::Capture;
use headroom_netio::capture::HEAD;

use super::verdict::{FRAMING, Passage, Sighting};
use super::{Testbed, netns};
use crate::agent::probe::{Keep, MAGIC, MIN_PAYLOAD, Train};
use crate::error::{Doing, Error, Result};
use crate::namespace;

const PORT: u16 = 9999;
const ETHERNET: usize = 14;
const UDP: usize = 8;

/// Which way probes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Down,
    Up,
}

/// Probes to send, wherever they go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    probes: u32,
    payload: usize,
    interval: Duration,
    keep: Keep,
    /// Whether the bottleneck drops what is too much.
    overruns: bool,
}

impl Direction {
    pub(super) fn of(self, spec: &LinkSpec) -> &LinkDirection {
        match self {
            Self::Down => &spec.down,
            Self::Up => &spec.up,
        }
    }
}

/// Bytes of headers of a probe's frame.
fn headers(is_ipv4: bool) -> usize {
    ETHERNET + if is_ipv4 { 20 } else { 40 } + UDP
}

impl Shape {
    /// Full frames, somewhat faster than the rate, so that the bottleneck is
    /// never idle; smaller ones where full ones would take long.
    pub(super) fn for_rate(rate_bps: u64, way: &LinkDirection, mtu: usize, is_ipv4: bool) -> Self {
        const EXCESS: f64 = 1.15;
        const SECONDS: f64 = 0.25;
        const LONGEST_S: f64 = 5.0;
        const FRAMES: f64 = 200.0;
        const MAX_FRAMES: f64 = 60_000.0;
        let rate = rate_bps as f64;
        let framing = (headers(is_ipv4) + FRAMING as usize) as f64;
        // 200 of them in two seconds, and no smaller than 100 bytes
        let payload = (rate * 2.0 / 8.0 / FRAMES - framing).max(100.0);
        let payload = (payload as usize).min(Self::full_payload(mtu, is_ipv4));
        let arriving = 1.0 - (way.loss.average_pct() / 100.0).min(0.9);
        let interval = (payload as f64 + framing) * 8.0 / (rate * EXCESS / arriving);
        let probes = (SECONDS / interval).max(FRAMES).min(LONGEST_S / interval).min(MAX_FRAMES);
        Self {
            probes: probes.max(20.0) as u32,
            payload,
            interval: Duration::from_secs_f64(interval),
            keep: Keep::Rate,
            overruns: true,
        }
    }

    /// Full frames as fast as the sender can.
    pub(super) fn for_ceiling(mtu: usize, is_ipv4: bool) -> Self {
        Self {
            probes: 60_000,
            payload: Self::full_payload(mtu, is_ipv4),
            interval: Duration::ZERO,
            keep: Keep::Rate,
            overruns: true,
        }
    }

    /// Small probes so far apart that none waits for another.
    pub(super) fn for_delay(way: &LinkDirection, is_ipv4: bool) -> Self {
        let apart = Duration::from_millis(1).max(2 * way.jitter);
        Self::spaced(way, is_ipv4, apart, 400, Duration::from_secs(2))
    }

    /// Many small probes; none where no loss is asked for, since those for the
    /// delay tell whether there is some.
    pub(super) fn for_loss(way: &LinkDirection, is_ipv4: bool) -> Option<Self> {
        let apart = Duration::from_micros(100);
        (way.loss != Loss::None)
            .then(|| Self::spaced(way, is_ipv4, apart, 4000, Duration::from_secs(3)))
    }

    fn spaced(
        way: &LinkDirection,
        is_ipv4: bool,
        apart: Duration,
        most: u32,
        longest: Duration,
    ) -> Self {
        const MIN: f64 = 20.0;
        let payload = 64;
        let bits = (payload + headers(is_ipv4) + FRAMING as usize) as f64 * 8.0;
        let serialisation = way.rate_bps.map_or(0.0, |bps| bits / bps as f64);
        let interval = apart.max(Duration::from_secs_f64(4.0 * serialisation));
        let fitting = longest.as_secs_f64() / interval.as_secs_f64();
        let probes = fitting.clamp(MIN, f64::from(most)) as u32;
        Self { probes, payload, interval, keep: Keep::Interval, overruns: false }
    }

    fn full_payload(mtu: usize, is_ipv4: bool) -> usize {
        mtu - (headers(is_ipv4) - ETHERNET)
    }
}

/// Sends probes one way and waits until the last has come out.
pub(super) fn pass(
    testbed: &mut Testbed,
    direction: Direction,
    way: &LinkDirection,
    shape: Shape,
) -> Result<Passage> {
    let (before, behind) = match direction {
        Direction::Down => (netns::ROUTER_TO_SERVER, netns::ROUTER_TO_CLIENT),
        Direction::Up => (netns::ROUTER_TO_CLIENT, netns::ROUTER_TO_SERVER),
    };
    let is_ipv4 = testbed.client.address.is_ipv4();
    let wire_len = headers(is_ipv4) + shape.payload.max(MIN_PAYLOAD);
    // duplicates, and a margin
    let slots = shape.probes as usize * if way.duplicate_pct > 0.0 { 2 } else { 1 } + 1024;
    let mut before = Eye::open(&testbed.names()?.router, before, wire_len, slots)?;
    let mut behind = Eye::open(&testbed.names()?.router, behind, wire_len, slots)?;

    let to = match direction {
        Direction::Down => testbed.client.address,
        Direction::Up => testbed.server.address,
    };
    let train = Train {
        to: SocketAddr::new(to, PORT),
        probes: shape.probes,
        payload: shape.payload,
        interval_ns: shape.interval.as_nanos() as u64,
        keep: shape.keep,
    };
    match direction {
        Direction::Down => {
            testbed.client_agent()?.swallow(train.to)?;
            testbed.server_agent()?.probe(train)?;
        }
        Direction::Up => {
            testbed.server_agent()?.swallow(train.to)?;
            testbed.client_agent()?.probe(train)?;
        }
    }
    let frame =
        way.rate_bps.map_or(0.0, |bps| (wire_len + FRAMING as usize) as f64 * 8.0 / bps as f64);
    // held back by 10 ms at most where frames are reordered
    let quiet = way.delay + way.jitter + Duration::from_secs_f64(3.0 * frame + 0.03);
    let mut last = Instant::now();
    loop {
        before.look()?;
        if behind.look()? > 0 {
            last = Instant::now();
        }
        let all = !shape.overruns
            && way.duplicate_pct == 0.0
            && behind.seen.len() >= shape.probes as usize;
        if all || last.elapsed() > quiet {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Passage { before: before.seen, behind: behind.seen })
}

/// A capture that sees probes only.
struct Eye {
    interface: &'static str,
    capture: Capture,
    wire_len: usize,
    seen: Vec<Sighting>,
}

impl Eye {
    fn open(router: &str, interface: &'static str, wire_len: usize, slots: usize) -> Result<Self> {
        let capture = namespace::inside(router, move || {
            Capture::open(interface, slots, HEAD)
                .doing(|| format!("capture on {interface} of the router"))
        })?;
        Ok(Self { interface, capture, wire_len, seen: Vec::new() })
    }

    /// Takes what has come since; how many frames there were.
    fn look(&mut self) -> Result<usize> {
        let (seen, wire_len) = (&mut self.seen, self.wire_len);
        let frames = self.capture.drain(|frame| {
            if frame.wire_len as usize == wire_len {
                seen.push(Sighting {
                    number: number(frame.bytes),
                    time_ns: frame.time.as_nanos() as u64,
                    wire_len: frame.wire_len,
                });
            }
        });
        match self.capture.dropped().doing(|| "read the capture's counters".into())? {
            0 => Ok(frames),
            lost => Err(Error::Failed(format!(
                "the capture on {} lost {lost} probes of the link's self-test; is the machine overloaded?",
                self.interface
            ))),
        }
    }
}

/// A probe's number, from its frame; none where it is damaged, or no probe.
fn number(frame: &[u8]) -> Option<u32> {
    [true, false].into_iter().find_map(|is_ipv4| {
        let payload = frame.get(headers(is_ipv4)..)?;
        let number = payload.strip_prefix(&MAGIC)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(text: &str) -> LinkDirection {
        text.parse::<LinkSpec>().expect(text).down
    }

    #[test]
    fn a_rate_is_overrun_for_a_quarter_of_a_second() {
        let fast = Shape::for_rate(1_000_000_000, &way("1gbit"), 1500, false);
        assert_eq!(fast.payload, 1452);
        let offered = 1538.0 * 8.0 / fast.interval.as_secs_f64();
        assert!((1.149e9..1.151e9).contains(&offered), "{offered}");
        assert!((23_000..24_000).contains(&fast.probes), "{fast:?}");
        // a lossy link must be offered more
        let lossy = Shape::for_rate(1_000_000_000, &way("1gbit,loss=50%"), 1500, false);
        assert!(
            (lossy.interval.as_secs_f64() * 2.0 / fast.interval.as_secs_f64() - 1.0).abs() < 0.01
        );
        // a slow one is tested by small frames, and not for long
        let slow = Shape::for_rate(9600, &way("9600bit"), 1500, true);
        assert!(slow.payload == 100 && slow.probes >= 20, "{slow:?}");
        assert!(slow.interval * slow.probes < Duration::from_secs(6), "{slow:?}");
    }

    #[test]
    fn spaced_probes_do_not_wait_for_each_other() {
        let quick = Shape::for_delay(&way("100mbit,delay=25ms"), false);
        assert_eq!((quick.probes, quick.interval), (400, Duration::from_millis(1)));
        let jittery = Shape::for_delay(&way("100mbit,delay=25ms,jitter=5ms"), false);
        assert_eq!((jittery.probes, jittery.interval), (200, Duration::from_millis(10)));
        let lossy = Shape::for_loss(&way("10mbit,loss=1%"), false).expect("loss");
        assert_eq!(lossy.probes, 4000);
        assert!(lossy.interval > Duration::from_micros(400), "four times 120 µs: {lossy:?}");
        assert_eq!(Shape::for_loss(&way("10mbit"), false), None);
    }

    #[test]
    fn a_probe_is_found_by_its_number_behind_either_header() {
        for is_ipv4 in [true, false] {
            let mut frame = vec![0; headers(is_ipv4)];
            frame.extend(MAGIC);
            frame.extend(77u32.to_be_bytes());
            assert_eq!(number(&frame), Some(77));
            frame[headers(is_ipv4)] ^= 1;
            assert_eq!(number(&frame), None, "damaged");
            assert_eq!(number(&frame[..20]), None, "cut");
        }
    }
}
