//! Tries the examples of docs/tunnel.md as they stand: our configuration and strongSwan's.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::link::Link;
use super::ours::Ours;
use crate::folder::Folder;
use crate::gateway::Gateway;
use crate::peer::Peers;
use crate::strongswan::charon::{Charon, FRAGMENT_SIZE, Installation, Settings};
use crate::transfer::{self, End};
use crate::tree::Tree;

/// Bytes of a transfer in each direction.
const OCTETS: u64 = 1 << 20;

/// Brings up a tunnel between `headroom` and strongSwan with the two examples of `document`, the
/// text of docs/tunnel.md, and transfers bytes through it.
///
/// # Errors
/// An example is missing, or the tunnel does not work; the error holds what both said.
pub fn try_examples(peers: &Peers, headroom: &Path, document: &str) -> Result<()> {
    let ours = example(document, "toml", "[ike]")?;
    let theirs = example(document, "conf", "connections {")?;
    let key = theirs.split("secret = \"").nth(1).and_then(|rest| rest.split('"').next());
    let folder = Folder::new()?;
    let path = folder.0.join("office.psk");
    std::fs::write(&path, key.context("no secret in strongSwan's example")?)?;
    // a key that others may read is refused
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let link = Link::between_namespaces(peers, None)?;
    let installation = Installation::Tree(Tree::find(peers)?);
    let namespace = link.theirs.clone().context("a namespace for the peer")?;
    let settings = Settings { swanctl_conf: &theirs, fragment_size: FRAGMENT_SIZE };
    let charon = Charon::start(&installation, &folder.0, "theirs", &namespace, settings)?;
    let gateway = Gateway::start(headroom, &ours, &folder.0, &link.ours)?;
    let ours = Ours::of(gateway, headroom);
    let [inner, peer_inner] = link.inner;
    let tried = ours.wait("a CHILD SA", super::ours::is_up).and_then(|_| {
        transfer::both_ways(
            End { namespace: &namespace, address: peer_inner },
            End { namespace: &link.ours, address: inner },
            OCTETS,
        )
    });
    tried.with_context(|| {
        let log = charon.log().unwrap_or_default();
        format!("our gateway said: {}\nstrongSwan's log: {log}", ours.said())
    })
}

/// Returns the first block of code in a language that has some text.
fn example(document: &str, language: &str, with: &str) -> Result<String> {
    let opening = format!("```{language}\n");
    let blocks = document.split(&opening).skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let found = blocks.find(|block| block.contains(with));
    found.map(str::to_owned).with_context(|| format!("docs/tunnel.md has no example with `{with}`"))
}
