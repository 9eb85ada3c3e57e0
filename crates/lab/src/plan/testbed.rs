//! The table `[testbed]` of a plan: where it is run.

use std::ops::Range;

use headroom_lab_results::schema::{self, SshHosts};
use serde::Deserialize;
use toml::Spanned;

use crate::at::{At, at, bounded};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TestbedFile {
    kind: TestbedKind,
    client: Option<Spanned<String>>,
    server: Option<Spanned<String>>,
    server_address: Option<Spanned<String>>,
    ports: Option<Spanned<u32>>,
    ssh: Option<Spanned<Words>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TestbedKind {
    Netns,
    Ssh,
}

/// A command line, as one types it or word by word.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a command is a text in quotes, or a list of words")]
enum Words {
    Line(String),
    List(Vec<String>),
}

impl TestbedFile {
    /// The two machines, if it is not this one; `span` is the table's place.
    pub(super) fn hosts(&self, span: Range<usize>) -> Result<Option<SshHosts>, At> {
        if self.kind == TestbedKind::Netns {
            let texts = [("client", &self.client), ("server", &self.server)];
            let texts = texts.into_iter().chain([("server-address", &self.server_address)]);
            let texts = texts.filter_map(|(key, value)| Some((key, value.as_ref()?.span())));
            let ports = self.ports.as_ref().map(|ports| ("ports", ports.span()));
            let ssh = self.ssh.as_ref().map(|ssh| ("ssh", ssh.span()));
            return match texts.chain(ports).chain(ssh).next() {
                None => Ok(None),
                Some((key, span)) => {
                    Err(At { span, message: format!("`{key}` requires kind = \"ssh\"") })
                }
            };
        }
        let host = |key: &str, value: &Option<Spanned<String>>| match value {
            None => {
                let message = format!(
                    "`{key}` is missing: name the two hosts with client = \"…\" and server = \"…\""
                );
                Err(At { span: span.clone(), message })
            }
            Some(host) => match schema::objection(host.get_ref()) {
                None => Ok(host.get_ref().clone()),
                Some(message) => Err(at(host, message)),
            },
        };
        let (client, server) = (host("client", &self.client)?, host("server", &self.server)?);
        let server_address = match &self.server_address {
            None => None,
            given => Some(host("server-address", given)?),
        };
        let last = u32::from(u16::MAX - SshHosts::SPAN);
        let default = SshHosts::PORTS.into();
        let ports = bounded("ports", self.ports.as_ref(), default, 1024..=last)? as u16;
        let ssh = match self.ssh.as_ref().map(Spanned::get_ref) {
            None => vec!["ssh".to_owned()],
            Some(Words::Line(line)) => line.split_whitespace().map(str::to_owned).collect(),
            Some(Words::List(words)) => words.clone(),
        };
        if let Some(written) =
            self.ssh.as_ref().filter(|_| ssh.first().is_none_or(String::is_empty))
        {
            return Err(at(written, "the ssh command is empty"));
        }
        Ok(Some(SshHosts { client, server, server_address, ports, ssh }))
    }
}
