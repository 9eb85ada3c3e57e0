use headroom_lab_results::analysis::stats::MIN_RUNS;

use super::*;

const GOOD: &str = r#"
question = "What does FTPS cost?"
stacks = ["ftp", "ftps"]
repetitions = 3
link = "100mbit"

[[workload]]
kind = "download"
sizes = ["1KiB", "1MiB"]
"#;

/// The good plan on two real hosts, with these keys.
fn two_hosts(keys: &str) -> String {
    let plan = GOOD.replace("link = \"100mbit\"", "warmup = 1");
    format!("{plan}[testbed]\nkind = \"ssh\"\n{keys}")
}

fn stream(key: &str, more: &str) -> String {
    format!("stacks = [\"rtp\"]\n[[workload]]\nkind = \"realtime\"\n\n{key}\n{more}")
}

#[test]
fn the_demo_answers_although_a_block_was_disturbed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/demo.toml");
    let demo = Plan::read(&path).expect("the demo's plan");
    assert!(demo.repetitions as usize > MIN_RUNS, "{}", demo.repetitions);
}

#[test]
fn the_plan_of_sessions_tells_its_clients_apart() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/sessions.toml");
    let plan = Plan::read(&path).expect("a good plan");
    let names: Vec<String> = plan.workloads.iter().map(Workload::name).collect();
    assert_eq!(names, ["sessions(clients=1)", "sessions(clients=8)", "sessions(clients=32)"]);
    let smoke = plan.at_scale(Scale::Smoke).expect("a scale").expect("a smaller plan");
    assert_eq!((smoke.repetitions, smoke.workloads[0].seconds), (2, 1));
}

#[test]
fn the_plan_of_costs_compares_every_stack_with_ours() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/transfer-cost.toml");
    let plan = Plan::read(&path).expect("a good plan");
    let (ours, others) = plan.stacks.split_first().expect("stacks");
    assert_eq!((ours.stack.name.as_str(), &ours.baseline), ("headroom", &None));
    let compared = |other: &PlannedStack| other.baseline.as_deref() == Some("headroom");
    assert!(others.iter().all(compared), "{others:?}");
    assert!(others.iter().any(|other| other.stack.name == "rclone"), "{others:?}");
    let again = Plan::of_record(&plan.record()).expect("the same plan");
    assert_eq!(again.stacks.len(), plan.stacks.len());
}

#[test]
fn the_plans_of_the_guide_are_plans() {
    let guide = include_str!("../../../../docs/lab.md");
    let texts: Vec<&str> = guide
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("its end"))
        // one is a campaign, one a study
        .filter(|text| !text.starts_with("plans = ") && !text.contains("[[part]]"))
        .collect();
    let is_definition =
        |text: &&str| text.starts_with("[application.") || text.starts_with("[layer.");
    let (definitions, plans): (Vec<&str>, Vec<&str>) = texts.into_iter().partition(is_definition);
    let [plan, hosts] = plans[..] else { panic!("{} examples", plans.len()) };
    let own = "stacks = [\"ftp\", \"http\", \"lftp\", \"tftp\", \"http/socat-tls\"]\n[[workload]]\nkind = \"download\"\n";
    let own = Plan::from_toml(&format!("{own}{}", definitions.concat()), "guide");
    let own = own.expect("a good plan").record();
    let baselines: Vec<_> = own.stacks.iter().map(|stack| stack.baseline.as_deref()).collect();
    assert_eq!(baselines, [None, None, Some("ftp"), Some("http"), Some("http")]);
    assert_eq!(own.definitions.len(), 3);
    let plan = Plan::from_toml(plan, "guide").expect("a good plan");
    assert_eq!((plan.stacks.len(), plan.repetitions), (2, 10));
    // with every key that it names
    let two = |hosts: &str| {
        let stacks = "stacks = [\"ftp\", \"sftp\"]\n[[workload]]\nkind = \"download\"\n";
        Plan::from_toml(&format!("{stacks}{hosts}"), "guide").expect("a good plan")
    };
    assert_eq!(two(hosts).family, Some(Family::Ipv4), "that of its addresses");
    assert_eq!(
        two(&hosts.replace("# s", "s").replace("# p", "p")).hosts.expect("hosts").ports,
        20_000
    );
}

#[test]
fn a_plan_for_two_real_hosts() {
    let read = |keys: &str| Plan::from_toml(&two_hosts(keys), "x").expect("a good plan");
    let plan = read("client = \"a\"\nserver = \"root@10.0.0.2\"\nssh = \"ssh -F my.conf\"\n");
    let hosts = plan.hosts.expect("hosts");
    assert_eq!(hosts.ssh, ["ssh", "-F", "my.conf"]);
    assert_eq!((hosts.ports, hosts.server_address), (SshHosts::PORTS, None));
    assert_eq!((plan.family, plan.congestion_control.as_str()), (Some(Family::Ipv4), HOST_DEFAULT));
    let plan = read(
        "client = \"a\"\nserver = \"b\"\nserver-address = \"b.lan\"\nports = 42000\nssh = [\"ssh\", \"-v\"]\n",
    );
    let hosts = plan.hosts.expect("hosts");
    assert_eq!((hosts.ports, hosts.server_address.as_deref()), (42_000, Some("b.lan")));
    assert_eq!((plan.family, hosts.ssh.len()), (None, 2));
}

#[test]
fn a_good_plan_and_its_defaults() {
    let plan = Plan::from_toml(GOOD, "x").expect("a good plan");
    assert_eq!(plan.stacks[1].baseline.as_deref(), Some("ftp"));
    assert_eq!(plan.workloads[0].sizes, [1024, 1 << 20]);
    assert_eq!(plan.link.slowest_bps(), Some(100_000_000));
    assert_eq!(plan.link_backend, None);
    let wished = GOOD.replace("link =", "link-backend = \"emulator\"\nlink =");
    let wished = Plan::from_toml(&wished, "x").expect("a good plan");
    assert_eq!(wished.link_backend, Some(LinkBackend::Emulator));
    assert_eq!((plan.family, plan.mtu, plan.warmup), (None, 1500, 1));
}

#[test]
fn what_a_stack_is_compared_with_in_the_end() {
    let text = "stacks = [\"ftp\", \"sftp\", \"sftp/tls\", \"headroom(chunk=300,cipher=none)\", \
                \"headroom(cipher=aes-128-gcm,chunk=300)\"]\n[[workload]]\nkind = \"download\"\n";
    let plan = Plan::from_toml(text, "families").expect("a good plan");
    let bare = "headroom(cipher=none,chunk=300)";
    let roots = plan.stacks.iter().map(|planned| plan.root_of(&planned.stack.name));
    assert_eq!(roots.collect::<Vec<_>>(), ["ftp", "ftp", "ftp", bare, bare]);
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let cases = [
        (GOOD.replace("\"ftps\"", "\"ftsp\""), "3: there is no application `ftsp`"),
        (GOOD.replace("\"ftps\"", "\"ftp\""), "3: `ftp` is listed twice"),
        (
            GOOD.replace("\"ftps\"", "\"ftsp\""),
            "3: there is no application `ftsp` (did you mean `ftps`?)",
        ),
        (
            GOOD.replace("repetitions", "repetitons"),
            "4: unknown field `repetitons` (did you mean `repetitions`?), expected one of",
        ),
        (
            GOOD.replace("[[workload]]", "[[workloads]]"),
            "7: unknown field `workloads` (did you mean `workload`?)",
        ),
        (
            GOOD.replace("sizes = [\"1KiB\", \"1MiB\"]", "sizes = []"),
            "9: the list of sizes is empty: leave out `sizes` for the default of this workload (1 KiB",
        ),
        (
            GOOD.replace("sizes =", "stacks = []\nsizes ="),
            "9: the list of stacks is empty: leave out `stacks`",
        ),
        (
            GOOD.replace("sizes =", "stacks = [\"ftp\", \"fpts\"]\nsizes ="),
            "9: `fpts` is not one of this plan's stacks (did you mean `ftps`?)",
        ),
        (
            GOOD.replace("\"ftps\"", "\"ftp/esp/esp/esp/esp/esp\""),
            "3: `ftp/esp/esp/esp/esp/esp`: packets inside the layer `esp` have at most",
        ),
        (
            GOOD.replace("\"ftps\"", "\"ftps\", \"http\", \"https\"")
                + "[baselines]\nhttps = \"ftps\"\n",
            "11: `ftps` has a baseline itself: compare `https` with that, or compare `ftps` with nothing, by \
             `\"ftps\" = \"none\"` in [baselines]",
        ),
        (GOOD.replace("= 3", "= 1"), "4: repetitions must be"),
        (GOOD.replace("100mbit", "100"), "5: `100` is not a rate"),
        (
            GOOD.replace("download", "downlod"),
            "8: unknown variant `downlod` (did you mean `download`?)",
        ),
        (GOOD.replace("download", "commands"), "8: the workload `commands` cannot run on `ftp`"),
        (GOOD.replace("1KiB", "2TiB"), "9: `2TiB` is not a size"),
        (GOOD.replace("1KiB", "2GiB"), "9: sizes range from"),
        (
            GOOD.replace("sizes =", "clients = 4\nsizes ="),
            "9: the workload `download` has no `clients`",
        ),
        (
            GOOD.replace("sizes =", "content = \"prose\"\nsizes ="),
            "9: unknown variant `prose`, expected one of `random`, `text`, `binary`",
        ),
        (
            GOOD.replace("download", "parallel")
                .replace("sizes =", "transfers-per-sample = 4\nsizes ="),
            "9: the workload `parallel` has no `transfers-per-sample`",
        ),
        (GOOD.replace("link", "mtu = 100\nlink"), "5: the MTU for ipv6"),
        (
            GOOD.replace("link", "link-backend = \"nettem\"\nlink"),
            "5: unknown variant `nettem` (did you mean `netem`?), expected one of `netem`, `emulator`, `shaper`",
        ),
        (
            GOOD.replace("link", "validation-links = [\"unshaped\"]\nlink"),
            "5: a validation link needs a rate",
        ),
        (
            GOOD.replace("link =", "validation-links = [\"10mbit\", \"0.1gbit\"]\nlink ="),
            "5: the plan has the link `100mbit` twice",
        ),
        (
            GOOD.replace("link =", "validation-links = [\"10mbit\", \"10mbit\"]\nlink ="),
            "5: the plan has the link `10mbit` twice",
        ),
        (format!("{GOOD}[baselines]\nftps = \"http\"\n"), "11: `http` is not one of"),
        (format!("{GOOD}[baselines]\nftp = \"ftp\"\n"), "11: a stack cannot be its own"),
        (
            format!("{GOOD}[congestion-controls]\nftsp = \"bbr\"\n"),
            "11: `ftsp` is not one of this plan's stacks (did you mean `ftps`?)",
        ),
        (
            format!("{GOOD}[congestion-controls]\nftps = \"bbr initcwnd 9\"\n"),
            "11: `bbr initcwnd 9` is not one word",
        ),
        (
            format!("{GOOD}[congestion-controls]\nftps = \"bbr_of_2026-11-26\"\n"),
            "11: `bbr_of_2026-11-26` is no TCP congestion control: such names have at most 15",
        ),
        (
            GOOD.replace("\"ftps\"", "\"ftp/esp\"")
                + "[congestion-controls]\n\"ftp/esp\" = \"bbr\"\n",
            "11: `ftp/esp` has layers",
        ),
        (
            GOOD.replace("\"ftps\"", "\"headroom\"")
                + "[congestion-controls]\nheadroom = \"bbr\"\n",
            "11: `headroom` does not move its files over TCP",
        ),
        (
            GOOD.replace("link =", "validation-links = [\"10mbit\"]\nlink =")
                + "[congestion-controls]\nftps = \"bbr\"\n",
            "12: predictions are those of one congestion control",
        ),
        (
            GOOD.replace("\"ftps\"", "\"ftp/esp(md5)\""),
            "3: `esp` has no option `md5`; the options are",
        ),
        ("stacks = [\"ftp\"".into(), "1:"),
        (GOOD.replace("repetitions = 3", "name = \"../x\""), "4: `../x` is not one word"),
        (GOOD.replace("1MiB", "1024"), "8: `ftp` has `download` of this size twice"),
        (
            GOOD.replace("repetitions = 3", "congestion-control = \"cubic initcwnd 9\""),
            "4: `cubic initcwnd 9`",
        ),
        (GOOD.replace("= 3", "= 5\nuntil = \"ci<2%\""), "4: `until` needs at least 10 repetitions"),
        (GOOD.replace("= 3", "= 10\nuntil = \"2%\""), "5: `2%` is not a rule to stop by"),
        (GOOD.replace("= 3", "= 3\nmax-repetitions = 9"), "5: `max-repetitions` requires `until`"),
        (
            GOOD.replace("= 3", "= 20\nuntil = \"ci<2%\"\nmax-repetitions = 12"),
            "6: `max-repetitions` (12) is below",
        ),
        (String::new(), "1: missing field `stacks`"),
        (
            GOOD.replace("sizes =", "rate = \"100pps\"\nsizes ="),
            "9: the workload `download` has no `rate`",
        ),
        (stream("rate = \"1gbit\"", ""), "5: 1gbit at 1000 bytes is 125000.0"),
        (stream("rate = \"9pp\"", ""), "5: `9pp` is not a rate"),
        (stream("sizes = [\"19B\"]", ""), "3: datagrams at a rate are RTP"),
        (stream("cross-traffic = \"iperf\"", ""), "5: `iperf` is neither"),
        (
            stream("seconds = 3", "[testbed]\nkind = \"ssh\"\nclient = \"a\"\nserver = \"b\"\n"),
            "3: two real hosts have two clocks",
        ),
        (
            format!("{GOOD}[testbed]\nkind = \"sshh\"\n"),
            "11: unknown variant `sshh` (did you mean `ssh`?)",
        ),
        (format!("{GOOD}[testbed]\nkind = \"netns\"\nclient = \"a\"\n"), "12: `client` requires"),
        (two_hosts("client = \"a\"\n"), "10: `server` is missing"),
        (two_hosts("client = \"a\"\nserver = \"-oX\"\n"), "13: `-oX` is no host"),
        (
            two_hosts("client = \"a\"\nserver = \"b\"\nports = 80\n"),
            "14: `ports` is 80: it must be from 1024",
        ),
        (
            two_hosts("client = \"a\"\nserver = \"b\"\nssh = 5\n"),
            "14: a command is a text in quotes, or a list of words",
        ),
        (GOOD.replace("link", "warmup = 0\nlink"), "5: `warmup` is 0: it must be from 1 to 100"),
        (
            GOOD.replace("download", "many").replace("sizes =", "files = 0\nsizes ="),
            "9: `files` is 0: it must be from 1 to 100000",
        ),
        (
            GOOD.replace("= 3", "= \"3\""),
            "4: `repetitions` is the text \"3\", and must be a whole number, such as 5",
        ),
        (two_hosts("client = \"a\"\nserver = \"b\"\nssh = \"\"\n"), "14: the ssh command is"),
        (
            two_hosts("client = \"a\"\nserver = \"b\"\n").replace("warmup = 1", "link = \"1mbit\""),
            "5: the lab does not shape the link",
        ),
        (
            two_hosts("client = \"a\"\nserver = \"b\"\n").replace("\"ftps\"", "\"ftps/openvpn\""),
            "3: `ftps/openvpn`: `openvpn` would",
        ),
        (
            two_hosts("client = \"a\"\nserver = \"10.0.0.2\"\n")
                .replace("warmup = 1", "family = \"ipv6\""),
            "5: the server's address 10.0.0.2 is ipv4",
        ),
    ];
    for (text, expected) in cases {
        let error = Plan::from_toml(&text, "x").expect_err(expected);
        assert!(error.starts_with(expected), "{error:?} does not start with {expected:?}");
    }
}

#[test]
fn a_trace_lies_beside_the_plan_that_names_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../link-spec/tests/data");
    let read = |text: &str| file::read(text, "x", Some(folder.as_path()));
    let traced = GOOD.replace("100mbit", "trace=cellular-down.trace,up-rate=1mbit");
    let plan = read(&traced).expect("a good plan");
    assert!(plan.link.down.trace.is_some() && plan.link.up.trace.is_none());
    assert!(plan.traces().iter().all(|path| path.is_absolute() && path.is_file()));
    assert_eq!(plan.traces().len(), 1);
    let refused = |text: &str, expected: &str| {
        let error = read(text).expect_err(expected);
        assert!(error.starts_with(expected), "{error:?} does not start with {expected:?}");
    };
    let missing = traced.replace("cellular", "satellite");
    refused(&missing, "5: the trace `satellite-down.trace`: cannot read");
    let checked = traced.replace("link =", "validation-links = [\"10mbit\"]\nlink =");
    refused(&checked, "5: a trace has no single rate");
    let check = "validation-links = [\"trace=cellular-down.trace\"]\nlink =";
    refused(&GOOD.replace("link =", check), "5: a trace has no single rate");
    let two = two_hosts("client = \"a\"\nserver = \"b\"\n");
    let two = two.replace("warmup = 1", "link = \"trace=cellular-down.trace\"");
    refused(&two, "5: the lab does not shape the link");
    let error = Plan::from_toml(&traced, "x").expect_err("no folder");
    assert!(error.starts_with("5: a trace is a file"), "{error}");
}

#[test]
fn workloads_of_one_kind_are_told_apart_by_what_is_not_default() {
    let more = "[[workload]]\nkind = \"download\"\ncontent = \"text\"\nsizes = [\"1KiB\"]\n\
                [[workload]]\nkind = \"parallel\"\nclients = 16\n[[workload]]\nkind = \"parallel\"\n";
    let plan = Plan::from_toml(&format!("{GOOD}{more}"), "x").expect("a good plan");
    let names: Vec<String> = plan.workloads.iter().map(Workload::name).collect();
    assert_eq!(names, ["download", "download(text)", "parallel(clients=16)", "parallel"]);
    let again = format!("{GOOD}{more}{more}");
    let error = Plan::from_toml(&again, "x").expect_err("twice");
    assert!(error.contains("has `download(text)` of this size twice"), "{error}");
}

#[test]
fn a_rule_to_stop_by() {
    let text = GOOD.replace("repetitions = 3", "until = \"ci<2%\"\nmax-repetitions = 40");
    let mut plan = Plan::from_toml(&text, "x").expect("a good plan");
    let until = plan.until.expect("a rule");
    assert_eq!((plan.repetitions, until.most_blocks), (10, 40));
    assert!(plan.set_repetitions(12).is_ok());
    assert!(plan.set_repetitions(5).is_err() && plan.set_repetitions(41).is_err());
}

#[test]
fn only_keeps_the_baselines_of_what_it_keeps() {
    let mut plan = Plan::from_toml(GOOD, "x").expect("a good plan");
    assert!(plan.keep_only("http*").is_err());
    plan.keep_only("*ps").expect("ftps is there");
    assert_eq!(plan.stacks.len(), 2);
    plan.keep_only("ftp").expect("ftp is there");
    assert_eq!(plan.workloads[0].stacks, ["ftp"]);
}

#[test]
fn a_study_is_no_plan() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/pace.toml");
    let error = Plan::read(&path).expect_err("a study").to_string();
    assert!(error.contains("pace.toml is a study, as it has [[part]]"), "{error}");
    assert!(!has_parts("stacks = [\"ftp\"]") && !has_parts("[[part]"), "no parts");
}

#[test]
fn says_whether_it_is_smaller_at_a_scale() {
    let plan = Plan::from_toml(&format!("{GOOD}[smoke]\nrepetitions = 2\n"), "x");
    let plan = plan.expect("a good plan");
    let smaller = Scale::ALL.map(|scale| plan.is_smaller_at(scale));
    assert_eq!(smaller, [false, false, true], "full, quick, smoke");
}
