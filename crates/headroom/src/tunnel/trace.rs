//! Prints a record of a trace as a line of text.

use serde_json::Value;

use crate::output::print_line;

/// Prints a record. Returns false if standard output is closed.
pub(crate) fn show(record: &Value, json: bool) -> bool {
    print_line(&if json { record.to_string() } else { text_line(record) })
}

fn text_line(record: &Value) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or("");
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let time =
        number(&record["time"]["secs"]) as f64 + number(&record["time"]["nanos"]) as f64 / 1e9;
    let mut line = format!("{time:>14.6}  {:<3}  {:<7}", text("direction"), text("decision"));
    let end = |address: &str, port: usize| match record["ports"][port].as_u64() {
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
        None => address.to_owned(),
    };
    if !text("source").is_empty() {
        line += &format!("  {} → {}", end(text("source"), 0), end(text("destination"), 1));
    }
    if let Some(protocol) = record["protocol"].as_u64() {
        line += &match protocol {
            1 => "  ICMP".into(),
            6 => "  TCP".into(),
            17 => "  UDP".into(),
            58 => "  ICMPv6".into(),
            other => format!("  protocol {other}"),
        };
    }
    let (packets, bytes) = (number(&record["packets"]), number(&record["bytes"]));
    line += &match packets {
        0 | 1 => format!("  {bytes} bytes"),
        _ => format!("  {packets} packets, {bytes} bytes"),
    };
    if !text("policy").is_empty() {
        line += &format!("  policy {}", text("policy"));
    }
    let associations: Vec<&str> =
        record["associations"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !associations.is_empty() {
        line += &format!("  {}", associations.join(" in "));
    }
    if let Some(sequence) = record["sequence"].as_u64() {
        line += &format!(" #{sequence}");
    }
    if !text("moved_to").is_empty() {
        line += &format!("  the peer is now at {}", text("moved_to"));
    }
    if !text("reason").is_empty() {
        line += &format!("  ({})", text("reason"));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text_line;

    #[test]
    fn prints_a_record_as_one_line() {
        let record = json!({
            "time": { "secs": 1, "nanos": 5000 }, "direction": "out", "decision": "protect", "reason": null,
            "source": "fd00::1", "destination": "10.2.0.1", "protocol": 6, "ports": [5000, 80],
            "packets": 3, "bytes": 4200, "policy": "site", "associations": ["esp", "ah"], "sequence": 9
        });
        assert_eq!(
            text_line(&record),
            "      1.000005  out  protect  [fd00::1]:5000 → 10.2.0.1:80  TCP  3 packets, 4200 bytes  policy site  esp in \
             ah #9"
        );
        let bare = json!({ "direction": "in", "decision": "drop", "reason": "unknown-spi", "packets": 1, "bytes": 60 });
        assert_eq!(text_line(&bare), "      0.000000  in   drop     60 bytes  (unknown-spi)");
    }
}
