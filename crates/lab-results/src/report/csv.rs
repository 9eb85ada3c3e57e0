//! Tables for spreadsheets (RFC 4180): of samples, and of the intervals of streams.

use super::rows::columns;
use crate::schema::{Results, Sample, StreamBin};

/// A row: each column's name and value.
type Row = Vec<(&'static str, String)>;

pub(super) fn table(results: &Results) -> String {
    of_rows(&written(&Sample::default()), results.samples.iter().map(written))
}

fn written(sample: &Sample) -> Row {
    let columns = columns(sample).into_iter();
    columns.map(|(name, value)| (name, value.to_string())).collect()
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
        let text = of_rows(&written(&bad), std::iter::once(written(&bad)));
        let (header, row) = text.split_once("\r\n").expect("a header");
        assert!(header.starts_with("link,stack,") && header.ends_with(",not_shaped,error"));
        assert!(row.ends_with(",false,\"a, \"\"b\"\"\nc\"\r\n"), "{row}");
    }
}
