//! `headroom lab campaign`: plans between pairs of hosts, round after round.

use crate::common::{Ended, Ground, array, runs_in, text, wait_for};
use headroom_testing::privileged;
use nix::sys::signal::Signal;
use serde_json::Value;

fn plan(repetitions: u32) -> String {
    format!(
        "stacks = [\"http\"]\nrepetitions = {repetitions}\ncount-packets = false\n\
         [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n"
    )
}

const HERE: &str = "[[pair]]\nname = \"here\"\nkind = \"netns\"\n";

/// A pair of hosts that cannot be reached.
fn away(ground: &Ground) -> String {
    let ssh =
        "#!/bin/sh\necho 'connect to host near.invalid port 22: No route to host' >&2\nexit 255\n";
    let ssh = ground.script("away", ssh);
    format!(
        "[[pair]]\nname = \"gone\"\nkind = \"ssh\"\nclient = \"near.invalid\"\nserver = \"far.invalid\"\n\
         ssh = [\"{}\"]\n",
        ssh.display()
    )
}

/// What was printed, its sentences on one line each.
fn unwrapped(ended: &Ended) -> String {
    ended.stdout.replace("\n  ", " ")
}

fn read(ground: &Ground, file: &str) -> Value {
    let text = std::fs::read_to_string(ground.path(file)).expect(file);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn two_rounds_of_a_pair_are_measured_and_a_pair_that_is_away_holds_nothing() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("campaign");
    ground.write("p.toml", &plan(2));
    let away = away(&ground);
    ground.write("net.toml", &format!("plans = [\"p.toml\"]\nrounds = 2\n{away}{HERE}"));
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let ended = run("lab campaign net.toml");
    assert_eq!(ended.code, Some(1), "{ended}");
    ended.assert_nothing_left();
    for words in [
        "round 1 of 2, p on gone: missed: cannot reach the client near.invalid by ssh",
        "No route to host",
        "round 1 of 2, p on here: begins",
        "round 2 of 2, p on here: measured",
    ] {
        assert!(ended.stderr.contains(words), "`{words}` is not in {ended}");
    }
    let counted = "of 4 runs in 2 rounds 2 were measured, 0 in part, 2 missed, 0 are left";
    assert!(unwrapped(&ended).contains(counted), "{ended}");
    for round in ["00001", "00002"] {
        let results = read(&ground, &format!("results/net/runs/{round}/p@here/results.json"));
        assert_eq!(text(&results["plan"], "pair"), "here");
        assert_eq!(results["complete"], true);
        assert!(!ground.path(&format!("results/net/runs/{round}/p@gone")).exists());
    }
    let table = std::fs::read(ground.path("results/net/samples.parquet")).expect("a table");
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"), "Parquet");

    let status = run("lab campaign net.toml --status --json");
    assert_eq!(status.code, Some(0), "{status}");
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(status["is_going_on"], false);
    assert_eq!(status["measured"], 2);
    let gone = &array(&status, "jobs")[0];
    assert_eq!(text(gone, "pair"), "gone");
    assert_eq!(gone["missed"], 2);
    assert!(text(&gone["last"], "why").contains("No route to host"), "{gone}");

    let history = run("lab history results/net");
    // how many runs count depends on what else this machine does
    assert!(history.stdout.contains("p on here: "), "{history}");
    let since = run("lab history results/net --since 2020-01-01");
    assert_eq!(since.code, Some(0), "{since}");
    assert!(since.stdout.contains("Nothing was measured both before"), "{since}");
    let home = |round: u32| format!("results/net/runs/0000{round}/p@here");
    let compared = run(&format!("lab compare {} {}", home(1), home(2)));
    assert!(compared.stdout.contains("http download 1 KiB on unshaped"), "{compared}");

    // another round is no other campaign, another plan is
    let more = format!("plans = [\"p.toml\"]\nrounds = 3\n{away}{HERE}");
    ground.write("net.toml", &more);
    let ended = run("lab campaign net.toml");
    assert!(ended.stderr.contains("round 3 of 3, p on here: measured"), "{ended}");
    assert!(!ended.stderr.contains("round 2 of 3"), "what is over is not run again: {ended}");
    ground.write("p.toml", &plan(3));
    let refused = run("lab campaign net.toml");
    refused.assert_says(2, &["was begun otherwise", "repetitions: 3 instead of 2", "--out"]);
    refused.assert_nothing_started();
}

#[test]
fn interrupted_or_killed_it_goes_on_with_the_same_command() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("campaign-cut");
    // a campaign looks four times a second whether it is to stop
    ground.write("p.toml", &plan(100));
    ground.write("net.toml", &format!("plans = [\"p.toml\"]\n{HERE}"));
    let blocks = |out: &str, n: usize| {
        let journal = ground.path(&format!("{out}/runs/00001/p@here/journal.jsonl"));
        let journal = std::fs::read_to_string(journal).unwrap_or_default();
        let blocks = journal.lines().filter(|line| line.starts_with("{\"block\"")).count();
        (blocks >= n).then_some(())
    };
    let results = |out: &str| read(&ground, &format!("{out}/runs/00001/p@here/results.json"));

    let mut run = ground.start(ground.headroom("lab campaign net.toml --out out"));
    run.until("two blocks", |_| blocks("out", 2));
    run.signal(Signal::SIGINT);
    let ended = run.end();
    ended.assert_says(130, &["the same command continues the campaign"]);
    ended.assert_nothing_left();
    assert_eq!(results("out")["complete"], false);
    let ended = ground.end_of(ground.headroom("lab campaign net.toml --out out"));
    assert_eq!(ended.code, Some(0), "{ended}");
    ended.assert_nothing_left();
    let whole = results("out");
    assert_eq!(whole["complete"], true);
    assert_eq!(array(&whole, "resumed").len(), 1);

    // a run outlives a campaign that is killed, and is waited for
    let mut run = ground.start(ground.headroom("lab campaign net.toml --out killed"));
    run.until("a block", |_| blocks("killed", 1));
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().code, None);
    let ended = ground.end_of(ground.headroom("lab campaign net.toml --out killed"));
    assert_eq!(ended.code, Some(0), "{ended}");
    let whole = results("killed");
    assert_eq!(whole["complete"], true);
    assert_eq!(array(&whole, "resumed").len(), 0);
    wait_for("the end of that run", || runs_in(&ground.scratch()).is_empty());
}

#[test]
fn a_campaign_that_waits_for_a_round_can_be_looked_at_and_not_begun_twice() {
    let ground = Ground::new("campaign-waits");
    ground.write("p.toml", &plan(2));
    let times = "every = \"1d\"\nrounds = 2\nstart = \"2199-01-01T00:00:00Z\"\n";
    ground.write("net.toml", &format!("plans = [\"p.toml\"]\n{times}{HERE}"));
    let mut run = ground.start(ground.headroom("lab campaign net.toml --out out"));
    run.until("the time of the round", |run| {
        run.said().contains("the next round is due at 2199-01-01T00:00:00Z").then_some(())
    });
    let second = ground.end_of(ground.headroom("lab campaign net.toml --out out"));
    second.assert_says(2, &["is still going on", "--status"]);
    let status = ground.end_of(ground.headroom("lab campaign --status out"));
    assert_eq!(status.code, Some(0), "{status}");
    assert!(unwrapped(&status).contains("2 are left; it is going on."), "{status}");
    assert!(status.stdout.contains("Next round: 2199-01-01T00:00:00Z"), "{status}");
    run.signal(Signal::SIGINT);
    let ended = run.end();
    ended.assert_says(130, &["the same command continues the campaign"]);
    ended.assert_nothing_started();
    let status = ground.end_of(ground.headroom("lab campaign --status out"));
    assert!(unwrapped(&status).contains("it was interrupted"), "{status}");
}

#[test]
fn a_campaign_says_before_it_begins_what_it_will_do_and_what_cannot_be() {
    let ground = Ground::new("campaign-dry");
    ground.write("p.toml", &plan(2));
    let away = away(&ground);
    let campaign = format!("plans = [\"p.toml\"]\nevery = \"6h\"\nrounds = 28\n{away}{HERE}");
    ground.write("net.toml", &campaign);
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let dry = run("lab campaign net.toml --dry-run --out out");
    assert_eq!(dry.code, Some(0), "{dry}");
    for words in [
        "# a round will take about ",
        "# net: 28 rounds of 2 runs\n# p on gone, p on here\n# round 1: 2",
        "# and 18 more, the last at 2",
        "out/runs/00001/p@gone --testbed ",
        "out/pairs/here.toml",
    ] {
        assert!(dry.stdout.contains(words), "`{words}` is not in {dry}");
    }
    dry.assert_nothing_started();
    assert!(!ground.path("out").exists(), "a rehearsal has no results");

    ground.write("late.toml", &campaign.replace("6h", "1s"));
    let late = run("lab campaign late.toml --dry-run");
    assert!(late.stdout.contains("what has not begun by then is missed"), "{late}");

    ground.write("shaped.toml", &format!("link = \"10mbit\"\n{}", plan(2)));
    for (text, words) in [
        (campaign.replace("p.toml", "shaped.toml"), "x.toml:1: on the pair gone: "),
        (campaign.replace("rounds", "round"), "did you mean `rounds`?"),
        (campaign.replace("here", "gone"), "two pairs are called `gone`"),
    ] {
        ground.write("x.toml", &text);
        run("lab campaign x.toml").assert_says(2, &[words]);
    }
    run("lab campaign absent.toml").assert_says(2, &["cannot read the campaign absent.toml"]);
    run("lab campaign net.toml --status").assert_says(2, &["there is no campaign in"]);
    run("lab campaign net.toml --json").assert_says(2, &["--status"]);
    std::fs::create_dir(ground.path("full")).expect("a folder");
    ground.write("full/file", "");
    run("lab campaign net.toml --out full").assert_says(2, &["is not empty and has no campaign"]);
}

#[test]
fn hosts_that_cannot_be_reached_need_no_privilege_to_be_missed() {
    let ground = Ground::new("campaign-away");
    ground.write("p.toml", &plan(2));
    ground.write("net.toml", &format!("plans = [\"p.toml\"]\n{}", away(&ground)));
    let ended = ground.end_of(ground.headroom("lab campaign net.toml --out out"));
    assert_eq!(ended.code, Some(1), "{ended}");
    let why = "cannot reach the client near.invalid by ssh";
    assert!(unwrapped(&ended).contains(why), "{ended}");
    assert!(!ground.path("out/samples.parquet").exists(), "nothing was measured");
}

#[test]
fn a_plan_runs_on_the_testbed_of_another_file() {
    let ground = Ground::new("campaign-testbed");
    ground.write("p.toml", &plan(2));
    let testbed = "[testbed]\nkind = \"ssh\"\nclient = \"near.invalid\"\nserver = \"10.91.0.2\"\n";
    ground.write("far.toml", testbed);
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let dry = run("lab run p.toml --testbed far.toml --dry-run");
    assert_eq!(dry.code, Some(0), "{dry}");
    assert!(dry.stdout.contains("near.invalid"), "{dry}");
    run("lab run http --testbed far.toml").assert_says(2, &["--testbed applies to a plan's file"]);
    ground.write("far.toml", "stacks = []");
    run("lab run p.toml --testbed far.toml").assert_says(2, &["far.toml:1: "]);
}
