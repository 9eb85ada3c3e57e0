//! A run leaves the machine as it was: packages, `/etc`, `/run`, network,
//! mounts, kernel settings, services, the user's SSH files.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use common::{Ground, runs_in, wait_for};
use headroom_testing::privileged;
use nix::sys::signal::Signal;

const PLAN: &str = "stacks = [\"ftp\", \"ftps\", \"http\", \"https\", \"sftp\", \"scp\", \"rsync\", \"ssh\"]\n\
    repetitions = 2\nlink = \"100mbit\"\n\
    [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n\
    stacks = [\"ftp\", \"ftps\", \"http\", \"https\", \"sftp\", \"scp\", \"rsync\"]\n\
    [[workload]]\nkind = \"upload\"\nsizes = [\"1KiB\"]\n\
    stacks = [\"ftp\", \"http\", \"sftp\"]\n\
    [[workload]]\nkind = \"commands\"\nstacks = [\"ssh\"]\n";

#[test]
fn a_run_leaves_the_machine_as_it_was() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("traces");
    ground.write("p.toml", PLAN);
    let before = machine();
    ground.measure("p.toml");
    assert_same(&before, &machine());

    // one that is killed too, once it has been cleaned up
    let long = PLAN.replace("repetitions = 2", "repetitions = 50");
    ground.write("long.toml", &long);
    let mut run = ground.start(ground.headroom("lab run long.toml"));
    run.until_download(1);
    run.signal(Signal::SIGKILL);
    let killed = run.end();
    assert_eq!(killed.code, None, "{killed}");
    let cleaned = ground.end_of(ground.headroom("lab clean"));
    assert_eq!(cleaned.code, Some(0), "{cleaned}");
    assert!(runs_in(&ground.scratch()).is_empty(), "{cleaned}");
    killed.assert_nothing_left();
    let mut after = BTreeMap::new();
    wait_for("the kernel's end of the namespaces", || {
        after = machine();
        after["links"] == before["links"]
    });
    assert_same(&before, &after);
}

/// Everything about this machine that a run could change, by name, as lines.
fn machine() -> BTreeMap<&'static str, BTreeSet<String>> {
    let home = std::env::var("HOME").unwrap_or_else(|_| "/root".into());
    let mut all: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    all.insert("packages", said("dpkg -l"));
    all.insert("/etc", tree(Path::new("/etc"), true));
    all.insert("/run", tree(Path::new("/run"), false));
    all.insert("SSH files", tree(&Path::new(&home).join(".ssh"), true));
    all.insert("addresses", without_ages(said("ip -oneline address show")));
    all.insert("links", said("ip -oneline link show"));
    all.insert("routes", without_ages(said("ip -4 route show table all")));
    all.insert("routes of IPv6", without_ages(said("ip -6 route show table all")));
    all.insert("rules", said("ip rule show"));
    all.insert("namespaces", said("ip netns list"));
    all.insert("queues", said("tc qdisc show"));
    all.insert("packet filter", said("nft list ruleset"));
    all.insert("mounts", mounts());
    all.insert("services", services());
    all.insert("kernel settings", settings());
    all
}

fn assert_same(
    before: &BTreeMap<&'static str, BTreeSet<String>>,
    after: &BTreeMap<&'static str, BTreeSet<String>>,
) {
    for (name, was) in before {
        let is = &after[name];
        let gone: Vec<&String> = was.difference(is).collect();
        let new: Vec<&String> = is.difference(was).collect();
        assert!(gone.is_empty() && new.is_empty(), "{name}: gone {gone:#?}, new {new:#?}");
    }
}

/// The lines that a program prints; none where there is no such program.
fn said(line: &str) -> BTreeSet<String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    Command::new(program)
        .args(words)
        .output()
        .map_or_else(|_| BTreeSet::new(), |output| lines(&String::from_utf8_lossy(&output.stdout)))
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// Without how long each is still valid.
fn without_ages(all: BTreeSet<String>) -> BTreeSet<String> {
    let ages = ["valid_lft", "preferred_lft", "expires"];
    all.into_iter()
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut kept = Vec::new();
            while let Some(word) = words.next() {
                if ages.contains(&word) {
                    words.next();
                } else {
                    kept.push(word);
                }
            }
            kept.join(" ")
        })
        .collect()
}

/// Every path below a folder, with size and time of change where `closely`.
fn tree(folder: &Path, closely: bool) -> BTreeSet<String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = std::fs::symlink_metadata(entry.path()) else { continue };
            let path = entry.path().display().to_string();
            found.insert(if closely {
                format!("{path} {} {}.{}", meta.size(), meta.mtime(), meta.mtime_nsec())
            } else {
                path
            });
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

fn mounts() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/mounts").expect("the mounts");
    // of another test, at the same time
    lines(&text).into_iter().filter(|line| !line.contains("/headroom-test-")).collect()
}

/// Servers of the kinds that are measured, unless they are another run's.
fn services() -> BTreeSet<String> {
    let names = ["pure-ftpd", "nginx", "sshd", "ssh-agent", "rsync", "headroom"];
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter_map(|entry| {
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
            let comm = read("comm")?.trim().to_owned();
            let other_run = read("cgroup")?.contains("/headroom-");
            (names.contains(&comm.as_str()) && comm != "headroom" && !other_run)
                .then(|| format!("{} {comm}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

/// The kernel's settings for the network, without what it counts or draws anew
/// by itself.
fn settings() -> BTreeSet<String> {
    let volatile = ["nf_conntrack_count", "random", "stable_secret", "uuid", "entropy", "fib_sync"];
    said("sysctl --all --pattern ^net[.]")
        .into_iter()
        .filter(|line| !volatile.iter().any(|word| line.contains(word)))
        .collect()
}
