//! Files to and from a host that has nothing but an sshd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Output};

use crate::common::sshd::OverSsh;
use crate::common::{HEADROOM, wait_for};
use headroom_testing::privileged;
use nix::sys::signal::{Signal, kill};

/// `headroom` with these arguments, where the client is.
fn start(hosts: &OverSsh, arguments: &[&str]) -> Child {
    let mut command = hosts.ground.command(HEADROOM);
    command.args(arguments);
    hosts.start(command)
}

fn run(hosts: &OverSsh, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        start(hosts, arguments).wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().expect("it ends by itself"), text(stdout), text(stderr))
}

fn succeed(hosts: &OverSsh, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(hosts, arguments);
    assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
    hosts.wait_until_nothing_is_left();
    stdout
}

#[test]
fn a_transfer_through_ssh_leaves_nothing_on_the_host() {
    if !privileged() {
        return;
    }
    let hosts = OverSsh::new("ssh");
    let tree = hosts.ground.path("tree");
    fs::create_dir_all(tree.join("empty")).expect("a folder");
    let large: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("large"), &large).expect("a file");
    fs::write(tree.join("small"), "content").expect("a file");

    // from the home on, over links that the user has there
    fs::create_dir(hosts.home("data")).expect("a folder");
    std::os::unix::fs::symlink("data", hosts.home("link")).expect("a link");
    succeed(&hosts, &["put", "--ssh", "tree", "Far:link/new/"]);
    assert_eq!(fs::read(hosts.home("data/new/tree/large")).expect("a file"), large);
    assert!(hosts.home("data/new/tree/empty").is_dir());

    // by an absolute path, IPv6, another user's word for the same one, and a port
    let place = format!("root@far6:4999:{}", hosts.home("link/new/tree").display());
    succeed(&hosts, &["get", "--ssh", &place, "back/"]);
    assert_eq!(fs::read(hosts.ground.path("back/tree/large")).expect("a file"), large);
    let listed = succeed(&hosts, &["ls", "--ssh", "Far:~/data/../link/new/tree"]);
    assert_eq!(listed, "empty/\nlarge\nsmall\n");
    fs::remove_file(tree.join("small")).expect("it is there");
    succeed(&hosts, &["sync", "--ssh", "--delete", "--rate", "1gbit", "tree", "Far:link/new/tree"]);
    let synced = hosts.home("data/new/tree");
    assert!(synced.join("large").exists() && !synced.join("small").exists());
    // neither side was left a key or a host
    assert!(!hosts.home(".config").exists() && !hosts.ground.path("near-home").exists());

    // a program that is there is used, if it is the same
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\nexec {HEADROOM} \"$@\"\n",
        hosts.home("used").display()
    );
    hosts.ground.script("bin/headroom", &script);
    succeed(&hosts, &["ls", "--ssh", "Far:"]);
    let used = fs::read_to_string(hosts.home("used")).expect("it was asked");
    assert_eq!(used, "serve-once\nserve-once\n");
    hosts.ground.script("bin/headroom", "#!/bin/sh\necho 0.0.1/1\n");
    succeed(&hosts, &["ls", "--ssh", "Far:"]);
}

#[test]
fn interruptions_leave_nothing_and_the_transfer_resumes() {
    if !privileged() {
        return;
    }
    let hosts = OverSsh::new("ssh-cut");
    let bytes = 400 << 20;
    let large = fs::File::create(hosts.ground.path("large")).expect("a file");
    large.set_len(bytes).expect("a hole");
    fs::create_dir(hosts.home("to")).expect("a folder");
    let part = |directory: &Path| {
        let entries = fs::read_dir(directory).expect("a folder").flatten();
        entries.filter_map(|entry| Some(entry.metadata().ok()?.size())).sum::<u64>()
    };
    let put = ["put", "--ssh", "large", "Far:to/"];
    for kill_client in [true, false] {
        let mut client = start(&hosts, &put);
        wait_for("a part of the file", || part(&hosts.home("to")) > 0);
        if kill_client {
            client.kill().expect("it runs, or has just ended");
        } else {
            // sshd's process for this session: the connection is lost
            let sessions = hosts.far_processes();
            let sessions = sessions.iter().filter(|(_, line)| line.starts_with("sshd"));
            for (pid, _) in sessions {
                let _ = kill(*pid, Signal::SIGKILL);
            }
        }
        let output = client.wait_with_output().expect("it ends");
        if !kill_client {
            assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
        }
        hosts.wait_until_nothing_is_left();
    }
    succeed(&hosts, &put);
    assert_eq!(fs::metadata(hosts.home("to/large")).expect("it is there").len(), bytes);
    assert_eq!(fs::read_dir(hosts.home("to")).expect("a folder").count(), 1);
}

#[test]
fn what_cannot_be_is_said() {
    if !privileged() {
        return;
    }
    let hosts = OverSsh::new("ssh-not");
    for (arguments, code, words) in [
        (vec!["ls", "--ssh", "nobody:"], 3, vec!["cannot reach nobody", "ssh failed"]),
        (vec!["ls", "--ssh", "Far:missing"], 1, vec!["/missing cannot be listed"]),
        (vec!["ls", "--ssh", "Far:/nonexist"], 1, vec!["on the server: /nonexist cannot"]),
        (vec!["ls", "--ssh", "--fingerprint", "x", "Far:"], 2, vec!["--fingerprint"]),
        (vec!["ls", "u@192.0.2.2:"], 2, vec!["--ssh"]),
        (vec!["ls", "--ssh", "--ssh-command", "no-such-ssh", "Far:"], 1, vec!["no-such-ssh"]),
    ] {
        let (found, stdout, stderr) = run(&hosts, &arguments);
        assert_eq!(found, code, "{arguments:?}: {stdout}{stderr}");
        for word in words {
            assert!(stderr.contains(word), "{arguments:?}: {stderr}");
        }
        hosts.wait_until_nothing_is_left();
    }
    // a host of another kind, and one that has no room to run anything
    hosts.ground.script("bin/uname", "#!/bin/sh\necho Multics\n");
    let (code, _, stderr) = run(&hosts, &["ls", "--ssh", "Far:"]);
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("Multics") && stderr.contains("Install headroom"), "{stderr}");
    fs::remove_file(hosts.ground.path("bin/uname")).expect("it is there");
    hosts.ground.script("bin/mkdir", "#!/bin/sh\nexit 1\n");
    let (code, _, stderr) = run(&hosts, &["ls", "--ssh", "Far:"]);
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("no directory was found"), "{stderr}");
    hosts.wait_until_nothing_is_left();
}

#[test]
fn a_firewall_that_lets_no_udp_through_is_named_with_the_port() {
    if !privileged() {
        return;
    }
    let hosts = OverSsh::new("ssh-no-udp");
    hosts.block_udp();
    let (code, stdout, stderr) = run(&hosts, &["ls", "--ssh", "Far:4999:"]);
    assert_eq!(code, 3, "{stdout}{stderr}");
    for word in ["ssh started a server there", "UDP port 4999 cannot be reached", "Open it"] {
        assert!(stderr.contains(word), "{stderr}");
    }
    hosts.wait_until_nothing_is_left();
}
