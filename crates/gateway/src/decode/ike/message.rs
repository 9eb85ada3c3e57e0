//! The report on one message of IKE, and the counts of all.

use std::fmt;

use headroom_ike::wire::Header;
use serde::Serialize;

use super::payload::PayloadReport;

/// A message of IKE. Keys, public values, nonces and proofs are never in it, only their lengths.
#[derive(Debug, Clone, Serialize)]
pub struct IkeMessage {
    /// UDP ports.
    pub udp: (u16, u16),
    /// The SPI of the original initiator, in hexadecimal.
    pub spi_initiator: String,
    /// The SPI of the original responder.
    pub spi_responder: String,
    /// The name of the exchange, or its number.
    pub exchange: String,
    /// The number of the exchange among those of its requester.
    pub message_id: u32,
    /// Whether it is a response.
    pub response: bool,
    /// Whether the original initiator of the IKE SA sent it.
    pub from_initiator: bool,
    /// Whether it is encrypted, and was opened.
    pub encryption: Encryption,
    /// Number and total of a fragment (RFC 7383).
    pub fragment: Option<(u16, u16)>,
    /// The frame with the same message, if it was sent before.
    pub repeats: Option<u64>,
    /// The payloads, those of an opened message included.
    pub payloads: Vec<PayloadReport>,
    /// Why the message cannot be read to its end.
    pub problem: Option<String>,
}

/// Whether a message is encrypted, and was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// It is not encrypted.
    None,
    /// It was opened.
    Opened,
    /// It is a fragment that was opened and waits for others.
    Incomplete,
    /// There is no log of keys.
    NoLog,
    /// The log has no keys for its SPIs.
    NoKeys,
    /// It does not verify with the keys for its SPIs.
    Forged,
}

/// Counts of messages of IKE.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct IkeTally {
    /// All messages; each fragment is one.
    pub messages: u64,
    /// Messages that were opened; those in fragments once.
    pub opened: u64,
    /// Encrypted messages, where no log was given.
    pub sealed: u64,
    /// Messages that are malformed, do not verify, or have no keys in the log.
    pub failed: u64,
    /// Messages that were there before.
    pub repeated: u64,
    /// Messages with missing fragments.
    pub incomplete: u64,
}

impl IkeMessage {
    pub(super) fn new(header: &Header, udp: (u16, u16)) -> Self {
        Self {
            udp,
            spi_initiator: format!("{:016x}", header.spi_initiator),
            spi_responder: format!("{:016x}", header.spi_responder),
            exchange: header.exchange.to_string(),
            message_id: header.message_id,
            response: header.response,
            from_initiator: header.from_initiator,
            encryption: Encryption::None,
            fragment: None,
            repeats: None,
            payloads: Vec::new(),
            problem: None,
        }
    }

    /// Checks whether the message should have been read to its end, and was not.
    pub(in crate::decode) fn is_failure(&self) -> bool {
        let sealed = [Encryption::NoKeys, Encryption::Forged].contains(&self.encryption);
        sealed || self.problem.is_some()
    }
}

impl fmt::Display for IkeMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { udp: (from, to), spi_initiator, spi_responder, exchange, .. } = self;
        let kind = if self.response { "response" } else { "request" };
        let sender = if self.from_initiator { "initiator" } else { "responder" };
        write!(
            f,
            "IKE {spi_initiator} {spi_responder} in UDP {from}→{to}  {exchange} {kind} {} from the {sender}",
            self.message_id
        )?;
        if let Some((number, total)) = self.fragment {
            write!(f, ", fragment {number} of {total}")?;
        }
        match self.encryption {
            Encryption::None | Encryption::Opened | Encryption::Incomplete => {}
            Encryption::NoLog => write!(f, ", encrypted")?,
            Encryption::NoKeys => write!(f, ", FAILED: the log has no keys for these SPIs")?,
            Encryption::Forged => {
                write!(f, ", FAILED: it does not verify with the keys for these SPIs")?;
            }
        }
        if let Some(problem) = &self.problem {
            write!(f, ", FAILED: {problem}")?;
        }
        self.repeats.map_or(Ok(()), |frame| write!(f, ", sent before in frame {frame}"))
    }
}

impl fmt::Display for IkeTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IKE: {} messages, {} opened", self.messages, self.opened)?;
        for (count, what) in [
            (self.sealed, "without keys (--keylog)"),
            (self.failed, "failed"),
            (self.repeated, "sent again"),
            (self.incomplete, "with missing fragments"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}
