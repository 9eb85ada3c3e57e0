//! Tells the caller which messages are sent and taken, for a person who follows them.

use super::{Context, Session};
use crate::event::{Event, MessageReport};
use crate::wire::{Header, NotifyType, Payload};

impl Session {
    /// Tells of a message.
    pub(super) fn report(&self, message: MessageReport, ctx: &mut Context<'_>) {
        if ctx.config.report_messages {
            let (session, remote_address) = (self.id, self.path.remote);
            ctx.events.push_back(Event::Message { session, remote_address, message });
        }
    }
}

impl MessageReport {
    pub(super) fn sent(header: &Header) -> Self {
        Self { is_sent: true, ..Self::taken(header) }
    }

    pub(super) fn taken(header: &Header) -> Self {
        let Header { exchange, response, message_id, .. } = *header;
        let (is_sent, is_repeated, error) = (false, false, None);
        Self { is_sent, exchange, response, message_id, is_repeated, error }
    }

    pub(super) fn again(self) -> Self {
        Self { is_repeated: true, ..self }
    }

    /// Adds the error that is among the payloads, or the demand for a cookie.
    pub(super) fn with_error_of(self, payloads: &[Payload<'_>]) -> Self {
        let mut notifies = payloads.iter().filter_map(|payload| match payload {
            Payload::Notify(notify) => Some(notify.notify_type),
            _ => None,
        });
        let error = notifies.find(|one| one.is_error() || *one == NotifyType::Cookie);
        Self { error, ..self }
    }
}
