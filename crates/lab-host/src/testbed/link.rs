//! Makes a link: by the kernel's HTB for a rate, its netem for delay, jitter
//! and loss, both at the router's way out in each direction (at a host's own way
//! out TCP would see the queue and never fill it), or by the emulator, where the
//! kernel has no netem, the link follows a trace or has a managed queue, or the plan
//! says so.

use std::process::Stdio;

use headroom_lab_results::schema::queue_packets;
use headroom_link_spec::{LinkDirection, LinkSpec, Loss, Queue};

use super::netns::{Names, ROUTER_TO_CLIENT, ROUTER_TO_SERVER};
use super::rules::{OTHERS, PREFERRED};
use super::spec::LinkBackend;
use super::verdict::FRAMING;
use crate::command::{Command, Executor};
use crate::error::{Error, Result};
use crate::programs::{IP, Program, TC, UNSHARE};

/// The backend of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Nothing but the veth pairs.
    Veth,
    /// HTB.
    Shaper,
    /// netem, below HTB where there is a rate.
    Netem,
    /// `headroom link` in the router's namespace.
    Emulator,
}

/// The queueing disciplines that the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Pairs of interfaces, of which every testbed is made.
    pub veth: bool,
    /// HTB, for a rate and a queue.
    pub htb: bool,
    /// netem, for delay, jitter and loss.
    pub netem: bool,
}

impl Kernel {
    /// Tries them on the loopback of a namespace that ends with the try; a dry
    /// run does too, so that it prints what a run would do.
    pub fn probe(executor: &Executor) -> Self {
        let user = if nix::unistd::geteuid().is_root() { "" } else { "--user --map-root-user" };
        let can = |program: Program, arguments: &str| {
            let mut alone = Command::words(UNSHARE, user);
            alone.args(["--net"]);
            let process = executor.process(&alone.running(Command::words(program, arguments)));
            process.is_ok_and(|mut process| {
                let silent = process.stdout(Stdio::null()).stderr(Stdio::null());
                silent.status().is_ok_and(|status| status.success())
            })
        };
        Self {
            veth: can(IP, "link add name a type veth peer name b"),
            htb: can(TC, "qdisc add dev lo root htb"),
            netem: can(TC, "qdisc add dev lo root netem limit 10"),
        }
    }
}

impl Backend {
    /// Chooses what makes a link: nothing, HTB where a rate is all, netem where
    /// the kernel has it and it does what is asked, else the emulator; or what
    /// the plan says.
    ///
    /// # Errors
    /// [`Error::Plan`]: the backend that the plan says cannot make this link.
    /// [`Error::Missing`]: this kernel has not what it needs.
    pub(super) fn choose(
        spec: &LinkSpec,
        wished: Option<LinkBackend>,
        kernel: Kernel,
    ) -> Result<Self> {
        let chosen = Self::choose_any(spec, wished, kernel)?;
        match spec.beyond_frames() {
            Some(what) if chosen == Self::Emulator => {
                let why = match (wished, beyond_a_rate(spec)) {
                    (Some(_), _) => "the plan names the emulator".to_owned(),
                    (None, Some(beyond)) => format!("the link has {beyond} beside it"),
                    (None, None) => "this kernel has no HTB (sch_htb)".to_owned(),
                };
                let lacks = wished.is_none() && !kernel.htb;
                let error = if lacks { Error::Missing } else { Error::Plan };
                Err(error(format!(
                    "the link `{spec}` asks for {what}, which the kernel's shaper does and the emulator does not; but {why}"
                )))
            }
            _ => Ok(chosen),
        }
    }

    /// The same, whoever looks into packets.
    fn choose_any(spec: &LinkSpec, wished: Option<LinkBackend>, kernel: Kernel) -> Result<Self> {
        let chosen = match wished {
            Some(LinkBackend::Emulator) => return Ok(Self::Emulator),
            _ if spec.is_unshaped() => return Ok(Self::Veth),
            Some(LinkBackend::Shaper) => Self::Shaper,
            Some(LinkBackend::Netem) => Self::Netem,
            None if beyond_a_rate(spec).is_none() && kernel.htb => return Ok(Self::Shaper),
            None if beyond_a_rate(spec).is_some()
                && beyond_netem(spec).is_none()
                && kernel.netem
                && (kernel.htb || spec.slowest_bps().is_none()) =>
            {
                return Ok(Self::Netem);
            }
            None => return Ok(Self::Emulator),
        };
        let (name, beyond) = match chosen {
            Self::Netem => (LinkBackend::Netem.name(), beyond_netem(spec)),
            _ => (LinkBackend::Shaper.name(), beyond_a_rate(spec)),
        };
        if let Some(what) = beyond {
            let could = if chosen == Self::Shaper && beyond_netem(spec).is_none() {
                "`netem` or `emulator`"
            } else {
                "`emulator`"
            };
            return Err(Error::Plan(format!(
                "the link backend `{name}` has no {what}, which the link `{spec}` asks for; {could} could make it: \
                 name that as link-backend, or name none"
            )));
        }
        let needs = [
            (chosen == Self::Netem && !kernel.netem, "netem"),
            (spec.slowest_bps().is_some() && !kernel.htb, "HTB"),
        ];
        if let Some((_, qdisc)) = needs.iter().find(|(missing, _)| *missing) {
            return Err(Error::Missing(format!(
                "the link backend `{name}` needs the kernel's queueing discipline {qdisc} (sch_{}) for the link \
                 `{spec}`, and this kernel has none: load the module, or use the link backend `emulator`, which \
                 needs nothing of the kernel",
                qdisc.to_lowercase()
            )));
        }
        Ok(chosen)
    }

    /// As it is named in a report.
    pub(super) fn words(self, spec: &LinkSpec) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Shaper => "veth, HTB",
            Self::Netem if spec.slowest_bps().is_none() => "veth, netem",
            Self::Netem => "veth, HTB and netem",
            Self::Emulator => "veth, emulator",
        }
    }

    /// Whether a frame is held for as long as its bytes take at the rate. HTB is
    /// a token bucket and lets short transfers pass.
    pub(crate) fn serialises(self) -> bool {
        self == Self::Emulator
    }
}

/// Names a property of a link beyond rate and queue, if it has one.
fn beyond_a_rate(spec: &LinkSpec) -> Option<&'static str> {
    first_of(spec, |way| {
        [
            (way.trace.is_some(), "trace"),
            (!way.delay.is_zero(), "delay"),
            (!way.jitter.is_zero(), "jitter"),
            (way.loss != Loss::None, "loss"),
            (way.duplicate_pct > 0.0, "duplicates"),
            (way.reorder_pct > 0.0, "reordering"),
            (way.corrupt_pct > 0.0, "corruption"),
            // one implementation for all kernels, of which some have none
            (way.aqm.is_some(), "AQM"),
        ]
    })
}

/// Names a property of a link that netem, as used here, does not have, if there is one.
fn beyond_netem(spec: &LinkSpec) -> Option<&'static str> {
    first_of(spec, |way| {
        let queue_in_bytes = matches!(way.queue, Some(Queue::Bytes(_))) && way.needs_netem();
        [
            (way.trace.is_some(), "trace"),
            (queue_in_bytes, "queue in bytes"),
            (way.priority.is_some(), "priority"),
            (way.aqm.is_some(), "AQM"),
            // netem reorders by sending some frames at once
            (way.reorder_pct > 0.0 && way.delay.is_zero(), "reordering without delay"),
        ]
    })
}

fn first_of<const N: usize>(
    spec: &LinkSpec,
    asks: impl Fn(&LinkDirection) -> [(bool, &'static str); N],
) -> Option<&'static str> {
    let asked = [&spec.down, &spec.up].into_iter().flat_map(asks);
    asked.into_iter().find_map(|(asked, name)| asked.then_some(name))
}

/// The commands by which the kernel makes both directions of the link.
pub(super) fn commands(names: &Names, spec: &LinkSpec) -> Vec<Command> {
    let mut commands = Vec::new();
    for (interface, way) in [(ROUTER_TO_CLIENT, &spec.down), (ROUTER_TO_SERVER, &spec.up)] {
        let mut add = |line: String| {
            commands.push(Command::words(TC, &format!("-n {} {line}", names.router)));
        };
        if let Some(rate) = way.rate_bps {
            let burst = burst(rate);
            // the one class needs no quantum, but what the kernel makes of the rate is
            // worth a warning to it
            let shared =
                format!("burst {burst} cburst {burst} quantum 60000 overhead {FRAMING} mpu 84");
            let class = if way.priority.is_some() { OTHERS } else { "1:1" };
            let default = class.trim_start_matches("1:");
            add(format!("qdisc replace dev {interface} root handle 1: htb default {default}"));
            add(format!(
                "class add dev {interface} parent 1: classid 1:1 htb rate {rate}bit {shared}"
            ));
            let queue = match way.queue() {
                Queue::Packets(packets) => format!("pfifo limit {packets}"),
                Queue::Bytes(bytes) => format!("bfifo limit {bytes}"),
            };
            if way.priority.is_some() {
                // what is preferred has the rate, all else what is left of it
                let own = [(PREFERRED, rate - rate.div_ceil(100)), (OTHERS, rate.div_ceil(100))];
                for (prio, (class, own)) in own.into_iter().enumerate() {
                    add(format!(
                        "class add dev {interface} parent 1:1 classid {class} htb prio {prio} rate {own}bit \
                         ceil {rate}bit {shared}"
                    ));
                }
                add(format!("qdisc add dev {interface} parent {PREFERRED} handle 11: {queue}"));
            }
            if !way.needs_netem() {
                add(format!("qdisc add dev {interface} parent {class} handle 10: {queue}"));
            }
        }
        if way.needs_netem() {
            let parent = if way.rate_bps.is_some() { "parent 1:1" } else { "root" };
            add(format!("qdisc replace dev {interface} {parent} handle 10: {}", netem(way)));
        }
    }
    commands
}

/// Bytes that HTB may send at once: what it owes after a timer that came 1 ms
/// late, and two full frames at least. With two frames alone 1 Gbit/s came out
/// as 0.93 here, with 250 µs as 0.96 while a compiler ran beside it.
fn burst(rate_bps: u64) -> u64 {
    (rate_bps / 8 / 1000).max(2 * 1538)
}

/// One direction in netem's words (tc-netem(8)). Its limit counts the frames on
/// their way as well as those that wait for the rate.
fn netem(way: &LinkDirection) -> String {
    const FULL_FRAME_BITS: f64 = 1538.0 * 8.0;
    let on_their_way = way.rate_bps.map_or(10_000.0, |bps| {
        bps as f64 * (way.delay + way.jitter).as_secs_f64() / FULL_FRAME_BITS
    });
    let limit = u64::from(queue_packets(way)) + on_their_way.ceil() as u64;
    let mut line = format!("netem limit {limit}");
    if !way.delay.is_zero() {
        line += &format!(" delay {}us {}us", way.delay.as_micros(), way.jitter.as_micros());
    }
    match way.loss {
        Loss::None => {}
        Loss::Random { pct } => line += &format!(" loss {pct}%"),
        Loss::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
            line += &format!(
                " loss gemodel {to_bad_pct}% {to_good_pct}% {loss_in_bad_pct}% {loss_in_good_pct}%"
            );
        }
    }
    for (name, pct) in [
        ("duplicate", way.duplicate_pct),
        ("reorder", way.reorder_pct),
        ("corrupt", way.corrupt_pct),
    ] {
        if pct > 0.0 {
            line += &format!(" {name} {pct}%");
        }
    }
    line
}

/// The commands that unmake whatever shaping there may be.
pub(super) fn remove(names: &Names) -> [Command; 2] {
    // `qdisc replace … noqueue` succeeds whether there was a qdisc or not
    [ROUTER_TO_CLIENT, ROUTER_TO_SERVER].map(|interface| {
        let arguments = format!("-n {} qdisc replace dev {interface} root noqueue", names.router);
        Command::words(TC, &arguments)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headroom_link_spec::Trace;

    use super::*;

    const ALL: Kernel = Kernel { veth: true, htb: true, netem: true };
    const NONE: Kernel = Kernel { veth: true, htb: false, netem: false };

    fn spec(text: &str) -> LinkSpec {
        text.parse().expect(text)
    }

    fn lines(text: &str) -> String {
        commands(&Names::new("0badf00d"), &spec(text)).iter().map(|c| format!("{c}\n")).collect()
    }

    #[test]
    fn each_link_is_made_by_the_least_that_can_make_it() {
        let no_netem = Kernel { veth: true, htb: true, netem: false };
        for (text, kernel, expected) in [
            ("unshaped", NONE, Backend::Veth),
            ("100mbit", ALL, Backend::Shaper),
            ("100mbit,up-rate=10mbit,queue=64KiB", no_netem, Backend::Shaper),
            ("100mbit", NONE, Backend::Emulator),
            ("100mbit,delay=5ms", ALL, Backend::Netem),
            ("100mbit,delay=5ms", no_netem, Backend::Emulator),
            ("100mbit,delay=5ms,queue=64KiB", ALL, Backend::Emulator),
            ("unshaped,reorder=1%", ALL, Backend::Emulator),
            ("unshaped,delay=5ms,reorder=1%,duplicate=1%", ALL, Backend::Netem),
            ("100mbit,loss=1%,burst=8", ALL, Backend::Netem),
        ] {
            let chosen = Backend::choose(&spec(text), None, kernel).expect(text);
            assert_eq!(chosen, expected, "{text} {kernel:?}");
        }
    }

    #[test]
    fn a_trace_is_followed_by_the_emulator_alone() {
        let trace = Trace::parse(Path::new("/plans"), "lte.trace", b"5\n").expect("a trace");
        let traced = LinkDirection { trace: Some(trace), ..LinkDirection::default() };
        let down = LinkSpec { down: traced.clone(), up: spec("10mbit").up };
        for link in [&down, &LinkSpec::symmetric(traced)] {
            for kernel in [ALL, NONE] {
                assert_eq!(Backend::choose(link, None, kernel).ok(), Some(Backend::Emulator));
            }
            let wish = Some(LinkBackend::Emulator);
            assert_eq!(Backend::choose(link, wish, ALL).ok(), Some(Backend::Emulator));
            for wish in [LinkBackend::Netem, LinkBackend::Shaper] {
                let error = Backend::choose(link, Some(wish), ALL).expect_err("a trace");
                let error = error.to_string();
                assert!(error.contains("has no trace") && error.contains("`emulator`"), "{error}");
            }
        }
    }

    #[test]
    fn a_wish_is_granted_or_refused_with_what_could() {
        let choose = |text: &str, wish, kernel| Backend::choose(&spec(text), Some(wish), kernel);
        assert!(matches!(choose("10mbit", LinkBackend::Emulator, NONE), Ok(Backend::Emulator)));
        assert!(matches!(choose("10mbit", LinkBackend::Netem, ALL), Ok(Backend::Netem)));
        let refused = |text, wish, kernel, code: u8, words: &[&str]| {
            let error = choose(text, wish, kernel).expect_err(text);
            assert_eq!(error.exit_code(), code, "{error}");
            for word in words {
                assert!(error.to_string().contains(word), "`{word}` is not in {error}");
            }
        };
        let words = ["`shaper` has no delay", "`netem` or `emulator` could"];
        refused("1mbit,delay=5ms", LinkBackend::Shaper, ALL, 2, &words);
        let words = ["`netem` has no queue in bytes", "; `emulator` could"];
        refused("1mbit,delay=5ms,queue=64KiB", LinkBackend::Netem, ALL, 2, &words);
        let words = ["`netem`", "sch_netem", "`emulator`"];
        refused("1mbit,delay=5ms", LinkBackend::Netem, NONE, 3, &words);
        refused("1mbit", LinkBackend::Shaper, NONE, 3, &["`shaper`", "sch_htb", "`emulator`"]);
    }

    #[test]
    fn a_rate_counts_framing_and_has_its_queue() {
        let shaped = lines("100mbit");
        assert_eq!(shaped.matches("rate 100000000bit").count(), 2);
        assert!(
            shaped.contains("overhead 24 mpu 84") && shaped.contains("pfifo limit 406"),
            "{shaped}"
        );
        assert!(lines("unshaped").is_empty());
        let asymmetric = lines("100mbit,queue=64KiB,up-rate=10mbit,up-queue=7");
        for words in [
            "dev to-client parent 1: classid 1:1 htb rate 100000000bit",
            "dev to-client parent 1:1 handle 10: bfifo limit 65536",
            "dev to-server parent 1: classid 1:1 htb rate 10000000bit",
            "dev to-server parent 1:1 handle 10: pfifo limit 7",
        ] {
            assert!(asymmetric.contains(words), "`{words}` is not in {asymmetric}");
        }
    }

    #[test]
    fn what_a_router_prefers_has_a_class_of_its_own() {
        let shaped = lines("10mbit,queue=300,up-priority=udp:5004");
        for words in [
            "dev to-server root handle 1: htb default 20",
            "dev to-server parent 1:1 classid 1:10 htb prio 0 rate 9900000bit ceil 10000000bit",
            "dev to-server parent 1:1 classid 1:20 htb prio 1 rate 100000bit ceil 10000000bit",
            "dev to-server parent 1:10 handle 11: pfifo limit 300",
            "dev to-server parent 1:20 handle 10: pfifo limit 300",
            "dev to-client parent 1:1 handle 10: pfifo limit 300",
        ] {
            assert!(shaped.contains(words), "`{words}` is not in {shaped}");
        }
        let choose = |text: &str, wish, kernel| Backend::choose(&spec(text), wish, kernel);
        let classified = "10mbit,priority=udp:5004,dscp=ef";
        assert!(matches!(choose(classified, None, ALL), Ok(Backend::Shaper)));
        assert!(matches!(choose("unshaped,dscp=ef", None, NONE), Ok(Backend::Veth)));
        assert!(matches!(choose("10mbit,delay=5ms,dscp=ef", None, ALL), Ok(Backend::Netem)));
        let slow = "10mbit,priority=udp:5004,delay=5ms";
        for (text, wish, kernel, code, why) in [
            (classified, Some(LinkBackend::Emulator), ALL, 2, "the plan names the emulator"),
            (slow, None, ALL, 2, "the link has delay beside it"),
            (slow, Some(LinkBackend::Netem), ALL, 2, "`netem` has no priority"),
            (classified, None, NONE, 3, "no HTB (sch_htb)"),
        ] {
            let error = choose(text, wish, kernel).expect_err(text);
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn netem_has_a_word_for_everything() {
        let slow = lines("10mbit,delay=25ms,loss=1%");
        // 100 frames wait, 21 are on their way
        assert!(
            slow.contains("parent 1:1 handle 10: netem limit 121 delay 25000us 0us loss 1%"),
            "{slow}"
        );
        let all = lines(
            "unshaped,delay=25ms,jitter=1ms,ge=1%:10%:50%:0.5%,duplicate=2%,reorder=3%,corrupt=4%",
        );
        let words = "root handle 10: netem limit 10100 delay 25000us 1000us loss gemodel 1% 10% 50% 0.5% \
                     duplicate 2% reorder 3% corrupt 4%";
        assert!(all.contains(words), "{all}");
        let one_way = lines("unshaped,up-delay=25ms");
        assert_eq!(one_way.matches("netem").count(), 1);
        assert!(one_way.contains("dev to-server root"), "{one_way}");
    }
}
