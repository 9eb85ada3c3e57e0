//! `headroom browse`, the lab's client in Chromium, at the page of a real server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::browser::{QuietNetwork, browser};
use crate::common::{Ground, HEADROOM};

/// Ends the server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(ground: &Ground) -> Command {
    let mut command = ground.command(HEADROOM);
    command.env("XDG_CONFIG_HOME", ground.path("config"));
    command
}

#[test]
fn a_page_in_chromium_moves_files_for_the_lab_and_leaves_nothing_behind() {
    let Some(chromium) = browser() else { return };
    let ground = Ground::new("browse");
    for folder in ["served", "folder"] {
        fs::create_dir(ground.path(folder)).expect("a folder");
    }
    let mut content = vec![0; 3_000_001];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    fs::write(ground.path("served/file"), &content).expect("a file");
    let key = command(&ground)
        .args(["identity", "show", "--identity"])
        .arg(ground.path("key"))
        .output()
        .expect("it starts");
    let key = String::from_utf8(key.stdout).expect("a text");
    let authorized = ground.write("authorized", key.lines().next().expect("a key"));

    let mut server = command(&ground);
    server
        .args(["serve", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--json", "--root"])
        .arg(ground.path("served"))
        .arg("--authorized-keys")
        .arg(authorized)
        .stdout(Stdio::piped());
    let network = QuietNetwork::new();
    let mut server = Server(network.spawn(server));
    let mut lines = BufReader::new(server.0.stdout.take().expect("its output")).lines();
    let url = lines
        .by_ref()
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str::<Value>(&line).ok())
        .find(|event| event["event"] == "page")
        .expect("the page's address");
    let url = url["url"].as_str().expect("a text").to_owned();

    let browse = |remote: &str, option: &str, local: &str| {
        let mut client = command(&ground);
        client.args(["browse", &url, "--site", "headroom", "--remote", remote, option]);
        client.arg(ground.path(local)).arg("--identity").arg(ground.path("key"));
        client.arg("--chromium").arg(&chromium).arg("--folder").arg(ground.path("folder"));
        client.stdout(Stdio::piped());
        let output = network.spawn(client).wait_with_output().expect("it ends");
        let printed = String::from_utf8(output.stdout).expect("a text");
        let report: Value = serde_json::from_str(&printed).expect("JSON");
        (output.status.success(), report)
    };
    let hash = blake3::hash(&content).to_hex().to_string();
    let (went, report) = browse("file", "--output", "got");
    assert!(went && report["error"].is_null(), "{report}");
    assert!(fs::read(ground.path("got")).expect("a file") == content, "another file arrived");
    assert_eq!(report["hash"], hash, "{report}");
    assert!(report["start_ns"].as_u64() < report["done_ns"].as_u64(), "{report}");

    let (went, report) = browse("put", "--upload", "got");
    assert!(went && report["error"].is_null(), "{report}");
    assert!(fs::read(ground.path("served/put")).expect("a file") == content, "another file came");

    let (went, report) = browse("missing", "--output", "none");
    assert!(!went && !report["error"].is_null(), "{report}");
    assert!(!ground.path("none").exists());
    assert_eq!(fs::read_dir(ground.path("folder")).expect("a folder").count(), 0, "a profile");
}
