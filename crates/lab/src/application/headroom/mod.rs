//! Headroom's own transfer: this very program both sides (`headroom serve`, `put`,
//! `get`), as processes like all others.

mod browser;
mod options;

use std::path::PathBuf;
use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::{Ready, ServerSpec};
use headroom_lab_host::programs::Program;
use headroom_lab_trace::CopyEvent;

use super::browser::{CHROMIUM, OPTION};
use super::{Application, ClientReport, Invocation, Site};
use crate::catalogue::{Entry, Fact, Make, stated, titled};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};
use browser::InBrowser;
use options::TransferOptions;

const NAME: &str = "headroom";

struct Headroom {
    options: TransferOptions,
}

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: NAME,
    about: "headroom serve, put and get: this program both sides",
    programs: &[CHROMIUM],
    make: Make::Configured {
        known: || options::KNOWN.to_owned(),
        read: |options| {
            if options.iter().eq([OPTION]) {
                return Ok((vec![OPTION.to_owned()], Arc::new(InBrowser)));
            }
            let options = TransferOptions::read(options)?;
            Ok((options.written(), Arc::new(Headroom { options })))
        },
    },
};

/// The first UDP port for lanes, on one machine: no application there has these.
const LANE_PORTS: u16 = 12_000;

impl Headroom {
    /// Ports for lanes: those that were opened on a real host, which may have a firewall.
    fn lane_ports(&self, site: &Site<'_>) -> Result<Option<String>> {
        let Some(count) = self.options.lane_ports else { return Ok(None) };
        let first = match &site.passive_ports {
            None => LANE_PORTS,
            Some(open) if open.len() >= usize::from(count) => *open.start(),
            Some(open) => {
                return Err(Error::Plan(format!(
                    "`{}`: between two real machines a stack has only {} ports",
                    titled(NAME, &self.options.written()),
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
/// The server's fingerprint for the client.
const FINGERPRINT: &str = "server-fingerprint";

impl Application for Headroom {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { post_quantum: true, over_udp: true, verified: true, ..Properties::SSH })
    }

    fn needs(&self, _: &'static [Program]) -> &'static [Program] {
        &[]
    }

    fn own_command(&self) -> Option<&'static str> {
        Some("serve")
    }

    fn secured(&self) -> bool {
        self.options.encrypts()
    }

    fn obfuscates(&self) -> bool {
        self.options.obfuscates()
    }

    fn baselines(&self) -> Vec<String> {
        self.options.baselines()
    }

    fn port(&self) -> u16 {
        4860
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files()
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    /// On lanes: what is on QUIC streams follows the controller of the library.
    fn keeps_rate(&self) -> bool {
        !self.options.streams && self.options.compress.is_none()
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
        if self.options.needs_permission() {
            command.args(["--insecure-measurement"]);
        }
        Ok(ServerSpec { ready: Ready::Line("listening"), ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let key = clients_key(site)?;
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
                return Err(Error::Plan("headroom only moves files".into()));
            }
        };
        let headroom = site.host.headroom.display().to_string();
        let mut argv = vec![headroom, what.to_owned(), "--json".to_owned()];
        let TransferOptions { streams, cipher, chunk, compress, verify_fast, .. } = self.options;
        argv.extend(streams.then(|| "--streams".to_owned()));
        if let Some(what) = compress {
            argv.extend(["--compress".to_owned(), what.to_owned()]);
        }
        if let Some(cipher) = cipher {
            argv.extend(["--cipher".to_owned(), cipher.name.to_owned()]);
        }
        if let Some(bytes) = chunk {
            argv.extend(["--chunk".to_owned(), bytes.to_string()]);
        }
        if verify_fast {
            argv.extend(["--verify".to_owned(), "fast".to_owned()]);
        }
        argv.extend(self.options.needs_permission().then(|| "--insecure-measurement".to_owned()));
        argv.extend(["--identity".to_owned(), key.display().to_string()]);
        argv.extend(["--fingerprint".to_owned(), fingerprint, from, to]);
        let settings = site.path("settings").display().to_string();
        let environment = [("XDG_CONFIG_HOME".to_owned(), settings)].into();
        Ok(Invocation { environment, ..Invocation::new(argv.into()) })
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        let (said, gave_up) = report(&outcome.stdout);
        let error = (gave_up && self.options.needs_lanes()).then(|| {
            let title = titled(NAME, &self.options.written());
            format!("no lane opened, and `{title}` measures only lanes")
        });
        ClientReport { error, ..said }
    }

    fn facts(&self) -> Vec<Fact> {
        let encryption = match self.options.encrypts() {
            true => "TLS 1.3 in QUIC",
            false => "NONE for large files, TLS 1.3 in QUIC for the rest",
        };
        let own = "AES-128-GCM where both sides have AES instructions";
        let verification = match self.options.verify_fast {
            true => {
                "CRC-64/NVME of the whole file (BLAKE3 up to 64 KiB), by the receiver, before it has its name"
            }
            false => "BLAKE3 of the whole file, by the receiver, before it has its name",
        };
        let mut facts = stated([
            ("encryption", encryption),
            ("cipher", self.options.cipher.map_or(own, |cipher| cipher.about)),
            ("key", "Ed25519, both sides"),
            ("resumption", "off: each connection is a full handshake"),
            ("verification", verification),
        ]);
        facts.push(("carrier", self.options.carrier()));
        facts.extend(self.options.packets().map(|packets| ("packets", packets)));
        if self.options.needs_permission() {
            let name = if self.options.encrypts() { "permission" } else { "INSECURE" };
            let allowed = "for measurement: --insecure-measurement on both sides";
            facts.extend(stated([(name, allowed)]));
        }
        facts
    }
}

/// Returns where the client's key is on its own host: it is made on the server, as all
/// credentials of a run are.
fn clients_key(site: &Site<'_>) -> Result<PathBuf> {
    let key = site.path(CLIENTS_KEY);
    if !site.shares_folders() {
        site.host.write(&key, &site.peer.read(&site.peer_path(CLIENTS_KEY))?)?;
        site.host.run(&Command::new("chmod", ["600", &key.display().to_string()]))?;
    }
    Ok(key)
}

/// The public key of that file, which is made where it is missing, and its fingerprint.
fn identity(site: &Site<'_>, file: &str) -> Result<(String, String)> {
    let headroom = site.host.headroom.display().to_string();
    let path = site.path(file).display().to_string();
    let show = Command::new(headroom, ["identity", "show", "--identity", &path]);
    let printed = site.host.ask(&show, "(the key)\n(the fingerprint)")?;
    let mut lines = printed.lines().map(str::to_owned);
    lines
        .next()
        .zip(lines.next())
        .ok_or_else(|| Error::Failed(format!("`headroom identity` printed no key: {printed}")))
}

/// Reads the client's report, and whether it fell back from lanes.
fn report(stdout: &str) -> (ClientReport, bool) {
    let (mut report, mut gave_up) = (ClientReport::default(), false);
    for line in stdout.lines() {
        match serde_json::from_str(line) {
            Ok(CopyEvent::Connected { time_ns }) => report.hints.request_ns = Some(time_ns),
            Ok(CopyEvent::End { time_ns, seconds }) => {
                report.hints.done_ns = Some(time_ns);
                report.seconds = Some(seconds);
            }
            Ok(CopyEvent::LanesSilent) => gave_up = true,
            // the first line kept of a long output may be cut
            Ok(CopyEvent::Other) | Err(_) => {}
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
        assert_eq!(said.hints.request_ns, Some(1_795_309_701_123_456_789));
        assert_eq!(said.hints.done_ns, Some(1_795_309_701_623_456_789));
        assert_eq!((said.seconds, said.error, gave_up), (Some(0.5), None, false));
        assert_eq!(report("").0.hints.done_ns, None);
        assert!(report("{\"event\":\"lanes_silent\"}\n").1);
    }

    #[test]
    fn options_are_written_in_one_order() {
        let read = |options: &str| super::super::ALL.parse(&format!("headroom({options})"));
        let title = |options| read(options).map(|chosen| chosen.title());
        assert_eq!(
            title("lane-ports=256, chunk=1000,cipher=none").as_deref(),
            Ok("headroom(cipher=none,chunk=1000,lane-ports=256)")
        );
        assert_eq!(title("streams").as_deref(), Ok("headroom(streams)"));
        assert_eq!(title("compress=auto").as_deref(), Ok("headroom(compress=auto)"));
        assert_eq!(title("verify=fast,streams").as_deref(), Ok("headroom(streams,verify=fast)"));
        let fast = read("verify=fast,cipher=aes-256-gcm").expect("options").facts();
        assert!(fast.iter().any(|(name, value)| *name == "verification" && value.contains("CRC")));
        let insecure = |options| {
            let application = read(options).expect("options");
            let told = application.facts().iter().any(|(name, _)| *name == "INSECURE");
            (application.secured(), application.obfuscates(), told)
        };
        assert_eq!(insecure("cipher=aes-256-gcm,lane-ports=1"), (true, false, false));
        assert_eq!(
            insecure("chunk=4000"),
            (true, false, false),
            "it encrypts, but needs permission"
        );
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
            "verify=full",
            "verify=fast,cipher=none",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
