//! Results that nobody measured, of known figures.

use serde_json::{Value, json};

/// Results of one cell with these times.
pub(crate) fn results(seconds: [f64; 5], kernel: &str) -> Value {
    let sample = |(block, seconds): (usize, &f64)| {
        json!({
            "link": "unshaped", "stack": "http", "workload": "download", "size_bytes": 1024,
            "files": 1, "block": block, "ok": true, "seconds": seconds,
            "session_seconds": seconds, "client_seconds": null, "process_seconds": null,
            "transfers": 1, "phases": null, "cpu_seconds": null, "cpu_idle_pct": null,
            "steal_pct": null, "background_pct": null, "wire": null, "peak_memory_bytes": null,
            "disturbed": null, "not_shaped": false, "error": null
        })
    };
    json!({
        "schema": 3, "answer": [],
        "plan": {
            "name": "p", "question": "?", "stacks": [{"name": "http", "baseline": null}],
            "workloads": [{"kind": "download", "sizes_bytes": [1024], "stacks": ["http"],
                           "files": 1, "clients": 1, "commands": null}],
            "repetitions": 5, "warmup": 1, "family": "ipv6", "mtu": 1500, "offload": "on",
            "congestion_control": "cubic", "link": "unshaped", "validation_links": [],
            "validation_size_bytes": 1024, "seed": 1
        },
        "environment": {
            "started": "", "finished": "", "headroom": "0.1.0", "kernel": kernel,
            "distribution": "", "cpu": "", "cores": 2, "memory_bytes": 1, "programs": [],
            "stacks": {}, "settings": {}
        },
        "link": {"name": "unshaped", "backend": "veth", "offload": "on", "rate_bps": null,
                 "delay_ms": 0.0, "jitter_ms": 0.0, "loss_pct": 0.0, "queue_packets": null,
                 "rtt_us": null, "self_test": null},
        "validation_links": [], "samples": seconds.iter().enumerate().map(sample).collect::<Vec<_>>(),
        "summary": [], "portable": [], "timelines": [], "warnings": [], "complete": true
    })
}

/// What advice rests on: `http` takes 2 round trips and 1 ms, `https` 3 and 2, `ftp` 10 and
/// 5, on links without loss that pass 1428 bytes of file in 1538.
pub(crate) fn basis() -> Value {
    let links =
        [(0.0, 0.05), (100e6, 2.0), (100e6, 10.0), (50e6, 20.0), (10e6, 50.0), (100e6, 80.0)];
    let stacks = [("http", 2.0, 1.0), ("https", 3.0, 2.0), ("ftp", 10.0, 5.0)];
    let link = |(rate, rtt_ms): &(f64, f64)| {
        json!({
            "name": format!("{} Mbit/s, {rtt_ms} ms", rate / 1e6), "rtt_s": rtt_ms / 1e3,
            "rate_bps": (*rate > 0.0).then_some(rate), "loss": 0.0, "queue_packets": null
        })
    };
    let stack = |(name, trips, _): &(&str, f64, f64)| {
        json!({
            "name": name, "round_trips": *trips as u32, "line_bytes_per_byte": 1538.0 / 1428.0,
            "window_bytes": null, "seconds_per_byte": null, "fastest_bps": 2e9,
            "connects_for_each_file": false, "connections": 1, "loss_answer": "cubic"
        })
    };
    let mut cells = Vec::new();
    for (at, (rate, rtt_ms)) in links.iter().enumerate() {
        for (of, (_, trips, work_ms)) in stacks.iter().enumerate() {
            for (files, bytes) in [(1, 1024), (1, 1 << 20), (8, 1 << 14)] {
                let more = f64::from(files - 1);
                let dialogue_ms = (trips + more) * rtt_ms + work_ms;
                let line = f64::from(files * bytes) * 1538.0 / 1428.0;
                let sending_s = if *rate > 0.0 { 8.0 * line / rate } else { 0.0 };
                let bytes_per_s = (*rate > 0.0).then_some(rate / 8.0 * 1428.0 / 1538.0);
                let body_s =
                    sending_s + waits_s(f64::from(files * bytes), bytes_per_s, rtt_ms / 1e3);
                let time = dialogue_ms / 1e3 + body_s;
                cells.push(json!({
                    "link": at, "stack": of, "files": files, "bytes": bytes, "transfers": 1,
                    "session_s": [0.99 * time, time, 1.01 * time]
                }));
            }
        }
    }
    json!({
        "plan": "made-up", "started": "2026-01-02T03:04:05Z", "machine": "a CPU, 2 cores, Linux",
        "headroom": "0.1.0", "programs": ["nginx 1", "pure-ftpd 1"], "congestion_control": "cubic",
        "payload_bytes": 1428.0, "line_bytes": 1538.0,
        "links": links.iter().map(link).collect::<Vec<_>>(),
        "stacks": stacks.iter().map(stack).collect::<Vec<_>>(), "cells": cells
    })
}

/// Waits of slow start: a window of ten segments doubles until it fills the link.
fn waits_s(bytes: f64, bytes_per_s: Option<f64>, rtt_s: f64) -> f64 {
    let taking_s = |bytes: f64| bytes_per_s.map_or(0.0, |rate| bytes / rate);
    let (mut window, mut sent, mut waits) = (14_280.0, 14_280.0, 0.0);
    while sent < bytes && taking_s(window) < rtt_s + taking_s(1428.0) {
        waits += rtt_s + taking_s(1428.0) - taking_s(window);
        window *= 2.0;
        sent += window;
    }
    waits
}
