//! A client whose address changes in the middle of a transfer.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Ground, HEADROOM};
use headroom_testing::{Host, link, privileged};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes of the file, which `RATE` makes four seconds long.
const SIZE: u64 = 24_000_000;
const RATE: &str = "48mbit";

#[test]
fn lanes_continue_when_the_client_gets_another_address() {
    if !privileged() {
        return;
    }
    let [server_host, client_host] = link();
    let ground = Ground::new("roaming");
    fs::create_dir(ground.path("served")).expect("a folder");
    let mut content = vec![0; SIZE as usize];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    let (file, stored) = (ground.path("file"), ground.path("served/file"));
    fs::write(&file, &content).expect("a file");

    let (_server, fingerprint) = serve(&server_host, &ground);
    let mut command = headroom(&ground, "client");
    command.arg("put").arg(&file).args(["192.0.2.1:file", "--rate", RATE, "--json"]);
    command.args(["--fingerprint", &fingerprint]).stdout(Stdio::piped());
    let mut client = client_host.run(move || command.spawn().expect("it starts"));
    wait_for_partial(&ground.path("served"), SIZE / 5, &mut client);
    client_host.ip("addr del 192.0.2.2/24 dev eth0");
    client_host.ip("addr add 192.0.2.3/24 dev eth0");

    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(stored).expect("a file") == content, "another file arrived");
    let events = String::from_utf8(output.stdout).expect("a text");
    let end = events.lines().last().expect("an event");
    let end: serde_json::Value = serde_json::from_str(end).expect("JSON");
    let on_lanes = end["on_lanes"].as_u64().expect("a number");
    // without a source address that is its own, a client sent nothing more on lanes
    assert!(on_lanes > SIZE * 3 / 5, "{end}");
}

/// Is killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(host: &Host, ground: &Ground) -> (Server, String) {
    let shown = headroom(ground, "client").args(["identity", "show"]).output().expect("it starts");
    let key = String::from_utf8(shown.stdout).expect("a text");
    let key = key.lines().next().expect("the key").to_owned();
    let keys = ground.write("authorized_keys", &format!("{key}\n"));
    let mut command = headroom(ground, "server");
    command.arg("serve").arg("--root").arg(ground.path("served"));
    command.arg("--authorized-keys").arg(keys);
    command.args(["--json", "--listen", "192.0.2.1:4860"]).stdout(Stdio::piped());
    let mut server = host.run(move || command.spawn().expect("it starts"));
    let mut line = String::new();
    let stdout = server.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it listens");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    (Server(server), line["fingerprint"].as_str().expect("its fingerprint").to_owned())
}

fn headroom(ground: &Ground, home: &str) -> Command {
    let mut command = ground.command(Path::new(HEADROOM));
    command.env("HOME", ground.path(home)).env_remove("XDG_CONFIG_HOME");
    command
}

/// Waits until this many bytes of the partial file in a folder are on the disk.
fn wait_for_partial(folder: &Path, enough: u64, client: &mut Child) {
    use std::os::unix::fs::MetadataExt;
    let start = Instant::now();
    loop {
        let bytes: u64 = fs::read_dir(folder)
            .expect("a folder")
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(".headroom-part"))
            .filter_map(|entry| entry.metadata().ok())
            .map(|meta| meta.blocks() * 512)
            .sum();
        if bytes >= enough {
            return;
        }
        assert!(client.try_wait().expect("it is ours").is_none(), "it ended before");
        assert!(start.elapsed() < PATIENCE, "nothing more arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
}
