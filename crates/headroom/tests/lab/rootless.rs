//! An ordinary user measures: everything is in a user namespace, with the real servers of the
//! private cache, and what is not as under root is said.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    Ground, HEADROOM, MEASURE, array, groups, number, parts, processes_with, text, wait_for,
};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::Value;

/// A user of this machine without a name, subordinate ids or any privilege, with a home of its
/// own; where the tests run without root, the one that runs them.
struct User {
    ground: Ground,
    id: u32,
    /// A control group of its own.
    group: Option<PathBuf>,
}

impl User {
    /// Makes one; none where the kernel refuses user namespaces.
    fn new(name: &str, id: u32) -> Option<Self> {
        let (ground, own) = (Ground::new(name), geteuid());
        let user = Self { ground, id: if own.is_root() { id } else { own.as_raw() }, group: None };
        for folder in ["", "tmp", "home", "home/.cache/headroom/parts"] {
            let path = user.ground.path(folder);
            std::fs::create_dir_all(&path).expect("a folder of the user");
            user.owns(&path);
        }
        user.ground.write("headroom", "");
        let mut probe = user.command("unshare");
        probe.args(["--user", "--map-root-user", "--net", "true"]);
        let probe = user.ground.end_of(probe);
        if probe.code != Some(0) {
            eprintln!("skipped: this kernel refuses user namespaces: {probe}");
            return None;
        }
        Some(user)
    }

    fn owns(&self, path: &Path) {
        chown(path, Some(self.id), Some(self.id)).expect("a file of the user");
    }

    /// Delegates a control group to it, as systemd does; not where none are mounted.
    fn delegate(&mut self) {
        if !geteuid().is_root() {
            return;
        }
        let group = groups().map(|root| root.join(format!("delegated-{}", std::process::id())));
        if let Some(group) = &group {
            std::fs::create_dir(group).expect("a control group");
            self.owns(group);
            self.owns(&group.join("cgroup.procs"));
        }
        self.group = group;
    }

    /// A command of this user, who has a home and a cache of its own.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        if !geteuid().is_root() {
            return self.ground.command(program.as_ref());
        }
        // mounted, because the folders in which both really are may be closed to others
        const SCRIPT: &str = "mount --bind \"$1\" \"$HOME/.cache/headroom/parts\" && mount --bind \"$2\" headroom && \
                              if [ -n \"$3\" ]; then echo $$ > \"$3/cgroup.procs\"; fi && user=$4 && shift 4 && \
                              exec setpriv --reuid=$user --regid=$user --clear-groups \"$@\"";
        let mut command = self.ground.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]);
        command.arg(parts()).arg(HEADROOM).arg(self.group.clone().unwrap_or_default());
        command.arg(self.id.to_string()).arg(program.as_ref());
        command.env("HOME", self.ground.path("home"));
        command.env_remove("HEADROOM_PARTS").env_remove("XDG_CACHE_HOME");
        command
    }

    fn headroom(&self, arguments: &str) -> Command {
        let program =
            if geteuid().is_root() { self.ground.path("headroom") } else { HEADROOM.into() };
        let mut command = self.command(program);
        command.args(arguments.split(' '));
        command
    }

    fn measure(&self, arguments: &str) -> Value {
        let ended = self.ground.end_of(self.headroom(&format!("{MEASURE} {arguments}")));
        assert_eq!(ended.code, Some(0), "{ended}");
        assert!(ended.stderr.contains("without root, in a user namespace"), "{ended}");
        ended.assert_nothing_left();
        let results = self.ground.results();
        for sample in array(&results, "samples") {
            assert_eq!(sample["ok"], true, "{sample}");
        }
        results
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            let _ = std::fs::remove_dir(group);
        }
    }
}

fn setting<'a>(results: &'a Value, name: &str) -> &'a str {
    text(&results["environment"]["settings"], name)
}

fn notes(results: &Value) -> String {
    array(results, "warnings").iter().map(|note| format!("{note}\n")).collect()
}

#[test]
fn an_ordinary_user_measures_with_real_servers_and_reads_what_differs() {
    let Some(user) = User::new("user", 23_450) else { return };
    // a server that changes its user for each session, in clear and with TLS; one that does so
    // before a login; one that does not; a layer
    let plan = "stacks = [\"ftp\", \"ftps\", \"https\", \"sftp\", \"sftp/tls\"]\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n\
                [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\nstacks = [\"ftp\", \"sftp\"]\n";
    user.ground.write("p.toml", plan);
    let results = user.measure("p.toml");
    assert_eq!(array(&results, "samples").len(), 2 * 7);
    assert!(
        setting(&results, "privileges").starts_with(&format!("user namespace of user {}", user.id))
    );
    let notes = notes(&results);
    let mut words = vec!["The lab ran without root"];
    if geteuid().is_root() {
        words.extend(["one user id", "No control group is delegated"]);
    }
    for words in words {
        assert!(notes.contains(words), "`{words}` is not in {notes}");
    }
    for sample in array(&results, "samples") {
        let cpu = &sample["cpu_seconds"];
        assert!(number(cpu, "client") > 0.0 && number(cpu, "server") > 0.0, "{sample}");
    }
    let report = user.ground.path("out/report.html");
    assert_eq!(report.metadata().expect("a report").uid(), user.id, "the user's own file");

    let doctor = user.ground.end_of(user.headroom("lab doctor p.toml"));
    assert_eq!(doctor.code, Some(0), "{doctor}");
    assert!(
        doctor.stdout.contains("ok       privileges")
            && doctor.stdout.contains("user namespace of user"),
        "{doctor}"
    );
    let rehearsal = user.ground.end_of(user.headroom("lab run p.toml --dry-run"));
    assert_eq!(rehearsal.code, Some(0), "{rehearsal}");
    assert!(rehearsal.stdout.contains("\nunshare --user --map-root-user --net sh"), "{rehearsal}");
}

#[test]
fn an_ordinary_user_whose_users_cannot_be_mapped_after_the_groups_gets_one_user() {
    if !geteuid().is_root() {
        eprintln!("skipped: this test gives a user subordinate ids, which needs root");
        return;
    }
    let Some(user) = User::new("mapping", 23_453) else { return };
    // newgidmap(1) does its work, by a program that runs as root, and newuidmap(1) fails
    let script = |name: &str, text: &str| user.ground.script(name, text);
    script("newuidmap", "#!/bin/sh\nexit 1\n");
    script(
        "newgidmap",
        "#!/bin/sh\ntouch ran\nprintf '%s\\n' \"$2 $3 $4\" \"$5 $6 $7\" | private/write \"/proc/$1/gid_map\"\n",
    );
    user.ground.write("ids", &format!("{}:100000:65536\n", user.id));
    std::fs::create_dir(user.ground.path("private")).expect("a folder");
    const SCRIPT: &str = "mount --bind ids /etc/subuid && mount --bind ids /etc/subgid && \
                          mount -t tmpfs tmpfs private && cp \"$(command -v tee)\" private/write && \
                          chmod u+s private/write && PATH=$PWD:$PATH && exec \"$@\"";
    let mut command = user.ground.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]);
    let inner = user.headroom(headroom_lab_host::privileges::ENTER);
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = user.ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(user.ground.path("ran").exists(), "the groups were mapped");
}

#[test]
fn an_ordinary_user_with_a_delegated_control_group_measures_over_an_emulated_link() {
    let Some(mut user) = User::new("delegated", 23_451) else { return };
    user.delegate();
    let link = "50mbit,delay=2ms --link-backend emulator";
    let results = user.measure(&format!("http --sizes 1KiB --repetitions 2 --link {link}"));
    if user.group.is_some() {
        assert_eq!(setting(&results, "CPU time of a side"), "by control group");
        assert!(!notes(&results).contains("No control group"), "{}", notes(&results));
    }
    let backend = text(&results["link"], "backend");
    assert!(backend.contains("emulator"), "{backend}");
}

#[test]
fn a_killed_run_of_an_ordinary_user_ends_its_servers_and_is_cleaned_up() {
    let Some(user) = User::new("killed", 23_452) else { return };
    let arguments = "lab run sftp --sizes 1KiB --repetitions 500 --out out";
    let mut run = user.ground.start(user.headroom(arguments));
    run.until_block(1);
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().code, None);
    let folder = user.ground.path("").display().to_string();
    // its servers' command lines have it
    wait_for("the end of its servers", || processes_with(std::slice::from_ref(&folder)).is_empty());
    let cleaned = user.ground.end_of(user.headroom("lab clean"));
    assert_eq!(cleaned.code, Some(0), "{cleaned}");
    assert!(cleaned.stdout.contains("scratch folder"), "{cleaned}");
    cleaned.assert_nothing_left();
}
