//! For spreadsheets (RFC 4180): one line a sample, and of streams one a piece of time.

use crate::schema::{Results, Sample};

const COLUMNS: &str = "link,stack,workload,size_bytes,files,block,ok,seconds,session_seconds,client_seconds,\
process_seconds,transfers,connect_s,handshake_s,login_s,body_s,idle_s,first_handshake_s,data_handshake_s,cpu_client_s,cpu_server_s,cpu_machine_s,\
cpu_background_s,cpu_idle_pct,steal_pct,background_pct,wire_bytes,wire_packets,round_trips,peak_memory_bytes,\
tcp_transmitted_bytes,tcp_retransmitted_bytes,rtt_mean_us,rtt_min_us,fairness,to_client_bytes,to_server_bytes,client_pct_low,client_pct_high,server_pct_low,\
server_pct_high,link_pct_low,link_pct_high,load_s,load_packets,load_lost,stream_sent,\
stream_lost,stream_reordered,stream_mean_bps,stream_lowest_bps,stream_highest_bps,delay_p50_s,delay_p95_s,delay_p99_s,\
delay_max_s,jitter_s,cross_traffic_bps,frames,outlier,disturbed,not_shaped,error";

pub(super) fn table(results: &Results) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for sample in &results.samples {
        text += &row(sample).join(",");
        text += "\r\n";
    }
    text
}

/// The pieces of time of all streams; none where there was no stream.
pub(super) fn streams(results: &Results) -> Option<String> {
    let mut text = "link,stack,workload,size_bytes,block,at_s,sent,lost,bps,delay_s,delay_max_s,jitter_s,cross_traffic_bps\r\n"
        .to_owned();
    let header = text.len();
    for sample in &results.samples {
        for bin in sample.realtime.iter().flat_map(|stream| &stream.bins) {
            let row = [
                quoted(&sample.link),
                quoted(&sample.stack),
                quoted(&sample.workload),
                sample.size_bytes.to_string(),
                sample.block.to_string(),
                bin.at_s.to_string(),
                bin.sent.to_string(),
                bin.lost.to_string(),
                bin.bps.to_string(),
                number(bin.delay_s),
                number(bin.delay_max_s),
                number(bin.jitter_s),
                number(bin.cross_traffic_bps),
            ];
            text += &row.join(",");
            text += "\r\n";
        }
    }
    (text.len() > header).then_some(text)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:.9}"))
}

fn row(sample: &Sample) -> Vec<String> {
    let whole = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
    let low = |range: Option<[f64; 2]>| number(range.map(|[low, _]| low));
    let high = |range: Option<[f64; 2]>| number(range.map(|[_, high]| high));
    let (phases, cpu, wire) = (sample.phases, sample.cpu_seconds, sample.wire);
    let usage = sample.usage;
    let stream = sample.realtime.as_ref();
    let delay = stream.and_then(|stream| stream.delay);
    vec![
        quoted(&sample.link),
        quoted(&sample.stack),
        quoted(&sample.workload),
        sample.size_bytes.to_string(),
        sample.files.to_string(),
        sample.block.to_string(),
        sample.ok.to_string(),
        number(sample.seconds),
        number(sample.session_seconds),
        number(sample.client_seconds),
        number(sample.process_seconds),
        sample.transfers.to_string(),
        number(phases.map(|p| p.connect)),
        number(phases.map(|p| p.handshake)),
        number(phases.map(|p| p.login)),
        number(phases.map(|p| p.body)),
        number(phases.map(|p| p.idle)),
        number(sample.first_handshake_seconds),
        number(sample.data_handshake_seconds),
        number(cpu.map(|c| c.client)),
        number(cpu.map(|c| c.server)),
        number(cpu.map(|c| c.machine)),
        number(cpu.map(|c| c.background)),
        number(sample.cpu_idle_pct),
        number(sample.steal_pct),
        number(sample.background_pct),
        whole(wire.map(|w| w.bytes)),
        whole(wire.map(|w| w.packets)),
        whole(wire.and_then(|w| w.round_trips).map(u64::from)),
        whole(sample.peak_memory_bytes),
        whole(sample.tcp.map(|t| t.transmitted_bytes)),
        whole(sample.tcp.map(|t| t.retransmitted_bytes)),
        number(sample.tcp.and_then(|t| t.rtt_mean_us)),
        number(sample.tcp.and_then(|t| t.rtt_min_us)),
        number(sample.fairness),
        number(usage.map(|u| u.to_client_bytes)),
        number(usage.map(|u| u.to_server_bytes)),
        low(usage.and_then(|u| u.client_pct)),
        high(usage.and_then(|u| u.client_pct)),
        low(usage.and_then(|u| u.server_pct)),
        high(usage.and_then(|u| u.server_pct)),
        low(usage.and_then(|u| u.link_pct)),
        high(usage.and_then(|u| u.link_pct)),
        number(sample.load.and_then(|l| l.measured_s)),
        whole(sample.load.and_then(|l| l.packets)),
        whole(sample.load.and_then(|l| l.lost)),
        whole(stream.map(|s| s.sent)),
        whole(stream.map(|s| s.lost)),
        whole(stream.map(|s| s.reordered)),
        number(stream.map(|s| s.mean_bps)),
        number(stream.and_then(|s| s.lowest_bps)),
        number(stream.and_then(|s| s.highest_bps)),
        number(delay.map(|d| d.p50_s)),
        number(delay.map(|d| d.p95_s)),
        number(delay.map(|d| d.p99_s)),
        number(delay.map(|d| d.max_s)),
        number(stream.map(|s| s.jitter_s)),
        number(stream.and_then(|s| s.cross_traffic_bps)),
        whole(stream.and_then(|s| s.frames)),
        sample.outlier.to_string(),
        quoted(sample.disturbed.as_deref().unwrap_or_default()),
        sample.not_shaped.to_string(),
        quoted(sample.error.as_deref().unwrap_or_default()),
    ]
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
    fn every_row_has_every_column() {
        let mut bad = sample("ftp", 0, 1.0);
        bad.error = Some("a, \"b\"\nc".into());
        assert_eq!(row(&bad).len(), COLUMNS.split(',').count());
        assert_eq!(row(&bad).last().map(String::as_str), Some("\"a, \"\"b\"\"\nc\""));
    }
}
