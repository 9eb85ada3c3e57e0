//! The link between our gateway and a peer, with or without a NAT on the way.

use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use headroom_lab_host::programs::NFT;

use super::Side;
use crate::namespace::Namespace;
use crate::peer::{self, Peers};

/// The NAT rewrites addresses and ports (RFC 3948).
const RULES: &str = "table ip nat { chain post { type nat hook postrouting priority 100; \
    oifname out meta l4proto udp masquerade to :40000-40099; }; }\n";

/// Two hosts. The outer addresses are their own; the other side sees those in `seen`.
pub struct Link {
    pub(super) ours: Arc<Namespace>,
    pub(super) theirs: Option<Arc<Namespace>>,
    /// Ours first.
    pub(super) outer: [IpAddr; 2],
    pub(super) seen: [IpAddr; 2],
    pub(super) inner: [IpAddr; 2],
    _router: Option<Namespace>,
}

impl Link {
    /// Makes two hosts in namespaces.
    pub(super) fn between_namespaces(peers: &Peers, nat: Option<Side>) -> Result<Self> {
        let hosts = [Namespace::new()?, Namespace::new()?];
        let router = nat.map(|_| Namespace::new()).transpose()?;
        let public = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let inner = [1, 2].map(|last| IpAddr::from([10, last, 0, 1]));
        let (mut outer, mut seen) = (public, public);
        match (&router, nat) {
            (Some(router), Some(side)) => {
                let (inside, outside) = if side == Side::Ours { (0, 1) } else { (1, 0) };
                outer[inside] = IpAddr::from([10, 9, 0, 2]);
                seen[inside] = IpAddr::from([192, 0, 2, 3]);
                wire(router, "in", &hosts[inside], "wire")?;
                wire(router, "out", &hosts[outside], "wire")?;
                add(router, "in", "10.9.0.1/24")?;
                add(router, "out", "192.0.2.3/24")?;
                add(&hosts[inside], "wire", "10.9.0.2/24")?;
                add(&hosts[outside], "wire", &format!("{}/24", outer[outside]))?;
                hosts[inside].run(&["ip", "route", "add", "default", "via", "10.9.0.1"])?;
                translate(peers, router)?;
            }
            _ => {
                wire(&hosts[0], "wire", &hosts[1], "wire")?;
                for (host, outer) in hosts.iter().zip(outer) {
                    add(host, "wire", &format!("{outer}/24"))?;
                }
            }
        }
        for (host, inner) in hosts.iter().zip(inner) {
            add(host, "lo", &format!("{inner}/32"))?;
        }
        let [ours, theirs] = hosts.map(Arc::new);
        Ok(Self { ours, theirs: Some(theirs), outer, seen, inner, _router: router })
    }
}

fn wire(one: &Namespace, name: &str, other: &Namespace, other_name: &str) -> Result<()> {
    let pid = other.pid().to_string();
    one.run(&[
        "ip", "link", "add", name, "type", "veth", "peer", "name", other_name, "netns", &pid,
    ])?;
    one.run(&["ip", "link", "set", name, "up"])?;
    other.run(&["ip", "link", "set", other_name, "up"])?;
    Ok(())
}

fn add(host: &Namespace, interface: &str, address: &str) -> Result<()> {
    host.run(&["ip", "addr", "add", address, "dev", interface]).map(drop)
}

fn translate(peers: &Peers, router: &Namespace) -> Result<()> {
    router.run(&["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"])?;
    let nft = peers.locate(NFT)?;
    let mut command = peer::command(&nft);
    command.arg(RULES);
    let output = router.enclose(&command).stdin(Stdio::null()).output().context("running nft")?;
    if !output.status.success() {
        bail!("nft: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
