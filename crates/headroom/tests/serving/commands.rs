//! Files between a client and a server: what is printed, and how the programs end.

mod kills;
mod rights;
mod terminal;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Ground, HEADROOM, first_line};
use headroom_testing::{own_address, retried};

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
        Self::at(name, &own_address(14_860).to_string())
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
        let line = first_line(&mut server);
        self.server = Some(server);
        self.address = line["address"].as_str().expect("its address").to_owned();
        line["fingerprint"].as_str().expect("its fingerprint").to_owned()
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
