//! Describes what IKE does to those who follow it with `tunnel trace`.

use std::net::SocketAddr;

use headroom_ike::{Event, MessageReport, SessionId};

use super::children::Children;
use super::sessions::Sessions;
use crate::datapath::{IkeEvent, IkeMessageRecord, IkeRecord};

/// Returns the record of an event that is about to be followed; none of those that only order what
/// the packet path does.
pub(super) fn record(event: &Event, sessions: &Sessions, children: &Children) -> Option<IkeRecord> {
    let of = |id: &SessionId, ike: IkeEvent| {
        let session = sessions.get(*id);
        let peer = session.map(|one| one.peer.clone());
        IkeRecord { peer, remote: session.map(|one| one.remote), ..IkeRecord::new(ike) }
    };
    let at = |record: IkeRecord, remote: &SocketAddr| IkeRecord { remote: Some(*remote), ..record };
    Some(match event {
        Event::Message { session, remote_address, message } => {
            let message = Some(message_record(message));
            let record = at(of(session, IkeEvent::Message), remote_address);
            IkeRecord { message, ..record }
        }
        Event::Established { session, connection, remote_address, .. } => {
            let peer = Some(connection.clone());
            IkeRecord { peer, ..at(of(session, IkeEvent::Established), remote_address) }
        }
        Event::Rekeyed { session, .. } => of(session, IkeEvent::Rekeyed),
        Event::Moved { session, remote_address, .. } => {
            at(of(session, IkeEvent::Moved), remote_address)
        }
        Event::Closed { session, remote_address, reason } => {
            let reason = Some(reason.to_string());
            IkeRecord { reason, ..at(of(session, IkeEvent::Closed), remote_address) }
        }
        Event::Install(sa) => {
            let ike = match sa.replaces {
                Some(_) => IkeEvent::ChildRekeyed,
                None => IkeEvent::ChildInstalled,
            };
            let child = Some(sa.config.name.clone());
            let spis = Some((sa.inbound.spi, sa.outbound.spi));
            IkeRecord { child, spis, ..of(&sa.session, ike) }
        }
        Event::Remove(id) => {
            let origin = children.origin(*id)?;
            let record = of(&origin.session, IkeEvent::ChildRemoved);
            IkeRecord { child: Some(origin.child), spis: Some(origin.spis), ..record }
        }
        Event::ChildFailed { session, name, reason } => {
            let (child, reason) = (name.clone(), Some(reason.to_string()));
            IkeRecord { child, reason, ..of(session, IkeEvent::ChildFailed) }
        }
        Event::Switch(_)
        | Event::StopSending(_)
        | Event::Keys { .. }
        | Event::Reauthenticating { .. } => return None,
    })
}

fn message_record(message: &MessageReport) -> IkeMessageRecord {
    IkeMessageRecord {
        direction: if message.is_sent { "out" } else { "in" },
        exchange: message.exchange.to_string(),
        kind: if message.response { "response" } else { "request" },
        message_id: message.message_id,
        repeated: message.is_repeated,
        error: message.error.map(|error| error.to_string()),
    }
}
