//! A row for each sample, as tables for other programs have it.

use crate::schema::Sample;

/// A cell of such a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Words; empty: there are none.
    Text(String),
    /// A count; none: it was not taken.
    Whole(Option<u64>),
    /// A measure; none: it was not taken.
    Number(Option<f64>),
    /// Yes or no.
    Flag(bool),
}

impl std::fmt::Display for Value {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => to.write_str(text),
            Self::Whole(value) => value.map_or(Ok(()), |value| write!(to, "{value}")),
            Self::Number(value) => value.map_or(Ok(()), |value| write!(to, "{value:.9}")),
            Self::Flag(value) => write!(to, "{value}"),
        }
    }
}

/// The columns of a sample, in their order.
pub(super) fn columns(sample: &Sample) -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::Text(text.to_owned());
    let (number, whole) = (Value::Number, Value::Whole);
    let low = |range: Option<[f64; 2]>| number(range.map(|[low, _]| low));
    let high = |range: Option<[f64; 2]>| number(range.map(|[_, high]| high));
    let (phases, cpu, wire) = (sample.phases, sample.cpu_seconds, sample.wire);
    let (usage, sessions) = (sample.usage, sample.sessions.as_ref());
    let stream = sample.realtime.as_ref();
    let delay = stream.and_then(|stream| stream.delay);
    vec![
        ("link", text(&sample.link)),
        ("stack", text(&sample.stack)),
        ("workload", text(&sample.workload)),
        ("size_bytes", whole(Some(sample.size_bytes))),
        ("files", whole(Some(sample.files.into()))),
        ("block", whole(Some(sample.block.into()))),
        ("ok", Value::Flag(sample.ok)),
        ("seconds", number(sample.seconds)),
        ("session_seconds", number(sample.session_seconds)),
        ("client_seconds", number(sample.client_seconds)),
        ("process_seconds", number(sample.process_seconds)),
        ("transfers", whole(Some(sample.transfers.into()))),
        ("connect_s", number(phases.map(|p| p.connect))),
        ("handshake_s", number(phases.map(|p| p.handshake))),
        ("login_s", number(phases.map(|p| p.login))),
        ("body_s", number(phases.map(|p| p.body))),
        ("idle_s", number(phases.map(|p| p.idle))),
        ("first_handshake_s", number(sample.first_handshake_seconds)),
        ("data_handshake_s", number(sample.data_handshake_seconds)),
        ("key_updates", number(sample.key_updates)),
        ("set_up_server_cpu_s", number(sample.set_up_server_cpu_seconds)),
        ("cpu_client_s", number(cpu.map(|c| c.client))),
        ("cpu_server_s", number(cpu.map(|c| c.server))),
        ("cpu_machine_s", number(cpu.map(|c| c.machine))),
        ("cpu_background_s", number(cpu.map(|c| c.background))),
        ("cpu_idle_pct", number(sample.cpu_idle_pct)),
        ("steal_pct", number(sample.steal_pct)),
        ("background_pct", number(sample.background_pct)),
        ("wire_bytes", whole(wire.map(|w| w.bytes))),
        ("wire_packets", whole(wire.map(|w| w.packets))),
        ("round_trips", whole(wire.and_then(|w| w.round_trips).map(u64::from))),
        ("peak_memory_bytes", whole(sample.peak_memory_bytes)),
        ("tcp_transmitted_bytes", whole(sample.tcp.map(|t| t.transmitted_bytes))),
        ("tcp_retransmitted_bytes", whole(sample.tcp.map(|t| t.retransmitted_bytes))),
        ("rtt_mean_us", number(sample.tcp.and_then(|t| t.rtt_mean_us))),
        ("rtt_min_us", number(sample.tcp.and_then(|t| t.rtt_min_us))),
        ("fairness", number(sample.fairness)),
        ("to_client_bytes", number(usage.map(|u| u.to_client_bytes))),
        ("to_server_bytes", number(usage.map(|u| u.to_server_bytes))),
        ("client_pct_low", low(usage.and_then(|u| u.client_pct))),
        ("client_pct_high", high(usage.and_then(|u| u.client_pct))),
        ("server_pct_low", low(usage.and_then(|u| u.server_pct))),
        ("server_pct_high", high(usage.and_then(|u| u.server_pct))),
        ("link_pct_low", low(usage.and_then(|u| u.link_pct))),
        ("link_pct_high", high(usage.and_then(|u| u.link_pct))),
        ("load_s", number(sample.load.and_then(|l| l.measured_s))),
        ("load_packets", whole(sample.load.and_then(|l| l.packets))),
        ("load_lost", whole(sample.load.and_then(|l| l.lost))),
        ("sessions", whole(sessions.map(|s| s.count.into()))),
        ("sessions_failed", whole(sessions.map(|s| s.failed.into()))),
        ("sessions_per_s", number(sessions.map(|s| s.per_s))),
        ("session_p50_s", number(sessions.map(|s| s.p50_s))),
        ("session_p99_s", number(sessions.and_then(|s| s.p99_s))),
        ("session_max_s", number(sessions.map(|s| s.max_s))),
        ("stream_sent", whole(stream.map(|s| s.sent))),
        ("stream_lost", whole(stream.map(|s| s.lost))),
        ("stream_reordered", whole(stream.map(|s| s.reordered))),
        ("stream_mean_bps", number(stream.map(|s| s.mean_bps))),
        ("stream_lowest_bps", number(stream.and_then(|s| s.lowest_bps))),
        ("stream_highest_bps", number(stream.and_then(|s| s.highest_bps))),
        ("delay_p50_s", number(delay.map(|d| d.p50_s))),
        ("delay_p95_s", number(delay.map(|d| d.p95_s))),
        ("delay_p99_s", number(delay.map(|d| d.p99_s))),
        ("delay_max_s", number(delay.map(|d| d.max_s))),
        ("jitter_s", number(stream.map(|s| s.jitter_s))),
        ("cross_traffic_bps", number(stream.and_then(|s| s.cross_traffic_bps))),
        ("frames", whole(stream.and_then(|s| s.frames))),
        ("outlier", Value::Flag(sample.outlier)),
        ("disturbed", text(sample.disturbed.as_deref().unwrap_or_default())),
        ("not_shaped", Value::Flag(sample.not_shaped)),
        ("error", text(sample.error.as_deref().unwrap_or_default())),
    ]
}
