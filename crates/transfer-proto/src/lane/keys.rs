//! Where keys come from and how they are used: the engine's part, behind two traits, so that a
//! browser can use other cryptography.

use super::header::LaneId;
use super::limits::TAG_LEN;

/// A transfer's random name, chosen by the client, for the exporter's context.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransferId(pub [u8; 16]);

/// The direction of packets. The client is the end that opened the QUIC connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// Returns the other direction.
    #[must_use]
    pub fn reverse(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// Bytes of a [`Context`].
pub const CONTEXT_LEN: usize = 29;

/// What one key is for. Never repeated within a connection: transfers and lanes have random
/// names, and each epoch of a direction occurs once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Context {
    /// The transfer.
    pub transfer: TransferId,
    /// The lane.
    pub lane: LaneId,
    /// The direction.
    pub direction: Direction,
    /// The epoch, from 0.
    pub epoch: u32,
}

impl Context {
    /// The label for the TLS exporter (RFC 8446, section 7.5).
    pub const LABEL: &[u8] = b"EXPORTER-headroom-lane";

    /// Encodes the context for the exporter: transfer, lane, direction (0 to the server, 1 to the
    /// client), epoch, with numbers in network byte order.
    #[must_use]
    pub fn bytes(&self) -> [u8; CONTEXT_LEN] {
        let mut bytes = [0; CONTEXT_LEN];
        bytes[..16].copy_from_slice(&self.transfer.0);
        bytes[16..24].copy_from_slice(&self.lane.0.to_be_bytes());
        bytes[24] = u8::from(self.direction == Direction::ToClient);
        bytes[25..].copy_from_slice(&self.epoch.to_be_bytes());
        bytes
    }
}

/// Derives keys from the connection's exporter.
pub trait Keys {
    /// An AEAD with its key.
    type Key: PacketKey;

    /// Derives key and IV for `context`: the exporter's output, key first.
    ///
    /// # Errors
    /// The connection gives no such secret, because it is closed.
    fn derive(&mut self, context: &Context) -> Result<Derived<Self::Key>, Refused>;
}

/// A key and its IV.
#[derive(Debug)]
pub struct Derived<K> {
    /// The AEAD with its key.
    pub key: K,
    /// Nonces are this XOR the packet number (RFC 9001, section 5.3).
    pub iv: [u8; 12],
}

/// An AEAD with a 96-bit nonce and a 128-bit tag, and its key.
pub trait PacketKey {
    /// Encrypts `text` in place and writes its tag.
    ///
    /// # Errors
    /// The AEAD refuses; the packet must not be sent.
    fn seal(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused>;

    /// Encrypts a text that begins in `packet_bytes` and continues with `rest`, which is elsewhere
    /// in memory: `packet_bytes` has that beginning, then space for `rest` and for the tag. The
    /// default implementation copies `rest`.
    ///
    /// # Errors
    /// As those of [`Self::seal`]; or `packet_bytes` is too short.
    #[inline]
    fn seal_with(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        packet_bytes: &mut [u8],
        rest: &[u8],
    ) -> Result<(), Refused> {
        let (text, tag) = packet_bytes.split_last_chunk_mut::<TAG_LEN>().ok_or(Refused)?;
        let body_len = text.len().checked_sub(rest.len()).ok_or(Refused)?;
        text[body_len..].copy_from_slice(rest);
        self.seal(nonce, additional, text, tag)
    }

    /// Verifies `tag`, then decrypts `text` in place.
    ///
    /// # Errors
    /// The tag is wrong; `text` is then garbage.
    fn open(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused>;
}

/// A cryptographic operation failed; the reason is not disclosed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the packet's key refused it")]
pub struct Refused;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_that_of_the_document() {
        let context = Context {
            transfer: TransferId([7; 16]),
            lane: LaneId(0x0102_0304_0506_0708),
            direction: Direction::ToClient,
            epoch: 0x0a0b_0c0d,
        };
        let mut expected = vec![7; 16];
        expected.extend([1, 2, 3, 4, 5, 6, 7, 8, 1, 10, 11, 12, 13]);
        assert_eq!(context.bytes()[..], expected);
    }
}
