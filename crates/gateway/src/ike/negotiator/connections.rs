//! Makes connections of the endpoint, and what is watched of peers, from their configuration.

use std::sync::Arc;

use headroom_ike::crypto::Method;
use headroom_ike::{ChildConfig, ChildProposal, Connection, IkeProposal, VirtualAddresses};
use headroom_suite::Suite;

use crate::config::{IkeChild, IkePeer};
use crate::ike::peers::{Peer, Wanted};
use crate::ike::selectors::traffic_selectors;

/// A responder takes the first connection that fits: one that any peer fits is the last.
pub(super) fn most_specific_first(mut connections: Vec<Arc<Connection>>) -> Vec<Arc<Connection>> {
    connections.sort_by_key(|one| (one.remote.is_none(), one.remote_address.is_none()));
    connections
}

/// Returns what is watched of a peer.
pub(super) fn watched(peer: &IkePeer) -> Peer {
    let children = peer.children.iter().map(Wanted::new).collect();
    let assigns = matches!(peer.virtual_addresses, VirtualAddresses::Request { .. });
    Peer::new((peer.local, peer.remote), peer.local_is_fixed, assigns, children)
}

/// Makes the connection of a peer, with the children of the former one that stay the same.
pub(super) fn connection(peer: IkePeer, former: Option<&Connection>) -> Connection {
    let child = |child: &IkeChild| {
        let new = ChildConfig {
            name: child.name.clone(),
            local: traffic_selectors(child.selectors.iter().map(|one| &one.local)),
            remote: traffic_selectors(child.selectors.iter().map(|one| &one.remote)),
            mode: match child.mode {
                headroom_ipsec::Mode::Transport => headroom_ike::Mode::Transport,
                headroom_ipsec::Mode::Tunnel => headroom_ike::Mode::Tunnel,
            },
            proposals: child_proposals(&peer, &child.suites),
            qesp: child.qesp,
            rekey: Some(child.rekey),
            per_resource: child.per_queue,
        };
        let same = former.and_then(|former| {
            former.children.iter().find(|one| is_same_child(one, &new)).map(Arc::clone)
        });
        same.unwrap_or_else(|| Arc::new(new))
    };
    let ike = ike_proposals(&peer);
    let children = peer.children.iter().map(child).collect();
    Connection {
        ppk: peer.ppk,
        mobike: true,
        children,
        name: peer.name,
        local: peer.local_id,
        remote: peer.remote_id,
        remote_address: peer.remote.map(|remote| remote.ip()),
        auth: peer.auth,
        ike,
        virtual_addresses: peer.virtual_addresses,
        rekey: Some(peer.rekey),
        reauthenticate: peer.reauthenticate,
        liveness: Some(peer.liveness),
    }
}

/// Returns what is offered for an IKE SA.
fn ike_proposals(peer: &IkePeer) -> Vec<IkeProposal> {
    let mut offers = IkeProposal::default_offer(peer.post_quantum);
    for offer in &mut offers {
        if !peer.suites.is_empty() {
            offer.suites.clone_from(&peer.suites);
        }
        offer.key_exchanges.extend(peer.modp2048.then_some(Method::Modp2048));
    }
    offers
}

/// Returns what is offered for a CHILD SA.
fn child_proposals(peer: &IkePeer, suites: &[Suite]) -> Vec<ChildProposal> {
    let mut offers = ChildProposal::default_offer(peer.post_quantum);
    for offer in &mut offers {
        if !suites.is_empty() {
            offer.suites = suites.to_vec();
        }
        offer.key_exchanges.extend(peer.modp2048.then_some(Method::Modp2048));
    }
    offers
}

/// Tells whether an IKE SA may go on with another connection. Children are compared one by one.
pub(super) fn is_same(one: &Connection, other: &Connection) -> bool {
    let ppk = |of: &Connection| {
        let ppk = of.ppk.as_ref();
        ppk.map(|ppk| (ppk.id.clone(), ppk.key.fingerprint(), ppk.is_required, ppk.exchange))
    };
    one.auth.is_same(&other.auth)
        && ppk(one) == ppk(other)
        && (&one.local, &one.remote, one.remote_address)
            == (&other.local, &other.remote, other.remote_address)
        && (&one.ike, &one.virtual_addresses, one.rekey, one.reauthenticate)
            == (&other.ike, &other.virtual_addresses, other.rekey, other.reauthenticate)
}

fn is_same_child(one: &ChildConfig, other: &ChildConfig) -> bool {
    (&one.name, &one.local, &one.remote, one.mode)
        == (&other.name, &other.local, &other.remote, other.mode)
        && (&one.proposals, one.qesp, one.rekey, one.per_resource)
            == (&other.proposals, other.qesp, other.rekey, other.per_resource)
}
