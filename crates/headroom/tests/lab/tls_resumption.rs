//! TLS sessions that are resumed, by HTTPS from an earlier connection and by FTPS from the control
//! connection, compared with full handshakes. The lab itself fails a sample whose handshakes are
//! not as the stack says.

use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use serde_json::{Value, json};

const KIB: u64 = 1024;

#[test]
fn https_resumes_a_session_that_was_set_up_before_the_clocks_began() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("resumption");
    let stacks =
        ["http", "https", "https(resumption)", "https(h2,resumption)", "https(resumption)/tls"];
    ground.write("p.toml", &plan(&stacks));
    let results = ground.measure("p.toml");
    assert_succeeded(&results);
    for stack in &stacks[2..4] {
        assert!(text(&results["environment"]["stacks"][*stack], "resumption").contains("resumes"));
    }
    for workload in ["download", "upload"] {
        let [clear, full, resumed] = ["http", "https", "https(resumption)"]
            .map(|stack| wire(&results, stack, workload, 4 * KIB));
        // the connection that set the session up is not counted
        assert_eq!((number(resumed, "connections"), number(resumed, "handshakes")), (1.0, 1.0));
        assert!(number(resumed, "round_trips") >= number(clear, "round_trips") + 1.0);
        let trips = |wire: &Value| number(&wire["first_handshake"], "round_trips");
        assert!(trips(resumed) <= trips(full), "{resumed}, {full}");
        assert_smaller(&resumed["first_handshake"], &full["first_handshake"]);
    }
    let many = wire(&results, "https(resumption)", "many", 4 * KIB);
    assert_eq!((number(many, "connections"), number(many, "handshakes")), (1.0, 1.0));
}

#[test]
fn ftps_resumes_the_control_connections_session_on_data_connections() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("reuse");
    let pairs = [
        ("ftps(tls1.2)", "ftps(tls1.2,reuse)"),
        ("ftps(rsa,tls1.2)", "ftps(rsa,tls1.2,reuse)"),
        ("ftps(aes128-sha)", "ftps(aes128-sha,reuse)"),
    ];
    let mut stacks = vec!["ftp"];
    stacks.extend(pairs.iter().flat_map(|(full, reuse)| [*full, *reuse]));
    ground.write("p.toml", &plan(&stacks));
    let results = ground.measure("p.toml");
    assert_succeeded(&results);
    for (full, reuse) in pairs {
        let stack = array(&results["plan"], "stacks").iter().find(|stack| stack["name"] == reuse);
        assert_eq!(text(stack.expect("a stack"), "baseline"), full);
        for workload in ["download", "upload"] {
            let [full, reuse] = [full, reuse].map(|stack| wire(&results, stack, workload, 4 * KIB));
            assert_eq!((number(reuse, "connections"), number(reuse, "handshakes")), (2.0, 2.0));
            // RFC 5246 §7.3: an abbreviated handshake takes one round trip in place of two
            let trips = |wire: &Value| number(&wire["data_handshake"], "round_trips");
            assert!(trips(reuse) < trips(full), "{reuse}, {full}");
            assert_smaller(&reuse["data_handshake"], &full["data_handshake"]);
            // that of the control connection is a full one
            assert_smaller(&reuse["data_handshake"], &reuse["first_handshake"]);
        }
    }
}

#[test]
fn what_cannot_be_resumed_is_refused() {
    let ground = Ground::new("no-resumption");
    for (stack, words) in [
        ("ftps(reuse)", "Pure-FTPd issues none"),
        ("ftps(resumption)", "cannot resume the TLS session of an earlier control connection"),
        ("https(h3,resumption)", "`https` has no option"),
    ] {
        ground.write(
            "p.toml",
            &format!(
                "stacks = [\"{stack}\"]\n[[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n"
            ),
        );
        let ended = ground.end_of(ground.headroom("lab run p.toml"));
        ended.assert_says(2, &[words]);
        ended.assert_nothing_started();
    }
    let plan = "stacks = [\"https(resumption)\"]\n[[workload]]\nkind = \"sessions\"\n";
    ground.write("p.toml", plan);
    let ended = ground.end_of(ground.headroom("lab run p.toml"));
    ended.assert_says(2, &["the workload `sessions` cannot run on `https(resumption)`"]);
    ended.assert_nothing_started();
}

fn plan(stacks: &[&str]) -> String {
    let files = "sizes = [\"4KiB\"]\n";
    format!(
        "stacks = {stacks:?}\nrepetitions = 2\n\
         [[workload]]\nkind = \"download\"\n{files}\
         [[workload]]\nkind = \"upload\"\n{files}\
         [[workload]]\nkind = \"many\"\nfiles = 5\n{files}"
    )
}

fn assert_succeeded(results: &Value) {
    for sample in array(results, "samples") {
        assert_eq!((&sample["ok"], &sample["error"]), (&json!(true), &Value::Null), "{sample}");
    }
}

/// The server sends neither a certificate nor a signature in a resumed handshake.
fn assert_smaller(resumed: &Value, full: &Value) {
    let by_server = |handshake| number(handshake, "bytes") - number(handshake, "client_bytes");
    assert!(by_server(resumed) + 300.0 < by_server(full), "{resumed}, {full}");
}

/// What was counted of a cell.
fn wire<'a>(results: &'a Value, stack: &str, workload: &str, size: u64) -> &'a Value {
    let of_cell = |sample: &&Value| {
        sample["stack"] == stack && sample["workload"] == workload && sample["size_bytes"] == size
    };
    let sample = array(results, "samples").iter().find(of_cell);
    &sample.unwrap_or_else(|| panic!("no sample of {stack} {workload} {size}"))["wire"]
}
