//! Prints a record of a trace as a line of text.

use serde_json::Value;

use crate::output::print_line;

/// Prints a record. Returns false if standard output is closed.
pub(crate) fn show(record: &Value, json: bool) -> bool {
    print_line(&if json { record.to_string() } else { text_line(record) })
}

/// Describes what IKE did.
fn ike_line(record: &Value, event: &str) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or("");
    let mut line = format!("{:>14.6}  {:<3}  {:<7}  ", time(record), text("direction"), "ike");
    line += &match event {
        "message" => format!("{} {} {}", text("exchange"), text("kind"), record["message_id"]),
        "established" | "rekeyed" | "moved" | "closed" => format!("IKE SA {event}"),
        other => {
            let what = other.strip_prefix("child-").unwrap_or(other);
            format!("CHILD SA {} {what}", text("child"))
        }
    };
    if record["repeated"] == true {
        line += ", sent before";
    }
    if let (Some(inbound), Some(outbound)) =
        (record["spis"][0].as_u64(), record["spis"][1].as_u64())
    {
        line += &format!("  in {inbound:#x}, out {outbound:#x}");
    }
    if !text("peer").is_empty() {
        line += &format!("  peer {}", text("peer"));
    }
    if !text("remote").is_empty() {
        line += &format!("  at {}", text("remote"));
    }
    for why in ["error", "reason"].map(text).into_iter().filter(|why| !why.is_empty()) {
        line += &format!("  ({why})");
    }
    line
}

/// Returns the seconds since the gateway started.
fn time(record: &Value) -> f64 {
    let number = |value: &Value| value.as_u64().unwrap_or(0) as f64;
    number(&record["time"]["secs"]) + number(&record["time"]["nanos"]) / 1e9
}

fn text_line(record: &Value) -> String {
    if let Some(event) = record["ike"].as_str() {
        return ike_line(record, event);
    }
    let text = |key: &str| record[key].as_str().unwrap_or("");
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let time = time(record);
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
    fn prints_what_ike_does_as_one_line() {
        let message = json!({
            "time": { "secs": 2, "nanos": 0 }, "ike": "message", "peer": "office", "remote": "192.0.2.2:4500",
            "direction": "out", "exchange": "CREATE_CHILD_SA", "kind": "response", "message_id": 7, "repeated": true,
            "error": "TEMPORARY_FAILURE", "child": null, "spis": null, "reason": null
        });
        assert_eq!(
            text_line(&message),
            "      2.000000  out  ike      CREATE_CHILD_SA response 7, sent before  peer office  at 192.0.2.2:4500  \
             (TEMPORARY_FAILURE)"
        );
        let child = json!({ "ike": "child-rekeyed", "child": "net", "spis": [4096, 8192], "peer": "office" });
        assert_eq!(
            text_line(&child),
            "      0.000000       ike      CHILD SA net rekeyed  in 0x1000, out 0x2000  peer office"
        );
        let closed =
            json!({ "ike": "closed", "remote": "192.0.2.2:500", "reason": "closed by the peer" });
        assert_eq!(
            text_line(&closed),
            "      0.000000       ike      IKE SA closed  at 192.0.2.2:500  (closed by the peer)"
        );
    }

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
