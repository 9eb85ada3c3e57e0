//! Headroom's own transfer: this very program both sides (`headroom serve`, `put`,
//! `get`), as processes like all others.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;
use serde::Deserialize;

use super::{ClientReport, Invocation, Service, Site};
use crate::workload::{Kind, Task};

/// The service, and how its bulk data is to travel.
pub(super) struct Headroom {
    name: &'static str,
    about: &'static str,
    how: How,
    /// What it travels on, in words,
    carrier: &'static str,
    /// and in what packets, if that is said.
    packets: Option<&'static str>,
    /// The same without encryption, if this has a cipher.
    bare: Option<&'static str>,
}

/// How bulk data is to travel; as the program chooses, where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct How {
    /// On QUIC streams alone.
    streams: bool,
    cipher: Option<&'static Cipher>,
    /// Octets of files in each packet.
    chunk: Option<u32>,
    /// UDP ports for lanes.
    lane_ports: Option<u16>,
    /// Which files are compressed on their way, by zstd; they go on streams.
    compress: Option<&'static str>,
}

/// A cipher that the program has for lanes.
#[derive(Debug, PartialEq, Eq)]
struct Cipher {
    name: &'static str,
    encrypts: bool,
    about: &'static str,
}

const CIPHERS: [Cipher; 5] = [
    Cipher { name: "aes-128-gcm", encrypts: true, about: "AES-128-GCM" },
    Cipher { name: "aes-256-gcm", encrypts: true, about: "AES-256-GCM" },
    Cipher { name: "chacha20-poly1305", encrypts: true, about: "ChaCha20-Poly1305" },
    Cipher { name: "none", encrypts: false, about: "NONE: CRC32C, and big files in clear" },
    Cipher {
        name: "simplecrypt",
        encrypts: false,
        about: "NONE: SimpleCrypt, the XOR scheme of the study, and CRC32C",
    },
];
/// Octets of files in a packet, from and to.
const CHUNKS: RangeInclusive<u32> = 200..=4000;
/// Ports for lanes: as many as the study had.
const MOST_LANE_PORTS: u16 = 256;
/// The first of them, on one machine: no service there has these.
const LANE_PORTS: u16 = 12_000;
/// What can be compressed: what becomes shorter, or all.
const COMPRESS: [&str; 2] = ["auto", "always"];
/// What words stand in brackets.
const WORDS: &str = "streams; compress=auto or always; or cipher=NAME (aes-128-gcm, aes-256-gcm, chacha20-poly1305; none and \
                                simplecrypt, which do not encrypt), chunk=OCTETS (200 to 4000), lane-ports=COUNT (1 to \
                                256)";

impl How {
    const OWN: Self =
        Self { streams: false, cipher: None, chunk: None, lane_ports: None, compress: None };
    const STREAMS: Self = Self { streams: true, ..Self::OWN };
    const CARRIER: &str = "lanes where they pass, else QUIC streams";

    fn parse(words: &[&str]) -> std::result::Result<Self, String> {
        let mut how = Self::OWN;
        for &word in words {
            let wrong = || format!("`headroom` knows no `{word}`; the words are {WORDS}");
            let again = match word.split_once('=') {
                Some(("cipher", name)) => {
                    let cipher = CIPHERS.iter().find(|cipher| cipher.name == name);
                    how.cipher.replace(cipher.ok_or_else(wrong)?).is_some()
                }
                Some(("chunk", octets)) => {
                    let chunk = octets.parse().ok().filter(|octets| CHUNKS.contains(octets));
                    how.chunk.replace(chunk.ok_or_else(wrong)?).is_some()
                }
                Some(("lane-ports", count)) => {
                    let count =
                        count.parse().ok().filter(|count| (1..=MOST_LANE_PORTS).contains(count));
                    how.lane_ports.replace(count.ok_or_else(wrong)?).is_some()
                }
                Some(("compress", what)) => {
                    let known = COMPRESS.iter().find(|known| **known == what);
                    how.compress.replace(known.ok_or_else(wrong)?).is_some()
                }
                None if word == "streams" => std::mem::replace(&mut how.streams, true),
                _ => return Err(wrong()),
            };
            if again {
                let words = words.join(",");
                return Err(format!("`headroom({words})` says twice what it says once"));
            }
        }
        let of_streams = Self { streams: how.streams, compress: how.compress, ..Self::OWN };
        if (how.streams || how.compress.is_some()) && how != of_streams {
            let words = words.join(",");
            return Err(format!(
                "`headroom({words})`: cipher, chunk and lane-ports are of lanes, and what is compressed goes on streams"
            ));
        }
        Ok(how)
    }

    fn words(&self) -> Vec<String> {
        let streams = self.streams.then(|| "streams".to_owned());
        let cipher = self.cipher.map(|cipher| format!("cipher={}", cipher.name));
        let chunk = self.chunk.map(|octets| format!("chunk={octets}"));
        let ports = self.lane_ports.map(|count| format!("lane-ports={count}"));
        let compress = self.compress.map(|what| format!("compress={what}"));
        [streams, compress, cipher, chunk, ports].into_iter().flatten().collect()
    }

    fn title(&self) -> String {
        format!("headroom({})", self.words().join(","))
    }

    /// What a cipher is compared with: the same without one.
    fn bare(&self) -> Option<Self> {
        let bare = CIPHERS.iter().find(|cipher| cipher.name == "none");
        self.cipher.filter(|_| self.cipher != bare).map(|_| Self { cipher: bare, ..*self })
    }

    fn encrypts(&self) -> bool {
        self.cipher.is_none_or(|cipher| cipher.encrypts)
    }

    /// Whether both sides have to allow it.
    fn is_insecure(&self) -> bool {
        !self.encrypts() || self.chunk.is_some()
    }

    /// What bulk data travels on, in words.
    fn carrier(&self) -> String {
        // what was chosen and is not there is not moved
        let alone = self.cipher.is_some() || self.chunk.is_some();
        let carrier = match (self.compress, self.streams, alone) {
            (Some("auto"), ..) => "QUIC streams; zstd of what becomes shorter",
            (Some(_), ..) => "QUIC streams; zstd of all",
            (None, true, _) => "QUIC streams",
            (None, false, true) => "lanes",
            (None, false, false) => Self::CARRIER,
        };
        let ports = self.lane_ports.map(|count| format!("; lanes at {count} UDP ports in turn"));
        format!("{carrier}{}", ports.unwrap_or_default())
    }

    /// And in what packets.
    fn packets(&self) -> Option<String> {
        let fragments = "in IP fragments where the path takes less";
        let of =
            |octets| format!("of {octets} octets of a file and 47 of the protocol, {fragments}");
        self.chunk.map(of)
    }
}

/// Those that plans asked for by words, for as long as the program runs: results name
/// them, and there are as many as plans have.
static MADE: Mutex<BTreeMap<String, &'static Headroom>> = Mutex::new(BTreeMap::new());

impl Headroom {
    pub(super) const OWN: Self = Self {
        name: "headroom",
        about: "headroom serve, put and get: this program both sides",
        how: How::OWN,
        carrier: How::CARRIER,
        packets: None,
        bare: None,
    };
    pub(super) const STREAMS: Self = Self {
        name: "headroom(streams)",
        about: "the same with all data on QUIC streams",
        how: How::STREAMS,
        carrier: "QUIC streams",
        packets: None,
        bare: None,
    };

    /// The service as these words in brackets want it.
    fn made(words: &[&str]) -> std::result::Result<&'static Self, String> {
        let how = How::parse(words)?;
        if how == How::STREAMS {
            return Ok(&Self::STREAMS);
        }
        let name = how.title();
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = made.get(&name) {
            return Ok(service);
        }
        let leak = |text: String| &*text.leak();
        let service: &'static Self = Box::leak(Box::new(Self {
            name: leak(name.clone()),
            about: "the same with lanes as the words want them",
            how,
            carrier: leak(how.carrier()),
            packets: how.packets().map(leak),
            bare: how.bare().map(|bare| leak(bare.title())),
        }));
        made.insert(name, service);
        Ok(service)
    }

    /// Ports for lanes: those that were opened on a real host, which may have a firewall.
    fn lane_ports(&self, site: &Site<'_>) -> Result<Option<String>> {
        let Some(count) = self.how.lane_ports else { return Ok(None) };
        let first = match &site.passive_ports {
            None => LANE_PORTS,
            Some(open) if open.len() >= usize::from(count) => *open.start(),
            Some(open) => {
                return Err(Error::Plan(format!(
                    "`{}`: between two real machines a stack has {} ports of its own",
                    self.name,
                    open.len()
                )));
            }
        };
        Ok(Some(format!("{first}-{}", first + count - 1)))
    }
}

/// Keys of both sides, made anew for each run.
const SERVERS_KEY: &str = "server-identity";
const CLIENTS_KEY: &str = "client-identity";
/// What the client trusts the server by.
const FINGERPRINT: &str = "server-fingerprint";

impl Service for Headroom {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn words(&self) -> Option<&'static str> {
        (self.how == How::OWN).then_some(WORDS)
    }

    fn with(&self, words: &[&str]) -> std::result::Result<&'static dyn Service, String> {
        Self::made(words).map(|service| service as &dyn Service)
    }

    fn secured(&self) -> bool {
        self.how.encrypts()
    }

    fn scrambles(&self) -> bool {
        self.how.cipher.is_some_and(|cipher| cipher.name == "simplecrypt")
    }

    fn baseline(&self) -> Option<&'static str> {
        Some(if self.how == How::OWN { "http" } else { "headroom" })
    }

    fn baselines(&self) -> Vec<&'static str> {
        self.bare.into_iter().chain(self.baseline()).collect()
    }

    fn programs(&self) -> &'static [Program] {
        &[]
    }

    fn port(&self) -> u16 {
        4860
    }

    fn accepts(&self, kind: Kind) -> bool {
        kind.moves_files()
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let (_, fingerprint) = identity(site, SERVERS_KEY)?;
        site.write(FINGERPRINT, &fingerprint)?;
        let (key, _) = identity(site, CLIENTS_KEY)?;
        let authorized = site.write("authorized_keys", &format!("{key}\n"))?;
        let mut command = Command::new(
            site.host.headroom.display().to_string(),
            [
                "serve",
                "--root",
                &site.files.display().to_string(),
                "--listen",
                &site.server.to_string(),
                "--identity",
                &site.path(SERVERS_KEY).display().to_string(),
                "--authorized-keys",
                &authorized,
                "--json",
            ],
        );
        if let Some(ports) = self.lane_ports(site)? {
            command.args(["--lane-ports", &ports]);
        }
        if self.how.is_insecure() {
            command.args(["--insecure-measurement"]);
        }
        Ok(ServerSpec { ready: Some("listening"), ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let key = site.path(CLIENTS_KEY);
        if !site.shares_folders() {
            // made on the server, as all credentials of a run are
            site.host.write(&key, &site.peer.read(&site.peer_path(CLIENTS_KEY))?)?;
            site.host.run(&Command::new("chmod", ["600", &key.display().to_string()]))?;
        }
        let fingerprint = site.peer.read(&site.peer_path(FINGERPRINT))?.trim().to_owned();
        let remote = |name: &str| format!("{}:{name}", site.server);
        let (what, from, to) = match task {
            Task::Download { remote: from, local } => {
                ("get", remote(from), local.display().to_string())
            }
            Task::Upload { local, remote: to } => ("put", local.display().to_string(), remote(to)),
            Task::DownloadTree { remote: from, local, .. } => {
                ("get", remote(&format!("{from}/.")), local.display().to_string())
            }
            Task::Commands(_) | Task::Stream { .. } | Task::Datagrams { .. } => {
                return Err(Error::Plan("headroom moves files and nothing else".into()));
            }
        };
        let headroom = site.host.headroom.display().to_string();
        let mut argv = vec![headroom, what.to_owned(), "--json".to_owned()];
        let How { streams, cipher, chunk, compress, .. } = self.how;
        argv.extend(streams.then(|| "--streams".to_owned()));
        if let Some(what) = compress {
            argv.extend(["--compress".to_owned(), what.to_owned()]);
        }
        if let Some(cipher) = cipher {
            argv.extend(["--cipher".to_owned(), cipher.name.to_owned()]);
        }
        if let Some(octets) = chunk {
            argv.extend(["--chunk".to_owned(), octets.to_string()]);
        }
        argv.extend(self.how.is_insecure().then(|| "--insecure-measurement".to_owned()));
        argv.extend(["--identity".to_owned(), key.display().to_string()]);
        argv.extend(["--fingerprint".to_owned(), fingerprint, from, to]);
        let settings = site.path("settings").display().to_string();
        let environment = [("XDG_CONFIG_HOME".to_owned(), settings)].into();
        Ok(Invocation { environment, ..Invocation::new(argv.into()) })
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        let (said, gave_up) = report(&outcome.stdout);
        let measures = self.how.cipher.is_some() || self.how.chunk.is_some();
        let error = (gave_up && measures).then(|| {
            format!("nobody answered on lanes, and `{}` is about nothing else", self.name)
        });
        ClientReport { error, ..said }
    }

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        let encryption = match self.how.encrypts() {
            true => "TLS 1.3 in QUIC",
            false => "NONE of big files, TLS 1.3 in QUIC of the rest",
        };
        let own = "AES-128-GCM where both sides have AES instructions";
        let mut facts = vec![
            ("encryption", encryption),
            ("cipher", self.how.cipher.map_or(own, |cipher| cipher.about)),
            ("key", "Ed25519, both sides"),
            ("resumption", "off: each connection is a full handshake"),
            ("verification", "BLAKE3 of the whole file, by the receiver, before it has its name"),
            ("carrier", self.carrier),
        ];
        facts.extend(self.packets.map(|packets| ("packets", packets)));
        if self.how.is_insecure() {
            facts.push(("INSECURE", "for measurement: --insecure-measurement on both sides"));
        }
        facts
    }
}

/// The public key of that file, which is made where it is missing, and its fingerprint.
fn identity(site: &Site<'_>, file: &str) -> Result<(String, String)> {
    let headroom = site.host.headroom.display().to_string();
    let path = site.path(file).display().to_string();
    let printed =
        site.host.run(&Command::new(headroom, ["identity", "show", "--identity", &path]))?;
    if site.host.is_dry() {
        return Ok(("(the key)".to_owned(), "(the fingerprint)".to_owned()));
    }
    let mut lines = printed.lines().map(str::to_owned);
    lines
        .next()
        .zip(lines.next())
        .ok_or_else(|| Error::Failed(format!("`headroom identity` printed no key: {printed}")))
}

/// A line of JSON that `headroom put` and `get` print.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Printed {
    Connected {
        time_ns: u64,
    },
    End {
        time_ns: u64,
        seconds: f64,
    },
    LanesSilent,
    #[serde(other)]
    Other,
}

/// What the client said, and whether it gave lanes up.
fn report(stdout: &str) -> (ClientReport, bool) {
    let (mut report, mut gave_up) = (ClientReport::default(), false);
    for line in stdout.lines() {
        match serde_json::from_str(line) {
            Ok(Printed::Connected { time_ns }) => report.marks.request_ns = Some(time_ns),
            Ok(Printed::End { time_ns, seconds }) => {
                report.marks.done_ns = Some(time_ns);
                report.seconds = Some(seconds);
            }
            Ok(Printed::LanesSilent) => gave_up = true,
            // the first line kept of a long output may be cut
            Ok(Printed::Other) | Err(_) => {}
        }
    }
    (report, gave_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_prints_is_read() {
        let (said, gave_up) = report(
            "ed\":0}\n{\"event\":\"connected\",\"time_ns\":1795309701123456789}\n\
             {\"event\":\"stored\",\"path\":\"f\"}\n\
             {\"event\":\"end\",\"stored\":1,\"failed\":0,\"moved\":7,\"kept\":0,\"seconds\":0.5,\
             \"time_ns\":1795309701623456789}\n",
        );
        assert_eq!(said.marks.request_ns, Some(1_795_309_701_123_456_789));
        assert_eq!(said.marks.done_ns, Some(1_795_309_701_623_456_789));
        assert_eq!((said.seconds, said.error, gave_up), (Some(0.5), None, false));
        assert_eq!(report("").0.marks.done_ns, None);
        assert!(report("{\"event\":\"lanes_silent\"}\n").1);
    }

    #[test]
    fn words_say_how_lanes_are_in_one_order() {
        let made =
            |words: &str| Headroom::made(&words.split(',').map(str::trim).collect::<Vec<_>>());
        let name = |words| made(words).map(|service| service.name);
        assert_eq!(
            name("lane-ports=256, chunk=1000,cipher=none").as_deref(),
            Ok("headroom(cipher=none,chunk=1000,lane-ports=256)")
        );
        assert_eq!(name("streams").as_deref(), Ok("headroom(streams)"));
        assert_eq!(name("compress=auto").as_deref(), Ok("headroom(compress=auto)"));
        let with = |words| made(words).expect("words");
        assert!(std::ptr::eq(with("chunk=300"), with("chunk=300")), "it is made once");
        let insecure = |words| {
            let service = with(words);
            let told = service.facts().iter().any(|(name, _)| *name == "INSECURE");
            (service.secured(), service.scrambles(), told)
        };
        assert_eq!(insecure("cipher=aes-256-gcm,lane-ports=1"), (true, false, false));
        assert_eq!(insecure("chunk=4000"), (true, false, true));
        assert_eq!(insecure("cipher=none"), (false, false, true));
        assert_eq!(insecure("cipher=simplecrypt"), (false, true, true));
        for wrong in [
            "",
            "cipher",
            "cipher=des",
            "chunk=199",
            "chunk=4001",
            "chunk=x",
            "lane-ports=0",
            "lane-ports=257",
            "streams,chunk=300",
            "compress=auto,lane-ports=2",
            "compress=never",
            "chunk=300,chunk=400",
            "fast",
            "streams=1",
        ] {
            assert!(made(wrong).is_err(), "{wrong}");
        }
    }
}
