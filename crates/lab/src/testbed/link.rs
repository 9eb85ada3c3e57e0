//! Shaping: the kernel's HTB for a rate, its netem for delay, jitter and loss,
//! at the router's way out in each direction. (At a host's own way out TCP
//! would see the queue and never fill it.)

use super::netns::{Names, ROUTER_TO_CLIENT, ROUTER_TO_SERVER};
use crate::command::{Command, Executor};
use crate::error::{Error, Result};
use crate::link::{LinkSpec, Loss, Queue, Way};

/// Octets of Ethernet framing that no capture shows: preamble, start of frame,
/// checksum, gap between frames (IEEE 802.3).
pub(super) const FRAMING: u32 = 24;

/// Octets that HTB may send at once: what it owes after a timer that came 1 ms
/// late, and two full frames at least. With two frames alone 1 Gbit/s came out
/// as 0.93 here, with 250 µs as 0.96 while a compiler ran beside it.
fn burst(rate_bps: u64) -> u64 {
    (rate_bps / 8 / 1000).max(2 * 1538)
}

/// The commands that make both directions of the link.
pub(super) fn commands(names: &Names, spec: &LinkSpec) -> Vec<Command> {
    let mut commands = Vec::new();
    for (interface, way) in [(ROUTER_TO_CLIENT, &spec.down), (ROUTER_TO_SERVER, &spec.up)] {
        let mut add =
            |line: String| commands.push(Command::words(&format!("tc -n {} {line}", names.router)));
        if let Some(rate) = way.rate_bps {
            let burst = burst(rate);
            add(format!("qdisc replace dev {interface} root handle 1: htb default 1"));
            add(format!(
                "class add dev {interface} parent 1: classid 1:1 htb rate {rate}bit \
                 burst {burst} cburst {burst} overhead {FRAMING} mpu 84"
            ));
            if !way.needs_netem() {
                let queue = match way.queue() {
                    Queue::Packets(packets) => format!("pfifo limit {packets}"),
                    Queue::Bytes(bytes) => format!("bfifo limit {bytes}"),
                };
                add(format!("qdisc add dev {interface} parent 1:1 handle 10: {queue}"));
            }
        }
        if way.needs_netem() {
            let parent = if way.rate_bps.is_some() { "parent 1:1" } else { "root" };
            let mut line = format!(
                "qdisc replace dev {interface} {parent} handle 10: netem limit {}",
                queue_packets(way).max(10_000)
            );
            if !way.delay.is_zero() {
                line += &format!(" delay {}us {}us", way.delay.as_micros(), way.jitter.as_micros());
            }
            if let Loss::Random { pct } = way.loss {
                line += &format!(" loss {pct}%");
            }
            add(line);
        }
    }
    commands
}

/// Full frames that the bottleneck queues.
pub(super) fn queue_packets(way: &Way) -> u32 {
    match way.queue() {
        Queue::Packets(packets) => packets,
        Queue::Bytes(bytes) => u32::try_from(bytes / 1514).unwrap_or(u32::MAX),
    }
}

/// The commands that unmake whatever shaping there may be.
pub(super) fn remove(names: &Names) -> [Command; 2] {
    // `qdisc replace … noqueue` succeeds whether there was a qdisc or not
    [ROUTER_TO_CLIENT, ROUTER_TO_SERVER].map(|interface| {
        Command::words(&format!(
            "tc -n {} qdisc replace dev {interface} root noqueue",
            names.router
        ))
    })
}

/// Name of what shapes this link.
pub(super) fn backend(spec: &LinkSpec) -> &'static str {
    match (has_rate(spec), spec.needs_netem()) {
        (false, false) => "veth",
        (true, false) => "veth, HTB",
        (false, true) => "veth, netem",
        (true, true) => "veth, HTB and netem",
    }
}

/// Refuses a link that this kernel cannot make, and names what is missing.
pub(super) fn require(spec: &LinkSpec, executor: &Executor) -> Result<()> {
    if executor.is_dry() {
        return Ok(());
    }
    if let Some(what) = beyond_the_kernel(spec) {
        return Err(Error::Plan(format!(
            "the link `{spec}` cannot be made by the kernel's shapers alone because of its {what}"
        )));
    }
    let needs =
        [(has_rate(spec), "htb", "a rate"), (spec.needs_netem(), "netem", "delay, jitter or loss")];
    for (needed, qdisc, purpose) in needs {
        if needed && !has_qdisc(executor, qdisc) {
            return Err(Error::Missing(format!(
                "the link `{spec}` needs the kernel's {qdisc} queueing discipline (sch_{qdisc}) for {purpose}, \
                 and this kernel has none: load the module, or choose a link without {purpose}"
            )));
        }
    }
    Ok(())
}

fn has_rate(spec: &LinkSpec) -> bool {
    spec.down.rate_bps.is_some() || spec.up.rate_bps.is_some()
}

/// What HTB and netem, as used here, do not do, or do differently.
fn beyond_the_kernel(spec: &LinkSpec) -> Option<&'static str> {
    [&spec.down, &spec.up].into_iter().find_map(|way| {
        let bursts = matches!(way.loss, Loss::GilbertElliott { .. });
        let what = [
            (bursts, "loss in bursts"),
            (way.duplicate_pct > 0.0, "duplicates"),
            (way.reorder_pct > 0.0, "reordering"),
            (way.corrupt_pct > 0.0, "corruption"),
        ];
        what.into_iter().find_map(|(asked, name)| asked.then_some(name))
    })
}

/// Kernel features that links need, and whether this kernel has them.
pub(crate) fn features(executor: &Executor) -> Vec<(&'static str, bool, &'static str)> {
    vec![
        ("htb", has_qdisc(executor, "htb"), "links with a rate"),
        ("netem", has_qdisc(executor, "netem"), "links with delay, jitter or loss"),
    ]
}

/// Tries the qdisc on the loopback of a namespace that ends with the try.
fn has_qdisc(executor: &Executor, qdisc: &str) -> bool {
    let limit = if qdisc == "netem" { " limit 10" } else { "" };
    executor
        .run(&Command::words(&format!("unshare --net tc qdisc add dev lo root {qdisc}{limit}")))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_framing_and_a_delay_needs_netem() {
        let names = Names::new("0badf00d");
        let text = |spec: &str| {
            let spec: LinkSpec = spec.parse().expect(spec);
            commands(&names, &spec).iter().map(|c| format!("{c}\n")).collect::<String>()
        };
        let shaped = text("100mbit");
        assert_eq!(shaped.matches("rate 100000000bit").count(), 2);
        assert!(
            shaped.contains("overhead 24 mpu 84") && shaped.contains("pfifo limit 406"),
            "{shaped}"
        );
        let slow = text("10mbit,delay=25ms,loss=1%");
        assert!(
            slow.contains("parent 1:1 handle 10: netem")
                && slow.contains("delay 25000us 0us loss 1%"),
            "{slow}"
        );
        assert!(text("unshaped").is_empty());
    }
}
