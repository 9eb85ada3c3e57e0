//! Asks `ip` on one real host for the route to the other.

use std::net::IpAddr;

use headroom_lab_results::schema::SshHosts;
use headroom_lab_trace::Framing;
use serde::Deserialize;

use crate::agent::Agent;
use crate::command::Command;
use crate::error::{Doing, Error, Result};
use crate::programs::IP;
use crate::testbed::Family;

/// An element of the output of `ip -j route get`.
#[derive(Debug, Deserialize)]
pub(super) struct Route {
    pub(super) dev: String,
    pub(super) prefsrc: IpAddr,
}

/// An element of the output of `ip -j link show`.
#[derive(Debug, Deserialize)]
pub(super) struct Device {
    pub(super) mtu: u32,
    link_type: String,
}

impl Device {
    pub(super) fn framing(&self, name: &str, hosts: &SshHosts) -> Result<Framing> {
        match self.link_type.as_str() {
            "ether" => Ok(Framing::Ethernet),
            "none" => Ok(Framing::Ip),
            "loopback" => Err(Error::Plan(format!(
                "{} reaches {} without any link, by {name}: they are one machine; leave out [testbed]",
                hosts.client, hosts.server
            ))),
            other => Err(Error::Missing(format!(
                "{} reaches {} by {name}, an interface of the kind {other}, on which the lab cannot capture",
                hosts.client, hosts.server
            ))),
        }
    }
}

/// The one object in the list that `ip -j` prints.
pub(super) fn ip<T: for<'a> Deserialize<'a>>(agent: &mut Agent, arguments: &[&str]) -> Result<T> {
    let command = Command::new(IP, arguments.iter().copied());
    let said = agent.command(&command)?;
    let list: Vec<T> =
        serde_json::from_str(&said).doing(|| format!("read what `{command}` printed"))?;
    list.into_iter().next().ok_or_else(|| Error::Failed(format!("`{command}` printed nothing")))
}

/// The first address of the family that the plan names; of any, where it names none.
pub(super) fn one_of(
    found: &[IpAddr],
    family: Option<Family>,
    name: &str,
    hosts: &SshHosts,
) -> Result<IpAddr> {
    let Some(family) = family else {
        return found.first().copied().ok_or_else(|| {
            Error::Plan(format!(
                "{name} has no address on {}: name the server by `server-address` in [testbed]",
                hosts.client
            ))
        });
    };
    let fits = |address: &&IpAddr| address.is_ipv4() == (family == Family::Ipv4);
    found.iter().find(fits).copied().ok_or_else(|| {
        let other = if family == Family::Ipv4 { "ipv6" } else { "ipv4" };
        Error::Plan(format!(
            "{name} has no {} address on {}: write `family = \"{other}\"`, or name the server by `server-address` in \
             [testbed]",
            family.name(),
            hosts.client
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> SshHosts {
        SshHosts {
            client: "a".into(),
            server: "b".into(),
            server_address: None,
            ports: 20_000,
            ssh: vec!["ssh".into()],
        }
    }

    #[test]
    fn interfaces_without_ethernet_are_told_apart() {
        let hosts = hosts();
        let framing = |link_type: &str| {
            Device { mtu: 1500, link_type: link_type.into() }.framing("x0", &hosts)
        };
        assert!(matches!(framing("ether"), Ok(Framing::Ethernet)));
        assert!(matches!(framing("none"), Ok(Framing::Ip)));
        assert!(framing("loopback").is_err_and(|e| e.to_string().contains("one machine")));
        assert!(framing("sit").is_err_and(|e| e.to_string().contains("the kind sit")));
    }

    #[test]
    fn an_address_of_the_other_family_is_no_address() {
        let hosts = hosts();
        let found: Vec<IpAddr> =
            ["fd00::2", "10.0.0.2"].map(|a| a.parse().expect("an address")).to_vec();
        let of = |found: &[IpAddr], family| one_of(found, family, "b", &hosts);
        assert_eq!(of(&found, Some(Family::Ipv4)).expect("one"), found[1]);
        assert_eq!(of(&found, Some(Family::Ipv6)).expect("one"), found[0]);
        assert_eq!(of(&found[1..], None).expect("what there is"), found[1]);
        let error = of(&found[..1], Some(Family::Ipv4)).expect_err("none").to_string();
        assert!(error.contains("`family = \"ipv6\"`"), "{error}");
    }
}
