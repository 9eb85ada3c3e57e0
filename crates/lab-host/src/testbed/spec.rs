//! Specifies a testbed.

use std::net::IpAddr;

use headroom_lab_results::schema::SshHosts;
use headroom_link_spec::LinkSpec;
use serde::Deserialize;

use crate::machine;
use crate::programs::Program;

/// Two hosts and the links between them.
#[derive(Debug, Clone)]
pub struct TestbedSpec {
    /// Two real machines; none: namespaces on this one.
    pub hosts: Option<SshHosts>,
    /// None: what two real hosts have, and IPv6 on one machine, if its kernel has that.
    pub family: Option<Family>,
    /// Bytes of IP packet on the link.
    pub mtu: u32,
    /// TCP congestion control of both hosts; real ones may keep [`HOST_DEFAULT`].
    pub congestion_control: String,
    /// All that it is to make, one after the other.
    pub links: Vec<LinkSpec>,
    /// The backend that makes them; none: the best for each.
    pub link_backend: Option<LinkBackend>,
    /// Of the links' chance.
    pub seed: u64,
    /// Whether the kernel's own threads do work that counts.
    pub kernel_threads_work: bool,
    /// Whether the router passes MACsec frames on as a switch does.
    pub switches_macsec: bool,
    /// Programs that its hosts must have.
    pub programs: Vec<Program>,
}

/// In place of a congestion control: whatever the hosts have.
pub const HOST_DEFAULT: &str = "host-default";

/// Address family between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The smallest MTU that a link may have, in bytes (RFC 791 and RFC 8200).
    pub fn smallest_mtu(self) -> u32 {
        match self {
            Self::Ipv4 => 576,
            Self::Ipv6 => 1280,
        }
    }

    /// Returns the family on this machine of a plan that names none.
    pub(crate) fn of_this_machine() -> Self {
        if machine::has_ipv6() { Self::Ipv6 } else { Self::Ipv4 }
    }

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

/// The offloads of the interfaces. Segmentation offload flatters traffic in clear, which
/// needs no work on each packet (docs/methodology.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// As users' machines: segmentation, coalescing and checksums offloaded.
    On,
    /// Each packet by itself, checksums computed.
    Off,
}

impl Offload {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// A backend for a link that is more than a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkBackend {
    /// The kernel's netem, below HTB where there is a rate.
    Netem,
    /// `headroom link`, which needs nothing of the kernel.
    Emulator,
    /// The kernel's HTB: a rate and a queue, nothing else.
    Shaper,
}

impl LinkBackend {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Netem, Self::Emulator, Self::Shaper];

    /// The name in plans, arguments and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Netem => "netem",
            Self::Emulator => "emulator",
            Self::Shaper => "shaper",
        }
    }
}
