//! What can go wrong goes wrong here, with real servers: each time the command
//! ends with the right code and a sentence that names the cause, and leaves no
//! folder, no control group and no process behind.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    Ended, Ground, HEADROOM, MEASURE, Running, array, group_of, number, places_of, processes_with,
    runs_in, text, wait_for,
};
use headroom_testing::{privileged, write_executable};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A run of one cell that takes long enough to be disturbed.
const LONG: &str = "repetitions = 100\n[[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n";

fn long(ground: &Ground, stack: &str) -> Running {
    ground.write("long.toml", &format!("stacks = [\"{stack}\"]\n{LONG}"));
    ground.start(ground.headroom("lab run long.toml --out out"))
}

#[test]
fn a_mistake_in_a_plan_is_named_with_its_line() {
    let ground = Ground::new("typo");
    let refused = |plan: &str, words: &[&str]| {
        ground.write("p.toml", plan);
        let ended = ground.end_of(ground.headroom("lab run p.toml"));
        ended.assert_says(2, words);
        ended.assert_nothing_started();
    };
    let good = "stacks = [\"http\"]\nrepetitions = 2\n[[workload]]\nkind = \"download\"\n";
    refused(&good.replace("repetitions", "repetitons"), &["p.toml:2:", "`repetitons`"]);
    refused(&good.replace("http", "htpt"), &["p.toml:1:", "`htpt`", "ftps, http"]);
    refused(&good.replace("http", "http/tsl"), &["p.toml:1:", "no layer `tsl`"]);
    refused(&good.replace("download", "downlaod"), &["p.toml:4:", "`downlaod`"]);
    refused("stacks = [", &["p.toml:1:"]);
    let ended = ground.end_of(ground.headroom("lab run gopher"));
    ended.assert_says(2, &["`gopher`", "ftps, http"]);
    ended.assert_nothing_started();
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("missing");
    // what is mounted over a program in a mount namespace hides it there only
    let mut script = String::new();
    for place in places_of("nginx") {
        script += &format!("mount --bind /dev/null {} && ", place.display());
    }
    script += "exec \"$0\" lab run http --sizes 1KiB --repetitions 2 --host-programs";
    let mut command = ground.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, HEADROOM]);
    let ended = ground.end_of(command);
    ended.assert_says(3, &["missing", "nginx", "scripts/fetch-parts", "nginx-light"]);
    assert!(!ended.stderr.contains("ethtool"), "only nginx is missing: {ended}");
    ended.assert_nothing_started();
}

/// In a chroot the kernel refuses user namespaces (unshare(2)), as some machines do everywhere.
#[test]
fn without_user_namespaces_an_ordinary_user_learns_what_was_refused_and_the_remedy() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("nobody");
    // the build's own folder may be closed to others
    let binary = ground.path("headroom");
    write_executable(&binary, &std::fs::read(HEADROOM).expect("the command"));
    let root = ground.path("root");
    std::fs::create_dir(&root).expect("a folder for another root");
    let as_nobody = |arguments: &str| {
        let mut command = ground.command("unshare");
        let script = "mount --rbind / \"$1\" && exec chroot \"$1\" sh -c 'cd \"$1\" && shift && exec \"$@\"' \
                      sh \"$2\" setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" $3";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        command.args([&binary, &root, &ground.scratch()]).arg(arguments);
        ground.end_of(command)
    };
    let ended = as_nobody("lab run http");
    ended.assert_says(3, &["user namespace", "making one failed", "in a container", "sudo"]);
    ended.assert_nothing_started();
    let rehearsal = as_nobody("lab run http --dry-run");
    assert_eq!(rehearsal.code, Some(0), "{rehearsal}");
    let doctor = as_nobody("lab doctor");
    assert_eq!(doctor.code, Some(3), "{doctor}");
    for words in ["MISSING  privileges", "not root", "making one failed"] {
        assert!(doctor.stdout.contains(words), "{doctor}");
    }
}

#[test]
fn a_port_that_is_taken() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("port");
    let real = places_of("openssl").into_iter().next().expect("openssl");
    // the lab calls openssl once its namespaces are there and its servers are not
    let listener = "use Socket; socket(S, PF_INET6, SOCK_STREAM, 6) or die $!; \
                    bind(S, pack_sockaddr_in6(80, pack(q(x16)))) or die $!; listen(S, 9) or die $!; \
                    if (my $pid = fork) { print $pid; exit } \
                    open STDOUT, q(>/dev/null); open STDERR, q(>/dev/null); sleep 300";
    let pid_file = ground.path("listener");
    ground.script(
        "openssl",
        &format!(
            "#!/bin/sh\nset -e\nif [ ! -e {pid} ] && [ -e /run/netns/hr-*-server ]; then\n  \
             nsenter --net=$(echo /run/netns/hr-*-server) perl -e '{listener}' > {pid}\nfi\n\
             exec {real} \"$@\"\n",
            pid = pid_file.display(),
            real = real.display(),
        ),
    );
    let path = std::env::var("PATH").expect("PATH");
    let mut command =
        ground.headroom("lab run http --sizes 1KiB --repetitions 2 --host-programs --out out");
    command.env("PATH", format!("{}:{path}", ground.path("").display()));
    let ended = ground.end_of(command);
    let _listener = Stray::of(&pid_file).unwrap_or_else(|| panic!("no listener: {ended}"));
    ended.assert_says(1, &["port 80", "is taken", "http"]);
    ended.assert_nothing_left();
}

#[test]
fn a_scratch_folder_that_is_too_small() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("small");
    let disk = Disk::mount(&ground, "16m");
    let mut command = ground.headroom("lab run http --sizes 1KiB --repetitions 2 --out out");
    command.arg("--scratch").arg(&disk.path);
    let mut run = ground.start(command);
    run.watch(&disk.path);
    let ended = run.end();
    ended.assert_says(1, &["16 MiB free", "needs", "--scratch"]);
    ended.assert_nothing_left();
    assert!(!ground.path("out").exists());

    let ended = ground.end_of(ground.headroom("lab run http --sizes 1KiB --scratch absent"));
    ended.assert_says(1, &["absent", "--scratch"]);
    ended.assert_nothing_left();
}

#[test]
fn a_disk_that_fills_up_in_the_middle() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("full");
    let disk = Disk::mount(&ground, "700m");
    ground.write("long.toml", &format!("stacks = [\"http\"]\n{LONG}").replace("100", "4"));
    let mut command = ground.headroom("lab run long.toml --out out");
    command.arg("--scratch").arg(&disk.path);
    let mut run = ground.start(command);
    run.watch(&disk.path);
    run.until_download(1);
    disk.shrink();
    // somebody else writes, and goes on whenever there is room again
    let mut ballast = File::create(disk.path.join("ballast")).expect("a file");
    while run.lives() {
        while ballast.write_all(&[0; 4096]).is_ok() {}
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ended = run.end();
    ended.assert_says(1, &["No space left on device"]);
    ended.assert_nothing_left();
}

#[test]
fn an_output_folder_that_is_too_small_is_found_out_before_anything_is_measured() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("small-out");
    let disk = Disk::mount(&ground, "1m");
    let mut command = ground.headroom("lab run http --sizes 1KiB --repetitions 2 --out");
    command.arg(disk.path.join("out"));
    let ended = ground.end_of(command);
    ended.assert_says(1, &["disk/out has 1 MiB free", "needs", "--out"]);
    ended.assert_nothing_started();
    assert!(!disk.path.join("out").exists());
}

#[test]
fn results_that_a_full_disk_cut_short_are_rebuilt_from_the_journal() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("full-out");
    let disk = Disk::mount(&ground, "16m");
    ground.write("long.toml", &format!("stacks = [\"http\"]\n{LONG}").replace("100", "8"));
    let out = ground.path("out");
    std::os::unix::fs::symlink(disk.path.join("out"), &out).expect("a link");
    std::fs::create_dir(disk.path.join("out")).expect("a folder");
    let mut run = ground.start(ground.headroom("lab run long.toml --out out"));
    run.until_block(1);
    disk.shrink();
    let ballast = disk.path.join("ballast");
    let mut file = File::create(&ballast).expect("a file");
    while run.lives() {
        while file.write_all(&[0; 4096]).is_ok() {}
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ended = run.end();
    ended.assert_says(1, &["No space left on device", "journal.jsonl", "headroom lab report"]);
    ended.assert_nothing_left();
    let left = std::fs::read_dir(&out).expect("the folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["journal.jsonl"], "nothing that is not whole");

    // somebody makes room
    let mut mount = ground.command("mount");
    mount.args(["-o", "remount,size=32m"]).arg(&disk.path);
    assert_eq!(output(mount).0, Some(0));
    drop(file);
    std::fs::remove_file(&ballast).expect("it was there");
    let rebuilt = ground.end_of(ground.headroom("lab report out"));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");
    assert!(!ground.results()["samples"].as_array().expect("samples").is_empty());
}

#[test]
fn a_server_that_dies_in_the_middle() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("dies");
    let mut run = long(&ground, "ftp");
    run.until_download(2);
    let servers = run.until("a server", |run| {
        Some(run.processes("server", "pure-ftpd")).filter(|pids| !pids.is_empty())
    });
    for pid in servers {
        let _ = kill(pid, Signal::SIGKILL); // a session's process may have ended by itself
    }
    let ended = run.end();
    ended.assert_says(1, &["the ftp server ended", "signal: 9"]);
    ended.assert_nothing_left();
    assert!(!ground.path("out").exists(), "half a run is no result");
}

#[test]
fn a_server_that_dies_while_packets_are_counted() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("counting");
    // so many files that one transfer is long, in a run with few of them
    let plan =
        "stacks = [\"http\"]\nrepetitions = 2\n[[workload]]\nkind = \"many\"\nfiles = 3000\n";
    ground.write("p.toml", plan);
    let mut run = ground.start(ground.headroom("--verbose lab run p.toml --out out"));
    // offloads are switched off for the counting only
    run.until("the counting", |run| run.said().contains("tso off").then_some(()));
    let servers = run.until("a server", |run| {
        Some(run.processes("server", "nginx")).filter(|pids| !pids.is_empty())
    });
    for pid in servers {
        let _ = kill(pid, Signal::SIGKILL);
    }
    let ended = run.end();
    ended.assert_says(1, &["the http server ended"]);
    ended.assert_nothing_left();
}

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    if !privileged() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let ground = Ground::new("interrupted");
        let mut run = long(&ground, "ftps");
        run.until_download(2);
        run.signal(signal);
        let ended = run.end();
        ended.assert_says(130, &["interrupted", "the testbed was removed"]);
        ended.assert_nothing_left();
        assert!(!ground.path("out").exists(), "half a run is no result");
    }
}

#[test]
fn a_run_that_is_interrupted_while_it_builds_leaves_nothing() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("early");
    let mut run = long(&ground, "sftp");
    run.until("a scratch folder", Running::id);
    run.signal(Signal::SIGINT);
    let ended = run.end();
    ended.assert_says(130, &["interrupted"]);
    ended.assert_nothing_left();
}

#[test]
fn a_killed_run_ends_its_servers_and_is_cleaned_up_beside_a_living_one() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("killed");
    let mut dead = long(&ground, "http");
    dead.until_download(2);
    let id = dead.id().expect("a run");
    // in the same folder, so that only its lock saves it
    ground.write("living.toml", &format!("stacks = [\"http\"]\n{LONG}"));
    let mut living = ground.start(ground.headroom("lab run living.toml --out living"));
    living.until_download(1);
    let other = living.id().expect("a run");

    dead.signal(Signal::SIGKILL);
    let ended = dead.end();
    assert_eq!(ended.code, None, "{ended}");
    let name = [format!("headroom-{id}")];
    wait_for("the end of servers and agents", || processes_with(&name).is_empty());
    assert!(runs_in(&ground.scratch()).contains(&id), "nobody has removed it yet");

    let mut clean = ground.headroom("lab clean");
    clean.arg("--scratch").arg(ground.scratch());
    let cleaned = output(clean);
    assert_eq!(cleaned.0, Some(0), "{}", cleaned.1);
    assert_eq!(cleaned.1.matches(&id).count(), 1 + usize::from(crate::common::groups().is_some()));
    assert!(!cleaned.1.contains(&other), "{}", cleaned.1);
    assert!(!runs_in(&ground.scratch()).contains(&id));
    assert!(group_of(&id).is_none());

    // it was measured while the other was cleaned up, and goes on
    let file = living.until_download(1);
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let number = name.strip_prefix('d').and_then(|digits| digits.parse::<u32>().ok());
    let number = number.expect("the number of a transfer");
    living.until_download(number + 1);
    living.signal(Signal::SIGINT);
    let ended = living.end();
    assert_eq!(ended.code, Some(130), "{ended}");
    ended.assert_nothing_left();
    let mut again = ground.headroom("lab clean");
    again.arg("--scratch").arg(ground.scratch());
    assert!(output(again).1.contains("nothing to remove"));
}

#[test]
fn two_runs_at_once_end_well_and_say_that_each_disturbs_the_other() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("two");
    let mut first = long(&ground, "ftp");
    first.until("a scratch folder", Running::id);
    let line = "lab run ftp http --sizes 1KiB,64KiB --repetitions 2 --out second";
    let mut second = ground.start(ground.headroom(line));
    second.until("a scratch folder", Running::id);
    let second = second.end();
    assert_eq!(second.code, Some(0), "{second}");
    // the first is long enough to measure beside the whole of the second
    first.signal(Signal::SIGINT);
    let first = first.end();
    assert_eq!(first.code, Some(130), "{first}");
    assert!(runs_in(&ground.scratch()).is_empty());
    assert!(processes_with(&[ground.path("").display().to_string()]).is_empty());

    let told = |ended: &Ended| ended.stdout.contains("Another lab run went on on this machine");
    assert!(told(&second), "{second}");
    let path = ground.path("second/results.json");
    let results = std::fs::read_to_string(path).expect("the results of the second");
    assert!(results.contains("Another lab run went on on this machine"), "{results}");
}

#[test]
fn a_link_backend_that_cannot_make_the_link() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("backend");
    let mut probe = ground.command("unshare");
    probe.args(["--net", "sh", "-c", "tc qdisc add dev lo root netem delay 1ms"]);
    let has_netem = output(probe).0 == Some(0);
    let run = |backend: &str| {
        let line = "http --link 100mbit,delay=2ms --sizes 1KiB --repetitions 2";
        ground.end_of(ground.headroom(&format!("{MEASURE} {line} --link-backend {backend}")))
    };
    let ended = run("netem");
    if has_netem {
        assert_eq!(ended.code, Some(0), "{ended}");
        let link = &ground.results()["link"];
        assert!(text(link, "backend").contains("netem"), "{link}");
        assert!(number(link, "rtt_us") >= 4000.0, "2 ms each way: {link}");
    } else {
        ended.assert_says(3, &["`netem`", "`100mbit,delay=2ms`", "sch_netem", "`emulator`"]);
        ended.assert_nothing_started();
    }
    ended.assert_nothing_left();

    let ended = run("shaper");
    ended.assert_says(2, &["`shaper` has no delay", "`netem` or `emulator`"]);
    ended.assert_nothing_started();
    let ended = run("nettem");
    ended.assert_says(2, &["nettem", "netem, emulator, shaper"]);
    ended.assert_nothing_started();
}

#[test]
fn a_link_that_this_machine_cannot_make() {
    if !privileged() {
        return;
    }
    let line = "lab run http --link 900gbit --sizes 1KiB --repetitions 2 --out out";
    let (refused, allowed) = (Ground::new("too-fast"), Ground::new("too-fast-allowed"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ended = refused.end_of(refused.headroom(line));
            let words = ["`900gbit` failed its self-test", "--allow-failed-link-test"];
            ended.assert_says(1, &words);
            ended.assert_nothing_left();
        });
        let ended = allowed.end_of(allowed.headroom(&format!("{line} --allow-failed-link-test")));
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.assert_nothing_left();
        let results = allowed.results();
        assert_eq!(results["link"]["self_test"]["passed"], false);
        let warnings: Vec<_> =
            array(&results, "warnings").iter().filter_map(|w| w.as_str()).collect();
        let said = |warning: &&str| warning.contains("The link `900gbit` failed its self-test");
        assert!(warnings.iter().any(said), "{warnings:?}");
    });
}

#[test]
fn a_file_with_other_content() {
    let damage = |file: &Path| {
        let file = OpenOptions::new().write(true).open(file).expect("the served file");
        file.write_all_at(b"not what was sent", 4321).expect("an overwritten byte");
    };
    wrong_file("http", damage, "wrong content");
    wrong_file("sftp", damage, "wrong content");
}

#[test]
fn a_file_that_is_too_short() {
    let damage = |file: &Path| {
        let file = OpenOptions::new().write(true).open(file).expect("the served file");
        file.set_len(1000).expect("a shorter file");
    };
    wrong_file("ftp", damage, "1000 bytes instead of 65536");
}

/// Damages the served file once the first transfer has counted as good.
fn wrong_file(stack: &str, damage: fn(&Path), words: &str) {
    if !privileged() {
        return;
    }
    let ground = Ground::new("wrong");
    ground.write("p.toml", &format!("stacks = [\"{stack}\"]\n{LONG}").replace("100", "3"));
    let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
    run.until_download(2);
    damage(&run.inside("files/f65536").expect("the served file"));
    let ended = run.end();
    ended.assert_says(1, &["samples failed", words]);
    ended.assert_nothing_left();

    // what was measured is kept, the failures among it
    let results = ground.results();
    let samples = array(&results, "samples");
    let failed: Vec<_> = samples.iter().filter(|sample| sample["ok"] == false).collect();
    assert!(!failed.is_empty());
    assert!(failed.iter().all(|sample| text(sample, "error").contains(words)), "{failed:?}");
    let row = &array(&results, "summary")[0];
    assert_eq!(row["failed"], failed.len(), "{row}");
    assert!(array(&results, "warnings").iter().any(|w| w.to_string().contains(words)));
}

#[test]
fn an_output_folder_that_cannot_be_written_is_refused_before_the_run() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("out");
    ground.write("file", "");
    let line = "lab run http --sizes 1KiB --repetitions 2 --out file/out";
    let ended = ground.end_of(ground.headroom(line));
    ended.assert_says(1, &["file/out"]);
    ended.assert_nothing_started();
}

#[test]
fn a_scratch_folder_with_a_space_in_its_name_is_refused() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("space");
    let scratch = ground.path("a folder");
    std::fs::create_dir(&scratch).expect("a folder");
    let mut command = ground.headroom("lab run http --sizes 1KiB --repetitions 2 --out out");
    command.env("TMPDIR", &scratch);
    let mut run = ground.start(command);
    run.watch(&scratch);
    let ended = run.end();
    ended.assert_says(2, &["a folder has a character", "--scratch"]);
    ended.assert_nothing_started();
}

/// Exit code, and both streams, of a command that is no run.
fn output(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("a command");
    let both = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&both).into_owned())
}

/// A process that a script has started; ended when dropped.
struct Stray(Pid);

impl Stray {
    fn of(pid_file: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(pid_file).ok()?;
        Some(Self(Pid::from_raw(text.trim().parse().ok()?)))
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

/// A small disk in memory; unmounted when dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn mount(ground: &Ground, size: &str) -> Self {
        let disk = Self { path: ground.path("disk") };
        std::fs::create_dir(&disk.path).expect("a folder");
        let options = format!("size={size}");
        let mut mount = ground.command("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(&disk.path);
        let (code, said) = output(mount);
        assert_eq!(code, Some(0), "{said}");
        disk
    }

    /// Takes away what is free now.
    fn shrink(&self) {
        wait_for("a smaller disk", || {
            let space = nix::sys::statvfs::statvfs(&self.path).expect("the disk's state");
            let used = (space.blocks() - space.blocks_free()) * space.fragment_size();
            // more may have been used since
            let mut mount = Command::new("mount");
            mount.args(["-o", &format!("remount,size={used}")]).arg(&self.path);
            output(mount).0 == Some(0)
        });
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
