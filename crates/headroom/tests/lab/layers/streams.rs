//! Streams and datagrams instead of files, with and without layers around them.

use headroom_testing::privileged;
use serde_json::Value;

use super::seen_in_clear;
use crate::common::{Ground, array, number, text};

#[test]
fn streams_and_datagrams_are_measured_with_and_without_a_tunnel() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("load");
    ground.write(
        "p.toml",
        "stacks = [\"iperf3\", \"iperf3/wireguard\", \"udp\", \"udp/wireguard\"]\nrepetitions = 2\n\
         [[workload]]\nkind = \"stream\"\nseconds = 1\nstacks = [\"iperf3\", \"iperf3/wireguard\"]\n\
         [[workload]]\nkind = \"packets\"\nseconds = 1\nsizes = [\"64B\"]\nstacks = [\"udp\"]\n\
         [[workload]]\nkind = \"echo\"\nseconds = 1\nsizes = [\"512B\"]\nstacks = [\"udp/wireguard\"]\n",
    );
    let results = ground.measure("p.toml");
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], Value::Bool(true), "{sample}");
        let (seconds, load) = (number(sample, "seconds"), &sample["load"]);
        assert!(seconds > 0.0 && sample["session_seconds"].is_null(), "{sample}");
        match text(sample, "workload") {
            "stream" => {
                let (time, bytes) = (number(load, "measured_s"), number(load, "bytes"));
                assert!((seconds - time * 1_073_741_824.0 / bytes).abs() < 1e-9, "{sample}");
                // iperf3's own clock tells nearly the same
                let apart = seconds / number(sample, "client_seconds");
                assert!((0.5..2.0).contains(&apart), "{sample}");
            }
            "packets" => {
                let (time, packets) = (number(load, "measured_s"), number(load, "packets"));
                assert!((seconds - time / packets).abs() < 1e-9, "{sample}");
            }
            _ => assert!(seconds <= number(load, "p99_s"), "{sample}"),
        }
    }
    // none of it has a file, a session or packets that were counted in a run of their own
    assert!(results["accounting"].is_null() && array(&results, "models").is_empty());
    let checked: Vec<(&str, bool)> = array(&results, "clear_text")
        .iter()
        .map(|row| (text(row, "stack"), row["marker_seen"] == Value::Bool(true)))
        .collect();
    assert_eq!(
        checked,
        [("iperf3", true), ("iperf3/wireguard", false), ("udp", true), ("udp/wireguard", false)]
    );
}

#[test]
fn streams_at_a_rate_are_followed_packet_by_packet() {
    if !privileged() {
        return;
    }
    // a link for which the traffic beside the streams is never too fast to be captured
    let ground = Ground::new("realtime");
    ground.write(
        "p.toml",
        "link = \"200mbit\"\nrepetitions = 2\n\
         stacks = [\"udp\", \"rtp\", \"rtp/qesp\", \"rtp/esp(transport)\"]\n\
         [[workload]]\nkind = \"packets\"\nrate = \"200pps\"\nseconds = 1\nsizes = [\"64B\"]\nstacks = [\"udp\"]\n\
         [[workload]]\nkind = \"realtime\"\nrate = \"1mbit\"\nseconds = 2\ncross-traffic = \"bulk:1-2\"\n\
         stacks = [\"rtp\", \"rtp/qesp\", \"rtp/esp(transport)\"]\n",
    );
    let results = ground.measure("p.toml");
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], Value::Bool(true), "{sample}");
        if text(sample, "workload") == "packets(rate=200pps)" {
            let load = &sample["load"];
            assert_eq!(number(load, "packets") + number(load, "lost"), 199.0, "{sample}");
            continue;
        }
        let stream = &sample["realtime"];
        // of all packets those beside which there was TCP: from one second to two, which are bins
        // of a fifth of a second
        let (sent, arrived) = (number(stream, "sent"), number(stream, "arrived"));
        let beside = array(stream, "bins").iter().skip(5).take(5);
        assert_eq!(sent, beside.map(|bin| number(bin, "sent")).sum::<f64>(), "{sample}");
        assert!(sent - arrived - number(stream, "lost") == 0.0, "{sample}");
        let delay = |of: &str| number(&stream["delay"], of);
        assert!(0.0 < delay("p50_s") && delay("p50_s") <= delay("max_s"), "{sample}");
        assert_eq!(delay("p50_s"), number(sample, "seconds"), "{sample}");
        assert!(
            number(stream, "cross_traffic_bps") > 0.0 && number(stream, "jitter_s") > 0.0,
            "{sample}"
        );
        let sent: f64 = array(stream, "bins").iter().map(|bin| number(bin, "sent")).sum();
        assert_eq!(sent, 250.0, "{sample}");
    }
    let bins: usize = array(&results, "samples")
        .iter()
        .filter(|sample| !sample["realtime"].is_null())
        .map(|sample| array(&sample["realtime"], "bins").len())
        .sum();
    let lines = std::fs::read_to_string(ground.path("out/streams.csv")).expect("the series");
    assert_eq!(lines.lines().count(), bins + 1);
    assert!(seen_in_clear(&results)["rtp"]);
    assert!(!seen_in_clear(&results)["rtp/qesp"]);
}

#[test]
fn a_router_prefers_what_it_can_recognise() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("priority");
    let narrow = "rtp/qesp(window=64)";
    let both = "rtp/qesp(window=64,sa-per-class=udp:5004)";
    ground.write(
        "p.toml",
        &format!(
            "stacks = [\"rtp/esp\", {narrow:?}, {both:?}]\nrepetitions = 2\nfamily = \"ipv6\"\n\
             link = \"5mbit,queue=100,priority=udp:5004,dscp=ef\"\n\
             [[workload]]\nkind = \"realtime\"\nrate = \"1600kbit\"\nsizes = [\"100B\"]\n\
             seconds = 1\ncross-traffic = \"bulk\"\n"
        ),
    );
    let dry = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
    assert!(dry.stdout.contains("meta priority set"), "{dry}");
    let results = ground.measure("p.toml");
    let sum = |stack: &str, value: &dyn Fn(&Value) -> f64| -> f64 {
        let of = |sample: &&Value| text(sample, "stack") == stack;
        array(&results, "samples").iter().filter(of).map(value).sum()
    };
    let dropped = |stack: &str, why: &str| {
        sum(stack, &|sample| sample["drops"][why].as_f64().unwrap_or_default())
    };
    for stack in ["rtp/esp", both] {
        assert!(
            sum(stack, &|sample| number(&sample["realtime"], "cross_traffic_bps")) > 0.0,
            "{stack}"
        );
    }
    // the header that a router has changed is not what the check value covers
    assert_eq!((dropped("rtp/esp", "forged"), dropped(both, "forged")), (0.0, 0.0), "{results}");
    // a long frame takes 2.4 ms, and TCP keeps many of them waiting
    let delay = |stack| sum(stack, &|sample| number(&sample["realtime"]["delay"], "p50_s"));
    for preferred in [narrow, both] {
        assert!(delay("rtp/esp") > 2.0 * delay(preferred), "{results}");
    }
    // what waits falls out of the window of what overtakes it, unless that has its own
    // class; numbers of 64 bits are then taken for others, and check values are wrong.
    // 64 of the stream's packets are 32 ms, ten of TCP's beside them are 60: it needs no
    // more than what TCP sends first (RFC 6928), however its window grows.
    assert!(dropped(narrow, "stale") + dropped(narrow, "forged") > 0.0, "{results}");
    let commands = results["link"]["commands"].to_string();
    assert!(commands.contains("dscp set 46") && commands.contains("prio 1"), "{commands}");
}
