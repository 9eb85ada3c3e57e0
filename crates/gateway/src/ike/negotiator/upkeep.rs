//! Begins what should exist and does not, and follows the ways to peers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_ike::Command;

use super::{LISTEN, LOOK, Negotiator};
use crate::ike::peers::Wanted;
use crate::ike::sessions::Session;

/// The most attempts to connect that are younger than [`LOOK`]: peers that answer are not kept
/// waiting for so long that their messages are sent again.
const MAX_CONNECTING: usize = 64;
/// The most routes that are looked at in one [`LOOK`].
const ROAMERS: usize = 64;
/// When a peer is looked after again whose attempt would be one too many.
const LATER: Duration = Duration::from_millis(20);

impl Negotiator {
    /// Begins what should exist and does not.
    pub(super) fn maintain(&mut self, now: Instant) {
        self.children.expire(now);
        for id in self.children.heard(&self.datapath) {
            let _ = self.endpoint.command(&Command::Heard(id), now);
        }
        if self.next_wear <= now {
            self.next_wear = now + LISTEN;
            for id in self.children.worn(&self.datapath, now) {
                let _ = self.endpoint.command(&Command::RekeyChild(id), now);
            }
        }
        if self.next_roam <= now {
            self.next_roam = now + LOOK;
            self.roam(now);
        }
        if let Some(line) = self.failures.line(now) {
            self.say(line);
        }
        for child in self.datapath.waiting() {
            self.asked(&child, now);
        }
        while let Some(name) = self.peers.due(now) {
            if let Some(at) = self.look_after(&name, now) {
                self.peers.look(&name, at);
            }
        }
    }

    /// Goes on from another address where the way to a peer begins at another one now. Looks at some
    /// sessions, next time at others.
    fn roam(&mut self, now: Instant) {
        let mine = |one: &Session| one.initiated && one.established.is_some();
        let rest = self.sessions.iter().filter(|(id, one)| Some(*id) > self.roamed && mine(one));
        let batch: Vec<_> = rest
            .take(ROAMERS)
            .map(|(id, one)| (id, one.peer.clone(), one.local, one.remote))
            .collect();
        self.roamed = batch.last().filter(|_| batch.len() == ROAMERS).map(|(id, ..)| *id);
        for (id, peer, local, remote) in batch {
            let may = self.peers.get(&peer).is_some_and(|peer| !peer.local_is_fixed);
            // without a route there is nothing to go on from
            let source = self.datapath.source_towards(remote.ip());
            let Some(source) = source.ok().filter(|source| may && *source != local.ip()) else {
                continue;
            };
            let to = SocketAddr::new(source, local.port());
            let _ = self.endpoint.command(&Command::Move(id, to, remote), now);
        }
    }

    /// Sends the packets that wait for a child. Returns whether it stands.
    pub(super) fn send_waiting(&self, child: &str) -> bool {
        let stands = self.children.exists(child);
        if stands && let Err(error) = self.datapath.send_waiting(child) {
            self.say(format!("packets that waited for `{child}` are lost: {error}"));
        }
        stands
    }

    /// Sets up what packets wait for, and sends them when it stands.
    fn asked(&mut self, child: &str, now: Instant) {
        if self.send_waiting(child) {
            return;
        }
        let Some(peer) = self.peers.owner(child) else {
            return self.datapath.drop_waiting(child);
        };
        let wanted = self.peers.get(&peer).and_then(|peer| peer.child(child));
        match wanted {
            Some(wanted) if wanted.is_wanted() => {}
            Some(wanted) => {
                wanted.is_asked = true;
                self.peers.look(&peer, now);
            }
            None => self.datapath.drop_waiting(child),
        }
    }

    /// The children of a peer could not be set up: those that packets asked for are given up until
    /// the next packet.
    pub(super) fn give_up(&mut self, peer: &str) {
        let Some(peer) = self.peers.get(peer) else { return };
        for child in peer.children.iter_mut().filter(|child| child.is_asked) {
            child.is_asked = false;
            self.datapath.drop_waiting(&child.name);
        }
    }

    /// Begins what a peer lacks. Returns when to look after it again, should nothing happen.
    fn look_after(&mut self, name: &str, now: Instant) -> Option<Instant> {
        let peer = self.peers.get(name)?;
        let is_missing =
            |child: &&mut Wanted| child.is_wanted() && !self.children.exists(&child.name);
        let missing = peer.children.iter_mut().filter(is_missing);
        let missing: Vec<&mut Wanted> = missing.collect();
        if missing.is_empty() {
            return None;
        }
        // one that stands before one that is being set up
        let of_peer = || self.sessions.of(name);
        let session = of_peer().find(|(_, one)| one.established.is_some()).or(of_peer().next());
        let Some((id, session)) = session else {
            let first = missing.first().map(|child| child.name.clone());
            return self.connect(name, first.as_deref(), now);
        };
        // the IKE SA itself brings the first
        let ready = session.established? + LOOK;
        if ready > now {
            return Some(ready);
        }
        let mut next = now + LOOK;
        for child in missing {
            if child.retry.may_try(now) {
                let create = Command::CreateChild(id, child.name.clone());
                let _ = self.endpoint.command(&create, now);
            }
            next = next.min(child.retry.at().unwrap_or(next));
        }
        Some(next)
    }

    /// Begins to set up an IKE SA with this CHILD SA. Returns when to look after the peer again.
    fn connect(&mut self, name: &str, child: Option<&str>, now: Instant) -> Option<Instant> {
        while self.connecting.first().is_some_and(|(at, _)| now.duration_since(*at) >= LOOK) {
            self.connecting.pop_first();
        }
        if self.connecting.len() >= MAX_CONNECTING {
            return Some(now + LATER);
        }
        let peer = self.peers.get(name)?;
        if !peer.retry.may_try(now) {
            return peer.retry.at();
        }
        let (mut local, remote) = (peer.local, peer.remote?);
        if !peer.local_is_fixed {
            // the address of when the configuration was read may be gone
            let source = self.datapath.source_towards(remote.ip());
            local.set_ip(source.unwrap_or(local.ip()));
        }
        let id = self.endpoint.connect_for(name, child, (local, remote), now).ok()?;
        self.connecting.insert((now, id));
        self.sessions.insert(id, Session::begun(name.to_owned(), (local, remote), now));
        None
    }
}
