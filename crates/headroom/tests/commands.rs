//! `headroom lab` without a measurement: lists, help, checks and dry runs.

mod common;

use std::path::Path;

use common::made_up::results;
use common::{Ground, HEADROOM, groups, runs_in};
use headroom_testing::privileged;

const PLAN: &str = "stacks = [\"ftp\", \"ftps\", \"http\", \"https\", \"sftp\", \"rsync\"]\n\
                    repetitions = 2\nlink = \"100mbit,delay=5ms\"\nvalidation-links = [\"100mbit\"]\n\
                    [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n\
                    [[workload]]\nkind = \"upload\"\nsizes = [\"1MiB\"]\n";

#[test]
fn a_rehearsal_prints_what_a_run_would_do_and_does_nothing() {
    let ground = Ground::new("dry");
    ground.write("p.toml", PLAN);
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run --out out"));
    assert_eq!(ended.code, Some(0), "{ended}");
    let first = ended.stdout.lines().next().unwrap_or_default();
    assert!(first.starts_with("# this will take about "), "{first}");
    assert!(first.contains("(estimated from 6 stacks, 2 repetitions, sizes from 1 KiB"), "{first}");
    for fragment in [
        "unshare --mount",
        "ip netns add hr-",
        "sysctl -q -w",
        "congctl cubic",
        "htb rate 100000000bit",
        "nsenter --net=/run/netns/hr-",
        "root/applications/https/nginx.conf <<",
        "ssl_protocols TLSv1.3;",
        "sshd_config <<",
        "pure-pw",
        "lab-agent",
        "/dev/urandom > ",
        "--upload",
        "ethtool -K eth0 tso off",
    ] {
        assert!(ended.stdout.contains(fragment), "`{fragment}` is not in {ended}");
    }
    // whichever this kernel would use
    let made = ["netem limit", "link --json --a to-client --b to-server --spec 100mbit,delay=5ms"];
    assert!(made.iter().any(|by| ended.stdout.contains(by)), "{ended}");
    ended.assert_nothing_started();
    let left: Vec<_> = std::fs::read_dir(ground.scratch()).expect("TMPDIR").collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!ground.path("out").exists(), "a rehearsal has no results");
    if let Some(groups) = groups() {
        assert!(!runs_in(&groups).contains("00000000"), "a control group was made");
    }
}

/// A plan of one stack, on a link that every machine can make.
const ONE_STACK: &str = "question = \"What does HTTPS cost?\"\nstacks = [\"https\"]\n\
     repetitions = 2\nfamily = \"ipv4\"\nlink = \"10mbit,delay=5ms\"\nlink-backend = \"emulator\"\n\
     seed = 1\n[[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n";

#[test]
fn dry_run_prints_every_command_and_file() {
    let ground = Ground::new("commands");
    ground.write("p.toml", ONE_STACK);
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
    assert_eq!(ended.code, Some(0), "{ended}");
    // which programs this machine lacks is not pinned
    assert!(ended.stderr.lines().all(|line| line.contains("missing on this machine: ")), "{ended}");
    let text = ended.stdout.replace(&ground.scratch().display().to_string(), "TMPDIR");
    let text = text.replace(common::HEADROOM, "headroom");
    let text: Vec<String> = text.lines().map(without_host).collect();
    insta::assert_snapshot!("dry_run", text.join("\n"));
}

/// A study of two parts without a smaller version. Each defines the same layer, and asks for a
/// congestion control that no kernel has.
fn study() -> String {
    let part = |name: &str| {
        format!(
            "[[part]]\nname = \"{name}\"\nstacks = [\"http\", \"https\"]\nfamily = \"ipv4\"\n\
             link = \"10mbit,delay=5ms\"\nlink-backend = \"emulator\"\n\
             congestion-controls = {{ https = \"brr\" }}\n\
             [[part.workload]]\nkind = \"download\"\nsizes = [\"100kB\"]\n\
             [part.layer.pass]\nabout = \"only passes on: socat\"\nencrypts = false\n\
             server = [\"socat\", \"TCP-LISTEN:{{port}},bind={{url-host}},fork\", \"TCP:{{to-address}}\"]\n\
             client = [\"socat\", \"TCP-LISTEN:{{port}},bind={{url-host}},fork\", \"TCP:{{to-address}}\"]\n\
             programs = {{ socat = {{ version = [\"-V\"] }} }}\n"
        )
    };
    format!("question = \"How much?\"\n{}{}", part("near"), part("far"))
}

#[test]
fn a_rehearsal_names_the_programs_that_a_run_would_miss() {
    let ground = Ground::new("dry-missing");
    let layer = "[layer.pass]\nencrypts = false\nprograms = { absent-relay = { version = [\"-V\"] } }\n\
                 server = [\"absent-relay\", \"{port}\", \"{to-address}\"]\n\
                 client = [\"absent-relay\", \"{port}\", \"{to-address}\"]\n";
    ground.write("p.toml", &format!("{}{layer}", PLAN.replacen("\"rsync\"", "\"http/pass\"", 1)));
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
    assert_eq!(ended.code, Some(0), "{ended}");
    let missing = ended.stderr.lines().find(|line| line.contains("missing on this machine: "));
    let missing = missing.unwrap_or_else(|| panic!("{ended}"));
    assert!(missing.starts_with("headroom: a run would end with exit code 3: "), "{ended}");
    assert!(missing.contains("absent-relay"), "{ended}");
    // what is left out is not missed
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run --skip-missing"));
    let said = "http/pass is left out: missing on this machine: absent-relay";
    let is_missed = |line: &str| line.contains("exit code 3") && line.contains("absent-relay");
    assert!(!ended.stderr.lines().any(is_missed) && ended.stderr.contains(said), "{ended}");
}

#[test]
fn a_rehearsal_of_a_study_begins_with_the_time_of_all_parts() {
    let ground = Ground::new("dry-study");
    ground.write("s.toml", &study());
    let ended = ground.end_of(ground.headroom("lab run s.toml --scale quick --dry-run"));
    assert_eq!(ended.code, Some(0), "{ended}");
    let lines: Vec<&str> = ended.stdout.lines().take(4).collect();
    let [all, near, far, part] = lines[..] else { panic!("{ended}") };
    assert!(all.starts_with("# this will take about "), "{ended}");
    assert!(all.ends_with(" in all, for 2 parts:"), "{ended}");
    assert!(near.starts_with("# near: this will take about "), "{ended}");
    assert!(far.starts_with("# far: ") && far.contains("a size of 100 kB"), "{ended}");
    assert_eq!(part, "# part near");
    for said in [
        "no part has [part.quick], so --scale quick is the whole study",
        "has not loaded the TCP congestion control `brr`",
    ] {
        assert_eq!(ended.stderr.matches(said).count(), 1, "{said}: {ended}");
    }
    ground.write("p.toml", PLAN);
    let ended = ground.end_of(ground.headroom("lab run p.toml --scale smoke --dry-run"));
    let said = "the plan has no [smoke], so --scale smoke is the whole plan";
    assert!(ended.code == Some(0) && ended.stderr.contains(said), "{ended}");
}

#[test]
fn lists_what_a_study_and_a_plan_define_once() {
    let ground = Ground::new("list-study");
    let section = "[[section]]\nid = \"share\"\ntitle = \"Share of the rate\"\nrows = [\"near\", \"far\"]\n\
                   part = \"{row}\"\nworkload = \"download\"\nsize = \"100kB\"\nmeasure = \"link-rate-pct\"\n\
                   [[section.column]]\nid = \"https\"\ntitle = \"HTTPS\"\nstack = \"https\"\n";
    let claim = "[[claim]]\nid = \"all\"\ncompare = [\"share/https/near > 50\"]\nholds = \"\"\n\
                 fails = \"\"\nunknown = \"\"\n";
    ground.write("s.toml", &format!("{}{section}{claim}", study()));
    ground.write("p.toml", ONE_STACK);
    let mut text = String::new();
    for file in ["s.toml", "p.toml"] {
        let mut list = ground.headroom(&format!("lab list {file}"));
        list.env("COLUMNS", "80");
        let ended = ground.end_of(list);
        assert_eq!(ended.code, Some(0), "{ended}");
        text += &format!("$ headroom lab list {file}\n{}\n", ended.stdout);
    }
    insta::assert_snapshot!("lab_list_file", text);
    // what `lab run` refuses
    let wrong = section.replace("\"HTTPS\"", "\"HTTPS\"\nat = \"1\"");
    ground.write("wrong.toml", &format!("{}{wrong}", study()));
    for command in ["lab list wrong.toml", "lab run wrong.toml --dry-run"] {
        let says = ["wrong.toml:", "column https: `at` says which second of a stream"];
        ground.end_of(ground.headroom(command)).assert_says(2, &says);
    }
}

#[test]
fn doctor_says_once_what_the_parts_of_a_study_lack() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("doctor-study");
    ground.write("s.toml", &study());
    let ended = ground.end_of(ground.headroom("lab doctor s.toml"));
    assert_eq!(ended.code, Some(3), "no kernel has it: {ended}");
    assert!(ended.stdout.contains("MISSING  congestion control brr "), "{ended}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let different: std::collections::BTreeSet<&str> = lines.iter().copied().collect();
    assert_eq!(lines.len(), different.len(), "{ended}");
}

/// A line without this host's paths of programs and control groups, without the variables
/// that programs of the private cache need, and without the size of its memory.
fn without_host(line: &str) -> String {
    let is_variable = |word: &&str| {
        let is_upper = |c: char| c.is_ascii_uppercase() || c == '_';
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(is_upper))
    };
    let words = line.split(' ').skip_while(is_variable).map(|word| match word.rsplit_once('/') {
        Some((folder, program)) if folder.starts_with('/') && folder.ends_with("bin") => {
            program.to_owned()
        }
        _ => match (word.find("/headroom-00000000"), word.find("size=")) {
            (Some(end), _) if word.starts_with("/sys/") => format!("CGROUPS{}", &word[end..]),
            (_, Some(start)) => format!("{}size=BYTES", &word[..start]),
            _ => word.to_owned(),
        },
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Which programs a machine has is not pinned, but for one that is not found anywhere.
#[test]
fn doctor_prints_one_line_for_each_check() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("doctor");
    let mut doctor = ground.headroom("lab doctor");
    doctor.env("PATH", "/nonexistent").env("XDG_CACHE_HOME", ground.path("cache"));
    let ended = ground.end_of(doctor);
    assert!(ended.stderr.is_empty(), "{ended}");
    let pinned = ["privileges", "control groups", "wireguard-go", "link emulator"];
    let text: Vec<String> = ended
        .stdout
        .lines()
        .map(|line| {
            let (mark, rest) = line.split_at_checked(9).unwrap_or_else(|| panic!("{ended}"));
            let (what, says) = rest.split_at_checked(34).unwrap_or_else(|| panic!("{ended}"));
            assert!(["ok       ", "MISSING  "].contains(&mark) && !says.is_empty(), "{line}");
            match pinned.iter().any(|name| what.starts_with(name)) {
                true => line.to_owned(),
                false => format!("{:9}{what}RESULT", "STATUS"),
            }
        })
        .collect();
    insta::assert_snapshot!("lab_doctor", text.join("\n"));
}

#[test]
fn prints_help_of_the_lab() {
    let ground = Ground::new("help");
    for (name, line) in [
        ("headroom", "--help"),
        ("lab", "lab --help"),
        ("lab_run", "lab run --help"),
        ("lab_campaign", "lab campaign --help"),
        ("lab_report", "lab report --help"),
        ("lab_compare", "lab compare --help"),
        ("lab_history", "lab history --help"),
        ("lab_advise", "lab advise --help"),
        ("lab_parts", "lab parts --help"),
        ("lab_doctor", "lab doctor --help"),
        ("lab_list", "lab list --help"),
        ("lab_clean", "lab clean --help"),
        ("link", "link --help"),
    ] {
        let ended = ground.end_of(ground.headroom(line));
        assert_eq!(ended.code, Some(0), "{ended}");
        insta::assert_snapshot!(format!("help_{name}"), ended.stdout);
    }
}

#[test]
fn lists_stacks_layers_and_workloads() {
    let ground = Ground::new("list");
    let mut list = ground.headroom("lab list");
    list.env("COLUMNS", "80");
    let ended = ground.end_of(list);
    assert_eq!(ended.code, Some(0), "{ended}");
    insta::assert_snapshot!("lab_list", ended.stdout);
}

#[test]
fn lists_what_own_stacks_may_have() {
    let ground = Ground::new("list-own");
    let mut list = ground.headroom("lab list --own-stacks");
    list.env("COLUMNS", "80");
    let ended = ground.end_of(list);
    assert_eq!(ended.code, Some(0), "{ended}");
    insta::assert_snapshot!("lab_list_own_stacks", ended.stdout);
    // the example is a plan as it stands there
    let (_, example) = ended.stdout.split_once("\n# ").expect("an example");
    ground.write("example.toml", &format!("# {example}"));
    let rehearsed = ground.end_of(ground.headroom("lab run example.toml --dry-run"));
    assert_eq!(rehearsed.code, Some(0), "{rehearsed}");
    for words in ["-m http.server 8000 ", "TCP6-LISTEN:"] {
        assert!(rehearsed.stdout.contains(words), "`{words}` is not in {rehearsed}");
    }
}

#[test]
fn explains_plans_that_it_refuses() {
    let ground = Ground::new("refused");
    let mut errors = String::new();
    for (from, to) in [
        ("\"ftps\"", "\"ftsp\""),
        ("\"ftps\"", "\"ftp\""),
        ("repetitions", "repetitons"),
        ("= 2\n", "= 1\n"),
        ("100mbit,", "100,"),
        ("delay=5ms", "delay=5"),
        ("validation-links", "check-links"),
        ("download", "downlod"),
        ("\"1KiB\"", "\"1K\""),
        ("[\"1KiB\"]", "[]"),
        ("repetitions = 2", "repetitions = 2\nuntil = \"ci<2%\""),
        ("repetitions = 2", "repetitions = 2\noffload = \"per-packet\""),
        ("\"sftp\"", "\"ftp/tls\""),
        ("\"sftp\"", "\"sftp/esp(fast)\""),
        ("\"upload\"", "\"commands\""),
    ] {
        ground.write("p.toml", &PLAN.replacen(from, to, 1));
        let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{from}: {ended}");
        errors += &format!("{from} → {to}\n{}\n", ended.stderr);
    }
    let folder = ground.path("").display().to_string();
    insta::assert_snapshot!("plans_refused", errors.replace(&folder, "DIR/"));
}

#[test]
fn compares_two_runs() {
    let ground = Ground::new("compared");
    for (name, seconds, kernel) in
        [("a", [1.0, 1.01, 0.99, 1.02, 0.98], "6.1"), ("b", [1.2, 1.21, 1.19, 1.22, 1.18], "6.2")]
    {
        std::fs::create_dir(ground.path(name)).expect("a folder");
        let results = common::made_up::results(seconds, kernel).to_string();
        ground.write(&format!("{name}/results.json"), &results);
    }
    let mut compare = ground.headroom("lab compare a b --fail-above 5%");
    compare.env("COLUMNS", "80");
    let ended = ground.end_of(compare);
    assert_eq!(ended.code, Some(1), "{ended}");
    insta::assert_snapshot!("lab_compare", format!("{}\n{}", ended.stdout, ended.stderr));
}

#[test]
fn advises_what_to_use_on_a_link() {
    let ground = Ground::new("advised");
    // a basis that nobody measured, so that the text changes with the program alone
    ground.write("basis.json", &common::made_up::basis().to_string());
    let mut text = String::new();
    for (line, code) in [
        ("--rate 50mbit --rtt 30ms --files 1MiB --arithmetic", 0),
        ("--rate 50mbit --rtt 30ms --files 200x16KiB --need forward-secrecy", 0),
        ("--rate 50mbit --rtt 30ms --files 1MiB --need verified", 5),
        ("--rate 50mbit --rtt 30ms --loss 1% --files 1MiB --need post-quantum,no-udp", 5),
        ("--rate 5gbit --rtt 30ms --files 1MiB", 5),
        ("--rate 50mbit --rtt 3s --loss 20% --files 1GiB", 5),
        ("--rate 50mbit --files 1MiB", 2),
        ("--back-test", 0),
    ] {
        let mut advise = ground.headroom(&format!("lab advise --from basis.json {line}"));
        advise.env("COLUMNS", "80");
        let ended = ground.end_of(advise);
        assert_eq!(ended.code, Some(code), "{line}: {ended}");
        assert!(ended.stdout.lines().count() <= 24, "{ended}");
        text += &format!("$ headroom lab advise {line}\n{}{}\n", ended.stdout, ended.stderr);
    }
    insta::assert_snapshot!("lab_advise", text);
    let line = "lab advise --from basis.json --rate 50mbit --rtt 30ms --files 1MiB --json";
    let ended = ground.end_of(ground.headroom(line));
    let all: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let in_clear = [0_usize, 1, 2].map(|index| all["stacks"][index]["in_clear"].as_bool());
    assert_eq!(in_clear, [Some(true), Some(false), Some(true)], "{ended}");
}

#[test]
fn every_plan_of_the_repository_can_be_rehearsed() {
    let ground = Ground::new("plans");
    let plans = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans"));
    let mut count = 0;
    let folders = [plans.to_owned(), plans.join("studies")];
    let entries = folders.iter().flat_map(|f| std::fs::read_dir(f).expect("the plans").flatten());
    for path in entries.map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "toml") {
            count += 1;
            let mut command = ground.headroom("lab run --dry-run");
            command.arg(&path);
            let ended = ground.end_of(command);
            assert_eq!(ended.code, Some(0), "{}: {ended}", path.display());
        }
    }
    assert!(count > 0, "there is a plan");
    let mut list = ground.headroom("lab list");
    list.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let ended = ground.end_of(list);
    assert_eq!(ended.stdout.matches(".toml ").count(), count, "{ended}");
}

#[test]
fn completions_and_manual_pages() {
    let ground = Ground::new("man");
    for shell in ["bash", "zsh", "fish"] {
        let ended = ground.end_of(ground.headroom(&format!("completions {shell}")));
        assert_eq!(ended.code, Some(0), "{ended}");
        assert!(ended.stdout.contains("dry-run"), "{shell}: {ended}");
    }
    let script = ground.write("completions.bash", &{
        let ended = ground.end_of(ground.headroom("completions bash"));
        ended.stdout
    });
    let mut bash = ground.command("bash");
    bash.arg("-n").arg(script);
    assert_eq!(ground.end_of(bash).code, Some(0), "bash reads its completions");

    let page = ground.end_of(ground.headroom("man"));
    assert_eq!(page.code, Some(0), "{page}");
    assert!(page.stdout.contains(".TH") && page.stdout.contains("headroom"), "{page}");
    let pages = ground.end_of(ground.headroom("man pages"));
    assert_eq!(pages.code, Some(0), "{pages}");
    let run = std::fs::read_to_string(ground.path("pages/headroom-lab-run.1"));
    assert!(run.expect("a page of the subcommand").contains("repetitions"));
}

#[test]
fn what_cannot_be_typed() {
    let ground = Ground::new("typed");
    ground.write("p.toml", PLAN);
    ground.write("s.toml", &study());
    for (arguments, fragment) in [
        ("lab run", "PLAN|STACK"),
        ("lab run s.toml --only http", "--only applies to plans; the parts of a study define it"),
        ("lab run http --repetitions 1", "1 is not in 2"),
        ("lab run http --minutes 10min", "`10min` is not a whole number of minutes"),
        ("lab run http --minutes 0", "`0` is not a whole number of minutes"),
        ("lab run http --minutes 1 --sizes 1GiB --link 9mbit --dry-run", "1 min is too little"),
        ("lab advise --rate 50mbit --rtt 0ms --files 1MiB", "write what ping prints"),
        ("lab list p.toml --own-stacks", "cannot be used with"),
        ("lab run http --colour red", "--colour"),
        ("lab run http --sizes 1K", "`1K` is not a size"),
        ("lab run http --link fast", "fast"),
        ("lab run absent.toml", "absent.toml"),
        ("lab run tmp", "tmp is a folder: name a plan in it"),
        ("lab run ssh --sizes 1KiB", "leave out --sizes"),
        ("lab run ssh http", "measure them in two runs"),
        ("lab run http --family ipv5", "ipv4, ipv6"),
        ("lab run http --offload per-packet", "on, off"),
        ("lab run http --workload downlod", "download"),
        ("lab run http --workload commands", "can do none of the workloads commands"),
        ("lab run htps", "there is no application `htps` (did you mean `https`?)"),
        ("lab run p.toml --family ipv4", "--family applies to names of stacks"),
        ("lab run --resume", "--resume"),
        ("lab run http --allow-changed-environment", "--resume"),
        ("lab run --resume tmp", "there is no journal.jsonl in this folder"),
        ("lab run --resume tmp --out other", "--out"),
        ("lab run --resume tmp --repetitions 3", "leave out --repetitions"),
    ] {
        let ended = ground.end_of(ground.headroom(arguments));
        ended.assert_says(2, &[fragment]);
        ended.assert_nothing_started();
    }
    let mut nothing = ground.headroom("lab run");
    nothing.arg("");
    ground.end_of(nothing).assert_says(2, &["names no plan and no stack"]);
}

#[test]
fn a_run_without_a_plan_has_the_family_offload_and_workload_that_are_asked_for() {
    let ground = Ground::new("asked");
    let line = "lab run http --dry-run --workload upload --sizes 3KiB";
    let as_usual = ground.end_of(ground.headroom(line));
    assert_eq!(as_usual.code, Some(0), "{as_usual}");
    assert!(
        as_usual.stdout.contains("--upload") && as_usual.stdout.contains("fd77:"),
        "{as_usual}"
    );
    let asked = ground.end_of(ground.headroom(&format!("{line} --family ipv4 --offload off")));
    assert_eq!(asked.code, Some(0), "{asked}");
    assert!(asked.stdout.contains("10.77.") && !asked.stdout.contains("fd77:"), "{asked}");
    // for packets alone the clear-text check has offloads off; for everything, more often
    let off = |ended: &common::Ended| ended.stdout.matches("tso off").count();
    assert!(off(&asked) > off(&as_usual), "{asked}");
    assert!(!asked.stdout.contains("downloads/d"), "{asked}");
}

/// A string that goes on in the next line without a `\\` has the blanks before it inside.
#[test]
fn no_sentence_has_a_gap() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in
            std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path())
        {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files += 1;
                let code = std::fs::read_to_string(&path).expect("code");
                for (number, line) in code.lines().enumerate() {
                    assert!(!has_gap(line), "{}:{}: {line}", path.display(), number + 1);
                }
            }
        }
    }
    assert!(files > 100, "{files}");
    assert!(has_gap(&format!("let a = \"no netem;{}it takes\";", " ".repeat(21))));
}

/// Nine blanks or more between a word's end and a word's beginning, in quotes.
fn has_gap(line: &str) -> bool {
    let inside = line.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    let Some((inside, _)) = inside else { return false };
    let mut rest = inside;
    while let Some((before, after)) = rest.split_once("         ") {
        let ends = before.ends_with(|c: char| c.is_ascii_lowercase() || ",;:".contains(c));
        let is_new_line = before.ends_with("\\n");
        let begins = after.trim_start().starts_with(|c: char| c.is_ascii_lowercase());
        if ends && !is_new_line && begins {
            return true;
        }
        rest = after.trim_start();
    }
    false
}

#[test]
fn a_folder_without_results_has_no_report() {
    let ground = Ground::new("none");
    let ended = ground.end_of(ground.headroom("lab report absent"));
    ended.assert_says(1, &["absent/results.json"]);
    std::fs::create_dir(ground.path("other")).expect("a folder");
    ground.write("other/results.json", "{\"schema\": 7}");
    let ended = ground.end_of(ground.headroom("lab report other"));
    ended.assert_says(2, &["schema 7"]);
    ground.write("other/results.json", "{\"schema\": 1}");
    let ended = ground.end_of(ground.headroom("lab report other"));
    ended.assert_says(2, &["schema 1", "measure again"]);
}

#[test]
fn an_answer_names_the_command_that_prints_all_of_it() {
    let ground = Ground::new("more");
    std::fs::create_dir(ground.path("a run")).expect("a folder");
    let known = results([0.1, 0.11, 0.12, 0.11, 0.1], "6.1");
    ground.write("a run/results.json", &known.to_string());
    let mut command = ground.headroom("lab report");
    command.arg("a run");
    let brief = ground.end_of(command);
    assert_eq!(brief.code, Some(0), "{brief}");
    // in one line with `More:`, or on a line of its own where the folder's path is long
    let named = brief.stdout.lines().find_map(|line| line.split_once("headroom lab report "));
    let (_, named) = named.unwrap_or_else(|| panic!("no command: {brief}"));
    assert!(named.starts_with("--full '/") && named.ends_with("/a run'"), "{named}");
    // as somebody pastes it into a shell, wherever that is
    let mut shell = ground.command("/bin/sh");
    shell.args(["-c", &format!("\"$0\" lab report {named}"), HEADROOM]).current_dir("/");
    let full = ground.end_of(shell);
    assert_eq!(full.code, Some(0), "{full}");
    assert!(full.stdout.contains("AICc") && !brief.stdout.contains("AICc"), "{full}");
}

/// Every test that docs/security.md names is there.
#[test]
fn every_promise_is_held_by_something() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/security.md")).expect("the document");
    let named = text.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| {
        name.matches('_').count() >= 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let mut left: std::collections::BTreeSet<&str> = named.filter(is_test).collect();
    assert!(left.len() > 50, "{left:?}");
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = std::fs::read_to_string(&path).expect("code");
                left.retain(|name| !code.contains(&format!("fn {name}(")));
            }
        }
    }
    assert!(left.is_empty(), "docs/security.md names tests that are not there: {left:?}");
}
