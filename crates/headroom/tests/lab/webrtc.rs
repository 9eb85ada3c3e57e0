//! A data channel of WebRTC between pages of two Chromium, in the lab's namespaces.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use headroom_testing::{own_address, privileged};
use serde_json::{Value, json};

use crate::common::browser::browser;
use crate::common::{Ground, array, number, text};

#[test]
fn pages_of_two_browsers_move_files_by_a_data_channel() {
    if !privileged() || browser().is_none() {
        return;
    }
    for family in ["ipv4", "ipv6"] {
        let ground = Ground::new(&format!("webrtc-{family}"));
        ground.write(
            "p.toml",
            &format!(
                "stacks = [\"http\", \"webrtc\"]\nrepetitions = 2\nfamily = \"{family}\"\n\
                 [[workload]]\nkind = \"download\"\nsizes = [\"3MiB\"]\ntransfers-per-sample = 1\n\
                 [[workload]]\nkind = \"upload\"\nsizes = [\"3MiB\"]\ntransfers-per-sample = 1\n"
            ),
        );
        let results = ground.measure("p.toml");
        let samples = array(&results, "samples").iter();
        let of_it: Vec<&Value> =
            samples.filter(|sample| text(sample, "stack") == "webrtc").collect();
        // two workloads in two blocks, and the counts of packets
        assert!(of_it.len() >= 4, "{results}");
        for sample in of_it {
            assert_eq!(sample["ok"], Value::Bool(true), "{sample}");
            assert!(number(sample, "client_seconds") > 0.0, "{sample}");
        }
        let checked =
            array(&results, "clear_text").iter().find(|row| text(row, "stack") == "webrtc");
        let checked = checked.unwrap_or_else(|| panic!("no check: {results}"));
        assert_eq!(checked["marker_seen"], Value::Bool(false), "{checked}");
        assert!(number(checked, "bytes_searched") > 0.0, "{checked}");
    }
}

#[test]
fn a_peer_refuses_what_it_cannot_serve_and_serves_on() {
    let Some(chromium) = browser() else { return };
    let ground = Ground::new("webrtc-refused");
    for folder in ["served", "peer"] {
        std::fs::create_dir(ground.path(folder)).expect("a folder");
    }
    let address = own_address(14_900);
    let mut peer = ground.headroom(&format!("browse-peer --listen {address} --root served"));
    peer.arg("--folder").arg(ground.path("peer")).arg("--chromium").arg(chromium);
    let mut peer = ground.start(peer);
    for (wanted, words) in [
        (json!({"remote": "../secret", "upload": false}), "is no path below the served folder"),
        (json!({"remote": "missing", "upload": false}), "cannot find"),
        (json!({"remote": "up", "upload": true, "bytes": 3, "offer": "none"}), "the page: "),
        (json!({"remote": "/etc/passwd", "upload": true}), "is no path below the served folder"),
    ] {
        let stream = peer.until("a connection", |_| TcpStream::connect(address).ok());
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        writeln!(&stream, "{wanted}").expect("it listens");
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).expect("it answers");
        assert!(answer.starts_with("{\"error\":") && answer.contains(words), "{wanted}: {answer}");
    }
    assert_eq!(std::fs::read_dir(ground.path("served")).expect("a folder").count(), 0);
}
