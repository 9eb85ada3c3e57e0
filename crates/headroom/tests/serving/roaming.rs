//! Transfers over a network that changes or fails in the middle: another address of the
//! client, an outage, a server or a link that stands still. Judged by events and bytes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{Ground, HEADROOM, first_line, part};
use headroom_testing::{Host, link, privileged};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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

/// Bytes that a transfer moves over the emulated link: seven seconds.
const LONG: u64 = 2 * SIZE;
const LINK: &str = "56mbit,delay=10ms,loss=0.3%";

/// A client and a server with the emulator between them.
struct Network {
    // ends before its interfaces do
    emulator: Process,
    client: Host,
    server: Host,
    _router: Host,
    ground: Ground,
}

impl Network {
    fn new(name: &str) -> Self {
        let [router, client] = link();
        let server = router.neighbour("eth1");
        router.ip("addr flush dev eth0");
        router.ip("link set eth1 up");
        server.ip("addr add 192.0.2.1/24 dev eth0");
        server.ip("link set eth0 up");
        let ground = Ground::new(name);
        fs::create_dir(ground.path("served")).expect("a folder");
        let mut command = headroom(&ground, "router");
        command.args(["link", "--a", "eth0", "--b", "eth1", "--spec", LINK, "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut emulator = router.run(move || command.spawn().expect("it starts"));
        let ready = first_line(&mut emulator);
        assert_eq!(ready["ready"], true, "{ready}");
        let emulator = Process(emulator);
        Self { emulator, client, server, _router: router, ground }
    }
}

/// What happens to a network in the middle of a transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Disturbance {
    /// The server's host drops all packets, in and out.
    Outage,
    /// The server stands still.
    Server,
    /// The link does.
    Link,
}

impl Disturbance {
    fn begin(self, network: &Network, server: &Process) {
        match self {
            Self::Outage => nft(
                &network.server,
                "table inet outage {
                 chain in { type filter hook input priority 0; iifname eth0 drop; }
                 chain out { type filter hook output priority 0; oifname eth0 drop; }
                 }",
            ),
            Self::Server => server.signal(Signal::SIGSTOP),
            Self::Link => network.emulator.signal(Signal::SIGSTOP),
        }
    }

    fn end(self, network: &Network, server: &Process) {
        match self {
            Self::Outage => nft(&network.server, "delete table inet outage"),
            Self::Server => server.signal(Signal::SIGCONT),
            Self::Link => network.emulator.signal(Signal::SIGCONT),
        }
    }
}

#[test]
fn lanes_return_after_an_outage() {
    lanes_return_after(Disturbance::Outage);
}

#[test]
fn lanes_return_after_a_server_stood_still() {
    lanes_return_after(Disturbance::Server);
}

#[test]
fn lanes_return_after_a_link_stood_still() {
    lanes_return_after(Disturbance::Link);
}

/// Disturbs a `put` and a `get` until the client reports that lanes are silent.
fn lanes_return_after(disturbance: Disturbance) {
    if !privileged() {
        return;
    }
    let network = Network::new("outage");
    let ground = &network.ground;
    let mut content = vec![0; LONG as usize];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    let (file, back) = (ground.path("file"), ground.path("back"));
    fs::write(&file, &content).expect("a file");
    fs::create_dir(&back).expect("a folder");
    let (server, fingerprint) = serve(&network.server, ground);
    let file = file.display().to_string();
    for (way, from, to, stored) in [
        ("put", file.as_str(), "192.0.2.1:there", ground.path("served/there")),
        ("get", "192.0.2.1:there", "back/again", ground.path("back/again")),
    ] {
        let mut command = headroom(ground, "client");
        command.args([way, from, to, "--json", "--fingerprint", &fingerprint]);
        command.stdout(Stdio::piped());
        let client = network.client.run(move || command.spawn().expect("it starts"));
        let mut client = Process(client);
        let events = events(&mut client.0);
        wait_for_partial(stored.parent().expect("a folder"), LONG / 5, &mut client.0);
        disturbance.begin(&network, &server);
        let mut told = Vec::new();
        until("lanes_silent", &events, &mut told);
        disturbance.end(&network, &server);
        until("end", &events, &mut told);
        let what = format!("{disturbance:?}, {way}: {told:?}");
        assert!(client.0.wait().expect("it ends").success(), "{what}");
        assert!(fs::read(stored).expect("a file") == content, "another file arrived: {what}");
        let of = |event: &serde_json::Value| event["event"].as_str().map(str::to_owned);
        let names: Vec<String> = told.iter().filter_map(of).collect();
        let at = |name: &str| names.iter().position(|known| known == name);
        assert!(at("lanes_silent") < at("lanes_back"), "{what}");
        let end = told.last().expect("an event");
        assert_eq!(end["stored"], 1, "{what}");
        // a fifth was there before; streams carry what is moved meanwhile
        assert!(end["on_lanes"].as_u64().is_some_and(|bytes| bytes > LONG / 2), "{what}");
    }
}

/// The events of a client, as it reports them.
fn events(client: &mut Child) -> Receiver<serde_json::Value> {
    let (events, incoming) = channel();
    let stdout = client.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if events.send(serde_json::from_str(&line).expect("JSON")).is_err() {
                return;
            }
        }
    });
    incoming
}

/// Waits for an event, and keeps all that come before it.
fn until(name: &str, events: &Receiver<serde_json::Value>, told: &mut Vec<serde_json::Value>) {
    while told.last().is_none_or(|event| event["event"] != name) {
        let event = events.recv_timeout(PATIENCE);
        told.push(event.unwrap_or_else(|why| panic!("no {name} ({why}) after {told:?}")));
    }
}

fn nft(host: &Host, rules: &'static str) {
    let run = move || part("nft").arg(rules).output().expect("nft");
    let output = host.run(run);
    assert!(output.status.success(), "{output:?}");
}

/// Is killed when dropped.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("it runs");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(host: &Host, ground: &Ground) -> (Process, String) {
    let shown = headroom(ground, "client").args(["identity", "show"]).output().expect("it starts");
    let key = String::from_utf8(shown.stdout).expect("a text");
    let key = key.lines().next().expect("the key").to_owned();
    let keys = ground.write("authorized_keys", &format!("{key}\n"));
    let mut command = headroom(ground, "server");
    command.arg("serve").arg("--root").arg(ground.path("served"));
    command.arg("--authorized-keys").arg(keys);
    command.args(["--json", "--listen", "192.0.2.1:4860"]).stdout(Stdio::piped());
    let mut server = host.run(move || command.spawn().expect("it starts"));
    let line = first_line(&mut server);
    (Process(server), line["fingerprint"].as_str().expect("its fingerprint").to_owned())
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
