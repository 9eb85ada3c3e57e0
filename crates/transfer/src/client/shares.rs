//! Makes, lists and revokes share links on the server.

use headroom_transfer_proto::message::{Message, ShareTerms};

use super::connection::Client;
use crate::control::{MessageReader, MessageWriter, hello, unexpected};
use crate::error::Error;

/// The most shares that a server may list.
const MAX: usize = 4096;

/// What a new share link allows.
#[derive(Debug, Clone)]
pub struct ShareOptions {
    /// Whether its holder may only send files into the directory; otherwise only fetch.
    pub write: bool,
    /// Seconds until it expires.
    pub seconds: u64,
    /// The most browsers that may use it; `None` is any number.
    pub uses: Option<u32>,
    /// A note for people.
    pub name: String,
}

/// A share link that was made.
#[derive(Debug, Clone)]
pub struct SharedLink {
    /// What it allows.
    pub terms: ShareTerms,
    /// Its secret, which the server does not keep.
    pub secret: [u8; 32],
    /// The URL of the server's page.
    pub page: String,
}

impl Client {
    /// Makes a share link for a file or directory below the server's root.
    ///
    /// # Errors
    /// It is missing, the key may not do itself what the link would allow, or the server has no
    /// page.
    pub async fn share(&mut self, path: &[u8], options: ShareOptions) -> Result<SharedLink, Error> {
        let ShareOptions { write, seconds, uses, name } = options;
        let request = Message::Share { path: self.below(path)?, write, seconds, uses, name };
        let (writer, mut reader) = self.ask(&request).await?;
        match reader.expect().await? {
            Message::Shared { terms, secret, page } => {
                self.finish_request(writer, reader).await;
                Ok(SharedLink { terms: *terms, secret, page })
            }
            Message::Refused { reason, about_files, code } => {
                Err(Error::refused(reason, about_files, code))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Lists the share links that this key has made and that are open.
    ///
    /// # Errors
    /// The key may make none, or the server has no page.
    pub async fn shares(&mut self) -> Result<Vec<ShareTerms>, Error> {
        let (writer, mut reader) = self.ask(&Message::Shares).await?;
        let mut all = Vec::new();
        loop {
            match reader.expect().await? {
                Message::SharesListed { shares, last } => {
                    all.extend(shares);
                    if all.len() > MAX {
                        return Err(Error::Protocol("it lists too many shares".to_owned()));
                    }
                    if last {
                        self.finish_request(writer, reader).await;
                        return Ok(all);
                    }
                }
                Message::Refused { reason, about_files, code } => {
                    return Err(Error::refused(reason, about_files, code));
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Ends a share of this key, and the sessions that it has.
    ///
    /// # Errors
    /// There is none with this ID.
    pub async fn revoke(&mut self, id: &str) -> Result<(), Error> {
        let request = Message::Revoke { id: id.to_owned() };
        let (writer, mut reader, _) = self.request(&request, None).await?;
        match reader.expect().await? {
            Message::End { .. } => {
                self.finish_request(writer, reader).await;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a request that is answered without [`Message::Accepted`].
    async fn ask(&mut self, request: &Message) -> Result<(MessageWriter, MessageReader), Error> {
        let (send, receive) = self.connection.open_bi().await?;
        let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
        writer.queue(&hello(self.greeting())).await?;
        if let Some(proof) = self.proof.take() {
            writer.queue(&proof).await?;
        }
        writer.send(request).await?;
        reader.recv_hello().await?;
        Ok((writer, reader))
    }
}
