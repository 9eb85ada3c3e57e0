//! Questions to somebody at a terminal.

use std::fs;
use std::io::{Read, Write};
use std::process::{Output, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, openpty};

use super::Hosts;

/// Makes a terminal that no other program inherits: a server of another test would keep it open.
fn terminal() -> OpenptyResult {
    let terminal = openpty(None, None).expect("a terminal");
    for side in [&terminal.master, &terminal.slave] {
        fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a flag");
    }
    terminal
}

/// Somebody at a terminal, who answers the first question.
fn at_terminal(hosts: &Hosts, arguments: &[&str], answer: &str) -> Output {
    let terminal = terminal();
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
    let terminal = terminal();
    let mut command = hosts.client(&["ls", &place]);
    command.stdin(terminal.slave.try_clone().expect("the terminal")).stderr(terminal.slave);
    assert_eq!(command.status().expect("it ends").code(), Some(4));
}
