//! Tables for spreadsheets (RFC 4180): of samples, and of the intervals of streams.

use crate::schema::{Results, Sample, StreamBin};

/// A row: each column's name and value.
type Row = Vec<(&'static str, String)>;

pub(super) fn table(results: &Results) -> String {
    of_rows(&columns(&Sample::default()), results.samples.iter().map(columns))
}

/// The pieces of time of all streams; none where there was no stream.
pub(super) fn streams(results: &Results) -> Option<String> {
    let of_sample = |sample: &Sample| -> Vec<Row> {
        let bins = sample.realtime.iter().flat_map(|stream| &stream.bins);
        bins.map(|bin| bin_columns(sample, bin)).collect()
    };
    let rows: Vec<Row> = results.samples.iter().flat_map(of_sample).collect();
    rows.first().map(|first| of_rows(first, rows.iter().cloned()))
}

/// Writes a table: the names of its columns, and a line for each row.
pub fn text<const N: usize>(names: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    line(names) + &rows.map(line).collect::<String>()
}

/// Writes the names of a row's columns, and the values of all rows.
fn of_rows(named: &Row, rows: impl Iterator<Item = Row>) -> String {
    let lines = rows.map(|row| line(row.iter().map(|(_, value)| value)));
    line(named.iter().map(|(name, _)| name)) + &lines.collect::<String>()
}

fn line(cells: impl IntoIterator<Item: AsRef<str>>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| quoted(cell.as_ref())).collect();
    cells.join(",") + "\r\n"
}

fn bin_columns(sample: &Sample, bin: &StreamBin) -> Row {
    vec![
        ("link", sample.link.clone()),
        ("stack", sample.stack.clone()),
        ("workload", sample.workload.clone()),
        ("size_bytes", sample.size_bytes.to_string()),
        ("block", sample.block.to_string()),
        ("at_s", bin.at_s.to_string()),
        ("sent", bin.sent.to_string()),
        ("lost", bin.lost.to_string()),
        ("bps", bin.bps.to_string()),
        ("delay_s", number(bin.delay_s)),
        ("delay_max_s", number(bin.delay_max_s)),
        ("jitter_s", number(bin.jitter_s)),
        ("cross_traffic_bps", number(bin.cross_traffic_bps)),
    ]
}

fn columns(sample: &Sample) -> Row {
    let whole = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
    let low = |range: Option<[f64; 2]>| number(range.map(|[low, _]| low));
    let high = |range: Option<[f64; 2]>| number(range.map(|[_, high]| high));
    let (phases, cpu, wire) = (sample.phases, sample.cpu_seconds, sample.wire);
    let usage = sample.usage;
    let stream = sample.realtime.as_ref();
    let delay = stream.and_then(|stream| stream.delay);
    vec![
        ("link", sample.link.clone()),
        ("stack", sample.stack.clone()),
        ("workload", sample.workload.clone()),
        ("size_bytes", sample.size_bytes.to_string()),
        ("files", sample.files.to_string()),
        ("block", sample.block.to_string()),
        ("ok", sample.ok.to_string()),
        ("seconds", number(sample.seconds)),
        ("session_seconds", number(sample.session_seconds)),
        ("client_seconds", number(sample.client_seconds)),
        ("process_seconds", number(sample.process_seconds)),
        ("transfers", sample.transfers.to_string()),
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
        ("outlier", sample.outlier.to_string()),
        ("disturbed", sample.disturbed.as_deref().unwrap_or_default().to_owned()),
        ("not_shaped", sample.not_shaped.to_string()),
        ("error", sample.error.as_deref().unwrap_or_default().to_owned()),
    ]
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:.9}"))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;

    #[test]
    fn quotes_what_would_end_a_cell() {
        let mut bad = sample("ftp", 0, 1.0);
        bad.error = Some("a, \"b\"\nc".into());
        let text = of_rows(&columns(&bad), std::iter::once(columns(&bad)));
        let (header, row) = text.split_once("\r\n").expect("a header");
        assert!(header.starts_with("link,stack,") && header.ends_with(",not_shaped,error"));
        assert!(row.ends_with(",false,\"a, \"\"b\"\"\nc\"\r\n"), "{row}");
    }
}
