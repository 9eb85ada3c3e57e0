//! Stacks that a plan defines as commands: those of docs/lab.md as they stand there, and
//! definitions that are wrong.

use crate::common::{Ground, array, number, places_of, text};
use headroom_testing::privileged;
use serde_json::Value;

/// The definitions of the guide.
pub(crate) fn definitions() -> String {
    let guide = include_str!("../../../../docs/lab.md");
    let blocks = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .filter(|block| block.starts_with("[application.") || block.starts_with("[layer."))
        .collect()
}

/// A layer of packets, an application of commands and one of streams, which the guide has not.
const MORE: &str = r#"
[layer.tun]
kind = "network"
encrypts = false
overhead = 48
server = ["socat", "UDP{ip-version}-DATAGRAM:{to-address},bind={address}", "TUN,tun-name={interface},iff-no-pi,iff-up"]
client = ["socat", "UDP{ip-version}-DATAGRAM:{to-address},bind={address}", "TUN,tun-name={interface},iff-no-pi,iff-up"]
programs = { socat = { version = ["-V"] } }

[application.remote-shell]
secured = false
server = ["socat", "TCP{ip-version}-LISTEN:{port},bind={url-host},reuseaddr,fork", "EXEC:sh"]
shell = ["socat", "-t5", "-", "TCP{ip-version}:{address}"]
programs = { socat = { version = ["-V"] } }

[application.stream-of-my-own]
secured = false
data-connections = true
server = ["iperf3", "--server", "--bind", "{host}", "--port", "{port}"]
stream = ["iperf3", "--client", "{host}", "--port", "{port}", "--time", "{seconds}"]
stream-file = ["iperf3", "--client", "{host}", "--port", "{port}", "--file", "{local}"]
programs = { iperf3 = { version = ["--version"] } }
"#;

/// Whether this machine has what they run; where tests are required, it must.
pub(crate) fn has_programs() -> bool {
    let missing: Vec<&str> = ["vsftpd", "lftp", "in.tftpd", "curl", "socat"]
        .into_iter()
        .filter(|program| places_of(program).is_empty())
        .collect();
    let required = std::env::var_os("CI").is_some()
        || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
    assert!(
        missing.is_empty() || !required,
        "missing: {missing:?} (scripts/fetch-parts curl --with-examples)"
    );
    if !missing.is_empty() {
        eprintln!("skipped: missing {missing:?}: scripts/fetch-parts curl --with-examples");
    }
    missing.is_empty()
}

#[test]
fn stacks_of_the_guide_are_measured_like_those_that_are_built_in() {
    if !privileged() || !has_programs() {
        return;
    }
    let ground = Ground::new("own");
    ground.write("guide.toml", &(definitions() + MORE));
    let stacks = ["ftp", "http", "lftp", "tftp", "http/socat-tls", "http/tun", "remote-shell"];
    ground.write(
        "p.toml",
        &format!(
            "include = [\"guide.toml\"]\nstacks = {stacks:?}\nrepetitions = 2\n\
             [[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\ntransfers-per-sample = 1\nstacks = {:?}\n\
             [[workload]]\nkind = \"commands\"\ncommands = [\"pwd\"]\nstacks = [\"remote-shell\"]\n\
             [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\ntransfers-per-sample = 1\nstacks = [\"tftp\"]\n\
             [[workload]]\nkind = \"many\"\nsizes = [\"1KiB\"]\nfiles = 5\nstacks = [\"lftp\"]\n",
            &stacks[..6]
        ),
    );
    let results = ground.measure("p.toml");
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], Value::Bool(true), "{sample}");
        assert!(
            number(sample, "seconds") > 0.0 && number(&sample["wire"], "packets") > 3.0,
            "{sample}"
        );
    }
    let seen: Vec<(&str, bool)> = array(&results, "clear_text")
        .iter()
        .map(|row| (text(row, "stack"), row["marker_seen"] == Value::Bool(true)))
        .collect();
    for (stack, readable) in stacks.iter().zip([true, true, true, true, false, true, true]) {
        assert!(seen.contains(&(*stack, readable)), "{stack}: {seen:?}");
    }
    let set_ups: Vec<&str> =
        array(&results, "layer_setups").iter().map(|row| text(row, "layer")).collect();
    assert!(set_ups.contains(&"socat-tls"), "{set_ups:?}");
    let programs = array(&results["environment"], "programs");
    for name in ["vsftpd", "lftp", "in.tftpd", "socat"] {
        let found = programs.iter().find(|program| text(program, "name") == name);
        assert!(
            found.is_some_and(|program| text(program, "version").contains('.')),
            "{name}: {programs:?}"
        );
    }
    assert_eq!(text(&results["environment"]["stacks"]["lftp"], "encryption"), "none");
    let defined: Vec<(&str, &str)> = array(&results["plan"], "definitions")
        .iter()
        .map(|one| (text(one, "defines"), text(one, "name")))
        .collect();
    assert_eq!(
        defined,
        [
            ("application", "lftp"),
            ("application", "remote-shell"),
            ("application", "tftp"),
            ("layer", "socat-tls"),
            ("layer", "tun"),
        ]
    );
    let page = std::fs::read_to_string(ground.path("out/report.html")).expect("the report");
    assert!(page.contains("OPENSSL-LISTEN:{port}"), "the report has the definitions");
}

#[test]
fn what_a_definition_promises_is_checked() {
    if !privileged() || !has_programs() {
        return;
    }
    let ground = Ground::new("own-wrong");
    let plan = |stack: &str, definitions: &str| {
        let text = format!(
            "stacks = [\"{stack}\"]\nrepetitions = 2\n[[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n{definitions}"
        );
        ground.write("p.toml", &text);
        let ended = ground.end_of(ground.headroom("lab run --out out p.toml"));
        ended.assert_nothing_left();
        ended
    };
    let good = definitions();
    let lies = good.replace("curl\"\nsecured = false", "curl\"\nsecured = true");
    assert_ne!(lies, good);
    plan("tftp", &lies).assert_says(1, &["tftp DOES NOT ENCRYPT"]);
    let late = good.replace(
        "transport = \"udp\"",
        "transport = \"udp\"\nready-line = \"hello\"\nready-within = 1",
    );
    assert_ne!(late, good);
    plan("tftp", &late)
        .assert_says(1, &["has not printed a line with `hello` after 1 s", "It said: "]);
    // what a server says before it ends is told
    let ends = good.replace("[\"in.tftpd\", \"--foreground\"", "[\"curl\", \"--no-such\"");
    assert_ne!(ends, good);
    plan("tftp", &ends).assert_says(1, &["the tftp server ended at once", "option --no-such"]);
}

#[test]
fn definitions_are_listed_looked_for_and_rehearsed() {
    let ground = Ground::new("own-list");
    ground.write("guide.toml", &(definitions() + MORE));
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let listed = run("lab list guide.toml");
    assert_eq!(listed.code, Some(0), "{listed}");
    for words in ["lftp", "FTP in clear: vsftpd, lftp (against ftp)", "socat-tls"] {
        assert!(listed.stdout.contains(words), "{listed}");
    }
    let rehearsed = run("lab run lftp http/socat-tls --include guide.toml --sizes 1KiB --dry-run");
    assert_eq!(rehearsed.code, Some(0), "{rehearsed}");
    for words in ["vsftpd", "listen_port=8000", "OPENSSL-LISTEN:", "&& get f1024 -o "] {
        assert!(rehearsed.stdout.contains(words), "`{words}` is not in {rehearsed}");
    }
    assert!(!rehearsed.stdout.contains("{port}"), "{rehearsed}");
    ground.write("wrong.toml", &definitions().replace("{address} && get", "{adress} && get"));
    run("lab list wrong.toml").assert_says(
        2,
        &["wrong.toml:", "there is no placeholder `{adress}` here (did you mean `address`?)"],
    );
    let missing = definitions().replace("vsftpd", "no-such-ftpd");
    ground.write("missing.toml", &missing);
    ground.write(
        "p.toml",
        "include = [\"missing.toml\"]\nstacks = [\"lftp\"]\n[[workload]]\nkind = \"download\"\n",
    );
    let examined = run("lab doctor p.toml");
    assert!(
        examined
            .stdout
            .contains("missing, prevents lftp: run scripts/fetch-parts no-such-ftpd=no-such-ftpd"),
        "{examined}"
    );
}
