//! Where a plan is run: on this machine, or on two real ones over ssh.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Two real machines, as a plan names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshHosts {
    /// The client's host as `ssh` knows it: a name, `user@host`, an alias.
    pub client: String,
    /// The server's.
    pub server: String,
    /// Name or address under which the client reaches the server; null: the one
    /// that ssh uses.
    pub server_address: Option<String>,
    /// First of the ports on which servers listen.
    pub ports: u16,
    /// The ssh command and its arguments.
    pub ssh: Vec<String>,
}

impl SshHosts {
    /// First port where a plan names none: below those that systems give to
    /// connections (`ip_local_port_range`, from 32768).
    pub const PORTS: u16 = 20_000;

    /// Ports from the first on that a run may use.
    pub const SPAN: u16 = 2000;

    /// Stacks that a run between two machines may have.
    pub const MAX_STACKS: usize = 16;

    /// Ports of one stack's FTP data connections.
    const PASSIVE: u16 = 100;

    /// Where the n-th stack's server listens.
    pub fn port(&self, nth: u16) -> u16 {
        self.ports + nth
    }

    /// The first port of layers; each has a number from 1.
    pub fn layers(&self) -> u16 {
        self.ports + 99
    }

    /// The ports of the n-th stack's FTP data connections.
    pub fn passive(&self, nth: u16) -> std::ops::RangeInclusive<u16> {
        let first = self.ports + 400 + nth * Self::PASSIVE;
        first..=first + Self::PASSIVE - 1
    }

    /// A port on which no server listens: the link is tried there.
    pub fn trial(&self) -> u16 {
        self.ports + 99
    }

    /// All ports that must be open on the server.
    pub fn all_ports(&self) -> std::ops::RangeInclusive<u16> {
        self.ports..=self.ports + (Self::SPAN - 1)
    }

    /// Names both hosts, and the address of the server where one is given: two hosts may have
    /// several paths between them.
    pub fn pair_name(&self) -> String {
        let Self { client, server, server_address, .. } = self;
        match server_address {
            Some(address) => format!("{client} to {server} ({address})"),
            None => format!("{client} to {server}"),
        }
    }

    /// The address of the server, where the plan says it.
    pub fn literal_address(&self) -> Option<IpAddr> {
        let host = match &self.server_address {
            Some(address) => address,
            None => self.server.rsplit_once('@').map_or(self.server.as_str(), |(_, host)| host),
        };
        host.parse().ok()
    }
}

/// Why this cannot stand for a host on ssh's command line.
pub fn objection(host: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@._-:%[]".contains(c);
    (host.is_empty() || host.starts_with('-') || !host.chars().all(plain)).then(|| {
        format!("`{host}` is no host that ssh could be given: a name, user@host or an alias")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(server: &str, address: Option<&str>) -> SshHosts {
        SshHosts {
            client: "a".into(),
            server: server.into(),
            server_address: address.map(str::to_owned),
            ports: 63_000,
            ssh: vec!["ssh".into()],
        }
    }

    #[test]
    fn the_ports_of_a_run_do_not_overlap_and_all_fit() {
        let hosts = hosts("b", None);
        let last = SshHosts::MAX_STACKS as u16 - 1;
        assert!(hosts.port(last) < hosts.trial() && hosts.trial() <= hosts.layers());
        assert!(hosts.layers() + 250 < *hosts.passive(0).start());
        assert!(hosts.passive(0).end() < hosts.passive(1).start());
        assert!(hosts.all_ports().contains(hosts.passive(last).end()));
    }

    #[test]
    fn an_address_may_be_part_of_a_host() {
        assert_eq!(hosts("root@10.0.0.2", None).literal_address(), "10.0.0.2".parse().ok());
        assert_eq!(hosts("10.0.0.2", Some("fd00::2")).literal_address(), "fd00::2".parse().ok());
        assert_eq!(hosts("root@b", None).literal_address(), None);
    }

    #[test]
    fn a_pair_is_named_by_its_hosts_and_its_path() {
        assert_eq!(hosts("b", None).pair_name(), "a to b");
        assert_eq!(hosts("b", Some("10.0.0.2")).pair_name(), "a to b (10.0.0.2)");
    }

    #[test]
    fn what_would_be_an_option_is_no_host() {
        assert!(objection("root@b.example").is_none() && objection("fe80::1%eth0").is_none());
        for host in ["", "-oProxyCommand=x", "a b", "a;b", "$(a)", "a\nb"] {
            assert!(objection(host).is_some(), "{host}");
        }
    }
}
