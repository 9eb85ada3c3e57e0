//! An application that a plan defines.

use std::sync::Arc;
use std::time::Duration;

use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::{Ready, ServerSpec};
use headroom_lab_host::role::Role;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::command::{CommandLine, Programs, ProgramsFile, Written, require_line};
use super::keep;
use super::surroundings::{self, ReadyFile, Texts, TextsFile};
use super::template::Values;
use crate::application::{Application, Invocation, Site};
use crate::at::{At, at, bounded};
use crate::catalogue::{Entry, Fact, Make};
use crate::toml_error::DEFINITIONS;
use crate::workload::{Task, WorkloadKind};

/// An application as TOML has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table [application.NAME] with commands, such as server = [\"program\", \"argument\"]"
)]
pub(crate) struct ApplicationFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<Spanned<String>>,
    secured: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    obfuscates: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline: Option<Spanned<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layers: Option<Vec<Spanned<String>>>,
    #[serde(default, skip_serializing_if = "is_default")]
    transport: Transport,
    #[serde(default, skip_serializing_if = "is_default")]
    data_connections: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    close_exchange: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<Spanned<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<Spanned<ReadyFile>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_line: Option<Spanned<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_within: Option<Spanned<u32>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    prepare: Vec<Written>,
    server: Written,
    #[serde(skip_serializing_if = "Option::is_none")]
    download: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    download_tree: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shell: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_file: Option<Written>,
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

/// What carries its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    #[default]
    Tcp,
    Udp,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

struct CustomApplication {
    secured: bool,
    obfuscates: bool,
    baselines: Vec<String>,
    layers: Option<Vec<String>>,
    transport: Transport,
    data_connections: bool,
    close_exchange: bool,
    port: u16,
    ready: Ready,
    patience: Duration,
    prepare: Vec<CommandLine>,
    server: CommandLine,
    clients: Clients,
    server_variables: Texts,
    client_variables: Texts,
    server_files: Texts,
    client_files: Texts,
    facts: Vec<Fact>,
}

/// The client of each workload that it has one for.
struct Clients {
    download: Option<CommandLine>,
    upload: Option<CommandLine>,
    download_tree: Option<CommandLine>,
    shell: Option<CommandLine>,
    stream: Option<CommandLine>,
    stream_file: Option<CommandLine>,
}

const HOST: &str = "host";
const URL_HOST: &str = "url-host";
const PORT: &str = "port";
const ADDRESS: &str = "address";
const IP_VERSION: &str = "ip-version";
const FILES: &str = "files";
const DIR: &str = "dir";
const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
const FIRST_DATA_PORT: &str = "first-data-port";
const LAST_DATA_PORT: &str = "last-data-port";
const FILE: &str = "file";
const FOLDER: &str = "folder";
const LOCAL: &str = "local";
const SECONDS: &str = "seconds";

/// The placeholders of its server, and of its clients.
const OF_SERVER: [&str; 11] = [
    HOST,
    URL_HOST,
    PORT,
    ADDRESS,
    IP_VERSION,
    FILES,
    DIR,
    CERTIFICATE,
    KEY,
    FIRST_DATA_PORT,
    LAST_DATA_PORT,
];
const OF_CLIENT: [&str; 8] = [HOST, URL_HOST, PORT, ADDRESS, IP_VERSION, FILES, DIR, CERTIFICATE];

/// A port that other servers of the lab do not have.
const DEFAULT_PORT: u32 = 8000;
/// Each copy of a server listens some thousand ports higher.
const PORTS: std::ops::RangeInclusive<u32> = 1..=15_000;
/// Ports of data connections where nobody has to know them (RFC 6335: dynamic ports).
const DATA_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Seconds that a server may take to get ready.
const PATIENCE_S: u32 = ServerSpec::PATIENCE.as_secs() as u32;
/// Commands before a server starts.
const MAX_PREPARED: usize = 16;

/// The entry of an application; `definition` is its text.
pub(super) fn entry(
    name: &Spanned<String>,
    file: &ApplicationFile,
    definition: &str,
) -> std::result::Result<&'static Entry<dyn Application>, At> {
    if let Some(about) = &file.about {
        require_line(about, "`about`")?;
    }
    let written = file.clients();
    let mut server: Vec<&Written> = file.prepare.iter().collect();
    server.push(&file.server);
    let client: Vec<&Written> = written.iter().filter_map(|(_, command)| *command).collect();
    let programs = Programs::read(&file.programs, &server, &client)?;
    let application = Arc::new(file.read(name, &programs)?);
    let name = name.get_ref();
    Ok(keep::application(name, definition, || Entry {
        name: keep::text(name),
        about: file
            .about
            .as_ref()
            .map_or("defined by the plan", |about| keep::text(about.get_ref())),
        programs: programs.kept(),
        make: Make::Defined(Box::leak(Box::new(move || -> Arc<dyn Application> {
            Arc::clone(&application) as Arc<dyn Application>
        }))),
    }))
}

impl ApplicationFile {
    /// Its clients by key.
    fn clients(&self) -> [(&'static str, Option<&Written>); 6] {
        [
            ("download", self.download.as_ref()),
            ("upload", self.upload.as_ref()),
            ("download-tree", self.download_tree.as_ref()),
            ("shell", self.shell.as_ref()),
            ("stream", self.stream.as_ref()),
            ("stream-file", self.stream_file.as_ref()),
        ]
    }

    fn read(
        &self,
        name: &Spanned<String>,
        programs: &Programs,
    ) -> std::result::Result<CustomApplication, At> {
        if self.prepare.len() > MAX_PREPARED {
            let message = format!("at most {MAX_PREPARED} commands prepare a server");
            return Err(at(&self.prepare[MAX_PREPARED], message));
        }
        let client = |command: &Option<Written>, more: &[&'static str]| {
            let known = [&OF_CLIENT, more].concat();
            command.as_ref().map(|command| programs.command(command, &known)).transpose()
        };
        let clients = Clients {
            download: client(&self.download, &[FILE, LOCAL])?,
            upload: client(&self.upload, &[FILE, LOCAL])?,
            download_tree: client(&self.download_tree, &[FOLDER, LOCAL])?,
            shell: client(&self.shell, &[])?,
            stream: client(&self.stream, &[SECONDS])?,
            stream_file: client(&self.stream_file, &[LOCAL])?,
        };
        if !clients.can_be_checked() {
            let names = self.clients().map(|(key, _)| key);
            return Err(at(
                name,
                format!(
                    "`{}` has no client that can be checked for clear text: of {}, it needs one other than \
                     `download-tree` and `stream`{DEFINITIONS}",
                    name.get_ref(),
                    names.join(", ")
                ),
            ));
        }
        let default = if self.transport == Transport::Udp { Ready::Udp } else { Ready::Tcp };
        let commands = self.prepare.iter().map(|command| programs.command(command, &OF_SERVER));
        Ok(CustomApplication {
            secured: self.secured,
            obfuscates: self.obfuscates,
            baselines: self.baseline.iter().map(|name| name.get_ref().clone()).collect(),
            layers: self
                .layers
                .as_ref()
                .map(|names| names.iter().map(|name| name.get_ref().clone()).collect()),
            transport: self.transport,
            data_connections: self.data_connections,
            close_exchange: self.close_exchange,
            port: bounded("port", self.port.as_ref(), DEFAULT_PORT, PORTS)? as u16,
            ready: surroundings::ready(self.ready.as_ref(), self.ready_line.as_ref(), default)?,
            patience: bounded("ready-within", self.ready_within.as_ref(), PATIENCE_S, 1..=600)
                .map(|seconds| Duration::from_secs(seconds.into()))?,
            prepare: commands.collect::<std::result::Result<_, At>>()?,
            server: programs.command(&self.server, &OF_SERVER)?,
            clients,
            server_variables: surroundings::variables(&self.environment, &OF_CLIENT)?,
            client_variables: surroundings::variables(&self.environment, &OF_CLIENT)?,
            server_files: surroundings::files(&self.server_files, &OF_SERVER)?,
            client_files: surroundings::files(&self.client_files, &OF_CLIENT)?,
            facts: surroundings::facts(&self.facts)?,
        })
    }
}

impl Clients {
    /// Whether one of them can carry the marker of the clear-text check.
    fn can_be_checked(&self) -> bool {
        [&self.download, &self.upload, &self.shell, &self.stream_file]
            .iter()
            .any(|client| client.is_some())
    }
}

/// What the placeholders of both sides stand for, in a folder of the application's own.
fn values(site: &Site<'_>, dir: String) -> Values {
    let (ip, port) = (site.server.ip(), site.server.port());
    Values::default().with([
        (HOST, ip.to_string()),
        (URL_HOST, site.server_host()),
        (PORT, port.to_string()),
        (ADDRESS, site.server.to_string()),
        (IP_VERSION, if ip.is_ipv4() { "4" } else { "6" }.to_owned()),
        (FILES, site.files.display().to_string()),
        (DIR, dir),
        (CERTIFICATE, site.credential("server.crt")),
    ])
}

/// Its folder of one side: on one machine both have the same site.
fn folder(site: &Site<'_>, role: Role) -> std::path::PathBuf {
    site.path(&role.to_string())
}

impl CustomApplication {
    fn write(&self, site: &Site<'_>, role: Role, values: &Values) -> Result<()> {
        let (folder, files) = match role {
            Role::Server => (folder(site, role), &self.server_files),
            Role::Client => (folder(site, role), &self.client_files),
        };
        for (name, text) in files.filled(values) {
            site.host.write(&folder.join(name), &text)?;
        }
        Ok(())
    }

    /// The client of a task, and what its placeholders stand for.
    fn invocation(&self, client: Option<&CommandLine>, values: &Values) -> Result<Invocation> {
        let client =
            client.ok_or_else(|| Error::Plan("its definition has no client for that".into()))?;
        let mut invocation = Invocation::new(client.command(values));
        let variables = self.client_variables.filled(values);
        invocation.environment = variables.map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(invocation)
    }
}

impl Application for CustomApplication {
    fn secured(&self) -> bool {
        self.secured
    }

    fn obfuscates(&self) -> bool {
        self.obfuscates
    }

    fn baselines(&self) -> Vec<String> {
        self.baselines.clone()
    }

    fn layers(&self) -> Option<&[String]> {
        self.layers.as_deref()
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        let Clients { download, upload, download_tree, shell, stream, stream_file: _ } =
            &self.clients;
        match kind {
            WorkloadKind::Download | WorkloadKind::Parallel | WorkloadKind::Sessions => {
                download.is_some()
            }
            WorkloadKind::Upload => upload.is_some(),
            WorkloadKind::Many => download_tree.is_some(),
            WorkloadKind::Commands => shell.is_some(),
            WorkloadKind::Stream => stream.is_some(),
            _ => false,
        }
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let folder = folder(site, Role::Server);
        site.host.make_folders(std::slice::from_ref(&folder))?;
        let ports = site.passive_ports.clone().unwrap_or(DATA_PORTS);
        let values = values(site, folder.display().to_string()).with([
            (KEY, site.credential("server.key")),
            (FIRST_DATA_PORT, ports.start().to_string()),
            (LAST_DATA_PORT, ports.end().to_string()),
        ]);
        self.write(site, Role::Server, &values)?;
        let command = |line: &CommandLine| -> Command {
            self.server_variables.around(&values, line.command(&values))
        };
        for line in &self.prepare {
            site.host.run(&command(line))?;
        }
        // names are looked for nowhere, which takes no time
        let private_files = ["resolv.conf", "nsswitch.conf"]
            .into_iter()
            .zip(["/etc/resolv.conf", "/etc/nsswitch.conf"])
            .map(|(name, to)| (site.credential_path(name), to))
            .collect();
        let command = site.host.with_groups(command(&self.server));
        let (ready, patience) = (self.ready, self.patience);
        Ok(ServerSpec { private_files, ready, patience, ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let folder = folder(site, Role::Client);
        let values = values(site, folder.display().to_string());
        site.host.make_folders(std::slice::from_ref(&folder))?;
        self.write(site, Role::Client, &values)?;
        let Clients { download, upload, download_tree, shell, stream, stream_file } = &self.clients;
        let local = |path: &std::path::Path| (LOCAL, path.display().to_string());
        match task {
            Task::Download { remote, local: to } => self
                .invocation(download.as_ref(), &values.with([(FILE, remote.clone()), local(to)])),
            Task::Upload { local: from, remote } => self
                .invocation(upload.as_ref(), &values.with([(FILE, remote.clone()), local(from)])),
            Task::DownloadTree { remote, local: to, .. } => self.invocation(
                download_tree.as_ref(),
                &values.with([(FOLDER, remote.clone()), local(to)]),
            ),
            Task::Commands(commands) => Ok(Invocation {
                dialogue: Some(commands.clone()),
                ..self.invocation(shell.as_ref(), &values)?
            }),
            Task::Stream { seconds, content: None } => {
                self.invocation(stream.as_ref(), &values.with([(SECONDS, seconds.to_string())]))
            }
            Task::Stream { content: Some(file), .. } => {
                self.invocation(stream_file.as_ref(), &values.with([local(file)]))
            }
            Task::Datagrams { .. } => self.invocation(None, &values),
        }
    }

    fn data_connections(&self) -> bool {
        self.data_connections
    }

    fn over_datagrams(&self) -> bool {
        self.transport == Transport::Udp
    }

    fn has_close_exchange(&self) -> bool {
        self.close_exchange
    }

    fn default_commands(&self) -> &'static [&'static str] {
        &["pwd", "id", "ls -l /etc/hosts", "uname -a", "cat /etc/hosts", "date", "df /", "true"]
    }

    fn facts(&self) -> Vec<Fact> {
        self.facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use headroom_lab_host::command::Executor;
    use headroom_lab_host::host::Host;
    use headroom_lab_host::programs::SearchPath;

    use super::*;

    #[test]
    fn every_placeholder_has_a_value() {
        let executor = Arc::new(Executor::dry(SearchPath::from_environment()));
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (root, headroom) = ("/tmp/root".into(), "/bin/headroom".into());
        let host = Host::new(Role::Server, address, root, headroom, String::new(), executor, None);
        let site = Site {
            host: &host,
            peer: &host,
            dir: "/tmp/root/applications/own".into(),
            files: "/tmp/root/files".into(),
            server: (address, 22).into(),
            resolver: None,
            passive_ports: None,
        };
        let mut known = OF_CLIENT.to_vec();
        known.sort_unstable();
        assert_eq!(values(&site, String::new()).names(), known);
        let of_server = [KEY, FIRST_DATA_PORT, LAST_DATA_PORT];
        assert!(OF_SERVER.iter().all(|name| known.contains(name) || of_server.contains(name)));
    }
}
