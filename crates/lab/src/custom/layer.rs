//! A layer that a plan defines.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use headroom_lab_host::error::Result;
use headroom_lab_host::host::{Host, Ready};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::Family;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::application::is_default;
use super::command::{CommandLine, Programs, ProgramsFile, Written, require_line};
use super::keep;
use super::surroundings::{self, ReadyFile, Texts, TextsFile};
use super::template::Values;
use crate::at::{At, at, bounded};
use crate::catalogue::{Entry, Fact, Make};
use crate::layer::{Layer, LayerKind, Place};

/// A layer as TOML has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table [layer.NAME] with commands, such as server = [\"program\", \"argument\"]"
)]
pub(crate) struct LayerFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<Spanned<String>>,
    #[serde(default, skip_serializing_if = "is_default")]
    kind: Kind,
    encrypts: bool,
    /// Bytes that a network layer adds to a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<Spanned<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<Spanned<ReadyFile>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_line: Option<Spanned<String>>,
    server: Written,
    client: Written,
    programs: ProgramsFile,
    #[serde(default, skip_serializing_if = "TextsFile::is_empty")]
    environment: TextsFile,
    #[serde(default, skip_serializing_if = "TextsFile::is_empty")]
    server_files: TextsFile,
    #[serde(default, skip_serializing_if = "TextsFile::is_empty")]
    client_files: TextsFile,
    #[serde(default, skip_serializing_if = "TextsFile::is_empty")]
    facts: TextsFile,
}

/// What it carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Stream,
    Network,
}

struct CustomLayer {
    kind: LayerKind,
    encrypts: bool,
    overhead: u32,
    /// None: a network layer is ready when its interface is there.
    ready: Option<Ready>,
    server: End,
    client: End,
    facts: Vec<Fact>,
}

/// One of its ends.
struct End {
    command: CommandLine,
    variables: Texts,
    files: Texts,
}

const HOST: &str = "host";
const URL_HOST: &str = "url-host";
const PORT: &str = "port";
const ADDRESS: &str = "address";
const IP_VERSION: &str = "ip-version";
const TO_HOST: &str = "to-host";
const URL_TO_HOST: &str = "url-to-host";
const TO_PORT: &str = "to-port";
const TO_ADDRESS: &str = "to-address";
const INTERFACE: &str = "interface";
const MTU: &str = "mtu";
const INNER_HOST: &str = "inner-host";
const DIR: &str = "dir";
const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";

/// The placeholders of all layers, and those of one kind.
const OF_ALL: [&str; 11] = [
    HOST,
    URL_HOST,
    PORT,
    ADDRESS,
    IP_VERSION,
    TO_HOST,
    URL_TO_HOST,
    TO_PORT,
    TO_ADDRESS,
    DIR,
    CERTIFICATE,
];
const OF_NETWORK: [&str; 3] = [INTERFACE, MTU, INNER_HOST];

/// The entry of a layer; `definition` is its text.
pub(super) fn entry(
    name: &Spanned<String>,
    file: &LayerFile,
    definition: &str,
) -> std::result::Result<&'static Entry<dyn Layer>, At> {
    if let Some(about) = &file.about {
        require_line(about, "`about`")?;
    }
    let programs = Programs::read(&file.programs, &[&file.server], &[&file.client])?;
    let layer = Arc::new(file.read(name, &programs)?);
    let name = name.get_ref();
    Ok(keep::layer(name, definition, || Entry {
        name: keep::text(name),
        about: file
            .about
            .as_ref()
            .map_or("defined by the plan", |about| keep::text(about.get_ref())),
        programs: programs.kept(),
        make: Make::Defined(Box::leak(Box::new(move || -> Arc<dyn Layer> {
            Arc::clone(&layer) as Arc<dyn Layer>
        }))),
    }))
}

impl LayerFile {
    fn read(
        &self,
        name: &Spanned<String>,
        programs: &Programs,
    ) -> std::result::Result<CustomLayer, At> {
        let end = |command: &Written, files: &TextsFile, key: &[&'static str]| {
            let of_kind: &[&str] = if self.kind == Kind::Network { &OF_NETWORK } else { &[] };
            let known = [&OF_ALL, of_kind, key].concat();
            Ok(End {
                command: programs.command(command, &known)?,
                variables: surroundings::variables(&self.environment, &OF_ALL)?,
                files: surroundings::files(files, &known)?,
            })
        };
        let (kind, overhead) = match (self.kind, &self.overhead) {
            (Kind::Stream, None) => (LayerKind::Stream, 0),
            (Kind::Stream, Some(overhead)) => {
                return Err(at(overhead, "`overhead` is of a layer whose `kind` is \"network\""));
            }
            (Kind::Network, Some(_)) => {
                (LayerKind::Network, bounded("overhead", self.overhead.as_ref(), 0, 1..=1000)?)
            }
            (Kind::Network, None) => {
                let message = format!(
                    "`{}` carries packets: say how many bytes it adds to each at most (`overhead`), its own UDP and \
                     IP headers included",
                    name.get_ref()
                );
                return Err(at(name, message));
            }
        };
        let is_said = self.ready.is_some() || self.ready_line.is_some();
        let ready = surroundings::ready(self.ready.as_ref(), self.ready_line.as_ref(), Ready::Tcp)?;
        Ok(CustomLayer {
            kind,
            encrypts: self.encrypts,
            overhead,
            ready: Some(ready).filter(|_| is_said || kind == LayerKind::Stream),
            server: end(&self.server, &self.server_files, &[KEY])?,
            client: end(&self.client, &self.client_files, &[])?,
            facts: surroundings::facts(&self.facts)?,
        })
    }
}

impl CustomLayer {
    fn end(&self, host: &Host) -> &End {
        match host.role {
            Role::Server => &self.server,
            Role::Client => &self.client,
        }
    }
}

/// Where the end on a host accepts what it carries, and where it sends that.
fn addresses(place: &Place<'_>, host: &Host) -> (SocketAddr, SocketAddr) {
    let at = place.at;
    if at.layer.kind().is_network() {
        let seen = place.seen_from(host);
        return ((seen.outer, at.port()).into(), (seen.far_outer, at.port()).into());
    }
    match host.role {
        Role::Server => (at.server(), at.application),
        Role::Client => (at.client(), at.far_end()),
    }
}

fn values(place: &Place<'_>, host: &Host) -> Values {
    let (own, to) = addresses(place, host);
    let url_host = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let credential = |name: &str| host.root.join("credentials").join(name).display().to_string();
    Values::default()
        .with([
            (HOST, own.ip().to_string()),
            (URL_HOST, url_host(own)),
            (PORT, own.port().to_string()),
            (ADDRESS, own.to_string()),
            (IP_VERSION, if own.is_ipv4() { "4" } else { "6" }.to_owned()),
            (TO_HOST, to.ip().to_string()),
            (URL_TO_HOST, url_host(to)),
            (TO_PORT, to.port().to_string()),
            (TO_ADDRESS, to.to_string()),
            (DIR, place.dir(host).display().to_string()),
            (CERTIFICATE, credential("server.crt")),
            (KEY, credential("server.key")),
        ])
        .with([
            (INTERFACE, place.at.interface.clone()),
            (MTU, place.at.inner.mtu.to_string()),
            (INNER_HOST, place.seen_from(host).inner.to_string()),
        ])
}

impl Layer for CustomLayer {
    fn kind(&self) -> LayerKind {
        self.kind
    }

    fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// A connection through a stream is a set-up; how a tunnel begins anew, only its own
    /// programs know.
    fn negotiates(&self) -> bool {
        self.encrypts && self.kind == LayerKind::Stream
    }

    fn inner_mtu(&self, outer: u32, _family: Family) -> u32 {
        outer.saturating_sub(self.overhead)
    }

    fn interface(&self, number: u16, _nth: u16) -> String {
        format!("own{number}")
    }

    fn start(&self, place: &Place<'_>) -> Result<()> {
        let hosts = [place.server, place.client];
        for host in hosts {
            let (end, values) = (self.end(host), values(place, host));
            for (name, text) in end.files.filled(&values) {
                place.write(host, name, &text)?;
            }
            let command = end.variables.around(&values, end.command.command(&values));
            place.start(host, host.with_groups(command))?;
        }
        for host in hosts {
            let (own, _) = addresses(place, host);
            match self.ready {
                None => {}
                Some(Ready::Tcp) => {
                    place.until(host, "accepting connections", || host.connects(own))?;
                }
                Some(Ready::Udp) => {
                    place.until(host, "a bound UDP port", || host.is_bound_for_udp(own))?;
                }
                Some(Ready::Line(text)) => {
                    let what = format!("a line with `{text}`");
                    place.until(host, &what, || {
                        let log = host.server(&place.at.daemon(), 0)?.log;
                        Ok(log.iter().any(|(_, line)| line.contains(text)))
                    })?;
                }
            }
            if self.kind.is_network() {
                place.until(host, "its interface", || Ok(place.has_interface(host)))?;
                place.configure_interface(host)?;
            }
        }
        Ok(())
    }

    fn establish(&self, place: &Place<'_>) -> Result<()> {
        if self.kind.is_network() {
            return Ok(());
        }
        let (client, through) = (place.client, place.at.client());
        place.until(client, "a connection through it", || client.connects_through(through))
    }

    fn facts(&self) -> Vec<Fact> {
        self.facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use headroom_lab_host::command::Executor;
    use headroom_lab_host::programs::SearchPath;
    use headroom_lab_host::testbed::Ends;

    use super::*;
    use crate::layer::Instance;

    #[test]
    fn every_placeholder_has_a_value() {
        let executor = Arc::new(Executor::dry(SearchPath::from_environment()));
        let address = IpAddr::from(Ipv6Addr::LOCALHOST);
        let host = |role| {
            let (root, headroom) = ("/tmp/root".into(), "/bin/headroom".into());
            Host::new(role, address, root, headroom, String::new(), Arc::clone(&executor), None)
        };
        let (client, server) = (host(Role::Client), host(Role::Server));
        let ends = Ends { client: address, server: address, mtu: 1500, ports: 20_000 };
        for layer in ["tls", "openvpn"] {
            let layer = crate::layer::ALL.parse(layer).expect("a layer");
            let at = Instance::new(&layer, "http/x", 1, 0, ends, 80, "cubic").expect("an instance");
            let place = Place { client: &client, server: &server, at: &at };
            let mut known = [&OF_ALL[..], &OF_NETWORK, &[KEY]].concat();
            known.sort_unstable();
            for host in place.hosts() {
                assert_eq!(values(&place, host).names(), known);
            }
        }
    }
}
