//! Shaping: the kernel's HTB for a rate, its netem for delay, jitter and loss,
//! at the router's way out in each direction. (At a host's own way out TCP
//! would see the queue and never fill it.)

use super::netns::{Names, ROUTER_TO_CLIENT, ROUTER_TO_SERVER};
use crate::command::{Command, Executor};
use crate::error::{Error, Result};
use crate::link::LinkSpec;

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
    for interface in [ROUTER_TO_CLIENT, ROUTER_TO_SERVER] {
        let mut add =
            |line: String| commands.push(Command::words(&format!("tc -n {} {line}", names.router)));
        let queue = spec.queue();
        if let Some(rate) = spec.rate_bps {
            let burst = burst(rate);
            add(format!("qdisc replace dev {interface} root handle 1: htb default 1"));
            add(format!(
                "class add dev {interface} parent 1: classid 1:1 htb rate {rate}bit \
                 burst {burst} cburst {burst} overhead {FRAMING} mpu 84"
            ));
            if !spec.needs_netem() {
                add(format!("qdisc add dev {interface} parent 1:1 handle 10: pfifo limit {queue}"));
            }
        }
        if spec.needs_netem() {
            let parent = if spec.rate_bps.is_some() { "parent 1:1" } else { "root" };
            let mut line = format!(
                "qdisc replace dev {interface} {parent} handle 10: netem limit {}",
                queue.max(10_000)
            );
            if !spec.delay.is_zero() {
                line +=
                    &format!(" delay {}us {}us", spec.delay.as_micros(), spec.jitter.as_micros());
            }
            if spec.loss_pct > 0.0 {
                line += &format!(" loss {}%", spec.loss_pct);
            }
            add(line);
        }
    }
    commands
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
    match (spec.rate_bps.is_some(), spec.needs_netem()) {
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
    let needs = [
        (spec.rate_bps.is_some(), "htb", "a rate"),
        (spec.needs_netem(), "netem", "delay, jitter or loss"),
    ];
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
