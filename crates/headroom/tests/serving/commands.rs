//! Files between two processes, which are killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ground, HEADROOM};
use headroom_testing::{privileged, retried, write_executable};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server's and a client's settings, and what they move.
struct Hosts {
    ground: Ground,
    address: String,
    server: Option<Child>,
    program: PathBuf,
    /// Whether the server runs as a user who may do little.
    is_nobody: bool,
    /// What the server lets clients do, too.
    allow: Option<&'static str>,
}

impl Hosts {
    /// A server that lets the client in, and that the client trusts.
    fn new(name: &str) -> Self {
        Self::at(name, "127.0.0.1:0")
    }

    /// The same, where the server listens at this address.
    fn at(name: &str, address: &str) -> Self {
        let ground = Ground::new(name);
        for folder in ["served", "here"] {
            fs::create_dir(ground.path(folder)).expect("a folder");
        }
        let (address, program) = (address.to_owned(), PathBuf::from(HEADROOM));
        let mut hosts =
            Self { ground, address, server: None, program, is_nobody: false, allow: None };
        let shown = hosts.client(&["identity", "show"]).output().expect("it starts");
        let key = String::from_utf8(shown.stdout).expect("a text");
        let key = key.lines().next().expect("the key").to_owned();
        hosts.ground.write("authorized_keys", &format!("# the client\n{key} client\n"));
        let fingerprint = hosts.start();
        let refused = hosts.client(&["ls", &hosts.place("")]).output().expect("it starts");
        assert_eq!(refused.status.code(), Some(4), "{refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("is unknown") && told.contains(&fingerprint), "{told}");
        let host = hosts.address.clone();
        let trusted = hosts.succeed(&["trust", &host, "--fingerprint", &fingerprint]);
        assert!(trusted.stderr.is_empty(), "it is said once: {trusted:?}");
        let said = String::from_utf8(trusted.stdout).expect("a text");
        assert_eq!(said, format!("{host} is trusted, with {fingerprint}\n"));
        hosts
    }

    /// Starts the server, on the port that it had before, and says its fingerprint.
    fn start(&mut self) -> String {
        let mut command = self.headroom("server");
        command.arg("serve").arg("--root").arg(self.ground.path("served"));
        command.arg("--authorized-keys").arg(self.ground.path("authorized_keys"));
        command.args(["--json", "--listen", &self.address]).stdout(Stdio::piped());
        command.env("NOTIFY_SOCKET", self.ground.path("notify"));
        if let Some(allow) = self.allow {
            command.args(["--allow", allow]);
        }
        if self.is_nobody {
            command.uid(65534).gid(65534);
        }
        let mut server = command.spawn().expect("it starts");
        let mut line = String::new();
        let stdout = server.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it listens");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        self.server = Some(server);
        self.address = line["address"].as_str().expect("its address").to_owned();
        line["fingerprint"].as_str().expect("its fingerprint").to_owned()
    }

    /// Starts the server again as a user who may do little.
    fn restart_as_nobody(&mut self) {
        self.kill_server();
        // who must be able to read the program
        let program = self.ground.path("headroom");
        write_executable(&program, &fs::read(HEADROOM).expect("a program"));
        for (path, mode) in
            [("", 0o755), ("server", 0o777), ("served", 0o755), ("authorized_keys", 0o644)]
        {
            let permissions = fs::Permissions::from_mode(mode);
            let _ = fs::create_dir(self.ground.path("server"));
            fs::set_permissions(self.ground.path(path), permissions).expect("chmod");
        }
        give_to_nobody(&self.ground.path("server/.config"));
        self.program = program;
        self.is_nobody = true;
        self.start();
    }

    fn kill_server(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.kill().expect("it runs");
        server.wait().expect("it ends");
    }

    fn headroom(&self, home: &str) -> Command {
        let mut command = self.ground.command(&self.program);
        command.env("HOME", self.ground.path(home)).env_remove("XDG_CONFIG_HOME");
        command
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = self.headroom("client");
        command.args(arguments);
        command
    }

    fn succeed(&self, arguments: &[&str]) -> Output {
        let output = self.client(arguments).output().expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        output
    }

    /// As it is written on the command line.
    fn place(&self, path: &str) -> String {
        format!("{}:{path}", self.address)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn a_tree_survives_kills_on_either_side() {
    let mut hosts = Hosts::new("kills");
    let tree = hosts.ground.path("here/tree");
    fs::create_dir_all(tree.join("small")).expect("a folder");
    let mut random = blake3::Hasher::new().finalize_xof();
    let mut large = vec![0; 80 << 20];
    for name in ["one", "two"] {
        random.fill(&mut large);
        fs::write(tree.join(name), &large).expect("a file");
    }
    for n in 0..200 {
        fs::write(tree.join(format!("small/{n}")), format!("content of {n}")).expect("a file");
    }
    let total = 2 * large.len() as u64;

    let (to, tree_text) = (hosts.place(""), tree.display().to_string());
    let put = ["put", &tree_text, &to];
    let mut kills = 0;
    for (nth, kill_server) in [false, true, true, false, true, false].into_iter().enumerate() {
        let enough = total * (nth as u64 + 1) / 8;
        kills += u32::from(cut(&mut hosts, &put, "served", enough, kill_server));
    }
    hosts.succeed(&put);
    assert_eq!(hashes(&tree), hashes(&hosts.ground.path("served/tree")));

    let (from, back) = (hosts.place("tree"), hosts.ground.path("back/"));
    let get = ["get", &from, &back.display().to_string()];
    for (nth, kill_server) in [true, false, true].into_iter().enumerate() {
        let enough = total * (nth as u64 + 1) / 5;
        kills += u32::from(cut(&mut hosts, &get, "back", enough, kill_server));
    }
    hosts.succeed(&get);
    assert_eq!(hashes(&tree), hashes(&back.join("tree")));
    assert!(kills > 0, "every transfer was over before anything was killed");

    // and a sync, which removes nothing before all came
    let mirror = hosts.ground.path("served/mirror");
    fs::create_dir(&mirror).expect("a folder");
    fs::write(mirror.join("surplus"), "nobody sent it").expect("a file");
    let mirror_there = hosts.place("mirror");
    let sync = ["sync", "--delete", &tree_text, &mirror_there];
    for (nth, kill_server) in [false, true].into_iter().enumerate() {
        let enough = total * (nth as u64 + 1) / 4;
        let is_cut = cut(&mut hosts, &sync, "served/mirror", enough, kill_server);
        assert!(!is_cut || mirror.join("surplus").exists());
    }
    hosts.succeed(&sync);
    assert_eq!(hashes(&tree), hashes(&mirror));
}

#[test]
fn errors_have_messages_and_exit_codes() {
    let mut hosts = Hosts::new("errors");
    fs::write(hosts.ground.path("here/a"), "content").expect("a file");
    let a = hosts.ground.path("here/a").display().to_string();
    let run = |hosts: &Hosts, arguments: &[&str]| {
        let output = hosts.client(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("it ends by itself"), text)
    };
    let to = hosts.place("");
    for (arguments, code, words) in [
        (vec!["put", &a, "nowhere"], 2, "is not a path on a host"),
        (vec!["put", "host:a", &to], 2, "./host:a"),
        (vec!["put", "missing", &to], 1, "missing"),
        (vec!["get", &hosts.place("missing"), "got"], 1, "missing"),
        (vec!["get", &hosts.place("../a"), "got"], 2, "../a"),
        (vec!["ls", &hosts.place("missing")], 1, "missing"),
    ] {
        let (found, text) = run(&hosts, &arguments);
        assert_eq!(found, code, "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    let quiet = hosts.succeed(&["put", &a, &to]);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    let listed = hosts.succeed(&["ls", "-l", &to]).stdout;
    let listed = String::from_utf8(listed).expect("a text");
    assert!(listed.starts_with("-rw") && listed.trim_end().ends_with(" a"), "{listed}");

    // another key at the same place
    hosts.kill_server();
    fs::remove_file(hosts.ground.path("server/.config/headroom/identity")).expect("it is there");
    let fingerprint = hosts.start();
    let (code, text) = run(&hosts, &["put", &a, &to]);
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("HAS CHANGED") && text.contains("line 1 of "), "{text}");

    // a client that the server does not know
    let mut stranger = hosts.headroom("stranger");
    let stranger = stranger.args(["ls", "--fingerprint", &fingerprint, &to]);
    let refused = stranger.output().expect("it starts");
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("headroom identity"), "{text}");
    hosts.kill_server();
}

#[test]
fn a_device_or_pipe_that_was_named_is_written_into() {
    let hosts = Hosts::new("devices");
    fs::write(hosts.ground.path("served/f"), "content").expect("a file");
    let from = hosts.place("f");
    for to in ["/dev/null", "/dev/stdout", "/dev/fd/1"] {
        let output = hosts.succeed(&["get", &from, to]);
        let written = if to == "/dev/null" { "" } else { "content" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), written, "{to}");
    }
    let meta = fs::metadata("/dev/null").expect("a device");
    assert!(!meta.is_file(), "it was replaced");
    // standard output is a file, whose name others have for it
    let file = hosts.ground.path("here/out");
    let mut command = hosts.client(&["get", &from, "/dev/stdout"]);
    let status = command.stdout(fs::File::create(&file).expect("a file")).status();
    assert!(status.expect("it starts").success());
    assert_eq!(fs::read_to_string(&file).expect("a file"), "content");
    assert!(fs::symlink_metadata("/dev/stdout").is_ok_and(|meta| meta.is_symlink()));

    let pipe = hosts.ground.path("here/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let reading = pipe.clone();
    let reader = std::thread::spawn(move || fs::read_to_string(reading).expect("a pipe"));
    hosts.succeed(&["get", &from, &pipe.display().to_string()]);
    assert_eq!(reader.join().expect("it ends"), "content");
}

#[test]
fn a_server_does_not_start_where_a_keys_root_is_missing() {
    let hosts = Hosts::new("roots");
    let key = hosts.succeed(&["identity", "show"]).stdout;
    let key = String::from_utf8(key).expect("a text");
    let keys = hosts.ground.path("other_keys");
    let line = format!("# keys\nroot=\"/inner\" {}\n", key.lines().next().expect("the key"));
    hosts.ground.write("other_keys", &line);
    let mut command = hosts.headroom("other");
    command.arg("serve").arg("--root").arg(hosts.ground.path("served"));
    command.arg("--authorized-keys").arg(&keys).args(["--listen", "127.0.0.1:0"]);
    let output = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    let line = format!("{}:2: `root` is `/inner`, a directory below", keys.display());
    assert!(told.contains(&line), "{told}");
}

#[test]
fn files_are_verified_as_the_option_says() {
    let hosts = Hosts::new("verify");
    let size = 3 << 20;
    let mut content = vec![0; size];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    let (here, back) = (hosts.ground.path("here/big"), hosts.ground.path("here/back"));
    fs::write(&here, &content).expect("a file");
    let (here, back) = (here.display().to_string(), back.display().to_string());
    let end = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let read = |line| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        let mut ends = said.lines().map(read).filter(|event| event["event"] == "end");
        ends.next().expect("an end")
    };
    let fast = |verb: &str, from: &str, to: &str| {
        end(&hosts.succeed(&[verb, "--json", "--verify", "fast", from, to]))
    };
    let place = hosts.place("big");
    assert_eq!(fast("put", &here, &place)["by_crc"], size);
    assert_eq!(fast("get", &place, &back)["by_crc"], size);
    assert_eq!(fs::read(&back).expect("it came"), content);
    // what is there is compared by BLAKE3's values, and that is the default
    let again = fast("put", &here, &place);
    assert_eq!(again["by_crc"], 0);
    assert_eq!(again["kept"], size);
    let full = hosts.succeed(&["put", "--json", &here, &hosts.place("other")]);
    assert_eq!(end(&full)["by_crc"], 0);

    let mut command = hosts.client(&["put", "--verify", "fast", "-", &hosts.place("stream")]);
    let piped = command.stdin(Stdio::null()).output().expect("it starts");
    let told = String::from_utf8_lossy(&piped.stderr);
    assert!(piped.status.success() && told.contains("BLAKE3 verifies everything"), "{told}");
    let folder = hosts.ground.path("here").display().to_string();
    let sync = hosts.client(&["sync", "--verify", "fast", &folder, &hosts.place("")]).output();
    assert_eq!(sync.expect("it starts").status.code(), Some(2), "a sync compares by BLAKE3");
}

#[test]
fn piped_content_is_stored_completely_or_not_at_all() {
    use std::io::{Read, Write};
    let mut hosts = Hosts::new("pipe");
    let mut content = vec![0; (9 << 20) + 77];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    let to = hosts.place("deep/file");
    let start = |hosts: &Hosts, arguments: &[&str]| {
        let mut command = hosts.client(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let mut put = start(&hosts, &["put", "-", &to]);
    let mut stdin = put.stdin.take().expect("it is piped");
    stdin.write_all(&content).expect("it is read");
    drop(stdin);
    let output = put.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let stored = hosts.ground.path("served/deep/file");
    assert_eq!(fs::read(&stored).expect("it is there"), content);
    fs::write(hosts.ground.path("here/any"), "a new file").expect("a file");
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode(&stored), mode(&hosts.ground.path("here/any")), "as any new file's");
    let got = hosts.succeed(&["get", &to, "-"]);
    assert!(got.stdout == content);
    let empty = hosts.place("empty");
    let output = hosts.client(&["put", "-", &empty]).stdin(Stdio::null()).output();
    assert!(output.expect("it starts").status.success());
    assert_eq!(hosts.succeed(&["get", &empty, "-"]).stdout, b"");

    // the client is killed: nothing is stored
    let mut put = start(&hosts, &["put", "-", &hosts.place("deep/cut")]);
    let mut stdin = put.stdin.take().expect("it is piped");
    stdin.write_all(&content).expect("it is read");
    let start_of_wait = Instant::now();
    while bytes(&hosts.ground.path("served/deep")) < (content.len() + (4 << 20)) as u64 {
        assert!(start_of_wait.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    put.kill().expect("it is ours");
    put.wait().expect("it ends");
    assert!(!hosts.ground.path("served/deep/cut").exists());

    // the server is killed: that is no success
    let mut get = start(&hosts, &["get", &to, "-"]);
    let mut stdout = get.stdout.take().expect("it is piped");
    let mut first = [0; 1];
    stdout.read_exact(&mut first).expect("it comes");
    hosts.kill_server();
    hosts.start();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("it ends");
    // all of it may have been on its way already, but not the word that it is right
    let output = get.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("not resumed"), "{text}");
    } else {
        assert_eq!(rest.len() + 1, content.len());
    }
}

#[test]
fn sync_makes_a_directory_like_another_and_a_dry_run_shows_how() {
    let hosts = Hosts::new("sync");
    let tree = hosts.ground.path("here/tree");
    fs::create_dir_all(tree.join("a")).expect("a folder");
    fs::write(tree.join("a/one"), "one").expect("a file");
    fs::write(tree.join("two"), vec![7; 100_000]).expect("a file");
    fs::write(tree.join("three.o"), "object").expect("a file");
    let there = hosts.ground.path("served/deep/tree");
    let (here, to) = (tree.display().to_string(), hosts.place("deep/tree"));
    let text = |output: Output| String::from_utf8(output.stdout).expect("a text");
    let sync = ["sync", "--delete", "--exclude", "*.o", &here, &to];
    let dry = hosts.succeed(&[&sync[..], &["-n"]].concat());
    let said = text(dry);
    assert!(said.contains("new                  3 a/one\n"), "{said}");
    assert!(said.contains("To store: 3 (at most 97.66 KiB to send)"), "{said}");
    assert!(!there.exists());

    let quiet = hosts.succeed(&sync);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty(), "{quiet:?}");
    assert!(there.join("two").exists() && !there.join("three.o").exists());
    fs::write(there.join("more"), "more").expect("a file");
    fs::write(there.join("more.o"), "more").expect("a file");
    let again = hosts.succeed(&[&sync[..], &["--json"]].concat());
    let said = text(again);
    let last = said.lines().last().expect("the end");
    let end: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(
        (&end["removed"], &end["moved"], &end["unchanged"]),
        (&1.into(), &0.into(), &3.into())
    );
    assert!(there.join("more.o").exists() && !there.join("more").exists());

    // back again, into what is not there
    let back = hosts.ground.path("back").display().to_string();
    hosts.succeed(&["sync", &to, &back]);
    assert_eq!(hashes(&there), hashes(Path::new(&back)));
    for wrong in [["sync", &here, &back], ["sync", &to, &to], ["sync", "here/missing", &to]] {
        let output = hosts.client(&wrong).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
    }
}

/// Somebody at a terminal, who answers the first question.
fn at_terminal(hosts: &Hosts, arguments: &[&str], answer: &str) -> Output {
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let mut command = hosts.client(arguments);
    let side = || terminal.slave.try_clone().expect("the terminal");
    command.stdin(side()).stderr(side()).stdout(Stdio::piped());
    let client = command.spawn().expect("it starts");
    drop(command);
    drop(terminal.slave);
    let (mut master, mut shown) = (fs::File::from(terminal.master), Vec::new());
    let mut bytes = [0; 1024];
    while !String::from_utf8_lossy(&shown).contains("or the fingerprint)") {
        // it fails when the client has ended
        let read = master.read(&mut bytes).unwrap_or(0);
        assert!(read > 0, "nobody asked: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&bytes[..read]);
    }
    master.write_all(format!("{answer}\n").as_bytes()).expect("it listens");
    let mut output = client.wait_with_output().expect("it ends");
    while let Ok(read @ 1..) = master.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..read]);
    }
    output.stderr = shown;
    output
}

#[test]
fn an_unknown_host_is_asked_about_at_a_terminal() {
    let mut hosts = Hosts::at("terminal", "[::1]:0");
    fs::write(hosts.ground.path("served/a"), "content").expect("a file");
    let known_hosts = hosts.ground.path("client/.config/headroom/known_hosts");
    let place = hosts.place("");
    let key = fs::read_to_string(&known_hosts).expect("it was trusted");
    for (answer, code) in [("no", 4), ("", 4), ("SHA256:abc", 4), ("yes", 0)] {
        let _ = fs::remove_file(&known_hosts);
        let output = at_terminal(&hosts, &["ls", &place], answer);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{answer}: {shown}");
        assert!(shown.contains("SHA256:"), "{shown}");
        let known = fs::read_to_string(&known_hosts).ok();
        assert_eq!(known, (code == 0).then(|| key.clone()), "{answer}");
        assert_eq!(output.stdout, if code == 0 { &b"a\n"[..] } else { b"" });
    }
    // a host that is known is not asked about, and one whose key changed never is
    hosts.succeed(&["ls", &place]);
    hosts.kill_server();
    fs::remove_file(hosts.ground.path("server/.config/headroom/identity")).expect("it is there");
    hosts.start();
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let mut command = hosts.client(&["ls", &place]);
    command.stdin(terminal.slave.try_clone().expect("the terminal")).stderr(terminal.slave);
    assert_eq!(command.status().expect("it ends").code(), Some(4));
}

#[test]
fn a_server_reports_that_it_listens_and_rereads_its_keys() {
    let mut hosts = Hosts::new("notify");
    hosts.kill_server();
    let socket = UnixDatagram::bind(hosts.ground.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    hosts.start();
    let mut word = [0; 64];
    let bytes = retried(|| socket.recv(&mut word)).expect("it says so");
    assert_eq!(&word[..bytes], b"READY=1\n");

    // a key that is removed is out, without a restart
    let place = hosts.place("");
    hosts.succeed(&["ls", &place]);
    hosts.ground.write("authorized_keys", "# nobody\n");
    crate::common::wait_for("the change", || {
        let output = hosts.client(&["ls", &place]).output().expect("it starts");
        assert!(matches!(output.status.code(), Some(0 | 5)), "{output:?}");
        output.status.code() == Some(5)
    });
}

#[test]
fn a_server_that_may_not_write_leaves_nothing_half_written() {
    if !privileged() {
        return;
    }
    let mut hosts = Hosts::new("rights");
    hosts.restart_as_nobody();
    fs::write(hosts.ground.path("served/large"), "before").expect("a file");
    let large = hosts.ground.path("here/large");
    fs::write(&large, vec![7; 3 << 20]).expect("a file");
    let (large, to) = (large.display().to_string(), hosts.place(""));
    let refused = hosts.client(&["put", &large, &to]).output().expect("it starts");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("large") && text.to_lowercase().contains("permission"), "{text}");
    assert_eq!(fs::read_to_string(hosts.ground.path("served/large")).expect("a file"), "before");
    assert_eq!(fs::read_dir(hosts.ground.path("served")).expect("a folder").count(), 1);
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(hosts.ground.path("served"), all).expect("chmod");
    hosts.succeed(&["put", &large, &to]);
    assert_eq!(fs::read(hosts.ground.path("served/large")).expect("a file").len(), 3 << 20);
    // and one that may not be read
    let closed = fs::Permissions::from_mode(0o600);
    fs::write(hosts.ground.path("served/secret"), "root's").expect("a file");
    fs::set_permissions(hosts.ground.path("served/secret"), closed).expect("chmod");
    let (from, here) = (hosts.place("secret"), hosts.ground.path("here"));
    let refused = hosts.client(&["get", &from, &here.display().to_string()]).output();
    let refused = refused.expect("it starts");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(!here.join("secret").exists());
}

/// Go's module cache and Nix's store are made of such directories.
#[test]
fn read_only_directories_are_updated_by_whoever_owns_them() {
    if !privileged() {
        return;
    }
    let mut hosts = Hosts::new("readonly");
    hosts.restart_as_nobody();
    let (tree, served) = (hosts.ground.path("here/tree"), hosts.ground.path("served"));
    give_to_nobody(&served);
    fs::create_dir_all(tree.join("a/b")).expect("folders");
    for name in ["a/one", "a/b/two", "a/b/large"] {
        fs::write(tree.join(name), vec![7; 100_000 * name.len()]).expect("a file");
    }
    let lock = |mode: u32| {
        for name in ["a/b", "a"] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(tree.join(name), mode).expect("chmod");
        }
    };
    let modes = |folder: &Path| {
        ["a", "a/b"].map(|name| {
            fs::metadata(folder.join(name)).expect("a folder").permissions().mode() & 0o7777
        })
    };
    let (from, to) = (tree.display().to_string(), hosts.place("tree"));
    let there = served.join("tree");
    lock(0o555);
    hosts.succeed(&["put", &from, &to]);
    assert_eq!(modes(&there), [0o555, 0o555]);

    // changed, added and removed, by put and by sync
    lock(0o755);
    fs::write(tree.join("a/one"), "changed").expect("a file");
    fs::write(tree.join("a/b/three"), vec![3; 300_000]).expect("a file");
    fs::create_dir(tree.join("a/b/c")).expect("a folder");
    lock(0o555);
    let contents = format!("{from}/.");
    hosts.succeed(&["put", &contents, &to]);
    assert_eq!(hashes(&tree), hashes(&there));
    lock(0o755);
    fs::remove_file(tree.join("a/b/three")).expect("a file");
    fs::remove_dir(tree.join("a/b/c")).expect("a folder");
    std::os::unix::fs::symlink("two", tree.join("a/b/link")).expect("a link");
    lock(0o555);
    hosts.succeed(&["sync", "--delete", &from, &to]);
    assert_eq!(hashes(&tree), hashes(&there));
    assert!(there.join("a/b/link").is_symlink() && !there.join("a/b/c").exists());
    assert_eq!(modes(&there), [0o555, 0o555]);

    // what fails changes no mode: something is in the way, and no directory is sent
    give_to_nobody(&there);
    let one = tree.join("a/one").display().to_string();
    let output = hosts.client(&["put", &one, &hosts.place("tree/a/b")]).output();
    assert!(output.expect("it starts").status.success());
    assert!(there.join("a/b/one").exists());
    let output = hosts.client(&["put", &one, &hosts.place("tree/a/b/two/x")]).output();
    assert!(!output.expect("it starts").status.success());
    assert_eq!(modes(&there), [0o555, 0o555]);

    // names are made and changed in them, too
    hosts.succeed(&["mkdir", &hosts.place("tree/a/made")]);
    hosts.succeed(&["mv", &hosts.place("tree/a/one"), &hosts.place("tree/a/b/moved")]);
    hosts.succeed(&["mv", "-f", &hosts.place("tree/a/b/moved"), &hosts.place("tree/a/one")]);
    assert!(there.join("a/made").is_dir() && there.join("a/one").is_file());
    assert_eq!(modes(&there), [0o555, 0o555]);

    // one of another user's stays as it is
    let chown = Command::new("chown").arg("0:0").arg(there.join("a")).status();
    assert!(chown.expect("chown").success());
    let output = hosts.client(&["put", &one, &hosts.place("tree/a/new")]).output();
    let output = output.expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("permission"), "{told}");
    assert_eq!(modes(&there), [0o555, 0o555]);
}

/// A tree with hard links, attributes, owners and links, by the options of the command line.
#[test]
fn trees_are_kept_as_the_options_say() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let mut hosts = Hosts::new("kept");
    let tree = hosts.ground.path("here/tree");
    fs::create_dir_all(tree.join("bin")).expect("folders");
    fs::write(tree.join("one"), "content").expect("a file");
    fs::hard_link(tree.join("one"), tree.join("two")).expect("a hard link");
    xattr::set(tree.join("one"), "user.note", b"a note").expect("an attribute");
    symlink("/usr/bin/python3", tree.join("bin/python3")).expect("a link");
    symlink("../one", tree.join("bin/one")).expect("a link");
    if privileged() {
        std::os::unix::fs::chown(tree.join("one"), Some(1234), Some(4321)).expect("chown");
    }
    let from = tree.display().to_string();
    let run = |hosts: &Hosts, arguments: &[&str]| {
        let output = hosts.client(arguments).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("it ends"), told)
    };
    let meta =
        |hosts: &Hosts, name: &str| hosts.ground.path("served").join(name).symlink_metadata();

    // a link that leads out is left out and told once, and nothing is made of the rest
    let plain = hosts.place("plain");
    fs::create_dir(hosts.ground.path("served/plain")).expect("a folder");
    fs::write(hosts.ground.path("served/plain/surplus"), "").expect("a file");
    let (code, told) = run(&hosts, &["sync", "--delete", &from, &plain]);
    assert_eq!(code, 0, "{told}");
    assert_eq!(told.matches("left out: ").count(), 1, "{told}");
    assert!(told.contains("bin/python3") && told.contains("leads out"), "{told}");
    assert!(meta(&hosts, "plain/surplus").is_err() && meta(&hosts, "plain/bin/python3").is_err());
    assert!(meta(&hosts, "plain/bin/one").is_ok_and(|meta| meta.is_symlink()));
    assert!(meta(&hosts, "plain/one").is_ok_and(|meta| meta.nlink() == 1));
    let served = hosts.ground.path("served");
    assert_eq!(xattr::get(served.join("plain/one"), "user.note").expect("it can be read"), None);
    let (code, told) = run(&hosts, &["put", "--links", "refuse", &from, &hosts.place("refused")]);
    assert_eq!(code, 1, "{told}");
    let (code, told) = run(&hosts, &["put", "--links=follow", &from, &hosts.place("followed")]);
    assert!(meta(&hosts, "followed/bin/one").is_ok_and(|meta| meta.is_file()), "{code} {told}");
    let (code, _) = run(&hosts, &["put", "--links", "some", &from, &plain]);
    assert_eq!(code, 2);

    // the server keeps what it may keep, and says what it does not
    let some = hosts.place("some");
    let all = ["put", "-H", "-X", "-A", "--owner", "--group", "--links=skip", &from, &some];
    let (code, told) = run(&hosts, &all);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("warning: the server does not keep owners, groups"), "{told}");
    let one = meta(&hosts, "some/one").expect("it is there");
    assert_eq!((one.nlink(), one.uid()), (2, meta(&hosts, "").expect("it is there").uid()));
    let note = xattr::get(served.join("some/one"), "user.note").expect("it can be read");
    assert_eq!(note.as_deref(), Some(&b"a note"[..]));
    assert!(meta(&hosts, "some/bin/one").is_err());

    // all of it where it allows that
    hosts.kill_server();
    hosts.allow = Some("owner,group,links");
    hosts.start();
    let all_there = hosts.place("all");
    let all = ["put", "-HXA", "--owner", "--group", "--numeric-ids", "--links=keep", &from];
    let (code, told) = run(&hosts, &[&all[..], &[&all_there]].concat());
    assert!(code == 0 && told.is_empty(), "{told}");
    let one = meta(&hosts, "all/two").expect("it is there");
    if privileged() {
        assert_eq!((one.nlink(), one.uid(), one.gid()), (2, 1234, 4321));
    }
    assert!(meta(&hosts, "all/bin/python3").is_ok_and(|meta| meta.is_symlink()));
    // a client takes no more than it asked for
    let back = hosts.ground.path("back").display().to_string();
    let output = hosts.client(&["get", "--json", &all_there, &back]).output().expect("it starts");
    let said = String::from_utf8(output.stdout).expect("a text");
    let end: serde_json::Value =
        serde_json::from_str(said.lines().last().expect("the end")).expect("JSON");
    assert_eq!((&end["failed"], &end["left_out"]), (&0.into(), &1.into()), "{said}");
    let one = fs::symlink_metadata(hosts.ground.path("back/one")).expect("it is there");
    assert_eq!((one.nlink(), one.uid()), (1, meta(&hosts, "").expect("it is there").uid()));
    assert!(!hosts.ground.path("back/bin/python3").is_symlink());
}

fn give_to_nobody(path: &Path) {
    let chown = Command::new("chown").args(["-R", "65534:65534"]).arg(path).status();
    assert!(chown.expect("chown").success());
}

/// Runs the client until `enough` bytes lie in a folder, then kills it, or the
/// server, which is started again. Whether something was cut.
fn cut(
    hosts: &mut Hosts,
    arguments: &[&str],
    folder: &str,
    enough: u64,
    kill_server: bool,
) -> bool {
    let mut command = hosts.client(arguments);
    let mut client = command.stderr(Stdio::null()).spawn().expect("it starts");
    let folder = hosts.ground.path(folder);
    let start = Instant::now();
    while bytes(&folder) < enough {
        if let Some(status) = client.try_wait().expect("it is ours") {
            assert!(status.success(), "{status}");
            return false;
        }
        assert!(start.elapsed() < PATIENCE, "nothing more comes");
        std::thread::sleep(Duration::from_millis(1));
    }
    if kill_server {
        hosts.kill_server();
        hosts.start();
        // it learns that the server is another one, or was faster
        let code = client.wait().expect("it ends").code();
        assert!(matches!(code, Some(0 | 3)), "{code:?}");
        code == Some(3)
    } else {
        client.kill().expect("it is ours");
        !client.wait().expect("it ends").success()
    }
}

/// Bytes on the disk, below a folder.
fn bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let of = |path: PathBuf| match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_dir() => bytes(&path),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().map(|entry| of(entry.path())).sum())
}

/// All files below a folder, with their hashes.
fn hashes(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                let content = fs::read(&path).expect("a file");
                let name = path.strip_prefix(folder).expect("below").to_owned();
                found.push((name, blake3::hash(&content).to_string()));
            }
        }
    }
    found.sort();
    found
}
