//! What the transfer's commands print, whole: help texts, listings, dry runs and errors.

mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use common::{Ground, HEADROOM, first_line};

#[test]
fn help_texts() {
    for name in [
        "serve", "put", "get", "sync", "ls", "mkdir", "mv", "rm", "share", "identity", "trust",
        "ui",
    ] {
        let help = Command::new(HEADROOM).args([name, "--help"]).output().expect("it starts");
        assert!(help.status.success(), "{help:?}");
        let help = String::from_utf8(help.stdout).expect("a text");
        insta::assert_snapshot!(format!("help_{name}"), help);
    }
}

#[test]
fn help_texts_of_the_fleet() {
    for name in ["", "run", "worker", "status", "rate"] {
        let mut help = Command::new(HEADROOM);
        help.arg("fleet").args(Some(name).filter(|name| !name.is_empty())).arg("--help");
        let help = help.output().expect("it starts");
        assert!(help.status.success(), "{help:?}");
        let help = String::from_utf8(help.stdout).expect("a text");
        insta::assert_snapshot!(format!("help_fleet_{name}").trim_end_matches('_'), help);
    }
}

#[test]
fn listings_dry_runs_and_errors() {
    let server = Server::new();
    let remote = |path: &str| format!("{}:{path}", server.address);
    // the file system chooses the size of a directory
    let listing = server.text(&["ls", "-l", &remote("")]);
    let size = server.ground.path("served/sub").metadata().expect("it is there").len();
    let directory = format!("drwxr-x---{size:>15}");
    assert!(listing.contains(&directory), "{listing}");
    insta::assert_snapshot!("ls_long", listing.replace(&directory, "drwxr-x---           SIZE"));
    insta::assert_snapshot!("ls_json", server.text(&["ls", "--json", &remote("sub")]));
    let here = server.ground.path("here").display().to_string();
    let dry_run = ["sync", "-n", "--delete", &here, &remote("")];
    insta::assert_snapshot!("sync_dry_run", server.text(&dry_run));
    let json = [&dry_run[..], &["--json"]].concat();
    let without_times: String = server
        .text(&json)
        .lines()
        .filter(|line| !line.contains("time_ns"))
        .map(|line| format!("{line}\n"))
        .collect();
    insta::assert_snapshot!("sync_dry_run_json", without_times);
    let elsewhere = server.ground.path("elsewhere").display().to_string();
    let commands: [&[&str]; 14] = [
        &["put", "missing", &remote("")],
        &["put", &here],
        &["put", &here, "./no-host"],
        &["put", "-", &here, &remote("")],
        &["put", "host:a", &remote("")],
        &["get", &remote("a")],
        &["get", &remote("missing"), &elsewhere],
        &["get", &remote("a*z"), &elsewhere],
        &["get", &remote("../up"), &elsewhere],
        &["sync", &here, &elsewhere],
        &["mkdir", &remote("sub")],
        &["mv", &remote("a"), &remote("sub/b")],
        &["rm", &remote("sub")],
        &["ls", &remote("sub/missing")],
    ];
    let mut errors = String::new();
    for arguments in commands {
        let Output { status, stderr, .. } = server.run(arguments);
        let code = status.code().expect("it ended");
        errors += &format!("{}\n", server.without_paths(&arguments.join(" ")));
        errors += &format!("  {code}: {}", server.without_paths(&String::from_utf8_lossy(&stderr)));
    }
    insta::assert_snapshot!("errors", errors);
}

/// A server with a few files, and a client that it accepts.
struct Server {
    ground: Ground,
    address: String,
    process: Child,
}

impl Server {
    fn new() -> Self {
        let ground = Ground::new("snapshots");
        for folder in ["served/sub", "here/sub"] {
            fs::create_dir_all(ground.path(folder)).expect("folders");
        }
        for (name, content) in [
            ("served/a", "the same"),
            ("served/sub/b", "old"),
            ("served/gone", "not at the source"),
            ("here/a", "the same"),
            ("here/sub/b", "newer"),
            ("here/new", "new"),
        ] {
            fs::write(ground.path(name), content).expect("a file");
            fs::set_permissions(ground.path(name), Permissions::from_mode(0o640)).expect("a mode");
        }
        std::os::unix::fs::symlink("sub/b", ground.path("served/link")).expect("a link");
        std::os::unix::fs::symlink("sub/b", ground.path("here/link")).expect("a link");
        for folder in ["served/sub", "here/sub"] {
            fs::set_permissions(ground.path(folder), Permissions::from_mode(0o750))
                .expect("a mode");
        }
        // times last: making a file changes that of its directory
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for name in [
            "served/a",
            "served/sub/b",
            "served/gone",
            "here/a",
            "here/new",
            "served/sub",
            "here/sub",
        ] {
            let file = File::open(ground.path(name)).expect("it is there");
            file.set_modified(time).expect("a time");
        }
        let mut touch = Command::new("touch");
        touch.args(["-h", "-d", "@1000000000"]);
        touch.args(["served/link", "here/link"].map(|name| ground.path(name)));
        assert!(touch.status().expect("it starts").success());
        let mut identity = command(&ground, "client", &["identity"]);
        let key = String::from_utf8(identity.output().expect("it starts").stdout).expect("a text");
        ground.write("authorized_keys", key.lines().next().expect("the key"));
        let mut serve = command(&ground, "server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
        serve.arg("--root").arg(ground.path("served"));
        serve.arg("--authorized-keys").arg(ground.path("authorized_keys"));
        let mut process = serve.stdout(Stdio::piped()).spawn().expect("it starts");
        let line = first_line(&mut process);
        let [address, fingerprint] =
            ["address", "fingerprint"].map(|key| line[key].as_str().expect("a text").to_owned());
        let server = Self { ground, address, process };
        let trusted = server.run(&["trust", &server.address, "--fingerprint", &fingerprint]);
        assert!(trusted.status.success(), "{trusted:?}");
        server
    }

    fn run(&self, arguments: &[&str]) -> Output {
        command(&self.ground, "client", arguments).output().expect("it starts")
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("a text")
    }

    /// What is different each time, by names that are not.
    fn without_paths(&self, text: &str) -> String {
        let folder = self.ground.path("").display().to_string();
        text.replace(&self.address, "HOST:PORT").replace(folder.trim_end_matches('/'), "FOLDER")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(ground: &Ground, home: &str, arguments: &[&str]) -> Command {
    let mut command = ground.command(HEADROOM);
    command.args(arguments).env("HOME", ground.path(home)).env_remove("XDG_CONFIG_HOME");
    command.current_dir(ground.path("here"));
    command
}
