//! What becomes of a command whose output nobody reads (`| head`), or cannot be written
//! (a full disk): for everything that prints.

mod common;

use std::fs::File;
use std::process::{Child, Command, Output, Stdio};

use common::made_up::results;
use common::{Ground, first_line};

/// Commands that print, and need no privilege and no other process.
const COMMANDS: &[&str] = &[
    "--help",
    "--version",
    "help lab",
    "lab run --help",
    "put -h",
    "completions bash",
    "completions zsh",
    "man",
    "lab list",
    "lab clean",
    "lab run plan.toml --dry-run",
    "lab run http https --dry-run",
    "lab report a",
    "lab compare a slow",
    "lab compare a slow --json",
    "lab compare a slow --fail-above 5%",
    "identity show --identity key",
    "ipsec decode empty.pcap --config left.toml",
    "ipsec decode empty.pcap --config left.toml --json",
    "tunnel up --dry-run left.toml",
    "serve-once --offer",
];

const PLAN: &str = "stacks = [\"http\"]\n[[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n";

/// A capture without packets: the header of a pcap file.
const EMPTY_CAPTURE: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];

#[test]
fn a_reader_that_has_gone_changes_no_exit_code() {
    let ground = with_inputs("gone");
    for arguments in COMMANDS {
        let read = ground.end_of(ground.headroom(arguments));
        assert!(!read.stdout.is_empty(), "{arguments}: {read}");
        let output = without_reader(ground.headroom(arguments));
        assert_quiet(arguments, &output, read.code);
    }
}

#[test]
fn output_that_cannot_be_written_fails_the_command() {
    let ground = with_inputs("full");
    for arguments in COMMANDS {
        assert_reported(arguments, &to_full_disk(ground.headroom(arguments)));
    }
}

#[test]
fn nobody_reads_standard_error() {
    let ground = with_inputs("deaf");
    for (arguments, code) in [("lab run absent.toml", 2), ("lab compare a slow --fail-above 5%", 1)]
    {
        let mut command = ground.headroom(arguments);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let status = command.stdout(Stdio::null()).stderr(writer).status().expect("it starts");
        assert_eq!(status.code(), Some(code), "{arguments}");
    }
}

#[test]
fn the_same_holds_for_what_a_server_is_asked() {
    let ground = with_inputs("asked");
    let server = Served::start(&ground);
    let at = |path: &str| format!("{}:{path}", server.address);
    let trusted = server.client(&["trust", &server.address, "--fingerprint", &server.fingerprint]);
    assert_reported("trust", &to_full_disk(trusted));
    let commands = [
        vec!["ls".to_owned(), at("")],
        vec!["ls".to_owned(), "-l".to_owned(), at("")],
        vec!["ls".to_owned(), "--json".to_owned(), at("")],
        vec!["sync".to_owned(), "--dry-run".to_owned(), at(""), "copy".to_owned()],
        vec!["get".to_owned(), "--json".to_owned(), at("file"), "fetched".to_owned()],
    ];
    for arguments in commands {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let shown = words.join(" ");
        assert_quiet(&shown, &without_reader(server.client(&words)), Some(0));
        assert_reported(&shown, &to_full_disk(server.client(&words)));
    }
    let fetched = std::fs::read(ground.path("fetched")).expect("the transfer went on");
    assert_eq!(fetched, b"content");
    // what goes through a pipe has not arrived where nobody reads it
    let piped = server.client(&["get", &at("file"), "-"]);
    let output = without_reader(piped);
    assert!(!output.status.success(), "{output:?}");
    assert_no_panic("get -", &output);
}

/// A folder with what the commands read.
fn with_inputs(name: &str) -> Ground {
    let ground = Ground::new(name);
    ground.write("plan.toml", PLAN);
    std::fs::write(ground.path("empty.pcap"), EMPTY_CAPTURE).expect("a capture");
    for (run, seconds) in [("a", [1.0, 1.01, 0.99, 1.02, 0.98]), ("slow", [1.2; 5])] {
        std::fs::create_dir(ground.path(run)).expect("a folder");
        let results = results(seconds, "6.1").to_string();
        ground.write(&format!("{run}/results.json"), &results);
    }
    let keygen = ground.headroom("tunnel keygen 192.0.2.1 192.0.2.2 --name site");
    let made = ground.end_of(keygen);
    assert_eq!(made.code, Some(0), "{made}");
    ground
}

fn without_reader(mut command: Command) -> Output {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    end_of(command.stdout(writer))
}

fn to_full_disk(mut command: Command) -> Output {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    end_of(command.stdout(full))
}

fn end_of(command: &mut Command) -> Output {
    let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    child.wait_with_output().expect("it ends")
}

fn assert_quiet(arguments: &str, output: &Output, code: Option<i32>) {
    let stderr = assert_no_panic(arguments, output);
    assert_eq!(output.status.code(), code, "{arguments}: {stderr}");
    for word in ["pipe", "standard output"] {
        assert!(!stderr.contains(word), "{arguments}: {stderr}");
    }
}

fn assert_reported(arguments: &str, output: &Output) {
    let stderr = assert_no_panic(arguments, output);
    assert!(!output.status.success(), "{arguments}: {stderr}");
    let reported = stderr.matches("cannot write to standard output: No space left").count();
    assert_eq!(reported, 1, "{arguments}: {stderr}");
}

fn assert_no_panic(arguments: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("panicked"), "{arguments}: {stderr}");
    stderr
}

/// A server that lets everybody read.
struct Served<'a> {
    ground: &'a Ground,
    server: Child,
    address: String,
    fingerprint: String,
}

impl<'a> Served<'a> {
    fn start(ground: &'a Ground) -> Self {
        std::fs::create_dir(ground.path("served")).expect("a folder");
        ground.write("served/file", "content");
        let mut command = ground.headroom("serve --root served --anonymous read --json");
        command.args(["--listen", "127.0.0.1:0"]).env("HOME", ground.path("server"));
        command.env_remove("XDG_CONFIG_HOME").stdout(Stdio::piped());
        let mut server = command.spawn().expect("it starts");
        let line = first_line(&mut server);
        let text = |key: &str| line[key].as_str().expect("a text").to_owned();
        Self { ground, server, address: text("address"), fingerprint: text("fingerprint") }
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = self.ground.headroom("");
        command.args(arguments).env("HOME", self.ground.path("client"));
        command.env_remove("XDG_CONFIG_HOME");
        command
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
