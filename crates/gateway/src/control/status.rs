//! The status of a tunnel, as text and as JSON (docs/tunnel.md).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headroom_ipsec::spec::{Action, Direction, Limits, PolicySpec, Protection};
use headroom_ipsec::{Counters, Engine, Reason, Sa, Stage};
use headroom_units as units;
use serde::{Deserialize, Serialize};

use crate::ike::{IkeCounters, SessionStatus};

/// The status of a tunnel at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The tunnel's name, and that of its interface.
    pub name: String,
    /// The gateway's version.
    pub version: String,
    /// The gateway's process.
    pub pid: u32,
    /// The configuration in force.
    pub config: PathBuf,
    /// Seconds since it came up.
    pub uptime_seconds: u64,
    /// Queues of the interface.
    pub queues: usize,
    /// IKE SAs.
    #[serde(default)]
    pub ike: Vec<SessionStatus>,
    /// What IKE has counted.
    #[serde(default)]
    pub ike_counters: Option<IkeCounters>,
    /// Security associations, by name.
    pub associations: Vec<Association>,
    /// Policies, in order.
    pub policies: Vec<Policy>,
    /// Packets dropped, by the reason's name.
    pub drops: BTreeMap<String, u64>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// A security association.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Association {
    /// Its name.
    pub name: String,
    /// `out` or `in`.
    pub direction: String,
    /// `ESP`, `AH` or `Q-ESP`.
    pub protocol: String,
    /// `transport` or `tunnel`.
    pub mode: String,
    /// Security parameters index.
    pub spi: u32,
    /// Outer source address.
    pub source: IpAddr,
    /// Outer destination address.
    pub destination: IpAddr,
    /// Ports of ESP in UDP.
    pub udp: Option<(u16, u16)>,
    /// The peer, where its address is followed.
    pub peer: Option<Peer>,
    /// The suite, as the configuration names it.
    pub suite: String,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// The highest sequence number sent or accepted.
    pub sequence: u64,
    /// Packets protected or opened.
    pub packets: u64,
    /// Bytes of those, without the overhead of protection.
    pub bytes: u64,
    /// Current packets per second.
    pub packets_per_second: f64,
    /// Current bits per second.
    pub bits_per_second: f64,
    /// Seconds since it was loaded.
    pub age_seconds: u64,
    /// `active`, `soft` (new keys are due) or `expired`.
    pub stage: String,
    /// What is left of its lifetime.
    pub left: Left,
    /// Packets that failed, by the reason's name; inbound.
    pub failures: BTreeMap<String, u64>,
}

/// The address of a followed peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The source of its newest packet; before the first, the configured address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// How often either has changed.
    pub changes: u64,
}

/// What is left until the hard limits; none: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Seconds.
    pub seconds: Option<u64>,
}

/// A policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// `protect`, `bypass` or `discard`.
    pub action: String,
    /// Its outbound decisions: one per packet or train.
    pub hits: u64,
    /// Outbound associations.
    pub out: Vec<String>,
    /// Inbound associations.
    #[serde(rename = "in")]
    pub inbound: Vec<String>,
}

/// Computes the rates of associations from two readings of their counters.
#[derive(Debug, Default)]
pub(super) struct Rates {
    looked: Duration,
    counted: HashMap<String, (u64, u64)>,
    per_second: HashMap<String, (f64, f64)>,
}

/// The least time between two readings.
const BETWEEN: Duration = Duration::from_secs(1);

impl Rates {
    /// Reads the counters, unless that was just done.
    pub(super) fn update(&mut self, engine: &Engine, now: Duration) {
        let passed = now.saturating_sub(self.looked);
        if passed < BETWEEN && !self.counted.is_empty() {
            return;
        }
        let seconds = passed.as_secs_f64().max(1e-3);
        let before = std::mem::take(&mut self.counted);
        self.per_second.clear();
        for sa in engine.associations() {
            let name = &sa.spec().name;
            let (packets, bytes) = (sa.packets(), sa.bytes());
            if let Some((packets_before, bytes_before)) = before.get(name) {
                let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
                let rates = (rate(packets, *packets_before), rate(bytes, *bytes_before) * 8.0);
                self.per_second.insert(name.clone(), rates);
            }
            self.counted.insert(name.clone(), (packets, bytes));
        }
        self.looked = now;
    }
}

pub(super) fn associations(engine: &Engine, rates: &Rates, now: Duration) -> Vec<Association> {
    let mut all: Vec<_> = engine.associations().map(|sa| association(sa, rates, now)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn association(sa: &Sa, rates: &Rates, now: Duration) -> Association {
    let spec = sa.spec();
    let out = spec.direction == Direction::Out;
    let age = now.saturating_sub(sa.loaded_at()).as_secs();
    let rate = rates.per_second.get(&spec.name).copied().unwrap_or_default();
    let Limits { bytes, packets, seconds } = spec.lifetime.hard;
    let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
    Association {
        name: spec.name.clone(),
        direction: spec.direction.to_string(),
        protocol: spec.protection.protocol().to_string(),
        mode: spec.mode.to_string(),
        spi: spec.spi,
        source: spec.source,
        destination: spec.destination,
        udp: spec.udp.map(|ports| (ports.source, ports.destination)),
        peer: sa.peer().map(|peer| {
            let now = peer.now();
            Peer { address: now.ip(), port: now.port(), changes: peer.changes() }
        }),
        suite: match &spec.protection {
            Protection::Ah { mac, .. } => mac.to_string(),
            Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => {
                secrets.suite.to_string()
            }
        },
        extended_sequence: spec.extended_sequence,
        sequence: if out { sa.sequence().next() - 1 } else { sa.highest_accepted() },
        packets: sa.packets(),
        bytes: sa.bytes(),
        packets_per_second: rate.0,
        bits_per_second: rate.1,
        age_seconds: age,
        stage: match sa.stage() {
            Stage::Active => "active",
            Stage::Soft => "soft",
            Stage::Expired => "expired",
        }
        .into(),
        left: Left {
            bytes: left(bytes, sa.bytes()),
            packets: left(packets, sa.packets()),
            seconds: left(seconds, age),
        },
        failures: counted(sa.failures()),
    }
}

pub(super) fn policies(engine: &Engine, specs: &[PolicySpec]) -> Vec<Policy> {
    let named = |name: &str| {
        let spec = specs.iter().find(|spec| spec.name == name);
        match spec.map(|spec| &spec.action) {
            Some(Action::Protect { out, inbound }) => (out.clone(), inbound.clone()),
            _ => Default::default(),
        }
    };
    let policies = engine.policies().iter().map(|policy| {
        let (out, inbound) = named(&policy.name);
        Policy {
            name: policy.name.clone(),
            action: policy.action().into(),
            hits: policy.hits(),
            out,
            inbound,
        }
    });
    policies.collect()
}

pub(super) fn counted(counters: &Counters) -> BTreeMap<String, u64> {
    counters.nonzero().map(|(reason, times)| (reason.name().to_owned(), times)).collect()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, config, uptime_seconds, queues, pid, .. } = self;
        let plural = if *queues == 1 { "" } else { "s" };
        writeln!(
            f,
            "{name}: up for {}, {queues} queue{plural}, {} (process {pid})",
            span(*uptime_seconds),
            config.display()
        )?;
        if !self.ike.is_empty() {
            writeln!(f, "\nIKE")?;
            let rows = self.ike.iter().map(session_row);
            table(
                f,
                &[
                    "peer",
                    "local → remote",
                    "state",
                    "key exchange",
                    "algorithms",
                    "rekeys",
                    "retransmits",
                    "child SAs",
                ],
                rows,
            )?;
        }
        for session in self.ike.iter().filter(|one| !one.assigned.is_empty()) {
            writeln!(f, "  {}", assignment(session))?;
        }
        let counted = self.ike_counters.iter().flat_map(IkeCounters::named);
        let counted: Vec<String> = counted
            .filter(|(_, times)| *times > 0)
            .map(|(name, times)| format!("{times} {name}"))
            .collect();
        if !counted.is_empty() {
            writeln!(f, "\nIKE has counted: {}", counted.join(", "))?;
        }
        writeln!(f, "\nSecurity associations")?;
        let rows = self.associations.iter().map(Association::row);
        table(
            f,
            &[
                "name",
                "protects",
                "from → to",
                "suite",
                "sequence",
                "packets",
                "bytes",
                "rate",
                "left",
            ],
            rows,
        )?;
        let failed = self.associations.iter().filter(|one| !one.failures.is_empty());
        for association in failed {
            let failures =
                association.failures.iter().map(|(name, times)| format!("{times} {name}"));
            writeln!(f, "  {}: {}", association.name, failures.collect::<Vec<_>>().join(", "))?;
        }
        writeln!(f, "\nPolicies, in order")?;
        table(f, &["name", "action", "hits", "out", "in"], self.policies.iter().map(Policy::row))?;
        if !self.drops.is_empty() {
            writeln!(f, "\nPackets dropped")?;
            let rows = self.drops.iter().map(|(name, times)| {
                let reason = Reason::ALL.iter().find(|reason| reason.name() == name);
                vec![
                    name.clone(),
                    times.to_string(),
                    reason.map_or("", |r| r.description()).to_owned(),
                ]
            });
            table(f, &["reason", "packets", ""], rows)?;
        }
        self.warnings.iter().try_for_each(|warning| write!(f, "\nWarning: {warning}."))
    }
}

fn session_row(session: &SessionStatus) -> Vec<String> {
    let state = match session.established {
        true => format!("established {} ago", span(session.age_seconds)),
        false => "connecting".to_owned(),
    };
    let key_exchange = match (session.established, session.post_quantum) {
        (false, _) => "",
        (true, true) => "post-quantum",
        (true, false) => "not post-quantum",
    };
    let identity = session.identity.as_ref().filter(|_| !session.initiated);
    vec![
        match identity {
            Some(identity) if !session.assigned.is_empty() => {
                format!("{} ({identity})", session.peer)
            }
            _ => session.peer.clone(),
        },
        format!("{} → {}", session.local, session.remote),
        state,
        key_exchange.to_owned(),
        session.algorithms.clone().unwrap_or_default(),
        session.rekeys.to_string(),
        session.retransmits.to_string(),
        session.children.to_string(),
    ]
}

/// Returns who has which addresses, and the DNS servers that were named with them.
fn assignment(session: &SessionStatus) -> String {
    let listed = |all: &[IpAddr]| all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    let (peer, addresses) = (&session.peer, listed(&session.assigned));
    let dns = listed(&session.dns);
    match (session.initiated, &session.identity) {
        (true, _) if dns.is_empty() => format!("{peer} gives this host {addresses}"),
        (true, _) => format!(
            "{peer} gives this host {addresses}, and DNS servers, which are not configured here: {dns}"
        ),
        (false, identity) => {
            format!("{peer}: {} has {addresses}", identity.as_deref().unwrap_or("a peer"))
        }
    }
}

impl Association {
    /// Tells whether IKE has negotiated it: no name in a file has a slash.
    pub(super) fn is_negotiated(&self) -> bool {
        self.name.contains('/')
    }

    /// Returns its two addresses, with the peer's current one if it has moved.
    fn ends(&self) -> String {
        let moved = self.peer.filter(|peer| peer.changes > 0);
        let now = moved.map(|peer| SocketAddr::new(peer.address, peer.port).to_string());
        let of = |end: IpAddr, peers: bool| match &now {
            Some(now) if peers => format!("{now} (configured: {end})"),
            _ => end.to_string(),
        };
        let out = self.direction == "out";
        format!("{} → {}", of(self.source, !out), of(self.destination, out))
    }

    fn row(&self) -> Vec<String> {
        let udp = if self.udp.is_some() { " in UDP" } else { "" };
        let Left { bytes, packets, seconds } = self.left;
        let left = [
            bytes.map(units::size),
            packets.map(|packets| format!("{packets} packets")),
            seconds.map(span),
        ];
        let left: Vec<String> = left.into_iter().flatten().collect();
        let left = match (self.stage.as_str(), left.is_empty()) {
            ("expired", _) => "expired".into(),
            ("soft", _) => format!("{} (new keys are due)", left.join(", ")),
            (_, true) => "–".into(),
            _ => left.join(", "),
        };
        vec![
            self.name.clone(),
            format!("{} {}, {}{udp}, {:#x}", self.direction, self.mode, self.protocol, self.spi),
            self.ends(),
            self.suite.clone(),
            self.sequence.to_string(),
            self.packets.to_string(),
            units::size(self.bytes),
            format!(
                "{}, {}/s",
                units::rate(self.bits_per_second),
                units::three(self.packets_per_second)
            ),
            left,
        ]
    }
}

impl Policy {
    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.action.clone(),
            self.hits.to_string(),
            self.out.join(", "),
            self.inbound.join(", "),
        ]
    }
}

/// Writes a table with columns as wide as their widest cell.
fn table(
    f: &mut fmt::Formatter<'_>,
    head: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> fmt::Result {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Formats a time: `3 s`, `5 min`, `2 h 5 min`, `3 d 2 h`.
fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a status with every field set.
    pub(in crate::control) fn example() -> Status {
        let association = serde_json::json!({
            "name": "in\"esp", "direction": "in", "protocol": "ESP", "mode": "tunnel", "spi": 256,
            "source": "192.0.2.2", "destination": "192.0.2.1", "udp": [4500, 4500],
            "peer": { "address": "198.51.100.7", "port": 40001, "changes": 1 },
            "suite": "aes-128-gcm", "extended_sequence": true, "sequence": 9, "packets": 8,
            "bytes": 8000, "packets_per_second": 2.5, "bits_per_second": 1.25e6,
            "age_seconds": 100, "stage": "soft",
            "left": { "bytes": 5_000_000, "packets": 7, "seconds": 3700 },
            "failures": { "replay": 3, "forged": 1 }
        });
        let mut out = association.clone();
        for (field, value) in [("name", "out-esp"), ("direction", "out"), ("stage", "active")] {
            out[field] = value.into();
        }
        out["left"] = serde_json::json!({ "bytes": null, "packets": null, "seconds": null });
        out["failures"] = serde_json::json!({});
        serde_json::from_value(serde_json::json!({
            "name": "hr0", "version": "0.1.0", "pid": 7, "config": "/etc/hr0.toml",
            "uptime_seconds": 90_061, "queues": 2, "ike": [
                {
                    "peer": "office", "established": true, "initiated": true,
                    "local": "192.0.2.1:4500", "remote": "192.0.2.2:4500", "post_quantum": true,
                    "age_seconds": 4000, "rekeys": 2, "children": 1, "retransmits": 3,
                    "algorithms": "aes-256-gcm hmac-sha512 x25519+ml-kem-768"
                },
                {
                    "peer": "branch", "established": false, "initiated": false,
                    "local": "192.0.2.1:500", "remote": "192.0.2.3:500", "post_quantum": false,
                    "age_seconds": 0, "rekeys": 0, "children": 0
                }
            ],
            "ike_counters": {
                "half_open": 1, "cookies_sent": 2, "refused_by_limit": 0,
                "refused_after_failures": 4, "authentication_failures": 5, "retransmits": 6,
                "malformed": 7
            },
            "associations": [association, out],
            "policies": [
                { "name": "p", "action": "protect", "hits": 5, "out": ["out-esp"], "in": ["in"] },
                { "name": "q", "action": "bypass", "hits": 0, "out": [], "in": [] }
            ],
            "drops": { "too-big": 2, "unknown-spi": 1 }, "warnings": ["a warning"]
        }))
        .expect("a status")
    }

    #[test]
    fn prints_every_field() {
        insta::assert_snapshot!(example());
    }

    #[test]
    fn shows_the_current_address_of_a_moved_peer() {
        let status = |direction: &str, changes: u64| -> Association {
            let (here, there) = ("192.0.2.1", "192.0.2.2");
            let (source, destination) =
                if direction == "out" { (here, there) } else { (there, here) };
            serde_json::from_value(serde_json::json!({
                "name": "a", "direction": direction, "protocol": "ESP", "mode": "tunnel", "spi": 256,
                "source": source, "destination": destination, "udp": [4500, 4500],
                "peer": { "address": "198.51.100.7", "port": 40001, "changes": changes },
                "suite": "aes-128-gcm", "extended_sequence": true, "sequence": 0, "packets": 0,
                "bytes": 0, "packets_per_second": 0.0, "bits_per_second": 0.0, "age_seconds": 0,
                "stage": "active", "left": { "bytes": null, "packets": null, "seconds": null },
                "failures": {}
            }))
            .expect("an association")
        };
        let moved = "198.51.100.7:40001 (configured: 192.0.2.2)";
        assert_eq!(status("out", 1).ends(), format!("192.0.2.1 → {moved}"));
        assert_eq!(status("in", 1).ends(), format!("{moved} → 192.0.2.1"));
        assert_eq!(status("out", 0).ends(), "192.0.2.1 → 192.0.2.2");
    }
}
