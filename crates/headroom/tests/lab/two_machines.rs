//! The lab between two real hosts: two network namespaces that each run an sshd
//! of their own and share neither network nor files, and a third from which the
//! lab reaches both.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{
    Ended, Ground, HEADROOM, Running, array, number, part, parts, places_of, text, wait_for,
};
use headroom_testing::privileged;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Two hosts and the cables: between them, and from the lab to each.
struct World {
    ground: Ground,
    lab: Namespace,
    client: Namespace,
    server: Namespace,
}

/// A network namespace with a mount namespace, held by a process.
struct Namespace {
    holder: Child,
}

const CLIENT: &str = "10.91.1.2";
const SERVER: &str = "10.91.2.2";
/// Of the server on the cable to the client.
const SERVER_TO_CLIENT: &str = "10.91.0.2";

impl World {
    fn new() -> Self {
        let ground = Ground::new("hosts");
        let dir = |name: &str| {
            let dir = ground.path(name);
            fs::create_dir_all(dir.join("tmp")).expect("a host's folder");
            dir
        };
        let (a, b, ca) = (dir("a"), dir("b"), dir("lab"));
        keygen(&ca.join("key"));
        for (host, other) in [(&a, &b), (&b, &a)] {
            keygen(&host.join("host_key"));
            fs::copy(ca.join("key.pub"), host.join("authorized_keys")).expect("the lab's key");
            let d = host.display();
            let config = format!(
                "Port 22\nHostKey {d}/host_key\nAuthorizedKeysFile {d}/authorized_keys\nStrictModes no\nUsePAM no\n\
                 PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
                 UseDNS no\nPidFile none\nMaxStartups 100\nSetEnv TMPDIR={d}/tmp HEADROOM_PARTS={}\n",
                parts().display()
            );
            fs::write(host.join("sshd_config"), config).expect("a configuration");
            for (name, content) in [
                (
                    "passwd",
                    "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nsshd:x:110:65534::/:/bin/false\n",
                ),
                (
                    "shadow",
                    "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n",
                ),
            ] {
                fs::write(host.join(name), content).expect("accounts");
            }
            // what is the other's cannot be seen
            let script = format!(
                "set -e; read go; mount -t tmpfs none /run; mkdir /run/sshd; mount -t tmpfs none {}; \
                 mount -t tmpfs none {}; mount --bind {d}/passwd /etc/passwd; mount --bind {d}/shadow /etc/shadow; \
                 exec \"$0\" -D -e -f {d}/sshd_config 2> {d}/log",
                other.display(),
                ca.display()
            );
            fs::write(host.join("script"), script).expect("a script");
        }
        let sshd = part("sshd");
        let start = |host: &Path| {
            let script = fs::read_to_string(host.join("script")).expect("the script");
            Namespace::new(&script, &sshd)
        };
        let (client, server) = (start(&a), start(&b));
        let lab = Namespace::new("read go; exec sleep 1000", &sshd);
        let mut world = Self { ground, lab, client, server };
        cable(&world.client, "10.91.0.1", &world.server, SERVER_TO_CLIENT, "data");
        cable(&world.lab, "10.91.1.1", &world.client, CLIENT, "toc");
        cable(&world.lab, "10.91.2.1", &world.server, SERVER, "tos");
        for host in [&mut world.client, &mut world.server, &mut world.lab] {
            host.go();
        }
        for address in [CLIENT, SERVER] {
            wait_for("sshd", || {
                let script = format!("exec 3<>/dev/tcp/{address}/22");
                let mut try_it = world.lab.command("bash");
                try_it.args(["-c", &script]).stderr(Stdio::null());
                try_it.status().expect("bash").success()
            });
        }
        world
    }

    fn tmp(&self, host: &str) -> PathBuf {
        self.ground.path(host).join("tmp")
    }

    /// A plan with these lines, in a ground of its own, with the lab's way to
    /// the hosts.
    fn plan(&self, ground: &Ground, lines: &str) {
        let key = self.ground.path("lab").join("key");
        let config = format!(
            "Host *\n  User root\n  IdentityFile {key}\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
             StrictHostKeyChecking accept-new\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n\
             Host near\n  HostName {CLIENT}\nHost far\n  HostName {SERVER}\n",
            key = key.display(),
            known = ground.path("known").display(),
        );
        ground.write("ssh_config", &config);
        let plan = format!(
            "{lines}[testbed]\nkind = \"ssh\"\nclient = \"near\"\nserver = \"far\"\nserver-address = \"{SERVER_TO_CLIENT}\"\n\
             ssh = \"ssh -F ssh_config\"\n"
        );
        ground.write("p.toml", &plan);
    }

    /// `headroom` with these arguments, where the lab is.
    fn headroom(&self, ground: &Ground, arguments: &str) -> Running {
        let mut command = ground.command("nsenter");
        command.arg(self.lab.net()).arg(HEADROOM).args(arguments.split(' '));
        let mut running = ground.start(command);
        running.watch(&self.tmp("a"));
        running.watch(&self.tmp("b"));
        running
    }

    /// Processes on a host that have this name.
    fn processes(&self, host: &Namespace, name: &str) -> Vec<Pid> {
        host.processes().into_iter().filter(|pid| about(*pid, "cmdline").contains(name)).collect()
    }

    /// Fails if a host still has anything of a run, or has it after a while: what
    /// a host does for itself takes as long as its patience with the lab.
    fn assert_empty_hosts(&self, ended: &Ended) {
        let left = || {
            ["a", "b"].iter().zip([&self.client, &self.server]).fold(0, |left, (name, host)| {
                let tmp = self.tmp(name);
                let run = format!("{}/headroom-", tmp.display());
                let processes = |name| self.processes(host, name).len();
                // the lab's own ssh ends when the far end has
                let ssh = self.processes(&self.lab, "lab-host").len();
                left + ssh
                    + processes(&run)
                    + processes("lab-host")
                    + fs::read_dir(tmp).expect("tmp").count()
            })
        };
        let deadline = Instant::now() + Duration::from_secs(120);
        while left() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        ended.assert_nothing_left();
        assert_eq!(left(), 0, "{ended}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for host in [&mut self.client, &mut self.server, &mut self.lab] {
            for pid in host.processes() {
                let _ = kill(pid, Signal::SIGKILL);
            }
            let _ = host.holder.wait();
        }
    }
}

impl Namespace {
    /// Runs a script there, in which `$0` is the program; it begins by reading a
    /// line.
    fn new(script: &str, program: &Command) -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--mount", "--propagation", "private", "sh", "-c", script]);
        holder.arg(program.get_program());
        holder.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let holder = holder.stdin(Stdio::piped()).spawn().expect("unshare");
        let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
        let theirs = format!("/proc/{}/ns/net", holder.id());
        wait_for("a namespace", || fs::read_link(&theirs).is_ok_and(|theirs| theirs != own));
        let host = Self { holder };
        host.ip("link set lo up");
        host
    }

    fn go(&mut self) {
        self.holder.stdin.take().expect("once").write_all(b"go\n").expect("the holder waits");
    }

    fn net(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.id())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.net()).arg(program);
        command
    }

    /// Mounts in its own mount namespace.
    fn mount(&self, words: &[&str]) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).arg("mount").args(words);
        assert!(command.status().expect("nsenter").success(), "mount {words:?}");
    }

    /// Has no such program any more.
    fn mask(&self, program: &str) {
        for place in places_of(program) {
            self.mount(&["--bind", "/dev/null", place.to_str().expect("a path")]);
        }
    }

    fn ip(&self, arguments: &str) {
        let mut command = self.command("ip");
        let status = command.args(arguments.split(' ')).status().expect("ip");
        assert!(status.success(), "ip {arguments}");
    }

    /// Every process in it.
    fn processes(&self) -> Vec<Pid> {
        let own = fs::read_link(format!("/proc/{}/ns/net", self.holder.id())).ok();
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            let theirs = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
            own.is_some() && theirs == own
        })
        .map(Pid::from_raw)
        .collect()
    }
}

/// Joins two namespaces.
fn cable(one: &Namespace, its: &str, other: &Namespace, others: &str, name: &str) {
    let (near, far) = (format!("{name}0"), format!("{name}1"));
    one.ip(&format!("link add {near} type veth peer name {far}"));
    one.ip(&format!("link set {far} netns {}", other.holder.id()));
    for (end, interface, address) in [(one, near, its), (other, far, others)] {
        end.ip(&format!("addr add {address}/24 dev {interface}"));
        end.ip(&format!("link set {interface} up"));
    }
}

fn about(pid: Pid, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn keygen(path: &Path) {
    let mut keygen = part("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(keygen.status().expect("ssh-keygen").success());
}

const SMALL: &str = "stacks = [\"http\", \"https\", \"ftp\", \"ftps\", \"sftp\", \"sftp/tls\"]\nrepetitions = 2\n\
                     [[workload]]\nkind = \"download\"\nsizes = [\"16KiB\", \"4MiB\"]\n\
                     [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\n";

const LONG: &str = "stacks = [\"http\"]\nrepetitions = 300\n[[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n";

#[test]
fn a_plan_runs_between_two_hosts_that_share_nothing() {
    if !privileged() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("two");
    world.plan(&ground, SMALL);
    let ended = world.headroom(&ground, "lab run p.toml --out out").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.ids.len(), 2, "{ended}");
    world.assert_empty_hosts(&ended);
    let results = ground.results();
    assert_eq!(results["complete"], true);
    let testbed = &results["plan"]["testbed"];
    assert_eq!((text(testbed, "client"), text(testbed, "server")), ("near", "far"));
    let hosts = array(&results["environment"], "hosts");
    let of = |key: &str| hosts.iter().map(|host| text(host, key)).collect::<Vec<_>>();
    assert_eq!(of("role"), ["client", "server"]);
    assert_eq!(of("address"), ["10.91.0.1", SERVER_TO_CLIENT]);
    assert!(hosts.iter().all(|host| number(host, "cores") >= 1.0));

    let link = &results["link"];
    assert!(text(link, "backend").contains("near to far"), "{link}");
    assert_eq!(link["self_test"], Value::Null);
    let trips = &link["round_trips"];
    assert_eq!(number(trips, "probes"), 100.0);
    assert!(number(trips, "least_us") <= number(trips, "median_us"), "{trips}");

    let samples = array(&results, "samples");
    // repeated blocks are kept too
    assert!(samples.len() >= 6 * 3 * 2, "{}", samples.len());
    for sample in samples {
        let place = format!(
            "{} {} {}",
            text(sample, "stack"),
            text(sample, "workload"),
            sample["size_bytes"]
        );
        assert_eq!(sample["ok"], true, "{place}: {}", sample["error"]);
        let (transfer, session) = (number(sample, "seconds"), number(sample, "session_seconds"));
        let process = number(sample, "process_seconds");
        assert!(0.0 < transfer && transfer <= session && session < process, "{place}: {sample}");
        assert_eq!(sample["wire"], Value::Null, "{place}");
        let cpu = &sample["cpu_seconds"];
        assert!(number(cpu, "client") > 0.0 && number(cpu, "server") > 0.0, "{place}: {cpu}");
        if text(sample, "stack").starts_with("sftp") {
            // the login was found without the server's clock: it is no transfer
            let phases = &sample["phases"];
            assert!(number(phases, "login") > 0.0 && transfer < session, "{place}: {sample}");
        }
    }
    let programs = array(&results["environment"], "programs");
    let named = |name: &str| programs.iter().any(|program| text(program, "name") == name);
    assert!(named("nginx on the server") && named("ssh on the client"), "{programs:?}");
    let setups = array(&results, "layer_setups");
    assert_eq!(setups.len(), 1, "{setups:?}");
    assert!(setups.iter().all(|row| number(row, "round_trips") >= 1.0), "{setups:?}");
    let notes = array(&results, "warnings");
    let noted = |words: &str| {
        notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains(words)))
    };
    assert!(noted("Between two real machines packets are not counted"), "{notes:?}");
}

#[test]
fn a_server_whose_connection_is_cut_leaves_results_that_can_be_continued() {
    if !privileged() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("cut");
    world.plan(&ground, LONG);
    let mut running = world.headroom(&ground, "lab run p.toml --out out");
    running.until_block(2);
    // the session of the lab's ssh, not the host's sshd itself
    let sessions = world.processes(&world.server, "root@notty");
    assert!(!sessions.is_empty());
    for pid in sessions {
        let _ = kill(pid, Signal::SIGKILL); // one's end may be another's
    }
    let ended = running.end();
    ended.assert_says(1, &["the server far vanished; ssh said: ", "--resume"]);
    world.assert_empty_hosts(&ended);
    let results = ground.results();
    assert_eq!(results["complete"], false);
    assert!(text(&results, "ended").contains("the server far vanished"), "{}", results["ended"]);
    let before = array(&results, "samples").len();
    assert!(before >= 2);

    let mut running = world.headroom(&ground, "lab run --resume out");
    running.until_block(before + 1);
    running.signal(Signal::SIGINT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended}");
    world.assert_empty_hosts(&ended);
    assert_eq!(array(&ground.results(), "resumed").len(), 1);

    // who is killed takes nothing away, and leaves nothing
    let mut running = world.headroom(&ground, "lab run p.toml --out killed");
    running
        .until("a client", |_| (!world.processes(&world.client, "fetch").is_empty()).then_some(()));
    running.signal(Signal::SIGKILL);
    let ended = running.end();
    assert_eq!(ended.code, None, "{ended}");
    world.assert_empty_hosts(&ended);
}

#[test]
fn a_server_that_vanishes_is_noticed_and_clears_up_by_itself() {
    if !privileged() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("gone");
    world.plan(&ground, LONG);

    // neither the agent's death nor its keeper's leaves anything
    for (process, said) in [("lab-agent", "the agent ended unexpectedly"), ("lab-host", "")] {
        let mut running = world.headroom(&ground, &format!("lab run p.toml --out {process}"));
        let is_it = |pid: &Pid| about(*pid, "comm").trim() == "headroom";
        let pid = running.until("the process", |_| {
            world.processes(&world.server, process).into_iter().find(is_it)
        });
        running.until("a server", |_| {
            (!world.processes(&world.server, "nginx").is_empty()).then_some(())
        });
        kill(pid, Signal::SIGKILL).expect("it runs");
        let ended = running.end();
        ended.assert_says(1, &["the server far vanished; ssh said: ", said]);
        world.assert_empty_hosts(&ended);
    }

    let mut running = world.headroom(&ground, "lab run p.toml --out out");
    running.until_block(1);
    world.lab.ip("link set tos0 down");
    let ended = running.end();
    ended.assert_says(1, &["the server far vanished; ssh said: ", "not responding"]);
    assert_eq!(ground.results()["complete"], false);
    world.assert_empty_hosts(&ended);
}

#[test]
fn hosts_without_keys_or_without_a_route_are_refused() {
    if !privileged() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("refused");
    let run = || world.headroom(&ground, "lab run p.toml --out out").end();

    world.plan(&ground, LONG);
    let key = world.ground.path("b").join("authorized_keys");
    fs::rename(&key, key.with_extension("away")).expect("a key");
    let ended = run();
    ended.assert_says(
        3,
        &["cannot reach the server far by ssh: ", "Permission denied", "ssh-copy-id far"],
    );
    world.assert_empty_hosts(&ended);
    fs::rename(key.with_extension("away"), &key).expect("a key");

    // a client that is its own server
    let plan = fs::read_to_string(ground.path("p.toml")).expect("the plan");
    ground.write("p.toml", &plan.replace(SERVER_TO_CLIENT, "10.91.0.1"));
    let ended = run();
    ended.assert_says(2, &["one machine", "[testbed]"]);
    world.assert_empty_hosts(&ended);

    ground.write(
        "p.toml",
        &plan
            .replace("[testbed]", "[testbed]\nports = 30000")
            .replace("stacks", "mtu = 1400\nstacks"),
    );
    let ended = run();
    ended.assert_says(2, &["has an MTU of 1500", "`mtu = 1500`"]);
    world.assert_empty_hosts(&ended);

    // the server hears the client, and nobody hears the server
    ground.write("p.toml", &plan);
    world.server.ip("neigh replace 10.91.0.1 lladdr 02:00:00:00:00:01 dev data1 nud permanent");
    let ended = run();
    ended
        .assert_says(1, &["cannot connect to 10.91.0.2:20099", "from 20000 to 21999 must be open"]);
    world.assert_empty_hosts(&ended);
}

#[test]
fn what_hosts_lack_is_named_at_once_and_left_out_on_request() {
    if !privileged() {
        return;
    }
    let world = World::new();
    world.server.mask("nginx");
    world.server.mask("pure-ftpd");
    world.client.mask("rsync");
    let ground = Ground::new("lacking");
    world.plan(
        &ground,
        "stacks = [\"http\", \"ftp\", \"rsync\", \"sftp\"]\nrepetitions = 2\n\
         [[workload]]\nkind = \"download\"\nsizes = [\"16KiB\"]\n",
    );
    let lacking = [
        "missing on the client near: rsync (install rsync there, or copy scripts/fetch-parts there",
        "missing on the server far: nginx, pure-ftpd (install ",
        "`./fetch-parts nginx pure-ftpd`",
    ];
    let ended = world.headroom(&ground, "lab run p.toml --out out").end();
    ended.assert_says(3, &lacking);
    world.assert_empty_hosts(&ended);

    let examined = world.headroom(&ground, "lab doctor p.toml").end();
    assert_eq!(examined.code, Some(3), "{examined}");
    for words in lacking.iter().chain(&["MISSING  client near", "MISSING  server far"]) {
        assert!(examined.stdout.contains(words), "`{words}` is not in {examined}");
    }
    world.assert_empty_hosts(&examined);

    let ended = world.headroom(&ground, "lab run p.toml --out out --skip-missing").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    for words in ["http is left out", "ftp is left out", "rsync is left out"] {
        assert!(ended.stderr.contains(words), "`{words}` is not in {ended}");
    }
    world.assert_empty_hosts(&ended);
    let results = ground.results();
    assert!(array(&results, "samples").iter().all(|sample| sample["stack"] == "sftp"));
}

#[test]
fn what_the_labs_own_machine_lacks_leaves_nothing_out() {
    if !privileged() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("own");
    world.plan(&ground, &LONG.replace("300", "2"));
    let mut command = ground.command("nsenter");
    command
        .args([&world.lab.net(), HEADROOM])
        .args(["lab", "run", "p.toml", "--out", "out", "--skip-missing"])
        .env("HEADROOM_PARTS", ground.path("no-parts"));
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(!ended.stderr.contains("is left out"), "{ended}");
    let examined = world.headroom(&ground, "lab doctor p.toml").end();
    assert_eq!(examined.code, Some(0), "{examined}");
    for words in
        ["ok       client near", "ok       server far", "10.91.0.1 to 10.91.0.2, round trip"]
    {
        assert!(examined.stdout.contains(words), "`{words}` is not in {examined}");
    }
}

#[test]
fn a_host_without_executables_in_tmp_is_used_and_old_folders_go() {
    if !privileged() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("noexec");
    world.plan(&ground, &LONG.replace("300", "2"));
    // as a host that lost its power leaves it: a lock that nobody holds
    let old = world.tmp("a").join("headroom-0badf00d");
    fs::create_dir(&old).expect("a folder");
    for file in ["lock", "headroom"] {
        fs::write(old.join(file), "").expect("a file in it");
    }
    // and what is not known to be a run's stays
    let foreign = world.tmp("a").join("headroom-deadbeef");
    fs::create_dir(&foreign).expect("a folder");
    let tmp = world.tmp("b");
    world.server.mount(&["-t", "tmpfs", "-o", "noexec", "none", tmp.to_str().expect("a path")]);
    let others = crate::common::runs_in(Path::new("/var/tmp"));
    let ended = world.headroom(&ground, "lab run p.toml --out out").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(!old.exists() && foreign.exists(), "{ended}");
    fs::remove_dir(&foreign).expect("removed");
    let left: Vec<String> =
        crate::common::runs_in(Path::new("/var/tmp")).difference(&others).cloned().collect();
    assert_eq!(left, [""; 0], "{ended}");
    world.assert_empty_hosts(&ended);
}

#[test]
fn a_rehearsal_reaches_for_no_host() {
    let ground = Ground::new("dry");
    let plan = format!(
        "{SMALL}[testbed]\nkind = \"ssh\"\nclient = \"near.invalid\"\nserver = \"root@10.91.0.2\"\nssh = \"ssh -F none\"\n"
    );
    ground.write("p.toml", &plan);
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
    assert_eq!(ended.code, Some(0), "{ended}");
    for fragment in [
        "ssh -F none -o BatchMode=yes",
        "near.invalid",
        "lab-host",
        "listen 10.91.0.2:20000",
        "headroom fetch",
        "-p 20600:20699",
    ] {
        assert!(ended.stdout.contains(fragment), "`{fragment}` is not in {ended}");
    }
    ended.assert_nothing_started();
    for (option, words) in [
        ("--keep-captures", "accounting runs"),
        ("--link-backend netem", "--link-backend"),
        ("--scratch tmp", "TMPDIR"),
    ] {
        let ended = ground.end_of(ground.headroom(&format!("lab run p.toml --out out {option}")));
        ended.assert_says(2, &[words, "two real"]);
        ended.assert_nothing_started();
    }
}

#[test]
fn stacks_of_a_plan_run_between_two_hosts() {
    if !privileged() || !super::own_stacks::has_programs() {
        return;
    }
    let world = World::new();
    let ground = Ground::new("two-own");
    ground.write("guide.toml", &super::own_stacks::definitions());
    let plan = "include = [\"guide.toml\"]\nstacks = [\"http\", \"http/socat-tls\", \"lftp\", \"tftp\"]\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"16KiB\"]\ntransfers-per-sample = 1\n";
    world.plan(&ground, plan);
    let ended = world.headroom(&ground, "lab run p.toml --out out").end();
    assert_eq!(ended.code, Some(0), "{ended}");
    world.assert_empty_hosts(&ended);
    let results = ground.results();
    let samples = array(&results, "samples");
    assert!(samples.len() >= 8 && samples.iter().all(|sample| sample["ok"] == true), "{samples:?}");
}
