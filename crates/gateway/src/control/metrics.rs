//! The counters of a tunnel in Prometheus' text format (exposition format 0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use super::status::{Association, Status};

/// Returns all counters of a tunnel as metrics.
pub fn prometheus(status: &Status) -> String {
    let mut text = Metrics { text: String::new(), tunnel: &status.name };
    text.metric("uptime_seconds", "gauge", "Seconds since the tunnel came up.");
    text.sample("uptime_seconds", &[], status.uptime_seconds);
    text.metric("warnings", "gauge", "Warnings in force.");
    text.sample("warnings", &[], status.warnings.len());

    if let Some(counters) = &status.ike_counters {
        let values = counters.named().map(|(name, value)| (name.replace('-', "_"), value));
        for (name, value) in values {
            let (kind, name) = match name.as_str() {
                "half_open" => ("gauge", "ike_half_open".to_owned()),
                _ => ("counter", format!("ike_{name}_total")),
            };
            text.metric(&name, kind, "Counter of IKE, explained in docs/tunnel.md.");
            text.sample(&name, &[], value);
        }
        text.metric("ike_sessions", "gauge", "IKE SAs that stand.");
        let standing = status.ike.iter().filter(|one| one.established).count();
        text.sample("ike_sessions", &[], standing);
        text.metric("ike_assigned_addresses", "gauge", "Addresses that peers have from a pool.");
        let mut assigned: BTreeMap<&String, usize> = BTreeMap::new();
        let holders = status.ike.iter().filter(|one| !one.initiated && !one.assigned.is_empty());
        for session in holders {
            *assigned.entry(&session.peer).or_default() += session.assigned.len();
        }
        for (peer, addresses) in assigned {
            text.sample("ike_assigned_addresses", &[("peer", peer)], addresses);
        }
    }
    let all = &status.associations;
    let values: [(&str, &str, &str, Value); 4] = [
        ("sa_packets_total", "counter", "Packets protected or authenticated.", |sa| sa.packets),
        (
            "sa_bytes_total",
            "counter",
            "Bytes of these, without the overhead of protection.",
            |sa| sa.bytes,
        ),
        ("sa_sequence", "gauge", "Highest sequence number sent or accepted.", |sa| sa.sequence),
        ("sa_stage", "gauge", "0 active, 1 new keys are due, 2 expired.", |sa| {
            match sa.stage.as_str() {
                "expired" => 2,
                "soft" => 1,
                _ => 0,
            }
        }),
    ];
    for (name, kind, help, value) in values {
        text.metric(name, kind, help);
        for sa in all {
            let labels =
                [("sa", &sa.name), ("direction", &sa.direction), ("protocol", &sa.protocol)];
            text.sample(name, &labels, value(sa));
        }
    }
    text.metric("sa_failures_total", "counter", "Packets of an SA that failed, by reason.");
    for sa in all {
        for (reason, times) in &sa.failures {
            text.sample("sa_failures_total", &[("sa", &sa.name), ("reason", reason)], times);
        }
    }
    text.metric("drops_total", "counter", "Packets dropped, by reason.");
    for (reason, times) in &status.drops {
        text.sample("drops_total", &[("reason", reason)], times);
    }
    text.metric("policy_hits_total", "counter", "Decisions of a policy: one per packet or train.");
    for policy in &status.policies {
        let labels = [("policy", &policy.name), ("action", &policy.action)];
        text.sample("policy_hits_total", &labels, policy.hits);
    }
    text.text
}

/// Reads a value of an association.
type Value = fn(&Association) -> u64;

struct Metrics<'a> {
    text: String,
    tunnel: &'a str,
}

impl Metrics<'_> {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "# HELP headroom_tunnel_{name} {help}\n# TYPE headroom_tunnel_{name} {kind}\n"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &String)], value: impl Display) {
        let _ = write!(self.text, "headroom_tunnel_{name}{{tunnel=\"{}\"", escaped(self.tunnel));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_every_counter_as_a_line() {
        insta::assert_snapshot!(prometheus(&crate::control::status::tests::example()));
    }
}
