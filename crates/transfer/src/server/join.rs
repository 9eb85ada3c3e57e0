//! Uploads on several sessions of one browser, each of which has congestion control of its own.

use headroom_transfer_proto::message::Message;

use super::join_table::Ticket;
use super::request::Request;
use crate::delivery::DataSession;
use crate::error::Error;

impl Request<'_> {
    /// Gives the data streams of this session to an upload, and ends the session with it.
    pub(super) async fn join(&mut self, ticket: &Ticket) -> Result<(), Error> {
        let sessions = self.joins.join(ticket, self.client)?;
        self.writer.send(&Message::ACCEPTED).await?;
        let session = DataSession::new(self.connection.clone());
        let arrived = session.arrived();
        // this fails if the upload has ended
        let _ = sessions.send(session).await;
        let mut told = (0, 0);
        loop {
            tokio::select! {
                () = sessions.closed() => break,
                news = arrived.news(&mut told) => self.writer.send(&news).await?,
            }
        }
        self.writer.send(&Message::End { stored: 0, failed: 0 }).await
    }
}
