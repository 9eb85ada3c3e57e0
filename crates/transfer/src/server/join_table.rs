//! The uploads that sessions may join, by their tickets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::message::TICKET_BYTES;
use tokio::sync::mpsc;

use crate::access::Grant;
use crate::delivery::DataSession;
use crate::error::Error;
use crate::key::PublicKey;
use crate::proof::random;

/// The most sessions that join one upload.
const MAX_JOINED: usize = 15;

pub(super) type Ticket = [u8; TICKET_BYTES];

/// The uploads that may be joined, by their tickets.
#[derive(Debug, Clone, Default)]
pub(super) struct JoinTable(Arc<Mutex<HashMap<Ticket, Joinable>>>);

/// An upload, from the view of sessions that join it.
#[derive(Debug)]
struct Joinable {
    by: Holder,
    joined: usize,
    sessions: mpsc::Sender<DataSession>,
}

/// Who sends: the same key, with the same share link if it uses one.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    key: PublicKey,
    share: Option<String>,
}

impl Holder {
    fn of(grant: &Grant) -> Option<Self> {
        let share = grant.share.as_ref().map(|share| share.id.clone());
        grant.key.map(|key| Self { key, share })
    }
}

/// An upload's ticket, which is void once this is dropped.
#[derive(Debug)]
pub(super) struct OpenTicket {
    table: JoinTable,
    pub(super) ticket: Ticket,
}

impl JoinTable {
    /// Makes a ticket for an upload of this client, and the channel on which sessions come that
    /// join it; `None` for a client without a key.
    pub(super) fn open(
        &self,
        by: &Grant,
    ) -> Result<Option<(OpenTicket, mpsc::Receiver<DataSession>)>, Error> {
        let Some(by) = Holder::of(by) else { return Ok(None) };
        let ticket = random("make a ticket for an upload")?;
        let (sessions, joining) = mpsc::channel(MAX_JOINED);
        self.lock().insert(ticket, Joinable { by, joined: 0, sessions });
        Ok(Some((OpenTicket { table: self.clone(), ticket }, joining)))
    }

    /// Lets a client join the upload of a ticket: returns where its session is to be sent.
    pub(super) fn join(
        &self,
        ticket: &Ticket,
        by: &Grant,
    ) -> Result<mpsc::Sender<DataSession>, Error> {
        let mut table = self.lock();
        let upload =
            table.get_mut(ticket).filter(|upload| Some(&upload.by) == Holder::of(by).as_ref());
        let Some(upload) = upload else {
            return Err(Error::Refused(
                "there is no such upload to join, or it has ended".to_owned(),
            ));
        };
        if upload.joined == MAX_JOINED {
            let reason = format!("{MAX_JOINED} sessions have joined this upload, and no more may");
            return Err(Error::Refused(reason));
        }
        upload.joined += 1;
        Ok(upload.sessions.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ticket, Joinable>> {
        lock(&self.0)
    }
}

impl Drop for OpenTicket {
    fn drop(&mut self) {
        self.table.lock().remove(&self.ticket);
    }
}
