//! The table `[testbed]` of a plan: where it is run.

use std::ops::Range;
use std::path::Path;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::schema::{self, SshHosts};
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use crate::at::{At, at, bounded, plain};
use crate::toml_error;

/// Where plans are run, apart from any plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTestbed {
    /// Name of the pair of hosts.
    pub name: Option<String>,
    /// Two real machines; none: namespaces on this one.
    pub hosts: Option<SshHosts>,
}

/// A file with a table `[testbed]` and nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestbedOnly {
    testbed: Spanned<TestbedFile>,
}

impl NamedTestbed {
    /// Reads a file that has a table `[testbed]` and nothing else.
    ///
    /// # Errors
    /// [`Error::Plan`] with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Plan(format!("cannot read the testbed {}: {error}", path.display()))
        })?;
        Self::from_toml(&text).map_err(|error| Error::Plan(format!("{}:{error}", path.display())))
    }

    fn from_toml(text: &str) -> std::result::Result<Self, String> {
        let file: TestbedOnly =
            toml::from_str(text).map_err(|error| toml_error::in_text(&error, text))?;
        let span = file.testbed.span();
        file.testbed.into_inner().into_named(span).map_err(|error| error.in_text(text))
    }

    /// Writes such a file.
    pub fn to_toml(&self) -> String {
        let testbed = to_value(self.hosts.as_ref(), self.name.as_deref());
        let table: Table = std::iter::once(("testbed".to_owned(), testbed)).collect();
        table.to_string()
    }
}

/// The table `[testbed]` of these hosts.
pub(super) fn to_value(hosts: Option<&SshHosts>, name: Option<&str>) -> Value {
    let text = |text: &str| Value::String(text.to_owned());
    let mut table = Table::new();
    table.insert("kind".to_owned(), text(if hosts.is_some() { "ssh" } else { "netns" }));
    if let Some(name) = name {
        table.insert("name".to_owned(), text(name));
    }
    if let Some(SshHosts { client, server, server_address, ports, ssh }) = hosts {
        table.insert("client".to_owned(), text(client));
        table.insert("server".to_owned(), text(server));
        if let Some(address) = server_address {
            table.insert("server-address".to_owned(), text(address));
        }
        table.insert("ports".to_owned(), Value::Integer((*ports).into()));
        let words = ssh.iter().map(|word| text(word)).collect();
        table.insert("ssh".to_owned(), Value::Array(words));
    }
    Value::Table(table)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TestbedFile {
    /// Of the pair of hosts: one word.
    name: Option<Spanned<String>>,
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
    /// Reads name and hosts; `span` is the table's place.
    pub(crate) fn into_named(self, span: Range<usize>) -> std::result::Result<NamedTestbed, At> {
        let name = plain(self.name.as_ref())?;
        Ok(NamedTestbed { name, hosts: self.hosts(span)? })
    }

    /// The two machines, if it is not this one; `span` is the table's place.
    fn hosts(&self, span: Range<usize>) -> std::result::Result<Option<SshHosts>, At> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_testbed_is_read_and_written_as_a_file_of_its_own() {
        let read = |text: &str| NamedTestbed::from_toml(text).expect("a testbed");
        let here = read("[testbed]\nkind = \"netns\"\nname = \"here\"\n");
        assert_eq!((here.name.as_deref(), &here.hosts), (Some("here"), &None));
        let far = read(
            "[testbed]\nkind = \"ssh\"\nclient = \"a\"\nserver = \"b\"\nssh = \"ssh -F x\"\nserver-address = \"::1\"\n",
        );
        assert_eq!(far.hosts.as_ref().map(|hosts| hosts.ssh.len()), Some(3));
        for testbed in [here, far] {
            assert_eq!(read(&testbed.to_toml()), testbed);
        }
    }

    #[test]
    fn rejects_a_testbed_that_is_none() {
        for (text, line, words) in [
            ("", "1: ", "missing field `testbed`"),
            ("testbed = 1", "1: ", "must be a table"),
            ("[testbed]\nkind = \"ssh\"\nclient = \"a\"", "1: ", "`server` is missing"),
            ("[testbed]\nkind = \"netns\"\nclient = \"a\"", "3: ", "`client` requires kind"),
            ("[testbed]\nkind = \"netns\"\nname = \"../x\"", "3: ", "`../x` is not one word"),
            ("stacks = []\n[testbed]\nkind = \"netns\"", "1: ", "unknown field `stacks`"),
        ] {
            let error = NamedTestbed::from_toml(text).expect_err(text);
            assert!(error.starts_with(line) && error.contains(words), "{error}");
        }
    }
}
