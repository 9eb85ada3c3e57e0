//! Checks whether a tunnel can work on this host: `headroom tunnel check`.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use headroom_ipsec::spec::{Action, Addresses, Direction, Mode, Padding, PolicySpec, SaSpec};
use headroom_ipsec::{Bundle, Engine, Policy};
use headroom_netio::route;

use super::chains::{self, Dropping, Hook};
use super::client::Client;
use super::error::Error;
use super::run_folder::RunFolder;
use super::status::Status;
use crate::config::{Config, Purpose, Source};
use crate::datapath::DEFAULT_MARK;
use crate::datapath::paths::IPV6_MIN_MTU;
use crate::{host, ledger};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No problem.
    Ok,
    /// It cannot be checked from here.
    Unknown,
    /// A possible problem.
    Warning,
    /// The tunnel cannot work.
    Failure,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// What was checked, in a word or two.
    pub topic: &'static str,
    /// What was found, and the remedy.
    pub message: String,
}

/// Checks a configuration and this host. Changes nothing.
///
/// # Errors
/// The configuration is refused.
pub fn check(file: &Path, run: &RunFolder) -> Result<Vec<Finding>, Error> {
    let source = Source::read(file)?;
    let config = source.parse(Purpose::Tunnel)?;
    let given = source.parse(Purpose::Tunnel)?;
    let specs = given.associations.into_iter().map(|association| association.spec).collect();
    let engine = Engine::new(specs, given.policies, None, Duration::ZERO)
        .map_err(|cause| Error::Engine { origin: file.to_owned(), cause })?;
    let running = Client::of(run, Some(&config.name)).ok().and_then(|client| client.status().ok());
    let mut findings = Findings::default();
    findings.configuration(file, &config);
    let status = running.filter(|status| findings.running(file, &config, status));
    findings.programs();
    findings.interface(&config);
    findings.owners(file, &config);
    findings.addresses(&config);
    findings.ports(&config, status.as_ref());
    findings.ledger(&config);
    findings.paths(&config, &engine);
    findings.forwarding(&config, &engine);
    findings.firewall(&config);
    findings.peers(&config, status.as_ref());
    Ok(findings.0)
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, topic: &'static str, message: impl Into<String>) {
        self.0.push(Finding { severity, topic, message: message.into() });
    }

    fn configuration(&mut self, file: &Path, config: &Config) {
        let (sas, policies) = (config.key_ids().len(), config.policies.len());
        let ike = match config.ike.len() {
            0 => String::new(),
            peers => format!("peers of IKE: {peers}, "),
        };
        let words = format!("{} ({ike}SAs: {sas}, policies: {policies})", file.display());
        self.add(Severity::Ok, "configuration", words);
        for warning in &config.warnings {
            self.add(Severity::Warning, "configuration", warning);
        }
    }

    /// Checks the gateway that runs under this name. Returns false if it has another configuration.
    fn running(&mut self, file: &Path, config: &Config, status: &Status) -> bool {
        let (name, shown, pid) = (&config.name, status.config.display(), status.pid);
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if whole(file) != whole(&status.config) {
            let words = format!(
                "another tunnel `{name}` is up, with {shown} (process {pid}): take it down (`headroom tunnel down \
                 {name}`), or give this one another `name`"
            );
            self.add(Severity::Failure, "gateway", words);
            return false;
        }
        let fixed = config.associations.iter().filter(|association| !association.negotiated);
        let written: BTreeSet<_> = fixed
            .map(|association| &association.spec)
            .map(|spec| {
                (spec.name.as_str(), spec.direction.to_string(), spec.spi, spec.destination)
            })
            .collect();
        let loaded: BTreeSet<_> = status
            .associations
            .iter()
            .filter(|one| !one.is_negotiated())
            .map(|one| (one.name.as_str(), one.direction.clone(), one.spi, one.destination))
            .collect();
        if written == loaded {
            self.add(Severity::Ok, "gateway", format!("running with this file (process {pid})"));
        } else {
            let words = format!(
                "running (process {pid}) with other SAs than this file: `headroom tunnel reload {name}`"
            );
            self.add(Severity::Warning, "gateway", words);
        }
        true
    }

    fn programs(&mut self) {
        for (program, line) in [("ip", "ip -V"), ("nft", "nft --version")] {
            match host::Command::words(line).output() {
                Ok(version) => {
                    let version = version.lines().next().unwrap_or("").trim();
                    self.add(Severity::Ok, "programs", format!("{program}: {version}"));
                }
                Err(error) => self.add(Severity::Failure, "programs", error.to_string()),
            }
        }
        if !Path::new("/dev/net/tun").exists() {
            let words = "/dev/net/tun is missing: `modprobe tun`, or pass it to the container";
            self.add(Severity::Failure, "programs", words);
        }
    }

    fn interface(&mut self, config: &Config) {
        if let Some(words) = host::name_conflict(&config.name) {
            self.add(Severity::Failure, "interface", words);
        }
        let v6 = |addresses: &Addresses| match addresses {
            Addresses::Any => Path::new("/proc/net/if_inet6").exists(),
            Addresses::Range(first, _) => first.is_ipv6(),
        };
        let captured =
            |policy: &PolicySpec| policy.action != Action::Bypass && v6(&policy.selector.remote);
        let own = config.addresses.iter().any(|(address, _)| address.is_ipv6());
        let disabled = std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
        if (own || config.policies.iter().any(captured))
            && disabled.is_ok_and(|value| value.trim() == "1")
        {
            let words = "IPv6 passes the tunnel, but is disabled on new interfaces: `sysctl -w \
                         net.ipv6.conf.default.disable_ipv6=0`, or name IPv4 networks only";
            self.add(Severity::Failure, "interface", words);
        }
    }

    /// Checks whether the gateway can use the files without root's override of permissions.
    fn owners(&mut self, file: &Path, config: &Config) {
        const READ: u32 = 0o4;
        const WRITE: u32 = 0o2;
        let ledger = config.ledger.ledger.as_path();
        let used = [(file, READ), (ledger, READ | WRITE)];
        let folder = ledger.parent().map(|folder| (folder, WRITE));
        let keys = config.key_files.iter().map(|path| (path.as_path(), READ));
        for (path, needed) in used.into_iter().chain(folder).chain(keys) {
            let Ok(about) = path.metadata() else { continue };
            let granted = match (about.uid(), about.gid()) {
                (0, _) => about.mode() >> 6,
                (_, 0) => about.mode() >> 3,
                _ => about.mode(),
            };
            if granted & needed != needed {
                let words = format!(
                    "{} belongs to another user (uid {}), and the gateway gives up root's override of permissions: \
                     `chown root` it, or put the files into /etc/headroom",
                    path.display(),
                    about.uid()
                );
                self.add(Severity::Failure, "files", words);
            }
        }
    }

    fn addresses(&mut self, config: &Config) {
        for address in own_addresses(config) {
            if host::is_local(address) {
                self.add(Severity::Ok, "own address", format!("this host has {address}"));
            } else {
                let words = format!(
                    "this host does not have {address}: correct `source` of \"out\" and `destination` of \"in\", or \
                     add it (`ip addr add`). A floating address may be on another host now"
                );
                self.add(Severity::Warning, "own address", words);
            }
        }
    }

    fn ports(&mut self, config: &Config, status: Option<&Status>) {
        let specs = specs(config).filter(|spec| spec.direction == Direction::In);
        let esp = specs.filter_map(|spec| Some((spec.destination, spec.udp?.destination)));
        let ike = config.ike.iter().map(|peer| (peer.local.ip(), peer.local.port()));
        for (address, port) in esp.chain(ike).collect::<BTreeSet<_>>() {
            match (UdpSocket::bind((address, port)), status) {
                (Err(error), Some(status)) if error.kind() == ErrorKind::AddrInUse => {
                    let words = format!("{port} is in use by the gateway (process {})", status.pid);
                    self.add(Severity::Ok, "UDP port", words);
                }
                (Err(error), None) if error.kind() == ErrorKind::AddrInUse => {
                    let words = format!(
                        "{port} is in use by another program, such as an IKE daemon: stop it (`ss -ulnp 'sport = :{port}'` \
                         names it), or use another port at both ends"
                    );
                    self.add(Severity::Failure, "UDP port", words);
                }
                // a missing address has its own line
                (Err(error), _) if error.kind() == ErrorKind::AddrNotAvailable => {}
                (Err(error), _) => {
                    self.add(
                        Severity::Failure,
                        "UDP port",
                        format!("{port} cannot be used: {error}"),
                    );
                }
                (Ok(_), _) => self.add(Severity::Ok, "UDP port", format!("{port} is free")),
            }
        }
    }

    fn ledger(&mut self, config: &Config) {
        let shown = config.ledger.ledger.display();
        if !config.ike.is_empty() && config.key_ids().is_empty() {
            return self.add(
                Severity::Ok,
                "ledger",
                "not needed: keys that IKE negotiates are fresh",
            );
        }
        match ledger::Ledger::check(&config.ledger, &config.key_ids()) {
            Ok(()) => self.add(Severity::Ok, "ledger", format!("{shown} contains the keys")),
            Err(error) => self.add(Severity::Failure, "ledger", error.to_string()),
        }
    }

    fn paths(&mut self, config: &Config, engine: &Engine) {
        let path_mtu = |peer: IpAddr| match config.path_mtu {
            Some(mtu) => Ok(mtu as usize),
            None if peer.is_unspecified() => Ok(host::USUAL_PATH_MTU),
            None => route::path_mtu(peer, Some(DEFAULT_MARK)),
        };
        let bundles = || engine.policies().iter().flat_map(Policy::bundles);
        let peers: BTreeSet<IpAddr> = bundles().map(Bundle::destination).collect();
        for peer in peers {
            let mtu = match path_mtu(peer) {
                Ok(mtu) => mtu,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    let words = format!("the route to {peer} cannot be queried without root");
                    self.add(Severity::Unknown, "path", words);
                    continue;
                }
                Err(error) => {
                    let words =
                        format!("there is no route to {peer} ({error}): see `ip route get {peer}`");
                    self.add(Severity::Failure, "path", words);
                    continue;
                }
            };
            let known = match config.path_mtu {
                Some(_) => "by `path_mtu`",
                None if peer.is_unspecified() => {
                    "assumed for peers with any address; senders are told where it is less"
                }
                None => {
                    "as far as this host knows; a narrower link further on shows only when packets pass"
                }
            };
            self.add(Severity::Ok, "path", format!("{peer}: {mtu} bytes, {known}"));
            let tunnels = bundles()
                .filter(|bundle| bundle.destination() == peer && bundle.mode() == Mode::Tunnel);
            let Some(passes) = tunnels.map(|bundle| bundle.inner_mtu(mtu, 0)).min() else {
                continue;
            };
            self.mtu(config, peer, passes);
        }
        for spec in specs(config).filter(|spec| spec.padding != Padding::None) {
            let words = match spec.padding {
                Padding::Multiple(of) => {
                    format!("`{}` pads to multiples of {of} bytes", spec.name)
                }
                _ => format!("`{}` pads to the path MTU", spec.name),
            };
            self.add(Severity::Ok, "padding", format!("{words}, never beyond the path MTU"));
        }
    }

    /// Checks the MTU; `passes` is the longest packet through the tunnel without fragments.
    fn mtu(&mut self, config: &Config, peer: IpAddr, passes: usize) {
        match config.mtu {
            Some(mtu) if mtu as usize > passes => {
                let words = format!(
                    "`mtu` is {mtu}, but only {passes} bytes fit one packet to {peer}: longer packets are fragmented or \
                     answered \"too big\". Remove `mtu`, or set it to {passes}"
                );
                self.add(Severity::Warning, "mtu", words);
            }
            Some(mtu) => {
                self.add(
                    Severity::Ok,
                    "mtu",
                    format!("`mtu` is {mtu}, and {passes} bytes fit one packet to {peer}"),
                );
            }
            None => {
                self.add(Severity::Ok, "mtu", format!("{passes} bytes fit one packet to {peer}"));
            }
        }
        if passes < IPV6_MIN_MTU {
            let words = format!(
                "IPv6 needs {IPV6_MIN_MTU} bytes, but only {passes} fit one packet to {peer}: IPv6 leaves in outer fragments"
            );
            self.add(Severity::Warning, "mtu", words);
        }
        if !config.clamp_mss {
            let words =
                "`clamp_mss = false`: TCP depends on \"too big\" messages that reach the hosts";
            self.add(Severity::Warning, "mtu", words);
        }
    }

    fn forwarding(&mut self, config: &Config, engine: &Engine) {
        let mut bundles = engine.policies().iter().flat_map(Policy::bundles);
        if !bundles.any(|bundle| bundle.mode() == Mode::Tunnel) {
            return;
        }
        let inside = |v6: bool| {
            let of = |policy: &headroom_ipsec::PolicySpec| match policy.selector.local {
                headroom_ipsec::spec::Addresses::Range(first, last) => {
                    first != last && first.is_ipv6() == v6
                }
                headroom_ipsec::spec::Addresses::Any => !v6,
            };
            config.policies.iter().any(of)
        };
        for (v6, name) in [(false, "net/ipv4/ip_forward"), (true, "net/ipv6/conf/all/forwarding")] {
            let value = std::fs::read_to_string(Path::new("/proc/sys").join(name));
            if inside(v6) && value.is_ok_and(|value| value.trim() == "0") {
                let key = name.replace('/', ".");
                let words = format!(
                    "this host does not forward packets, so networks behind it cannot use the tunnel: `sysctl -w {key}=1`"
                );
                self.add(Severity::Warning, "forwarding", words);
            }
        }
    }

    fn firewall(&mut self, config: &Config) {
        let rules = match host::Command::words("nft list ruleset").output() {
            Ok(rules) => rules,
            Err(error) => {
                let words = format!("other tables cannot be read without root: {error}");
                return self.add(Severity::Unknown, "firewall", words);
            }
        };
        let outer = |chain: &Dropping| {
            chain.hook != Hook::Forward
                && specs(config).any(|spec| chain.sees(spec.source.is_ipv6()))
        };
        let inner = |chain: &Dropping| {
            let seen = |policy: &PolicySpec| match policy.selector.remote {
                Addresses::Any => true,
                Addresses::Range(first, _) => chain.sees(first.is_ipv6()),
            };
            chain.hook == Hook::Forward
                && specs(config).any(|spec| spec.mode == Mode::Tunnel)
                && config.policies.iter().any(seen)
        };
        let chains = chains::dropping(&rules);
        let named = |which: &dyn Fn(&Dropping) -> bool| {
            let found = chains.iter().filter(|chain| which(chain));
            found.map(|chain| chain.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (dropping, forwarding) = (named(&outer), named(&inner));
        if !forwarding.is_empty() {
            let name = &config.name;
            let words = format!(
                "{forwarding} drops packets by default, and this check does not read its rules: networks behind this \
                 host need `iifname {name} accept; oifname {name} accept`"
            );
            self.add(Severity::Warning, "firewall", words);
        }
        if dropping.is_empty() {
            if forwarding.is_empty() {
                let words = "no nftables chain drops packets by default; this check does not read single rules";
                self.add(Severity::Ok, "firewall", words);
            }
            return;
        }
        let opens: BTreeSet<String> = specs(config)
            .filter(|spec| spec.direction == Direction::In)
            .map(|spec| {
                let family = if spec.source.is_ipv4() { "ip" } else { "ip6" };
                match spec.udp {
                    Some(ports) => format!("udp dport {} accept", ports.destination),
                    None => format!(
                        "{family} saddr {} meta l4proto {} accept",
                        spec.source,
                        spec.protection.protocol().number()
                    ),
                }
            })
            .collect();
        let opens = opens.into_iter().collect::<Vec<_>>().join("; ");
        let words = format!(
            "{dropping} drops packets by default, and this check does not read its rules: it needs `{opens}`"
        );
        self.add(Severity::Warning, "firewall", words);
    }

    fn peers(&mut self, config: &Config, status: Option<&Status>) {
        let Some(status) = status else {
            for (own, peer) in udp_peers(config) {
                self.probe_port(own, peer);
            }
            let words = "whether the peer has the same keys shows only when both ends are up: `headroom tunnel status`";
            return self.add(Severity::Unknown, "peer", words);
        };
        for one in status.associations.iter().filter(|one| one.direction == "in") {
            let (name, packets) = (&one.name, one.packets);
            if packets > 0 {
                let words = format!("`{name}`: {packets} packets of the peer were authenticated");
                self.add(Severity::Ok, "peer", words);
            } else {
                let failures: Vec<String> =
                    one.failures.iter().map(|(why, times)| format!("{times} {why}")).collect();
                let failed = match failures.is_empty() {
                    true => {
                        "and none has failed: the peer sends nothing, or a firewall on the path drops it"
                            .into()
                    }
                    false => format!("and these have failed: {}", failures.join(", ")),
                };
                let words =
                    format!("`{name}`: no packet of the peer was authenticated yet, {failed}");
                self.add(Severity::Warning, "peer", words);
            }
        }
    }

    /// Sends a keepalive (RFC 3948, section 2.3), which a peer does not answer, to find out whether
    /// its host reports a closed port.
    fn probe_port(&mut self, own: IpAddr, peer: SocketAddr) {
        const TIMEOUT: Duration = Duration::from_millis(700);
        let answer = UdpSocket::bind((own, 0)).and_then(|socket| {
            socket.set_read_timeout(Some(TIMEOUT))?;
            socket.connect(peer)?;
            socket.send(&[0xff])?;
            headroom_netio::retried(|| socket.recv(&mut [0; 16]))
        });
        let Err(error) = answer else { return };
        let words = match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "{peer} is closed: bring the tunnel up at the other end, or correct the port"
            ),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let words = format!("{peer} did not report a closed port: it is open or filtered");
                return self.add(Severity::Unknown, "peer", words);
            }
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                format!("{peer} cannot be reached: {error}")
            }
            // a missing address has its own line
            _ => return,
        };
        self.add(Severity::Warning, "peer", words);
    }
}

fn specs(config: &Config) -> impl Iterator<Item = &SaSpec> {
    config.associations.iter().map(|association| &association.spec)
}

fn own_addresses(config: &Config) -> BTreeSet<IpAddr> {
    let own = |spec: &SaSpec| match spec.direction {
        Direction::Out => spec.source,
        Direction::In => spec.destination,
    };
    specs(config).map(own).collect()
}

/// Returns own address, and address and port of the peer, of each ESP in UDP.
fn udp_peers(config: &Config) -> BTreeSet<(IpAddr, SocketAddr)> {
    let out = specs(config).filter(|spec| spec.direction == Direction::Out);
    let known = out.filter(|spec| !spec.destination.is_unspecified());
    known
        .filter_map(|spec| {
            Some((spec.source, SocketAddr::new(spec.destination, spec.udp?.destination)))
        })
        .collect()
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Ok => "ok",
            Severity::Unknown => "not known",
            Severity::Warning => "warning",
            Severity::Failure => "FAILURE",
        };
        write!(f, "{severity:<9}  {:<13}  {}", self.topic, self.message)
    }
}
