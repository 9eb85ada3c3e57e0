//! What is for measurement alone, between two hosts: in clear, in fragments, at ports
//! of its own, and loud.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output, Stdio};

use crate::common::{Ground, HEADROOM};
use headroom_testing::{Capture, Host, address, contains, link, privileged};
use serde_json::Value;

/// A server on the second host, which anybody may read, and a client on the first.
struct Hosts {
    ground: Ground,
    hosts: [Host; 2],
    fingerprint: String,
    server: Option<Child>,
}

impl Hosts {
    fn new() -> Self {
        let ground = Ground::new("measuring");
        fs::create_dir(ground.path("served")).expect("a folder");
        Self { ground, hosts: link(), fingerprint: String::new(), server: None }
    }

    fn headroom(&self, host: usize, arguments: &[&str]) -> Child {
        let mut command = self.ground.command(HEADROOM);
        command.args(arguments).env("HOME", self.ground.path(&format!("home-{host}")));
        command.env_remove("XDG_CONFIG_HOME");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.hosts[host].run(move || command.spawn()).expect("it starts")
    }

    /// Starts a server with these words.
    fn serve(&mut self, words: &[&str]) -> Value {
        let root = self.ground.path("served").display().to_string();
        let all = ["serve", "--root", &root, "--anonymous", "read", "--json"];
        let mut server = self.headroom(1, &[&all, words].concat());
        let mut line = String::new();
        let stdout = server.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it listens");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        line["fingerprint"].as_str().expect("it has one").clone_into(&mut self.fingerprint);
        self.server = Some(server);
        line
    }

    /// Ends the server, and gives what it said on standard error.
    fn stop(&mut self) -> String {
        let mut server = self.server.take().expect("it runs");
        server.kill().and_then(|()| server.wait()).expect("it runs");
        let mut said = String::new();
        server.stderr.take().expect("it is piped").read_to_string(&mut said).expect("a text");
        said
    }

    /// Fetches the file with these words.
    fn get(&self, v6: bool, words: &[&str]) -> Output {
        let server = address(1, v6);
        let from = if v6 { format!("[{server}]:big") } else { format!("{server}:big") };
        let to = self.ground.path("got").display().to_string();
        let all = ["get", "--json", "--fingerprint", &self.fingerprint, &from, &to];
        self.headroom(0, &[&all, words].concat()).wait_with_output().expect("it ends")
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

/// The event of this name.
fn event(output: &Output, name: &str) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.find(|event| event["event"] == name).unwrap_or_else(|| panic!("{name}: {output:?}"))
}

#[test]
fn missing_encryption_is_reported_on_both_sides() {
    if !privileged() {
        return;
    }
    let mut hosts = Hosts::new();
    let content: Vec<u8> = b"read by everybody; ".repeat(20_000);
    fs::write(hosts.ground.path("served/big"), &content).expect("a file");
    // a port below those that programs get which ask for none
    let listening = hosts.serve(&["--insecure-measurement", "--lane-ports", "20000-20255"]);
    assert_eq!(listening["insecure_measurement"], true);
    let insecure = "--insecure-measurement";
    for (nth, (v6, cipher)) in
        [(false, "none"), (true, "none"), (false, "simplecrypt"), (true, "aes-256-gcm")]
            .into_iter()
            .enumerate()
    {
        let capture = Capture::start(hosts.hosts.each_ref());
        let got = hosts.get(v6, &[insecure, "--cipher", cipher, "--chunk", "4000"]);
        assert_eq!(got.status.code(), Some(0), "{got:?}");
        let frames = capture.finish();
        assert!(fs::read(hosts.ground.path("got")).expect("it came") == content, "{cipher}");
        fs::remove_file(hosts.ground.path("got")).expect("it came");

        let seen = frames.iter().any(|frame| contains(frame, b"read by everybody"));
        assert_eq!(seen, cipher == "none", "what {cipher} shows on the way");
        let lanes = event(&got, "lanes");
        assert_eq!(lanes["cipher"], cipher);
        assert_eq!(lanes["encrypted"], cipher == "aes-256-gcm");
        assert_eq!((&lanes["chunk"], &lanes["port"]), (&4000.into(), &(20000 + nth).into()));
        let end = event(&got, "end");
        assert_eq!((&end["cipher"], &end["carried"]), (&cipher.into(), &"lanes".into()));
        let told = String::from_utf8_lossy(&got.stderr);
        assert_eq!(told.contains("WITHOUT ENCRYPTION"), cipher != "aes-256-gcm", "{told}");
        assert!(told.contains("4000 bytes"), "{told}");

        // all of the file in fragments of packets of 4047 bytes, none longer than the link
        let fragments: Vec<_> = frames.iter().filter_map(|frame| fragment(frame)).collect();
        assert!(fragments.iter().all(|octets| *octets <= 1514), "{fragments:?}");
        assert!(fragments.iter().sum::<usize>() >= content.len(), "{}", fragments.len());
    }
    let said = hosts.stop();
    assert!(said.contains("INSECURE") && said.contains("--insecure-measurement"), "{said}");
    let warned = |words: &str| said.lines().filter(|line| line.contains(words)).count();
    assert_eq!(warned("NOT ENCRYPTED on lanes (cipher none"), 2, "{said}");
    assert_eq!(warned("NOT ENCRYPTED on lanes (cipher simplecrypt"), 1, "{said}");
    assert_eq!(warned("chunks of 4000 bytes"), 4, "{said}");

    // a server that does not allow it, and a client that does not
    let listening = hosts.serve(&[]);
    assert_eq!(listening["insecure_measurement"], false);
    for (words, code, why) in [
        (&[insecure, "--cipher", "none"][..], 5, "the server refuses: this server was started"),
        (&[insecure, "--chunk", "1000"], 5, "the server refuses: this server was started"),
        (&["--cipher", "simplecrypt"], 2, "encrypts nothing"),
        (&["--chunk", "1000"], 2, "--chunk is for measurement"),
        (&["--cipher", "rot13"], 2, "no cipher `rot13`"),
        (&["--chunk", "100"], 2, "200 to 4000"),
    ] {
        let refused = hosts.get(false, words);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(told.contains(why), "{words:?}: {told}");
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {told}");
        assert!(!hosts.ground.path("got").exists());
    }
    let got = hosts.get(false, &[insecure, "--cipher", "chacha20-poly1305"]);
    assert_eq!((got.status.code(), got.stderr.as_slice()), (Some(0), &b""[..]), "{got:?}");
    assert_eq!(event(&got, "lanes")["cipher"], "chacha20-poly1305");
    let said = hosts.stop();
    let loud = ["INSECURE", "NOT ENCRYPTED"].iter().any(|word| said.contains(word));
    assert!(!loud, "nothing is insecure here: {said}");
    assert_eq!(said.lines().count(), 3, "a line for each request, and nothing else: {said}");
}

/// Bytes of a frame with a part of an IP packet.
fn fragment(frame: &[u8]) -> Option<usize> {
    let is_fragment = match frame.get(12..14)? {
        // more fragments, or an offset
        [0x08, 0x00] => u16::from_be_bytes([frame[20], frame[21]]) & 0x3fff != 0,
        // the header of fragments follows
        [0x86, 0xdd] => frame[20] == 44,
        _ => false,
    };
    is_fragment.then_some(frame.len())
}
