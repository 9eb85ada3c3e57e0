//! What each section of the report says, beside what the results hold: figures
//! put into them by hand, and those that the lab derives from them.

use std::path::Path;

use crate::common::browser::{attribute, browser, count, rendered, section};
use crate::common::layout;
use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use serde_json::{Value, json};

const PLAN: &str = "stacks = [\"http\", \"https\"]\nrepetitions = 3\n\
                    [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\", \"1MiB\", \"16MiB\"]\n";

#[test]
fn each_section_shows_what_the_results_hold() {
    if !privileged() {
        return;
    }
    let Some(browser) = browser() else { return };
    let ground = Ground::new("report-sections");
    ground.write("p.toml", PLAN);
    let measured = ground.measure("p.toml");
    let (page, results) = report(&ground, &browser, "known", &known(measured.clone()));
    assert_models(&ground, &page, &results);
    assert_predictions(&page, &results);
    assert_wire(&page, &results);
    assert!(
        page.contains("<section id=\"advice\" aria-labelledby=\"advice-title\" hidden"),
        "too few links"
    );
    assert_links(&page);
    assert_hosts(&page);
    layout::assert_fits(&ground, &browser, "known");
    assert_marks(&ground, &page);
    let cells = section(&page, "cells");
    assert!(cells.contains("1 of 6 outlier"), "an outlier is marked: {cells}");
    assert!(!page.contains("role=\"alert\""), "a complete run has no alarm");

    let three = with_third_link(known(measured.clone()));
    let (page, _) = report(&ground, &browser, "links", &three);
    assert_advice(&ground, &page);
    layout::assert_fits(&ground, &browser, "links");

    let mut cut = known(measured);
    cut["complete"] = json!(false);
    cut["ended"] = json!("it was <b>interrupted</b>");
    let (page, _) = report(&ground, &browser, "cut", &cut);
    let alert = page.find("role=\"alert\"").expect("a cut run says so");
    let first = page.find("<section").expect("sections");
    assert!(alert < first, "above everything else");
    assert!(page[alert..].contains("it was &lt;b&gt;interrupted&lt;/b&gt;"));
}

/// Results that the lab has derived again, and their page.
fn report(ground: &Ground, browser: &Path, name: &str, results: &Value) -> (String, Value) {
    std::fs::create_dir(ground.path(name)).expect("a folder");
    ground.write(&format!("{name}/results.json"), &results.to_string());
    let rebuilt = ground.end_of(ground.headroom(&format!("lab report {name}")));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");
    let kept = std::fs::read_to_string(ground.path(&format!("{name}/results.json")));
    let page = rendered(ground, browser, name);
    assert_eq!(attribute(&page, "data-rendered").as_deref(), Some("ok"));
    assert_eq!(count(&page, "data-errors"), 0);
    (page, serde_json::from_str(&kept.expect("results")).expect("JSON"))
}

/// Six blocks of known times, http the faster one for small files and https for
/// large ones; validation links; a layer; a self-test.
fn known(mut results: Value) -> Value {
    let mut measured = array(&results, "samples").clone();
    let cell = |one: &Value| (text(one, "stack").to_owned(), one["size_bytes"].as_u64());
    measured.sort_by_key(cell);
    measured.dedup_by_key(|one| cell(one));
    let mut samples = Vec::new();
    for block in 0..6 {
        for one in &measured {
            let mut sample = one.clone();
            sample["block"] = json!(block);
            sample["disturbed"] = Value::Null;
            let (size, secured) = (number(one, "size_bytes"), one["stack"] == "https");
            let (fixed, per_byte) = if secured { (0.003, 1e-9) } else { (0.001, 3e-9) };
            let noise = f64::from((block * if secured { 2 } else { 1 }) % 3) - 1.0;
            let outlier = block == 5 && secured && size > 2e6;
            let factor = if outlier { 1.5 } else { 1.0 + 0.01 * noise };
            sample["seconds"] = json!(0.9 * factor * (fixed + per_byte * size));
            sample["session_seconds"] = json!(factor * (fixed + per_byte * size));
            sample["wire"]["packets"] = json!(1_234_567);
            sample["wire"]["payload_efficiency_pct"] = json!(94.25);
            sample["wire"]["header_bytes_per_packet"] = json!(86.5);
            sample["not_shaped"] = json!(size < 2e3);
            sample["tcp"] = json!({ "transmitted_bytes": 1000, "retransmitted_bytes": 25,
                                    "rtt_mean_us": 320.0, "rtt_min_us": 250.0 });
            samples.push(sample);
        }
    }
    let checks = [("far", 100e6, 25.0, 0.0), ("lossy", 50e6, 10.0, 0.5), ("fast", 0.0, 1.0, 1.0)];
    let on_checks = checks.iter().flat_map(|(name, ..)| {
        samples.iter().map(move |one| {
            let mut sample = one.clone();
            sample["link"] = json!(name);
            sample
        })
    });
    let all: Vec<Value> = on_checks.collect::<Vec<_>>().into_iter().chain(samples).collect();
    results["samples"] = json!(all);
    let links = checks.iter().map(|&(name, rate_bps, delay_ms, loss_pct)| {
        let mut link = results["link"].clone();
        link["name"] = json!(name);
        link["rate_bps"] = if rate_bps > 0.0 { json!(rate_bps as u64) } else { Value::Null };
        link["delay_ms"] = json!(delay_ms);
        link["loss_pct"] = json!(loss_pct);
        link["self_test"] = self_test();
        link
    });
    results["validation_links"] = json!(links.collect::<Vec<_>>());
    let capture = |stack: &str, file: &str, snaplen: u32| {
        json!({ "stack": stack, "workload": "download", "size_bytes": 16 << 20, "file": file,
                "packets": 1800, "snaplen": snaplen })
    };
    results["captures"] = json!([
        capture("http", "captures/http#1.pcap", 1514),
        capture("https", "javascript:document.title='pwned'", 190),
    ]);
    results["environment"]["hosts"] = json!([host("client"), host("server")]);
    results["layer_setups"] = json!([{ "stack": "https", "layer": "tls", "packets": 5, "bytes": 1540,
        "round_trips": 1, "seconds": [0.001, 0.004, 0.002] }]);
    results
}

/// The same with a third link without loss, so that a model can be fitted.
fn with_third_link(mut results: Value) -> Value {
    let of_far = |key: &str, name: &str| -> Vec<Value> {
        array(&results, key).iter().filter(|one| one[name] == "far").cloned().collect()
    };
    let (mut samples, mut links) = (of_far("samples", "link"), of_far("validation_links", "name"));
    samples.iter_mut().for_each(|sample| sample["link"] = json!("near"));
    for link in &mut links {
        (link["name"], link["delay_ms"]) = (json!("near"), json!(5.0));
    }
    for (key, more) in [("samples", samples), ("validation_links", links)] {
        results[key].as_array_mut().expect("a list").extend(more);
    }
    results
}

/// The panel of the first screen has what the command answers.
fn assert_advice(ground: &Ground, page: &str) {
    let (_, rest) = page.split_once("id=\"advice-grid\">").expect("the answers");
    let (grid, _) = rest.split_once("</script>").expect("their end");
    let grid: Value = serde_json::from_str(grid).expect("JSON");
    let answers = array(&grid, "answers");
    let known = || answers.iter().enumerate().filter(|(_, answer)| !answer.is_null());
    assert_eq!(count(page, "data-advised"), known().count());
    let (at, answer) = known().next_back().expect("an answer");
    let (rates, rtts, sizes) =
        (array(&grid, "rates_bps"), array(&grid, "rtts_s"), array(&grid, "sizes"));
    let of =
        |values: &[Value], index: usize| values[index % values.len()].as_f64().expect("a number");
    let size = of(sizes, at);
    let rtt = of(rtts, at / sizes.len());
    let rate = of(rates, at / sizes.len() / rtts.len());
    let asked = format!(
        "lab advise --from links --rate {rate}bit --rtt {}ms --files 1x{size}B --json",
        1e3 * rtt
    );
    let ended = ground.end_of(ground.headroom(&asked));
    assert_eq!(ended.code, Some(0), "{ended}");
    let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let names = array(&grid, "stacks");
    let places = answer.as_array().expect("stacks");
    assert_eq!(places.len(), array(&told, "stacks").len());
    for (place, ranked) in places.iter().zip(array(&told, "stacks")) {
        let index = place[0].as_u64().expect("an index") as usize;
        assert_eq!((&names[index], &place[1]), (&ranked["stack"], &ranked["rank"]));
        assert_eq!(grid["in_clear"][index], ranked["in_clear"], "{ranked}");
        let (shown, told) = (place[3].as_f64().expect("a time"), number(ranked, "predicted_s"));
        assert!((shown / told - 1.0).abs() < 1e-3, "{shown} {told}");
    }
    let shown = section(page, "advice");
    assert!(shown.contains("Session, predicted"), "it is shown");
    let is_marked = |stack: &str| shown.contains(&format!("row\">{stack} (in clear)</th>"));
    assert!(is_marked("http") && !is_marked("https"), "{shown}");
    let verdict = shown.split("</p>").next().unwrap_or_default();
    assert!(verdict.contains("http (in clear)"), "{verdict}");
}

fn host(role: &str) -> Value {
    json!({ "role": role, "host": format!("{role}.example"), "address": "fd00::1", "kernel": "6.1",
            "distribution": "Debian", "cpu": "a processor", "cores": 4, "memory_bytes": 8_589_934_592u64,
            "files": "tmpfs" })
}

fn assert_hosts(page: &str) {
    let shown = section(page, "machine");
    for role in ["client", "server"] {
        let row = format!("<th scope=\"row\">{role}</th><td class=\"text\">{role}.example</td>");
        assert!(shown.contains(&row), "{row}: {shown}");
    }
    assert!(shown.contains("<td>8 GiB</td>"), "{shown}");
}

fn self_test() -> Value {
    let way = |lost: u32, passed: bool| {
        json!({
            "rate": { "asked_bps": 100_000_000u64, "measured_bps": 99_700_000.0, "error_pct": -0.3,
                      "allowed_pct": 1.0, "passed": true },
            "delay": { "asked_us": 25_000.0, "jitter_us": 0.0, "probes": 400, "median_error_us": 31.0,
                       "p99_error_us": 88.0, "allowed_us": 100.0, "passed": true },
            "loss": { "asked_pct": 1.0, "sent": 4400, "lost": lost, "interval": [28, 62],
                      "passed": passed }
        })
    };
    json!({ "passed": false, "attempts": 1, "down": way(41, true), "up": way(99, false) })
}

/// The table has the figures of `summary.md`, which another program wrote; the
/// crossing those of the answer.
fn assert_models(ground: &Ground, page: &str, results: &Value) {
    let shown = section(page, "models");
    let fit = section(page, "fit");
    let summary = std::fs::read_to_string(ground.path("known/summary.md")).expect("a summary");
    let table = summary
        .split("fixed cost, ms")
        .nth(1)
        .unwrap_or_else(|| panic!("no table of models: {summary}"));
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 2, "{summary}");
    for row in &rows {
        for figure in &row[2..6] {
            assert!(shown.contains(&format!("<td>{figure}</td>")), "{figure} of {row:?}: {shown}");
        }
    }
    assert_eq!(count(page, "data-models"), array(results, "models").len());
    // both stacks on the main link, by one clock
    assert_eq!(count(page, "data-residuals"), 2 * 3 * 6);
    assert!(fit.contains("class=\"outlier\""), "marked, not dropped: {fit}");
    let crossings = array(results, "crossovers").iter();
    let session = crossings.filter(|row| {
        let sure = row["clock"] == "session" && row["significant"] == true;
        sure && row["link"] == results["link"]["name"]
    });
    let [crossing] = session.collect::<Vec<_>>()[..] else { panic!("one crossing: {results}") };
    let told = shown.split("http is cheaper than https below ").nth(1);
    let mut words = told.unwrap_or_else(|| panic!("no crossing: {shown}")).split([' ', '\u{a0}']);
    let value: f64 = words.next().and_then(|word| word.parse().ok()).expect("a size");
    let scale = match words.next() {
        Some("MB") => 1e6,
        Some("kB") => 1e3,
        unit => panic!("a crossing in {unit:?}"),
    };
    assert!((value * scale / number(crossing, "size_bytes") - 1.0).abs() < 0.01, "{crossing}");
    assert_eq!(count(page, "data-crossings"), 1);
}

/// The page's own formula gives what the lab's does, on links with a rate, a
/// delay, loss and without.
fn assert_predictions(page: &str, results: &Value) {
    let shown = section(page, "picture");
    let own = shown.split("<data value=\"").skip(1).map(|rest| {
        let value = &rest[..rest.find('"').expect("its end")];
        value.parse::<f64>().expect("a number")
    });
    let own: Vec<f64> = own.collect();
    let mut foretold = array(results, "predictions").clone();
    assert_eq!(foretold.len(), 3 * 2 * 3);
    assert_eq!(count(page, "data-predictions"), foretold.len());
    // the page goes through stacks, links, sizes
    let place = |row: &Value| {
        let link = ["far", "lossy", "fast"].iter().position(|link| row["link"] == *link);
        (text(row, "stack").to_owned(), link, row["size_bytes"].as_u64())
    };
    foretold.sort_by_key(place);
    assert_eq!(own.len(), foretold.len());
    for (own, row) in own.iter().zip(&foretold) {
        let lab = number(row, "predicted_s");
        assert!((own / lab - 1.0).abs() < 1e-9, "the page says {own}, the lab {row}");
    }
}

fn assert_wire(page: &str, results: &Value) {
    let shown = section(page, "wire");
    assert_eq!(array(results, "clear_text").len(), 2);
    assert_eq!(count(page, "data-cleartext"), 2);
    for (stack, content) in [("http", "readable"), ("https", "✓ nothing in clear")] {
        let row = format!("<th scope=\"row\">{stack}</th><td class=\"text\">{content}<small>");
        assert!(shown.contains(&row), "{row}: {shown}");
    }
    for figure in ["1,234,567", "94.25 %", "86.5", "2.5 %", "97.50 %", "28 %"] {
        assert!(shown.contains(&format!("<td>{figure}</td>")), "{figure}: {shown}");
    }
    assert_eq!((count(page, "data-wires"), count(page, "data-rfc6349")), (2, 2));
    for link in [
        "<a href=\"captures/http%231.pcap\" title=\"http#1.pcap\">pcap</a><small>whole frames</small>",
        // a file of that name, not a script
        "<a href=\"javascript%3Adocument.title%3D'pwned'\"",
        ">pcap</a><small>190 bytes a frame</small>",
    ] {
        assert!(shown.contains(link), "{link}: {shown}");
    }
    assert_eq!(count(page, "data-captures"), 2);
    let captures = number(&results["accounting"], "captures");
    assert!(shown.contains(&format!("{captures} transfers were captured")), "{shown}");
    for figure in ["<td>5</td>", "<td>1,540</td>", "2 ms<small>1 ms to 4 ms, 3 times</small>"] {
        assert!(shown.contains(figure), "{figure}: {shown}");
    }
    assert_eq!(count(page, "data-layers"), 1);
}

/// The number of runs stands at each table of workloads, and what was too short for the
/// link's shaper is marked in each.
fn assert_marks(ground: &Ground, page: &str) {
    for (table, marked) in [("cost", 2), ("cells", 8)] {
        let shown = section(page, table);
        let captions: Vec<&str> = shown.split("<caption>").skip(1).collect();
        assert!(!captions.is_empty(), "{shown}");
        for caption in captions {
            let caption = &caption[..caption.find("</caption>").expect("its end")];
            assert!(caption.contains("n = 6 runs."), "{caption}");
        }
        let mark = "<small class=\"flag\">◇ not shaped";
        assert_eq!(shown.matches(mark).count(), marked, "{table}: {shown}");
        assert!(shown.contains("◇ not shaped: the transfer took less than 100 ms"), "{shown}");
    }
    let summary = std::fs::read_to_string(ground.path("known/summary.md")).expect("a summary");
    let terminal = |detail: &str| {
        let printed = ground.end_of(ground.headroom(&format!("lab report known{detail}")));
        assert_eq!(printed.code, Some(0), "{printed}");
        printed.stdout
    };
    for table in [summary, terminal(""), terminal(" --full")] {
        assert_eq!(table.matches(" ◇ ").count(), 2, "http and https have a marked cell: {table}");
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("◇: too short for the link's shaper to act on"), "{table}");
    }
}

fn assert_links(page: &str) {
    let shown = section(page, "link");
    for figure in [
        "100 Mbit/s<small>99.7 Mbit/s, −0.30 %, within ±1 %</small>",
        "25 ms<small>+31 µs, within ±100 µs</small>",
        "<td>+88 µs</td>",
        "1 %<small>41 of 4400, 28 to 62 expected</small>",
        "✓ within",
        "1 %<small>99 of 4400, 28 to 62 expected</small>",
        "✕ out of bounds",
        "nothing to test",
    ] {
        assert!(shown.contains(figure), "{figure}: {shown}");
    }
    assert_eq!(count(page, "data-links"), 4);
}
