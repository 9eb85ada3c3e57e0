//! Names for hosts, with their ports and keys: `~/.config/headroom/hosts.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headroom_transfer::{DEFAULT_PORT, Host};
use serde::Deserialize;

/// The names of the file, each a table of it.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Hosts(BTreeMap<String, Entry>);

/// What a name stands for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Name or address, if it is not the name of the table.
    host: Option<String>,
    port: Option<u16>,
    /// The key to show there; `~/` is the home.
    identity: Option<PathBuf>,
}

impl Hosts {
    /// Reads the file; without one there are no names.
    ///
    /// # Errors
    /// It cannot be read, or says something else than it should: a sentence.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let hosts: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, entry) in &hosts.0 {
            let host = entry.host.as_deref().unwrap_or(name);
            let written = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            Host::parse(&written).map_err(|_| {
                format!("`{host}` in [{name}] is not the name or address of a host")
            })?;
            if entry.port == Some(0) {
                return Err(format!("the port in [{name}] is 0"));
            }
        }
        Ok(hosts)
    }

    /// Returns the names of the file.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The host that is meant, and the key to show it. A port that was typed counts.
    pub(super) fn resolve(&self, typed: &Host) -> (Host, Option<PathBuf>) {
        let Some(entry) = self.0.get(typed.name()) else { return (typed.clone(), None) };
        let port = match typed.names_port() {
            true => typed.port(),
            false => entry.port.unwrap_or(DEFAULT_PORT),
        };
        let host = Host::new(entry.host.as_deref().unwrap_or(typed.name()), port);
        (host, entry.identity.as_deref().map(from_home))
    }
}

fn from_home(path: &Path) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_host_port_and_key() {
        let text = "[nas]\nhost = \"2001:db8::1\"\nport = 4999\nidentity = \"/keys/nas\"\n[alone]\nport = 77\n";
        let hosts = Hosts::parse(text).expect("the file is right");
        let resolve = |typed: &str| {
            let (host, identity) = hosts.resolve(&Host::parse(typed).expect(typed));
            (host.to_string(), identity.map(|path| path.display().to_string()))
        };
        assert_eq!(resolve("nas"), ("[2001:db8::1]:4999".into(), Some("/keys/nas".into())));
        assert_eq!(resolve("nas:5000"), ("[2001:db8::1]:5000".into(), Some("/keys/nas".into())));
        assert_eq!(resolve("nas:4860"), ("[2001:db8::1]".into(), Some("/keys/nas".into())));
        assert_eq!(resolve("alone"), ("alone:77".into(), None));
        assert_eq!(resolve("other"), ("other".into(), None));
    }

    #[test]
    fn errors_are_named() {
        for (text, word) in [
            ("[nas]\nhots = \"x\"", "hots"),
            ("[nas]\nhost = \"a b\"", "`a b` in [nas]"),
            ("[nas]\nport = 0", "[nas] is 0"),
            ("[nas]\nport = 70000", "port"),
            ("[nas]\nhost = \"-oProxyCommand=x\"", "not the name or address"),
            ("nas = 1", "nas"),
        ] {
            let error = Hosts::parse(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
