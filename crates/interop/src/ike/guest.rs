//! libreswan and OpenIKED as peers, in a guest whose kernel has the IPsec that they need.

mod libreswan;
mod openiked;

use std::cell::RefCell;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use headroom_lab_host::programs::OPENSSL;

use super::link::{GATEWAY, Link};
use super::{Daemon, Peer, Side, Trial};
use crate::kernel::Machine;
use crate::namespace::Namespace;
use crate::peer::{self, Peers};
use crate::tree::Tree;

const TAP: &str = "tap0";
const BRIDGE: &str = "br0";
/// Bytes of a transfer in each direction; few, as the processor is emulated.
const OCTETS: u64 = 1 << 18;
/// The first TCP port of transfers; each uses the next.
const PORT: u16 = 5001;
/// Prepares the tree for chroot. The daemons ask for these accounts, folders and files.
const PREPARE: &str = "cd /tree && mkdir -p run/pluto tmp proc dev sys root var/empty var/lib/ipsec/nss && \
    for name in bin sbin lib; do ln -s usr/$name $name; done; ln -sfn usr/lib64 lib64; \
    rm -rf var/run; ln -s /run var/run; \
    printf 'root:x:0:0::/root:/bin/sh\\n_iked:x:120:65534::/var/empty:/bin/false\\nnobody:x:65534:65534::/:/bin/false\\n' >etc/passwd; \
    printf 'root:x:0:\\nnogroup:x:65534:\\n' >etc/group; : >etc/resolv.conf; \
    chmod 755 var/empty; chmod 700 etc/iked/private; \
    for name in proc sys dev; do mount -o bind /$name $name; done; cd /";
/// Programs of the tree start with this.
const CHROOT: &str = "env -i PATH=/usr/sbin:/usr/bin HOME=/root chroot /tree";

/// A booted machine with the daemons.
#[derive(Debug)]
pub struct Guest {
    machine: Machine,
    peers: Peers,
    tree: Tree,
    /// Where its network card is attached to a bridge.
    switch: Arc<Namespace>,
    port: u16,
}

/// A daemon in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemons {
    /// libreswan's pluto.
    Libreswan,
    /// OpenIKED's iked.
    OpenIked,
}

/// A daemon as a peer; several share a guest.
struct InGuest {
    guest: Rc<RefCell<Guest>>,
    daemon: Daemons,
    version: String,
}

impl Guest {
    /// Boots the machine. Needs root. `helper` is this crate's own program.
    ///
    /// # Errors
    /// Something is missing, or it does not boot.
    pub fn boot(peers: &Peers, helper: &Path) -> Result<Rc<RefCell<Self>>> {
        let tree = Tree::find(peers)?;
        let switch = Namespace::new()?;
        for line in [
            format!("ip tuntap add dev {TAP} mode tap"),
            format!("ip link add {BRIDGE} type bridge"),
            format!("ip link set {TAP} master {BRIDGE} up"),
            format!("ip link set {BRIDGE} up"),
        ] {
            switch.run(&line.split(' ').collect::<Vec<_>>())?;
        }
        let mut machine = Machine::boot_with_tree(peers, helper, tree.path(), &switch, TAP)?;
        machine.run(PREPARE)?;
        let (peers, switch) = (peers.clone(), Arc::new(switch));
        let mut guest = Self { machine, peers, tree, switch, port: PORT };
        let key = guest.key()?;
        // iked does not start without, even for pre-shared keys
        guest.write("/etc/iked/private/local.key", &key)?;
        Ok(Rc::new(RefCell::new(guest)))
    }

    /// Makes a private key.
    fn key(&self) -> Result<String> {
        let key = self.openssl(&["ecparam", "-genkey", "-name", "prime256v1", "-noout"], b"")?;
        Ok(String::from_utf8(key)?)
    }

    /// Writes a file of the tree, for its owner alone.
    fn write(&mut self, path: &str, text: &str) -> Result<()> {
        ensure!(!text.contains(['\'', '\\']), "{text:?} cannot be quoted");
        let text = text.replace('%', "%%").replace('\n', "\\n").replace('\t', "\\t");
        self.machine
            .run(&format!("umask 077; rm -f /tree{path}; printf '{text}' >/tree{path}"))
            .map(drop)
    }

    /// Writes a file of any bytes.
    fn write_bytes(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let encoded = self.openssl(&["base64", "-A"], bytes)?;
        let encoded = String::from_utf8(encoded)?;
        self.machine.run(&format!("umask 077; rm -f /tree{path}.b64"))?;
        // a line of the console is short
        for part in encoded.trim().as_bytes().chunks(1000) {
            let part = std::str::from_utf8(part)?;
            self.machine.run(&format!("printf '{part}' >>/tree{path}.b64"))?;
        }
        self.machine.run(&format!("umask 077; base64 -d /tree{path}.b64 >/tree{path}")).map(drop)
    }

    /// Runs this host's openssl.
    fn openssl(&self, words: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let openssl = self.peers.locate(OPENSSL)?;
        let mut command = peer::command(&openssl);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().context("running openssl")?;
        running.stdin.take().context("no standard input")?.write_all(input)?;
        let output = running.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    }

    /// Runs a program of the tree.
    fn run(&mut self, line: &str) -> Result<String> {
        self.machine.run(&format!("{CHROOT} {line}"))
    }

    /// Gives the machine its addresses.
    fn configure(&mut self, link: &Link, nat: Option<Side>) -> Result<()> {
        let [_, outer] = link.outer;
        let [remote, inner] = link.inner;
        let router =
            if nat == Some(Side::Theirs) { GATEWAY.to_owned() } else { link.seen[0].to_string() };
        self.machine.run(&format!(
            "/ip addr flush dev eth0; /ip addr flush dev lo; /ip neigh flush dev eth0; /ip addr add 127.0.0.1/8 dev lo; \
             /ip addr add {inner}/32 dev lo; /ip addr add {outer}/24 dev eth0 && \
             /ip route replace default via {router} && /ip route replace {remote}/32 via {router} src {inner}"
        ))?;
        Ok(())
    }

    fn transfer(&mut self, link: &Link) -> Result<()> {
        self.port += 1;
        let moved = self.machine.transfer(&link.ours, link.inner, self.port, OCTETS);
        moved.with_context(|| {
            let state =
                "/ip -s xfrm state | head -40; grep -v '[[:space:]]0$' /proc/net/xfrm_stat; true";
            self.machine.run(state).unwrap_or_default()
        })
    }
}

/// Makes a daemon of the guest a peer.
///
/// # Errors
/// The tree has no such package.
pub fn peer(guest: &Rc<RefCell<Guest>>, daemon: Daemons) -> Result<Box<dyn Peer>> {
    let package = match daemon {
        Daemons::Libreswan => "libreswan",
        Daemons::OpenIked => "openiked",
    };
    let version = guest.borrow().tree.version(package)?;
    Ok(Box::new(InGuest { guest: guest.clone(), daemon, version }))
}

impl Peer for InGuest {
    fn title(&self) -> String {
        let name = match self.daemon {
            Daemons::Libreswan => "libreswan",
            Daemons::OpenIked => "OpenIKED",
        };
        format!("{name} {}", self.version)
    }

    fn lacks(&self, trial: Trial) -> Option<&'static str> {
        match self.daemon {
            Daemons::Libreswan => libreswan::lacks(trial),
            Daemons::OpenIked => openiked::lacks(trial),
        }
    }

    fn child_suite(&self) -> Option<&'static str> {
        match self.daemon {
            Daemons::Libreswan => None,
            Daemons::OpenIked => Some(openiked::SUITE),
        }
    }

    fn is_post_quantum(&self) -> bool {
        false
    }

    fn link(&mut self, nat: Option<Side>) -> Result<Link> {
        let mut guest = self.guest.borrow_mut();
        let link = Link::to_bridge(&guest.peers, nat, &guest.switch, BRIDGE)?;
        guest.configure(&link, nat)?;
        Ok(link)
    }

    fn start<'a>(
        &'a mut self,
        folder: &'a Path,
        link: &'a Link,
        trial: Trial,
    ) -> Result<Box<dyn Daemon + 'a>> {
        let guest = self.guest.borrow_mut();
        Ok(match self.daemon {
            Daemons::Libreswan => Box::new(libreswan::Pluto::start(guest, folder, link, trial)?),
            Daemons::OpenIked => Box::new(openiked::Iked::start(guest, folder, link, trial)?),
        })
    }
}
