//! What a server may do with its files, and what a transfer keeps of them beside their content.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use headroom_testing::{privileged, write_executable};

use super::{Hosts, hashes};
use crate::common::HEADROOM;

impl Hosts {
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
