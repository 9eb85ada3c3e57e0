//! One line a sample, for spreadsheets (RFC 4180).

use crate::results::{Results, Sample};

const COLUMNS: &str = "link,stack,workload,size_bytes,files,block,ok,seconds,session_seconds,client_seconds,\
process_seconds,transfers,connect_s,handshake_s,login_s,body_s,idle_s,first_handshake_s,data_handshake_s,cpu_client_s,cpu_server_s,cpu_machine_s,\
cpu_foreign_s,cpu_idle_pct,steal_pct,foreign_pct,wire_bytes,wire_packets,round_trips,peak_memory_bytes,\
tcp_transmitted_bytes,tcp_retransmitted_bytes,rtt_mean_us,rtt_min_us,fairness,to_client_bytes,to_server_bytes,client_pct_low,client_pct_high,server_pct_low,\
server_pct_high,link_pct_low,link_pct_high,outlier,marked,not_shaped,error";

pub(super) fn table(results: &Results) -> String {
    let mut text = format!("{COLUMNS}\r\n");
    for sample in &results.samples {
        text += &row(sample).join(",");
        text += "\r\n";
    }
    text
}

fn row(sample: &Sample) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.9}"));
    let whole = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
    let low = |range: Option<[f64; 2]>| number(range.map(|[low, _]| low));
    let high = |range: Option<[f64; 2]>| number(range.map(|[_, high]| high));
    let (phases, cpu, wire) = (sample.phases, sample.cpu_seconds, sample.wire);
    let usage = sample.usage;
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
        number(cpu.map(|c| c.foreign)),
        number(sample.cpu_idle_pct),
        number(sample.steal_pct),
        number(sample.foreign_pct),
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
        sample.outlier.to_string(),
        quoted(sample.marked.as_deref().unwrap_or_default()),
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
