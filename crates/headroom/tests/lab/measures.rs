//! What a run measures: every stack does all it can, over real servers, and the
//! numbers agree with each other and with what the protocols are known to do.
//! Nothing here depends on how fast the machine is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;

use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use pcap_file::pcap::PcapReader;
use serde_json::{Value, json};

const FILES: u64 = 50;
const CLIENTS: u64 = 4;

fn plan(files: &[&str], pages: &[&str], commands: &[&str]) -> String {
    let listed = |stacks: &[&str]| format!("{stacks:?}");
    let mut all: Vec<&str> = files.to_vec();
    all.extend(commands.iter().filter(|stack| !files.contains(stack)));
    let mut plan = format!("stacks = {}\nrepetitions = 2\n", listed(&all));
    let mut add = |kind: &str, stacks: &[&str], keys: &str| {
        if !stacks.is_empty() {
            let stacks = listed(stacks);
            plan += &format!("[[workload]]\nkind = \"{kind}\"\nstacks = {stacks}\n{keys}\n");
        }
    };
    add("download", files, "sizes = [\"1KiB\", \"256KiB\"]");
    add("upload", files, "sizes = [\"1KiB\", \"256KiB\"]");
    add("many", files, &format!("files = {FILES}"));
    add("parallel", files, &format!("sizes = [\"64KiB\"]\nclients = {CLIENTS}"));
    add("page", pages, "");
    add("commands", commands, "");
    plan
}

#[test]
fn ftp_and_http_in_clear_and_over_tls() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("curl");
    ground.write("p.toml", &plan(&["ftp", "ftps", "http", "https"], &["http", "https"], &[]));
    let results = ground.measure("p.toml");
    assert_consistent(&results);
    assert_eq!(array(&results, "summary").len(), 4 * 6 + 2);

    for workload in ["download", "upload"] {
        for size in [1024, 256 << 10] {
            let trips = |stack: &str| number(wire(&results, stack, workload, size), "round_trips");
            // TLS 1.3 costs one round trip on each connection
            assert!(trips("https") >= trips("http") + 1.0, "{workload} {size}");
            // and FTP asks for it on the control connection: AUTH, PBSZ, PROT
            assert!(trips("ftps") >= trips("ftp") + 4.0, "{workload} {size}");
            // and no more: the server takes the first AUTH and the first key share
            let wire = wire(&results, "ftps", workload, size);
            assert_eq!((&wire["refused_commands"], &wire["hello_retries"]), (&json!(0), &json!(0)));
            assert!(trips("ftp") > trips("http"), "{workload} {size}");
        }
        let bytes = |stack: &str| number(wire(&results, stack, workload, 1024), "bytes");
        assert!(bytes("ftps") > bytes("ftp") && bytes("https") > bytes("http"), "{workload}");
    }
    assert_files_are_written(&ground, &results);
}

#[test]
fn what_runs_over_ssh() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ssh");
    ground.write("p.toml", &plan(&["sftp", "scp", "rsync"], &[], &["sftp", "ssh"]));
    let results = ground.measure("p.toml");
    assert_consistent(&results);
    assert_eq!(array(&results, "summary").len(), 3 * 6 + 2);
    for stack in ["sftp", "scp", "rsync"] {
        let trips = number(wire(&results, stack, "download", 1024), "round_trips");
        assert!(trips >= 5.0, "{stack} logs in before it asks for a file: {trips}");
    }
    let programs = array(&results["environment"], "programs");
    for name in ["sftp", "scp"] {
        let is_named = programs.iter().any(|program| text(program, "name") == name);
        assert!(is_named, "{name} prints no version, and is recorded: {programs:?}");
    }
}

#[test]
fn over_ipv4() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ipv4");
    let plan = "family = \"ipv4\"\nstacks = [\"ftps\", \"http\", \"sftp\"]\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n\
                [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml");
    assert_consistent(&results);
    assert_eq!(text(&results["plan"], "family"), "ipv4");
}

#[test]
fn with_the_least_mtu_of_ipv6() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("mtu");
    let plan = |mtu: u32| {
        format!(
            "mtu = {mtu}\nstacks = [\"https\", \"ftp\"]\nrepetitions = 2\n\
             [[workload]]\nkind = \"download\"\nsizes = [\"256KiB\"]\n"
        )
    };
    let mut file_packets = Vec::new();
    for mtu in [1280, 1500] {
        ground.write("p.toml", &plan(mtu));
        let results = ground.measure("p.toml");
        assert_consistent(&results);
        let bytes = number(wire(&results, "ftp", "download", 256 << 10), "file_direction_bytes");
        file_packets.push(bytes);
    }
    // the same file in smaller packets has more headers
    assert!(file_packets[0] > file_packets[1], "{file_packets:?}");
}

#[test]
fn a_link_with_a_rate_is_tested_before_use() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("shaped");
    // two frames, which the token bucket makes up for, last 25 ms: what a machine pauses
    // is shorter
    let results = ground.measure("http --link 1mbit --sizes 1KiB,64KiB --repetitions 2");
    assert_consistent(&results);
    let link = &results["link"];
    assert_eq!(text(link, "name"), "1mbit");
    assert!(text(link, "backend").contains("HTB"), "{link}");
    assert_eq!(text(link, "offload"), "off");
    assert_eq!(number(link, "rate_bps"), 1e6);
    let test = &link["self_test"];
    assert_eq!(test["passed"], true);
    for way in ["down", "up"] {
        assert_eq!(number(&test[way]["rate"], "asked_bps"), 1e6);
        assert_eq!(
            (&test[way]["loss"]["lost"], &test[way]["loss"]["sent"]),
            (&0.into(), &400.into())
        );
    }
    for sample in array(&results, "samples").iter().filter(|s| s["workload"] == "download") {
        let (size, seconds) = (number(sample, "size_bytes"), number(sample, "seconds"));
        let short = seconds < 0.1;
        assert_eq!(sample["not_shaped"], short, "{sample}");
        // 64 KiB at 1 Mbit/s are 524 ms, whatever the machine
        assert!(size < 1e4 || seconds > 0.5, "{sample}");
    }
}

#[test]
fn only_some_of_a_plans_stacks() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("only");
    let plan = "stacks = [\"ftp\", \"http\", \"https\", \"sftp\"]\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n\
                [[workload]]\nkind = \"upload\"\nstacks = [\"sftp\"]\nsizes = [\"1KiB\"]\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml --only *ps");
    assert_consistent(&results);
    let stacks: Vec<&str> =
        array(&results["plan"], "stacks").iter().map(|stack| text(stack, "name")).collect();
    assert_eq!(stacks, ["http", "https"], "https, and the baseline it needs");
    assert_eq!(array(&results["plan"], "workloads").len(), 1, "nothing is left for the other");

    let none = ground.end_of(ground.headroom("lab run p.toml --only gopher*"));
    none.assert_says(2, &["--only gopher*", "ftp, http, https, sftp"]);
    none.assert_nothing_started();
}

#[test]
fn a_stack_compared_with_itself() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("itself");
    let plan = "stacks = [\"http\", \"http#again\"]\nrepetitions = 2\n\
                [baselines]\n\"http#again\" = \"http\"\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml");
    assert_consistent(&results);
    let rows = array(&results, "summary");
    assert_eq!(rows.len(), 2);
    assert_eq!(text(&rows[1], "stack"), "http#again");
    assert_eq!(text(&rows[1], "baseline"), "http");
}

#[test]
fn ftps_speaks_the_tls_that_its_words_want() {
    if !privileged() {
        return;
    }
    // IANA's numbers of the suites
    let suites = [
        ("ftps", 0x1301, "TLS_AES_128_GCM_SHA256", "ECDSA"),
        ("ftps(rsa)", 0x1301, "TLS_AES_128_GCM_SHA256", "RSA"),
        ("ftps(tls1.2)", 0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDSA"),
        ("ftps(rsa,tls1.2)", 0xc02f, "ECDHE-RSA-AES128-GCM-SHA256", "RSA"),
        ("ftps(aes128-sha)", 0x002f, "AES128-SHA", "RSA"),
    ];
    let mut stacks = vec!["ftp"];
    stacks.extend(suites.iter().map(|suite| suite.0));
    let ground = Ground::new("suites");
    ground.write(
        "p.toml",
        &format!(
            "stacks = {stacks:?}\nrepetitions = 2\n[[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n\
             [[workload]]\nkind = \"upload\"\nsizes = [\"1KiB\"]\n"
        ),
    );
    let ended = ground.end_of(ground.headroom("lab run p.toml --keep-captures --out out"));
    assert_eq!(ended.code, Some(0), "{ended}");
    let results = ground.results();
    for (stack, number_of_suite, cipher, key) in suites {
        let facts = &results["environment"]["stacks"][stack];
        assert_eq!(text(facts, "cipher"), cipher);
        assert!(text(facts, "key").starts_with(key), "{facts}");
        for (workload, size) in [("download", 64 << 10), ("upload", 1024)] {
            let counted = wire(&results, stack, workload, size);
            assert_eq!(number(counted, "handshakes"), 2.0, "{counted}");
            for handshake in ["first_handshake", "data_handshake"] {
                let handshake = &counted[handshake];
                // a certificate at least, and nothing of the file
                assert!((700.0..9000.0).contains(&number(handshake, "bytes")), "{counted}");
                assert!(number(handshake, "round_trips") >= 1.0, "{counted}");
            }
        }
        for sample in array(&results, "samples").iter().filter(|s| s["stack"] == stack) {
            assert_eq!(sample["ok"], true, "{sample}");
            let phases = &sample["phases"];
            assert!(number(phases, "handshake") > 0.0, "{sample}");
            assert!(number(sample, "first_handshake_seconds") > 0.0, "{sample}");
            assert!(number(sample, "data_handshake_seconds") > 0.0, "{sample}");
            let download = text(sample, "workload") == "download";
            assert!(!download || number(phases, "body") + number(phases, "idle") > 0.0, "{sample}");
        }
        for capture in array(&results, "captures").iter().filter(|c| c["stack"] == stack) {
            let chosen = chosen_suites(&ground.path("out").join(text(capture, "file")));
            assert!(chosen.len() >= 2, "{capture}: {chosen:?}");
            assert!(chosen.iter().all(|&suite| suite == number_of_suite), "{stack}: {chosen:x?}");
        }
    }
}

/// The suites that a server chose, in the clear of its ServerHellos (RFC 8446 §4.1.3).
fn chosen_suites(capture: &std::path::Path) -> Vec<u16> {
    let file = File::open(capture).expect("a capture");
    let mut reader = PcapReader::new(BufReader::new(file)).expect("a pcap file");
    let mut chosen = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a packet");
        // behind Ethernet, IPv6 and TCP with time stamps
        let record = packet.data.get(14 + 40 + 32..).unwrap_or_default();
        if let [22, 3, 3, _, _, 2, ..] = record {
            let session = usize::from(record[43]);
            chosen.push(u16::from_be_bytes([record[44 + session], record[45 + session]]));
        }
    }
    chosen
}

/// Each command on its own waits; a list with `sftp -b` and a script in one `ssh` do not.
#[test]
fn commands_may_be_a_script_and_may_move_small_files() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("commands");
    ground.write(
        "p.toml",
        r#"
stacks = ["ssh", "ssh#waiting", "ssh/tls", "sftp", "sftp/tls", "sftp/strongswan"]
repetitions = 2
[[workload]]
kind = "commands"
stacks = ["ssh", "ssh/tls"]
commands = ["ls -la; mkdir d; cd d; echo hello > t; cat t {remote}; pwd; ls; rm t; cd ..; rmdir d; ls"]
[[workload]]
kind = "commands"
stacks = ["ssh#waiting"]
commands = ["ls -la", "mkdir d", "cd d", "echo hello > t", "cat t", "rm t", "cd ..", "rmdir d", "ls"]
[[workload]]
kind = "commands"
stacks = ["sftp", "sftp/tls", "sftp/strongswan"]
commands = ["ls", "mkdir d", "cd d", "put {local} small", "get {remote} {new}", "rm small", "cd ..", "rmdir d", "ls"]
"#,
    );
    let results = ground.measure("p.toml");
    let packets = |stack: &str| number(wire(&results, stack, "commands", 0), "packets");
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], true, "{sample}");
        let (seconds, session) = (number(sample, "seconds"), number(sample, "session_seconds"));
        assert!(0.0 < seconds && seconds <= session, "{sample}");
        assert!(packets(text(sample, "stack")) >= 20.0, "{sample}");
    }
    // nine questions with their answers in place of one
    assert!(packets("ssh#waiting") >= packets("ssh") + 8.0);
    let bytes = |stack: &str| number(wire(&results, stack, "commands", 0), "bytes");
    assert!(bytes("ssh/tls") > bytes("ssh") && bytes("sftp/tls") > bytes("sftp"));
    // counted outside of the tunnel
    assert!(bytes("sftp/strongswan") >= bytes("sftp") + 40.0 * packets("sftp/strongswan"));
}

/// The files beside results.json, and the report made of them again.
fn assert_files_are_written(ground: &Ground, results: &Value) {
    let read = |name: &str| {
        let path = ground.path("out").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let csv = read("results.csv");
    assert_eq!(csv.lines().count(), array(results, "samples").len() + 1);
    let columns = |line: &str| line.split(',').count();
    let header = csv.lines().next().map(columns);
    assert!(csv.lines().all(|line| Some(columns(line)) == header), "{csv}");
    let summary = read("summary.md");
    assert!(summary.contains("| https |") && summary.contains("## "), "{summary}");
    assert!(read("report.html").contains("</html>"));

    let names = ["results.json", "report.html", "results.csv", "summary.md"];
    let before: Vec<String> = names.iter().map(|name| read(name)).collect();
    for round in ["once", "twice"] {
        let report = ground.end_of(ground.headroom("lab report out"));
        assert_eq!(report.code, Some(0), "{report}");
        assert!(report.stdout.contains("report.html"), "{report}");
        for (name, before) in names.iter().zip(&before) {
            assert!(read(name) == *before, "{name} has changed after `lab report` {round}");
        }
    }
}

/// The accounting of a cell.
fn wire<'a>(results: &'a Value, stack: &str, workload: &str, size: u64) -> &'a Value {
    let sample = array(results, "samples")
        .iter()
        .find(|s| s["stack"] == stack && s["workload"] == workload && s["size_bytes"] == size)
        .unwrap_or_else(|| panic!("no sample of {stack} {workload} {size}"));
    &sample["wire"]
}

#[test]
fn kept_captures_hold_what_was_counted() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("pcap");
    ground.write(
        "p.toml",
        "stacks = [\"http\", \"https/tls\"]\nrepetitions = 2\n[[workload]]\nkind = \"download\"\nsizes = [\"1KiB\", \"32MiB\"]\n",
    );
    let ended = ground.end_of(ground.headroom("lab run p.toml --keep-captures --out out"));
    assert_eq!(ended.code, Some(0), "{ended}");
    let results = ground.results();
    let captures = array(&results, "captures");
    assert_eq!(captures.len(), 4);
    for capture in captures {
        let (stack, workload) = (text(capture, "stack"), text(capture, "workload"));
        let counted = wire(&results, stack, workload, number(capture, "size_bytes") as u64);
        let file = File::open(ground.path("out").join(text(capture, "file"))).expect("a capture");
        let mut reader = PcapReader::new(BufReader::new(file)).expect("a pcap file");
        let (mut packets, mut bytes, mut kept) = (0, 0, 0);
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a packet");
            packets += 1;
            bytes += u64::from(packet.orig_len);
            kept = kept.max(packet.data.len());
        }
        assert_eq!(number(counted, "packets") as u64, packets, "{capture}");
        assert_eq!(number(counted, "bytes") as u64, bytes, "{capture}");
        assert_eq!(number(capture, "packets") as u64, packets, "{capture}");
        // of a large transfer only the heads
        let whole = number(capture, "size_bytes") < 16e6;
        assert_eq!(number(capture, "snaplen"), if whole { 1514.0 } else { 190.0 }, "{capture}");
        assert!(kept as f64 <= number(capture, "snaplen"), "{capture}");
    }
    let folder = ground.path("out").join("captures");
    assert_eq!(std::fs::read_dir(folder).expect("the captures").count(), 4);
}

/// Everything that holds for every run that went well.
fn assert_consistent(results: &Value) {
    assert_eq!(results["schema"], headroom_lab_results::schema::SCHEMA);
    let samples = array(results, "samples");
    assert!(!samples.is_empty());
    for sample in samples {
        assert_sample(sample);
    }
    assert_blocks(results);
    assert_summary(results);
    let environment = &results["environment"];
    for key in ["started", "finished", "kernel", "headroom"] {
        assert!(!text(environment, key).is_empty(), "{key}");
    }
    assert!(text(environment, "started") <= text(environment, "finished"));
    for program in array(environment, "programs") {
        let origin = text(program, "origin");
        assert!(["system", "cache", "pinned", "built-in"].contains(&origin), "{program}");
        // what prints no version is told apart by its digest
        let digits = program["blake3"].as_str().map_or(0, str::len);
        assert_eq!(digits, if text(program, "version").is_empty() { 64 } else { 0 }, "{program}");
    }
    for stack in array(&results["plan"], "stacks") {
        let facts = &environment["stacks"][text(stack, "name")];
        assert!(facts["encryption"].is_string(), "{facts}");
    }
    assert!(number(&results["link"], "rtt_us") > 0.0);
    assert_timelines(results);
    assert_accounting(results);
    assert_clear_text(results);
}

/// Every counted cell was checked, and its bytes add up.
fn assert_accounting(results: &Value) {
    let accounting = &results["accounting"];
    assert!(number(accounting, "captures") >= 3.0, "{accounting}");
    assert_eq!(number(accounting, "capture_drops"), 0.0, "{accounting}");
    assert_eq!(accounting["counters_agree"], true, "{accounting}");
    let largest = number(&results["plan"], "mtu") + 14.0;
    for sample in array(results, "samples").iter().filter(|s| s["wire"].is_object()) {
        let wire = &sample["wire"];
        let both = number(wire, "file_direction_bytes") + number(wire, "ack_direction_bytes");
        assert_eq!(both, number(wire, "bytes"), "{wire}");
        assert!(number(wire, "largest_frame_bytes") <= largest, "{wire}");
        if text(sample, "workload") == "commands" {
            assert!(wire["payload_efficiency_pct"].is_null(), "{sample}");
        } else {
            let pct = number(wire, "payload_efficiency_pct");
            assert!(0.0 < pct && pct < 100.0, "{sample}");
        }
        // Ethernet, IPv4 and TCP at least
        assert!(wire["header_bytes_per_packet"].as_f64().is_none_or(|n| n >= 54.0), "{wire}");
        let tcp = &sample["tcp"];
        let (sent, again) = (number(tcp, "transmitted_bytes"), number(tcp, "retransmitted_bytes"));
        assert!(again < sent && sent > number(sample, "size_bytes"), "{sample}");
        assert!(number(tcp, "rtt_min_us") > 0.0, "{sample}");
    }
}

/// The plain stacks show what they move, and only they.
fn assert_clear_text(results: &Value) {
    let rows = array(results, "clear_text");
    assert_eq!(rows.len(), array(&results["plan"], "stacks").len());
    for row in rows {
        let stack = text(row, "stack").split('#').next().unwrap_or_default();
        let plain = ["ftp", "http"].contains(&stack);
        assert_eq!((&row["secured"], &row["marker_seen"]), (&(!plain).into(), &plain.into()));
        // 64 KiB each way, or a short command
        let least = if stack == "ssh" { 1000.0 } else { 131_072.0 };
        assert!(number(row, "bytes_searched") > least, "{row}");
    }
}

fn assert_sample(sample: &Value) {
    assert_eq!(sample["ok"], true, "{sample}");
    assert_eq!(sample["error"], Value::Null, "{sample}");
    let stack = text(sample, "stack").split('#').next().unwrap_or_default();
    let workload = text(sample, "workload");
    let size = number(sample, "size_bytes");
    let files = match workload {
        "many" => FILES,
        "parallel" => CLIENTS,
        _ => 1,
    };
    assert_eq!(sample["files"], files, "{sample}");
    assert!(number(sample, "transfers") >= 1.0, "{sample}");

    let (seconds, session) = (number(sample, "seconds"), number(sample, "session_seconds"));
    assert!(0.0 < seconds && seconds <= session, "{sample}");
    if workload != "parallel" {
        assert!(session <= number(sample, "process_seconds"), "{sample}");
    }
    let phases = &sample["phases"];
    let spent = ["connect", "handshake", "login", "body", "idle"].map(|p| number(phases, p));
    assert!(spent.iter().all(|&s| s >= 0.0), "{sample}");
    assert!((spent.iter().sum::<f64>() - session).abs() < 1e-6, "{sample}");

    let curl = ["ftp", "ftps", "http", "https"].contains(&stack);
    if curl {
        assert!(number(sample, "client_seconds") > 0.0, "{sample}");
    } else {
        assert_eq!(sample["client_seconds"], Value::Null, "{sample}");
    }
    let cpu = &sample["cpu_seconds"];
    assert!(["client", "server", "machine", "background"].iter().all(|s| number(cpu, s) >= 0.0));
    for key in ["cpu_idle_pct", "steal_pct", "background_pct"] {
        assert!((0.0..=100.0).contains(&number(sample, key)), "{key}: {sample}");
    }
    assert!(number(sample, "peak_memory_bytes") > 0.0, "{sample}");

    let wire = &sample["wire"];
    let (bytes, one_way) = (number(wire, "bytes"), number(wire, "file_direction_bytes"));
    assert!(bytes > size * files as f64 && bytes > one_way, "{sample}");
    assert!(one_way > size * files as f64, "{sample}");
    // no packet is larger than its link allows
    assert!(number(wire, "packets") >= bytes / 1514.0, "{sample}");
    let sessions = if workload == "parallel" { CLIENTS } else { 1 };
    let data_connections = if workload == "many" { FILES } else { 1 };
    let connections = match stack {
        "ftp" | "ftps" => sessions * (1 + data_connections),
        _ => sessions,
    };
    assert_eq!(wire["connections"], connections, "{sample}");
    let handshakes = if ["ftp", "http"].contains(&stack) { 0 } else { connections };
    assert_eq!(wire["handshakes"], handshakes, "{sample}");
    if ["commands", "parallel"].contains(&workload) {
        assert_eq!(wire["round_trips"], Value::Null, "{sample}");
    } else {
        assert!((1.0..100.0).contains(&number(wire, "round_trips")), "{sample}");
    }
    if handshakes > 0 && workload != "parallel" {
        assert!(number(phases, "handshake") > 0.0, "{sample}");
    }
    if handshakes == 0 {
        assert_eq!(number(phases, "handshake"), 0.0, "{sample}");
    }
}

/// In each block every stack of a workload has one sample of one size.
fn assert_blocks(results: &Value) {
    let mut blocks: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for sample in array(results, "samples") {
        blocks.entry(sample["block"].as_u64().expect("a number")).or_default().push(sample);
    }
    let mut undisturbed: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for samples in blocks.values() {
        let (workload, size) = (text(samples[0], "workload"), &samples[0]["size_bytes"]);
        let found: BTreeSet<&str> = samples.iter().map(|s| text(s, "stack")).collect();
        let planned: BTreeSet<&str> = array(&results["plan"], "workloads")
            .iter()
            .filter(|w| w["kind"] == workload && array(w, "sizes_bytes").contains(size))
            .flat_map(|w| array(w, "stacks"))
            .map(|name| name.as_str().expect("a name"))
            .collect();
        assert_eq!(found, planned, "{workload} {size}");
        assert_eq!(samples.len(), planned.len(), "{workload} {size}");
        let same = |key: &str| samples.iter().all(|s| s[key] == samples[0][key]);
        assert!(["workload", "size_bytes", "link", "disturbed"].iter().all(|key| same(key)));
        *undisturbed.entry((workload, size.as_u64().expect("a size"))).or_default() += 1;
    }
    let repetitions = results["plan"]["repetitions"].as_u64().expect("a number");
    let planned = array(&results["plan"], "workloads").iter().flat_map(|workload| {
        array(workload, "sizes_bytes").iter().map(|size| (text(workload, "kind"), size.as_u64()))
    });
    for (kind, size) in planned {
        // a block on a busy machine is repeated
        let count = undisturbed.get(&(kind, size.expect("a size"))).copied().unwrap_or(0);
        assert!((repetitions..=2 * repetitions).contains(&count), "{kind} {size:?}: {count}");
    }
}

fn assert_summary(results: &Value) {
    let mut cells: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let key =
        |v: &Value| format!("{} {} {} {}", v["link"], v["workload"], v["size_bytes"], v["stack"]);
    for sample in array(results, "samples") {
        cells.entry(key(sample)).or_default().push(sample);
    }
    let rows = array(results, "summary");
    assert_eq!(rows.len(), cells.len());
    for row in rows {
        let samples = &cells[&key(row)];
        let undisturbed = samples.iter().filter(|s| s["disturbed"].is_null()).count();
        // disturbed ones count too where they are the most
        let few = 2 * undisturbed < samples.len();
        let counted = if few { samples.len() } else { undisturbed };
        assert_eq!(row["n"], counted, "{row}");
        assert_eq!(row["failed"], 0, "{row}");
        assert!(number(row, "mean_s") > 0.0, "{row}");
        let limits = ["link", "CPU", "window", "background load", "waiting"];
        assert!(limits.contains(&text(row, "limited_by")), "{row}");
        let stacks = array(&results["plan"], "stacks");
        let planned = stacks.iter().find(|s| s["name"] == row["stack"]).expect("a planned stack");
        assert_eq!(row["baseline"], planned["baseline"], "{row}");
        let base = rows.iter().any(|other| {
            other["stack"] == row["baseline"]
                && ["link", "workload", "size_bytes"].iter().all(|key| other[key] == row[key])
        });
        assert_eq!(row["overhead_pct"].is_number(), base, "{row}");
        assert_eq!(row["session_overhead_pct"].is_number(), base, "{row}");
        if let Some(interval) = row["overhead_ci95_pct"].as_array() {
            let pct = number(row, "overhead_pct");
            let [lo, hi] = [0, 1].map(|i| interval[i].as_f64().expect("a number"));
            assert!(lo <= pct && pct <= hi, "{row}");
        }
    }
}

/// Segments follow each other without a gap, from the first packet to the last.
fn assert_timelines(results: &Value) {
    for timeline in array(results, "timelines") {
        let mut at = 0.0;
        for segment in array(timeline, "segments") {
            assert!((number(segment, "start_s") - at).abs() < 1e-9, "{timeline}");
            at = number(segment, "end_s");
            assert!(at >= number(segment, "start_s"), "{timeline}");
        }
        assert!((at - number(timeline, "session_s")).abs() < 1e-9, "{timeline}");
    }
}

/// The kernel of every machine has Reno. FTP's data connections are the server's, accepted by ports
/// that nobody has named.
#[test]
fn a_stack_has_the_congestion_control_that_the_plan_gives_it_alone() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("congestion");
    ground.write(
        "p.toml",
        "stacks = [\"http\", \"http#reno\", \"ftp#reno\"]\nrepetitions = 2\ncount-packets = false\n\
         [congestion-controls]\n\"http#reno\" = \"reno\"\n\"ftp#reno\" = \"reno\"\n\
         [[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n\
         [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\n",
    );
    let results = ground.measure("p.toml");
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], true, "{sample}");
    }
    let own = json!({"http#reno": "reno", "ftp#reno": "reno"});
    assert_eq!(results["plan"]["congestion_controls"], own);
    let stacks = &results["environment"]["stacks"];
    for stack in ["http#reno", "ftp#reno"] {
        assert_eq!(text(&stacks[stack], "congestion control"), "reno (by route, verified)");
    }
    assert!(stacks["http"]["congestion control"].is_null(), "{stacks}");
}

/// What the layering study's ten seconds are: glibc asks twice and waits five seconds
/// each time. The wire clock sees it, and what is no SSH does not.
#[test]
fn a_resolver_that_never_answers_costs_ten_seconds() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("silent");
    ground.write(
        "p.toml",
        "stacks = [\"ssh\", \"https\"]\nrepetitions = 2\nresolver = \"silent\"\ncount-packets = false\n\
         [[workload]]\nkind = \"commands\"\nstacks = [\"ssh\"]\ncommands = [\"pwd\"]\n\
         [[workload]]\nkind = \"page\"\nstacks = [\"https\"]\n",
    );
    let results = ground.measure("p.toml");
    assert_eq!(text(&results["plan"], "resolver"), "silent");
    assert!(text(&results["environment"]["settings"], "resolver").contains("never answers"));
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], true, "{sample}");
        let idle = number(&sample["phases"], "idle");
        let ssh = text(sample, "stack") == "ssh";
        assert!(!ssh || idle >= 9.9 && number(sample, "session_seconds") >= idle, "{sample}");
        assert!(ssh || idle < 9.0, "{sample}");
    }
}
