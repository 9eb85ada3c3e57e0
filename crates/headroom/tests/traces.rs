//! A run leaves the machine as it was: `/etc`, `/run`, network, mounts, kernel settings,
//! processes, the user's SSH files. Only what the run made is judged: other programs of the
//! host, which may start and end meanwhile, have no way to what is looked at.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ground, MEASURE, parts, runs_in, wait_for};
use headroom_testing::privileged;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_child_subreaper;
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
    let home = alone(&ground);
    ground.write("p.toml", PLAN);
    let measured = |words: &str| {
        let mut command = ground.headroom(words);
        command.env("HOME", &home).env("HEADROOM_PARTS", parts());
        command
    };
    let before = machine(&home);
    let run = ground.end_of(measured(&format!("{MEASURE} p.toml")));
    assert_eq!(run.code, Some(0), "{run}");
    run.assert_nothing_left();
    assert_same(&before, &machine(&home));
    assert_eq!(adopted(), [""; 0], "the run left processes to whoever adopts them");

    // one that is killed too, once it has been cleaned up
    let long = PLAN.replace("repetitions = 2", "repetitions = 50");
    ground.write("long.toml", &long);
    let mut run = ground.start(measured("lab run long.toml --allow-failed-link-test"));
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
        after = machine(&home);
        after["links"] == before["links"]
    });
    assert_same(&before, &after);
    // Nobody else waits for what a killed run leaves; none of it may still run.
    let living = || adopted().into_iter().filter(|process| !process.ends_with(" Z"));
    wait_for("the end of the killed run's processes", || living().next().is_none());
}

/// Takes this thread, and what it starts, to where no other program changes what is compared:
/// a network of its own with an interface `eth0`, a `/run` of its own, and copies of `/etc`
/// and of root's home. Orphans come to this process. Returns the home.
fn alone(ground: &Ground) -> PathBuf {
    let home = ground.path("home");
    let ssh =
        PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".ssh");
    std::fs::create_dir_all(home.join(".ssh")).expect("a home");
    std::fs::write(home.join(".ssh/known_hosts"), "# not touched\n").expect("a file in it");
    if ssh.is_dir() {
        shell(&format!("cp -a {}/. {}/.ssh", ssh.display(), home.display()));
    }
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces of its own");
    let etc = ground.path("etc");
    shell(&format!(
        "mount --make-rprivate / && cp -a /etc {0} && mount --bind {0} /etc && mount -t tmpfs none /run && \
         mkdir /run/sshd && ip link set lo up && ip link add eth0 type veth peer name peer0 && ip link set eth0 up && \
         ip addr add 198.51.100.7/24 dev eth0",
        etc.display()
    ));
    set_child_subreaper(true).expect("orphans come to this process");
    home
}

fn shell(line: &str) {
    let status = Command::new("sh").args(["-ec", line]).status().expect("a shell");
    assert!(status.success(), "`{line}`: {status}");
}

/// The children of this process that it did not start, zombies included: its runs' orphans.
fn adopted() -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (name, behind) = stat.rsplit_once(')')?;
            let mut fields = behind.split_whitespace();
            let (state, parent) = (fields.next()?, fields.next()?);
            (parent == std::process::id().to_string()).then(|| format!("{name}) {state}"))
        })
        .collect()
}

/// Everything about this thread's machine that a run could change, by name, as lines.
fn machine(home: &Path) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut all: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    all.insert("/etc", tree(Path::new("/etc"), true));
    all.insert("/run", tree(Path::new("/run"), false));
    all.insert("SSH files", tree(&home.join(".ssh"), true));
    all.insert("addresses", without_ages(said("ip -oneline address show")));
    all.insert("links", said("ip -oneline link show"));
    all.insert("routes", without_ages(said("ip -4 route show table all")));
    all.insert("routes of IPv6", without_ages(said("ip -6 route show table all")));
    all.insert("rules", said("ip rule show"));
    all.insert("namespaces", said("ip netns list"));
    all.insert("queues", said("tc qdisc show"));
    all.insert("packet filter", said("nft list ruleset"));
    all.insert("mounts", mounts());
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
    lines(&std::fs::read_to_string("/proc/thread-self/mounts").expect("the mounts"))
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
