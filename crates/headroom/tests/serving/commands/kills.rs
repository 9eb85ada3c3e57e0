//! Transfers of which the client or the server is killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Hosts, PATIENCE, hashes};

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
