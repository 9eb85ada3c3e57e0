//! Follows the events of the endpoint.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use headroom_ike::wire::NotifyType;
use headroom_ike::{Command, Event, Identity, Reason, SessionId};

use super::{LOOK, Negotiator};
use crate::config::ChildAction;
use crate::ike::peers::Wanted;
use crate::ike::report::Report;
use crate::ike::sessions::{Sentences, Session};
use crate::ike::trace;

impl Negotiator {
    pub(super) fn happened(&mut self, event: Event, now: Instant) {
        self.datapath.trace_ike(|| trace::record(&event, &self.sessions, &self.children));
        match event {
            // only for those who follow it
            Event::Message { .. } => {}
            Event::Established {
                session: id,
                connection,
                remote,
                local_address,
                remote_address,
                post_quantum,
                assigned,
                ..
            } => {
                let session = Session {
                    peer: connection,
                    initiated: self.sessions.get(id).is_some_and(|one| one.initiated),
                    began: now,
                    established: Some(now),
                    local: local_address,
                    remote: remote_address,
                    post_quantum,
                    rekeys: 0,
                    child_rekeys: 0,
                    identity: Some(remote.to_string()),
                    assigned,
                    sentences: Sentences::default(),
                };
                self.established(id, session, now);
            }
            Event::Reauthenticating { session, successor, local_address, remote_address } => {
                let Some(peer) = self.sessions.get(session).map(|one| one.peer.clone()) else {
                    return;
                };
                self.sessions
                    .insert(successor, Session::begun(peer, (local_address, remote_address), now));
            }
            Event::Rekeyed { session, post_quantum } => {
                if let Some(one) = self.sessions.get_mut(session) {
                    (one.rekeys, one.post_quantum) = (one.rekeys + 1, post_quantum);
                }
            }
            Event::Install(sa) => {
                let Some(session) = self.sessions.get_mut(sa.session) else { return };
                session.child_rekeys += u64::from(sa.replaces.is_some());
                let session = &*session;
                let made = self.peers.get(&session.peer);
                if let Some(child) = made.and_then(|peer| peer.child(&sa.config.name)) {
                    child.retry.succeeded();
                    child.is_asked = false;
                }
                let may_be_twin =
                    sa.replaces.is_none() && sa.resource.is_none() && session.initiated;
                let owner = session.identity.clone().unwrap_or_default();
                let id = sa.child;
                self.children.install(*sa, (session.local, session.remote), owner);
                // both ends made one at the same time: the end that began gives up the older one
                let twin = self.children.twin(id).filter(|_| may_be_twin);
                if let Some(older) = twin {
                    let _ = self.endpoint.command(&Command::CloseChild(older), now);
                }
                let added = self.children.newest();
                let written = self.key_log.as_mut().map(|log| log.add_children(added));
                self.report_unwritten(written);
            }
            Event::Switch(child) => self.children.switch(child),
            Event::StopSending(child) => self.children.stop_sending(child),
            Event::Remove(child) => {
                let origin = self.children.origin(child);
                self.children.remove(child, now);
                let Some(origin) = origin else { return };
                let session = origin.session;
                if origin.was_in_force {
                    self.lost(&origin.child, session, |child| child.actions.close);
                }
                if let Some(session) = self.sessions.get(session) {
                    self.peers.look(&session.peer, now);
                }
            }
            Event::ChildFailed { session, name, reason } => {
                self.child_failed(session, name.as_deref(), &reason, now);
            }
            Event::Moved { session, local_address, remote_address, .. } => {
                let addresses = (local_address, remote_address);
                if let Some(one) = self.sessions.get_mut(session) {
                    let peer = &one.peer;
                    let moved = match one.local == local_address {
                        true => format!("`{peer}` is now at {remote_address}"),
                        false => format!("`{peer}` is now reached from {local_address}"),
                    };
                    (one.local, one.remote) = addresses;
                    self.say_of(session, moved, now);
                }
                self.children.move_to(session, addresses, &self.datapath);
            }
            Event::Keys { spis, keys, .. } => {
                let written = self.key_log.as_mut().map(|log| log.add_ike(spis, &keys));
                self.report_unwritten(written);
            }
            Event::Closed { session, remote_address, reason } => {
                self.closed(session, remote_address, reason, now);
            }
        }
    }

    fn closed(&mut self, id: SessionId, from: SocketAddr, reason: Reason, now: Instant) {
        let closed = self.sessions.remove(id);
        self.report_assigned();
        let is_timeout = matches!(reason, Reason::Timeout(_));
        let line = match &closed {
            Some(session) => self.line_about_end(session, from, &reason, now),
            None => self.failures.note(from, reason, now),
        };
        if let Some(line) = line {
            self.say(line);
        }
        if let Some(session) = closed {
            self.connecting.remove(&(session.began, id));
            if session.established.is_none() {
                self.give_up(&session.peer);
            }
            if is_timeout && let Some(peer) = self.peers.get(&session.peer) {
                let lost = peer.children.iter_mut().filter(|one| !self.children.exists(&one.name));
                lost.for_each(|child| child.action = child.actions.dpd);
                self.datapath.set_traps(self.peers.trapped());
            }
            self.peers.look(&session.peer, now);
        }
    }

    /// Returns what the log says about the end of an IKE SA with a peer. A peer that refuses this host
    /// does so at each attempt, and the advice stays the same.
    fn line_about_end(
        &mut self,
        session: &Session,
        at: SocketAddr,
        reason: &Reason,
        now: Instant,
    ) -> Option<String> {
        let name = session.peer.as_str();
        let end = format!("IKE with `{name}` is closed: {reason}");
        let is_refusal = matches!(reason, Reason::Refused(NotifyType::AuthenticationFailed));
        match (self.connections.get(name), self.peers.get(name)) {
            (Some(connection), Some(peer)) if is_refusal => {
                let advice = peer.refusals.note(connection, at, now);
                // the log has the set-up of one that was established, and so its end, too
                advice.or(session.established.map(|_| end))
            }
            _ => Some(end),
        }
    }

    fn established(&mut self, id: SessionId, session: Session, now: Instant) {
        if let Some(begun) = self.sessions.remove(id) {
            self.connecting.remove(&(begun.began, id));
        }
        let (name, remote) = (session.peer.clone(), session.remote);
        let (initiated, peer) = (session.initiated, name.as_str());
        let connection = self.connections.get(peer);
        let yields = connection.is_some_and(|own| yields(&own.local, session.identity.as_deref()));
        let quantum = if session.post_quantum { "post-quantum" } else { "NOT post-quantum" };
        let assigned: Vec<String> =
            session.assigned.addresses.iter().map(IpAddr::to_string).collect();
        let assigned = match (assigned.is_empty(), initiated, &session.identity) {
            (true, ..) | (_, false, None) => String::new(),
            (false, true, _) => format!("; this host has {}", assigned.join(" and ")),
            (false, false, Some(name)) => format!("; {name} has {}", assigned.join(" and ")),
        };
        let has_address = !session.assigned.addresses.is_empty();
        self.say(format!("IKE with `{peer}` at {remote} is established ({quantum}){assigned}"));
        self.sessions.insert(id, session);
        self.report_assigned();
        if let Some(peer) = self.peers.get(peer)
            && (has_address || !peer.assigns)
        {
            peer.retry.succeeded();
        }
        self.peers.look(peer, now + LOOK);
        // both hosts began: one of them gives up what it began
        let stands = |one: &Session| one.established.is_some();
        let has_other =
            self.sessions.of(peer).any(|(other, one)| other != id && !one.initiated && stands(one));
        let mine = self.sessions.of(peer).filter(|(_, one)| one.initiated && stands(one));
        let mine: Vec<SessionId> = mine.map(|(id, _)| id).collect();
        let both = if initiated { has_other } else { !mine.is_empty() };
        if both && yields {
            for mine in mine {
                let _ = self.endpoint.command(&Command::Close(mine), now);
            }
        }
    }

    /// Reports the addresses that peers have assigned to this host, if they are others.
    fn report_assigned(&mut self) {
        let mine = self.sessions.iter().filter(|(_, one)| one.initiated);
        let assigned = mine.flat_map(|(_, one)| one.assigned.addresses.iter().copied()).collect();
        if assigned != self.assigned {
            self.assigned = assigned;
            (self.report)(Report::Assigned(self.assigned.clone()));
        }
    }

    /// A CHILD SA is gone: does what is configured for that, if there is no other.
    fn lost(&mut self, child: &str, session: SessionId, action: impl Fn(&Wanted) -> ChildAction) {
        if self.children.exists(child) {
            return;
        }
        let owner = self.sessions.get(session).map(|one| one.peer.clone());
        if let Some(wanted) = owner.and_then(|peer| self.peers.get(&peer)?.child(child)) {
            wanted.is_asked = false;
            wanted.action = action(wanted);
            self.datapath.set_traps(self.peers.trapped());
        }
    }

    /// A CHILD SA was not made.
    fn child_failed(&mut self, id: SessionId, child: Option<&str>, reason: &Reason, now: Instant) {
        let session = self.sessions.get(id);
        let peer = session.map_or_else(|| "a peer".to_owned(), |one| one.peer.clone());
        let who = session.and_then(|one| one.identity.as_ref().map(|name| (name, one.remote)));
        let sentence = match (reason, who) {
            (Reason::PoolExhausted | Reason::AddressNotRequested, Some((name, remote))) => {
                format!("`{peer}`: {name} at {remote} gets no address: {reason}")
            }
            _ => {
                let child = child.unwrap_or("a CHILD SA");
                format!("IKE with `{peer}`: `{child}` was not made: {reason}")
            }
        };
        self.say_of(id, sentence, now);
        self.pool_exhausted += u64::from(*reason == Reason::PoolExhausted);
        // an address comes with an IKE SA only
        let has_address =
            self.sessions.get(id).is_some_and(|one| !one.assigned.addresses.is_empty());
        if self.peers.get(&peer).is_some_and(|peer| peer.assigns) && !has_address {
            let _ = self.endpoint.command(&Command::Close(id), now);
        }
        self.give_up(&peer);
        self.peers.look(&peer, now);
    }
}

/// Tells whether this host, and not its peer, gives up what it began while the peer did. Both ends know
/// both names; behind a NAT they know other addresses, and both would give up, again and again.
fn yields(own: &Identity, peer: Option<&str>) -> bool {
    peer.is_some_and(|peer| own.to_string().as_str() < peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_hosts_that_began_at_once_gives_up() {
        for names in [
            ["a.example", "b.example"],
            ["gate@example.org", "192.0.2.1"],
            ["10.0.0.5", "10.1.0.7"],
            ["2001:db8::1", "host"],
        ] {
            let [one, other] = names.map(Identity::from_text);
            let both = [(&one, &other), (&other, &one)];
            let [here, there] = both.map(|(own, peer)| yields(own, Some(&peer.to_string())));
            assert!(here != there, "{names:?}");
            assert!(!yields(&one, None), "it is not known who the peer is");
        }
    }
}
