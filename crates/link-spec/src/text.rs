//! Reads and writes links as plans spell them: `unshaped`, `100mbit`,
//! `100mbit,delay=25ms,jitter=1ms,loss=1%,queue=200`, `trace=lte-down.trace,delay=20ms`. Keys
//! with the prefix `up-`, such as `up-rate=10mbit` or `up-trace=lte-up.trace`, override the
//! direction from client to server.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use headroom_units as units;

use crate::direction::{Aqm, LinkDirection, Queue};
use crate::link::LinkSpec;
use crate::loss::Loss;
use crate::router::{Dscp, Flow};
use crate::trace::Trace;

/// Stands for an unlimited rate.
const UNSHAPED: &str = "unshaped";
/// Stands for a queue that the rate decides.
const AUTO: &str = "auto";
/// Stands for a queue that nothing manages.
const NONE: &str = "none";
const KEYS: &str = "delay (one way), jitter, loss, burst, ge, duplicate, reorder, corrupt, queue, aqm, priority and dscp, \
                    each also as up-… for the direction from client to server, and up-rate or up-trace";

/// Reads the trace that a link names.
type ReadTrace<'a> = &'a dyn Fn(&str) -> Result<Trace, String>;

impl FromStr for LinkSpec {
    type Err = String;

    /// Reads a link that names no files.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &|_| {
            Err("a trace is a file, which only the link of a command line, or of a plan that is a file of its own, \
                 can name"
                .to_owned())
        })
    }
}

impl LinkSpec {
    /// Reads a link whose traces are files of `folder`, or have absolute paths.
    ///
    /// # Errors
    /// A sentence: what is wrong with the text, or with which line of a trace.
    pub fn read(text: &str, folder: &Path) -> Result<Self, String> {
        parse(text, &|name| Trace::read(folder, name))
    }
}

fn parse(text: &str, read: ReadTrace<'_>) -> Result<LinkSpec, String> {
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let limit = match first.split_once('=') {
        Some((key, name)) if key.trim() == "trace" => Limit::Trace(read(name.trim())?),
        _ => parse_rate(first)?,
    };
    let mut both = Keys { limit: Some(limit), ..Keys::default() };
    let mut up = Keys::default();
    for part in parts {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("`{part}` is not key=value"))?;
        let key = key.trim();
        let (keys, name) = match key.strip_prefix("up-") {
            Some(name) => (&mut up, name),
            None if matches!(key, "rate" | "trace") => {
                return Err("the rate or the trace of a link comes first".into());
            }
            None => (&mut both, key),
        };
        if !keys.set(name, value.trim(), read)? {
            return Err(format!("a link has no `{key}`; it has {KEYS}"));
        }
    }
    Ok(LinkSpec { up: up.or(&both).direction()?, down: both.direction()? })
}

/// What frames wait for at the bottleneck.
#[derive(Debug, Clone)]
enum Limit {
    Nothing,
    Rate(u64),
    Trace(Trace),
}

/// The keys of one direction as written.
#[derive(Debug, Default)]
struct Keys {
    limit: Option<Limit>,
    delay: Option<Duration>,
    jitter: Option<Duration>,
    loss: Option<f64>,
    burst: Option<f64>,
    ge: Option<Loss>,
    duplicate: Option<f64>,
    reorder: Option<f64>,
    corrupt: Option<f64>,
    queue: Option<Option<Queue>>,
    aqm: Option<Option<Aqm>>,
    priority: Option<Flow>,
    dscp: Option<Dscp>,
}

impl Keys {
    /// Reads one key; returns false if there is no such key.
    fn set(&mut self, key: &str, value: &str, read: ReadTrace<'_>) -> Result<bool, String> {
        match key {
            "rate" => self.set_limit(parse_rate(value)?)?,
            "trace" => self.set_limit(Limit::Trace(read(value)?))?,
            "delay" => once(&mut self.delay, key, units::parse_duration(value)?)?,
            "jitter" => once(&mut self.jitter, key, units::parse_duration(value)?)?,
            "loss" => once(&mut self.loss, key, units::parse_percent(value)?)?,
            "burst" => once(&mut self.burst, key, parse_burst(value)?)?,
            "ge" => once(&mut self.ge, key, parse_gilbert_elliott(value)?)?,
            "duplicate" => once(&mut self.duplicate, key, units::parse_percent(value)?)?,
            "reorder" => once(&mut self.reorder, key, units::parse_percent(value)?)?,
            "corrupt" => once(&mut self.corrupt, key, units::parse_percent(value)?)?,
            "queue" => once(&mut self.queue, key, parse_queue(value)?)?,
            "aqm" => once(&mut self.aqm, key, parse_aqm(value)?)?,
            "priority" => once(&mut self.priority, key, value.parse()?)?,
            "dscp" => once(&mut self.dscp, key, value.parse()?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_limit(&mut self, limit: Limit) -> Result<(), String> {
        match self.limit.replace(limit) {
            None => Ok(()),
            Some(_) => Err("a direction has one rate or one trace, and this one has two".into()),
        }
    }

    /// Takes missing keys from `other`. The loss keys belong together: `up-loss` or
    /// `up-ge` replaces all of them.
    fn or(&self, other: &Self) -> Self {
        let own_loss = self.loss.is_some() || self.ge.is_some();
        let inherit = |value: Option<f64>| value.filter(|_| !own_loss);
        Self {
            limit: self.limit.clone().or_else(|| other.limit.clone()),
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            loss: self.loss.or(inherit(other.loss)),
            burst: self.burst.or(inherit(other.burst)),
            ge: self.ge.or(other.ge.filter(|_| !own_loss)),
            duplicate: self.duplicate.or(other.duplicate),
            reorder: self.reorder.or(other.reorder),
            corrupt: self.corrupt.or(other.corrupt),
            queue: self.queue.or(other.queue),
            aqm: self.aqm.or(other.aqm),
            priority: self.priority.or(other.priority),
            dscp: self.dscp.or(other.dscp),
        }
    }

    fn direction(&self) -> Result<LinkDirection, String> {
        let loss = match (self.ge, self.loss, self.burst) {
            (Some(loss), None, None) => loss,
            (Some(_), _, _) => {
                return Err("`ge` replaces `loss` and `burst`; remove them".into());
            }
            (None, Some(pct), Some(frames)) => Loss::in_bursts(pct, frames)?,
            (None, None, Some(_)) => return Err("a `burst` needs a `loss`".into()),
            (None, Some(pct), None) if pct > 0.0 => Loss::Random { pct },
            (None, _, None) => Loss::None,
        };
        let (rate_bps, trace) = match &self.limit {
            None | Some(Limit::Nothing) => (None, None),
            Some(Limit::Rate(bps)) => (Some(*bps), None),
            Some(Limit::Trace(trace)) => (None, Some(trace.clone())),
        };
        let direction = LinkDirection {
            rate_bps,
            trace,
            delay: self.delay.unwrap_or_default(),
            jitter: self.jitter.unwrap_or_default(),
            loss,
            duplicate_pct: self.duplicate.unwrap_or_default(),
            reorder_pct: self.reorder.unwrap_or_default(),
            corrupt_pct: self.corrupt.unwrap_or_default(),
            queue: self.queue.flatten(),
            aqm: self.aqm.flatten(),
            priority: self.priority,
            dscp: self.dscp,
        };
        if direction.jitter > direction.delay {
            return Err(
                "the jitter exceeds the delay, so packets would arrive before they were sent"
                    .into(),
            );
        }
        let wants_queue =
            [("priority", direction.priority.is_some()), ("aqm", direction.aqm.is_some())];
        if let Some((key, _)) = wants_queue.iter().find(|(_, wants)| *wants)
            && !direction.has_queue()
        {
            return Err(format!("`{key}` needs a rate: without one the link has no queue"));
        }
        if direction.trace.is_some() && (direction.priority.is_some() || direction.dscp.is_some()) {
            return Err(
                "`priority` and `dscp` need the kernel's shaper, and a trace needs the emulator: leave out one of them"
                    .into(),
            );
        }
        Ok(direction)
    }
}

fn once<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("`{key}` is written twice")),
    }
}

fn parse_rate(text: &str) -> Result<Limit, String> {
    match text {
        UNSHAPED => Ok(Limit::Nothing),
        "" => Err("the link is empty; it starts with a rate such as 100mbit, or `unshaped`".into()),
        rate => units::parse_rate(rate).map(Limit::Rate),
    }
}

fn parse_burst(text: &str) -> Result<f64, String> {
    let frames = text.parse().ok().filter(|frames: &f64| (1.0..=1e6).contains(frames));
    frames.ok_or_else(|| format!("`{text}` is not a mean number of frames from 1 to a million"))
}

fn parse_gilbert_elliott(text: &str) -> Result<Loss, String> {
    let parts = text.split(':').map(units::parse_percent).collect::<Result<Vec<f64>, _>>()?;
    let &[to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct] = parts.as_slice() else {
        return Err(format!(
            "`{text}` is not good→bad:bad→good:loss in bad:loss in good, such as 0.1%:10%:50%:0%"
        ));
    };
    Ok(Loss::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct })
}

/// `200` packets, `64KiB`, `auto`.
fn parse_queue(text: &str) -> Result<Option<Queue>, String> {
    if text == AUTO {
        return Ok(None);
    }
    let queue = match text.parse() {
        Ok(packets) => Some(Queue::Packets(packets)),
        Err(_) if text.ends_with(|c: char| c.is_ascii_alphabetic()) => {
            units::parse_size(text).ok().map(Queue::Bytes)
        }
        Err(_) => None,
    };
    match queue {
        None | Some(Queue::Packets(0) | Queue::Bytes(0)) => Err(format!(
            "`{text}` is not a queue: a number of packets above 0 such as 200, or a size such as 64KiB"
        )),
        some => Ok(some),
    }
}

fn parse_aqm(text: &str) -> Result<Option<Aqm>, String> {
    if text == NONE {
        return Ok(None);
    }
    let found = Aqm::ALL.into_iter().find(|aqm| aqm.name() == text);
    found
        .map(Some)
        .ok_or_else(|| format!("`{text}` is no management of a queue: codel, fq-codel or none"))
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = pairs(&LinkDirection::default(), "");
        let (down, up) = (pairs(&self.down, ""), pairs(&self.up, ""));
        // the text has no way to remove one of these from one direction
        let router_keys = |direction: &LinkDirection, prefix: &str| {
            let priority = direction.priority.map(|flow| format!(",{prefix}priority={flow}"));
            let dscp = direction.dscp.map(|dscp| format!(",{prefix}dscp={dscp}"));
            [priority, dscp]
        };
        f.write_str(down[0].trim_start_matches("rate="))?;
        for (pair, _) in down.iter().zip(&default).skip(1).filter(|(pair, default)| pair != default)
        {
            write!(f, ",{pair}")?;
        }
        let differs = down.iter().zip(&up).map(|(down, up)| down != up);
        for (pair, _) in pairs(&self.up, "up-").iter().zip(differs).filter(|(_, differs)| *differs)
        {
            write!(f, ",{pair}")?;
        }
        let ups = router_keys(&self.up, "up-").into_iter().zip(router_keys(&self.up, ""));
        for (down, (up, as_down)) in router_keys(&self.down, "").into_iter().zip(ups) {
            let up = up.filter(|_| down != as_down);
            write!(f, "{}{}", down.unwrap_or_default(), up.unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Writes the keys of one direction, the rate or the trace first.
fn pairs(direction: &LinkDirection, prefix: &str) -> [String; 9] {
    [
        limit_pair(direction, prefix),
        format!("{prefix}delay={}", duration(direction.delay)),
        format!("{prefix}jitter={}", duration(direction.jitter)),
        loss_pair(&direction.loss, prefix),
        format!("{prefix}duplicate={}%", direction.duplicate_pct),
        format!("{prefix}reorder={}%", direction.reorder_pct),
        format!("{prefix}corrupt={}%", direction.corrupt_pct),
        format!("{prefix}queue={}", direction.queue.map_or(AUTO.to_owned(), queue)),
        format!("{prefix}aqm={}", direction.aqm.map_or(NONE, Aqm::name)),
    ]
}

fn limit_pair(direction: &LinkDirection, prefix: &str) -> String {
    match (&direction.trace, direction.rate_bps) {
        (Some(trace), _) => format!("{prefix}trace={trace}"),
        (None, Some(bps)) => format!("{prefix}rate={}", units::exact_rate(bps)),
        (None, None) => format!("{prefix}rate={UNSHAPED}"),
    }
}

fn loss_pair(loss: &Loss, prefix: &str) -> String {
    match *loss {
        Loss::None => format!("{prefix}loss=0%"),
        Loss::Random { pct } => format!("{prefix}loss={pct}%"),
        Loss::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
            // a burst is written as one, if the numbers survive the rounding
            let short = |value: f64| (value * 1e9).round() / 1e9;
            let (pct, frames) = (short(loss.average_pct()), short(100.0 / to_good_pct));
            if Loss::in_bursts(pct, frames) == Ok(*loss) {
                return format!("{prefix}loss={pct}%,{prefix}burst={frames}");
            }
            format!(
                "{prefix}ge={to_bad_pct}%:{to_good_pct}%:{loss_in_bad_pct}%:{loss_in_good_pct}%"
            )
        }
    }
}

/// Writes milliseconds, or microseconds below one, exact to the nanosecond.
fn duration(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let (unit, scale, decimals) =
        if ns < 1_000_000 { ("us", 1_000, 3) } else { ("ms", 1_000_000, 6) };
    let text = format!("{}.{:0decimals$}", ns / scale, ns % scale);
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn queue(queue: Queue) -> String {
    match queue {
        Queue::Packets(packets) => packets.to_string(),
        Queue::Bytes(bytes) if bytes.is_multiple_of(1024) => format!("{}KiB", bytes / 1024),
        Queue::Bytes(bytes) => format!("{bytes}b"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_round_trips() {
        for text in [
            "unshaped",
            "100mbit",
            "1gbit,delay=25ms,loss=0.5%",
            "9600bit,queue=7",
            "100mbit,delay=25ms,jitter=1ms,loss=1%,burst=8,queue=64KiB",
            "10mbit,ge=0.1%:10%:50%:0.01%,duplicate=0.1%,reorder=1%,corrupt=0.01%,queue=1000b",
            "100mbit,delay=10ms,up-rate=10mbit,up-delay=20ms,up-loss=1%",
            "100mbit,loss=1%,burst=3,up-loss=2%,up-burst=5",
            "100mbit,loss=1%,burst=3,up-ge=1%:2%:3%:4%",
            "1gbit,loss=1%,queue=9,up-loss=0%,up-queue=auto",
            "10mbit,queue=300,priority=udp:5004,dscp=ef",
            "10mbit,priority=udp:5004,up-priority=tcp:80,up-dscp=cs1",
            "unshaped,up-rate=1mbit,up-priority=udp:9",
            "unshaped,dscp=1",
            "10mbit,queue=300,aqm=codel",
            "10mbit,delay=10ms,aqm=fq-codel,up-aqm=none",
        ] {
            let link: LinkSpec = text.parse().expect(text);
            assert_eq!(link.to_string(), text);
        }
    }

    /// A link whose traces need no files.
    fn traced(text: &str) -> Result<LinkSpec, String> {
        parse(text, &|written| {
            let name = written.split('@').next().unwrap_or_default();
            Trace::parse(Path::new("/plans"), name, format!("5\n{}\n", name.len()).as_bytes())
        })
    }

    #[test]
    fn traces_stand_in_place_of_rates_and_round_trip_with_their_digest() {
        for text in [
            "trace=down.trace",
            "trace=down.trace,delay=20ms,loss=1%,queue=64KiB,up-trace=up.trace",
            "trace=down.trace,aqm=codel,up-rate=1mbit",
            "10mbit,delay=5ms,up-trace=sub/up.trace",
            "unshaped,up-trace=up.trace,up-aqm=fq-codel",
        ] {
            let link = traced(text).expect(text);
            let written = link.to_string();
            assert_eq!(traced(&written), Ok(link.clone()), "{written}");
            let without = |text: &str| {
                let parts = text.split(',').map(|part| part.split('@').next().unwrap_or_default());
                parts.collect::<Vec<_>>().join(",")
            };
            assert_eq!((without(&written), written.contains('@')), (text.to_owned(), true));
        }
        let both = traced("trace=down.trace").expect("a link");
        assert!(both.is_symmetric() && both.up.trace.is_some() && both.up.rate_bps.is_none());
    }

    #[test]
    fn a_direction_has_one_rate_or_one_trace() {
        for (text, words) in [
            ("10mbit,trace=a.trace", "comes first"),
            ("trace=a.trace,rate=1mbit", "comes first"),
            ("1mbit,up-rate=2mbit,up-trace=a.trace", "and this one has two"),
            ("1mbit,up-trace=a.trace,up-trace=a.trace", "and this one has two"),
            ("trace=a.trace,priority=udp:5004", "need the kernel's shaper"),
            ("trace=a.trace,dscp=ef", "need the kernel's shaper"),
            ("trace=a", "line 2: 1 ms is earlier"),
        ] {
            let error = traced(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
        let error = "trace=a.trace".parse::<LinkSpec>().expect_err("no folder");
        assert!(error.starts_with("a trace is a file"), "{error}");
    }

    #[test]
    fn up_replaces_one_key() {
        let link: LinkSpec =
            "100mbit,delay=25ms,loss=1%,burst=8,up-rate=unshaped,up-burst=2".parse().expect("good");
        assert_eq!(link.down.rate_bps, Some(100_000_000));
        assert_eq!(link.up.rate_bps, None);
        assert_eq!(link.up.delay, link.down.delay);
        assert_eq!(link.up.loss, Loss::in_bursts(1.0, 2.0).expect("possible"));
        assert!(!link.is_symmetric() && link.needs_netem());
    }

    #[test]
    fn rejects_malformed_links() {
        for text in [
            "",
            "fast",
            "100mbit,delay",
            "100mbit,colour=red",
            "100mbit,rate=1mbit",
            "1gbit,jitter=2ms",
            "1gbit,delay=2ms,jitter=1ms,up-delay=0ms",
            "1gbit,queue=0",
            "1gbit,queue=0KiB",
            "1gbit,queue=many",
            "1gbit,burst=8",
            "1gbit,loss=1%,burst=0.5",
            "1gbit,loss=99%,burst=2",
            "1gbit,loss=1%,ge=1%:2%:3%:4%",
            "1gbit,ge=1%:2%:3%",
            "1gbit,loss=1%,loss=2%",
            "1gbit,up-up-rate=1mbit",
            "1gbit,loss=nan%",
            "unshaped,priority=udp:5004",
            "1gbit,priority=5004",
            "1gbit,dscp=64",
            "1gbit,aqm=red",
            "unshaped,aqm=codel",
            "1gbit,aqm=codel,up-rate=unshaped",
            "1gbit,dscp=ef,dscp=ef",
        ] {
            assert!(text.parse::<LinkSpec>().is_err(), "{text}");
        }
    }

    fn loss() -> impl Strategy<Value = Loss> {
        let pct = || 0.0f64..=100.0;
        prop_oneof![
            Just(Loss::None),
            (0.000_001f64..100.0).prop_map(|pct| Loss::Random { pct }),
            (0.01f64..40.0, 1.0f64..100.0)
                .prop_map(|(pct, frames)| Loss::in_bursts(pct, frames).expect("possible")),
            (1u32..40, 1u32..100).prop_map(|(pct, frames)| {
                Loss::in_bursts(pct.into(), frames.into()).expect("possible")
            }),
            (pct(), pct(), pct(), pct()).prop_map(
                |(to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct)| {
                    Loss::GilbertElliott {
                        to_bad_pct,
                        to_good_pct,
                        loss_in_bad_pct,
                        loss_in_good_pct,
                    }
                }
            ),
        ]
    }

    prop_compose! {
        fn direction()(
            rate_bps in proptest::option::of(1u64..=1_000_000_000_000),
            delay_ns in 0u64..=3_600_000_000_000,
            jitter_share in 0.0f64..=1.0,
            loss in loss(),
            (duplicate_pct, reorder_pct, corrupt_pct) in (0.0f64..=100.0, 0.0f64..=100.0, 0.0f64..=100.0),
            queue in proptest::option::of(prop_oneof![
                (1u32..).prop_map(Queue::Packets),
                (1u64..1 << 50).prop_map(Queue::Bytes),
                (1u64..1 << 40).prop_map(|kib| Queue::Bytes(kib << 10)),
            ]),
            aqm in proptest::option::of(prop_oneof![Just(Aqm::Codel), Just(Aqm::FqCodel)]),
        ) -> LinkDirection {
            let delay = Duration::from_nanos(delay_ns);
            let jitter = Duration::from_nanos((delay_ns as f64 * jitter_share) as u64).min(delay);
            LinkDirection {
                rate_bps,
                delay,
                jitter,
                loss,
                duplicate_pct,
                reorder_pct,
                corrupt_pct,
                queue,
                aqm: aqm.filter(|_| rate_bps.is_some()),
                ..LinkDirection::default()
            }
        }
    }

    proptest! {
        #[test]
        fn any_link_round_trips(down in direction(), up in direction(), symmetric: bool) {
            let link = if symmetric { LinkSpec::symmetric(up) } else { LinkSpec { down, up } };
            let text = link.to_string();
            prop_assert_eq!(text.parse::<LinkSpec>(), Ok(link), "{}", text);
        }

        #[test]
        fn never_panics(text in "[0-9a-z=,.:%-]{0,60}", key in "(up-)?(loss|ge|burst|queue|aqm|delay|rate|trace|priority|dscp)") {
            let _ = text.parse::<LinkSpec>();
            let _ = format!("1mbit,{key}={text}").parse::<LinkSpec>();
        }
    }
}
