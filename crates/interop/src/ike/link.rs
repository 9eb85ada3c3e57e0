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

/// The NAT's address inside.
pub(super) const GATEWAY: &str = "10.9.0.1";

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
        let [ours, theirs] = [Namespace::new()?, Namespace::new()?].map(Arc::new);
        let link = Self::connect(peers, nat, [ours, theirs.clone()])?;
        let [_, outer] = link.outer;
        add(&theirs, "wire", &format!("{outer}/24"))?;
        if nat == Some(Side::Theirs) {
            theirs.run(&["ip", "route", "add", "default", "via", GATEWAY])?;
        }
        add(&theirs, "lo", &format!("{}/32", link.inner[1]))?;
        Ok(link)
    }

    /// Makes our host, and its link to the bridge `bridge` of a namespace, behind which the peer is.
    pub(super) fn to_bridge(
        peers: &Peers,
        nat: Option<Side>,
        theirs: &Arc<Namespace>,
        bridge: &str,
    ) -> Result<Self> {
        // that of the trial before; it may have gone with its other end
        let _ = theirs.run(&["ip", "link", "del", "wire"]);
        let link = Self::connect(peers, nat, [Arc::new(Namespace::new()?), theirs.clone()])?;
        theirs.run(&["ip", "link", "set", "wire", "master", bridge])?;
        Ok(link)
    }

    /// Gives our host another address instead of its own, and returns it.
    pub(super) fn move_ours(&self) -> Result<IpAddr> {
        let address = IpAddr::from([192, 0, 2, 9]);
        self.ours.run(&["ip", "addr", "del", &format!("{}/24", self.outer[0]), "dev", "wire"])?;
        add(&self.ours, "wire", &format!("{address}/24"))?;
        Ok(address)
    }

    /// Connects two hosts, and gives ours its addresses.
    fn connect(peers: &Peers, nat: Option<Side>, hosts: [Arc<Namespace>; 2]) -> Result<Self> {
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
                add(router, "in", &format!("{GATEWAY}/24"))?;
                add(router, "out", "192.0.2.3/24")?;
                translate(peers, router)?;
            }
            _ => {
                wire(&hosts[0], "wire", &hosts[1], "wire")?;
            }
        }
        let [ours, theirs] = hosts;
        add(&ours, "wire", &format!("{}/24", outer[0]))?;
        add(&ours, "lo", &format!("{}/32", inner[0]))?;
        if nat == Some(Side::Ours) {
            ours.run(&["ip", "route", "add", "default", "via", GATEWAY])?;
        }
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
