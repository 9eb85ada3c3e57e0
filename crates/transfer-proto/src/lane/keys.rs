//! Where keys come from and what is done with them: the engine's part, behind two
//! traits, so that a browser brings other cryptography.

use super::header::LaneId;
use super::limits::TAG_LEN;

/// A transfer's name in the exporter's context: random, made by the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransferId(pub [u8; 16]);

/// Which way packets go. Client is who opened the QUIC connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// The other way.
    #[must_use]
    pub fn reverse(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// Octets of a [`Context`].
pub const CONTEXT_LEN: usize = 29;

/// What one key is for. Never the same twice within a connection: transfers and
/// lanes have random names, and an epoch of a direction comes once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Context {
    /// Of this transfer,
    pub transfer: TransferId,
    /// of this lane of it,
    pub lane: LaneId,
    /// one way,
    pub direction: Direction,
    /// this many epochs after the first.
    pub epoch: u32,
}

impl Context {
    /// The label that goes with it to the TLS exporter (RFC 8446, section 7.5).
    pub const LABEL: &[u8] = b"EXPORTER-headroom-lane";

    /// The context for the exporter: transfer, lane, direction (0 to the server,
    /// 1 to the client), epoch, numbers in network byte order.
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

/// The connection's exporter.
pub trait Keys {
    /// An AEAD bound to its key.
    type Key: PacketKey;

    /// The key and IV for `context`: what the exporter gives, split, the key
    /// first.
    ///
    /// # Errors
    /// Where the connection has no such secret (it is closed).
    fn derive(&mut self, context: &Context) -> Result<Derived<Self::Key>, Refused>;
}

/// What an exporter's secret is split into.
#[derive(Debug)]
pub struct Derived<K> {
    /// The AEAD with its key.
    pub key: K,
    /// Its nonces are this, XOR a packet's number (RFC 9001, section 5.3).
    pub iv: [u8; 12],
}

/// An AEAD with a nonce of 96 bits and a tag of 128, bound to its key.
pub trait PacketKey {
    /// Encrypts `text` in place and writes its tag.
    ///
    /// # Errors
    /// Where the AEAD refuses; the packet is not sent.
    fn seal(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused>;

    /// The same for a text that begins in `packet_bytes` and goes on with `rest`, which lies
    /// elsewhere: `packet_bytes` has that beginning, room for `rest`, and for the tag behind
    /// it. Where the AEAD has nothing better, `rest` is copied.
    ///
    /// # Errors
    /// As those of [`Self::seal`]; or `packet_bytes` has no room.
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
    /// Where the tag is wrong; `text` is then worth nothing.
    fn open(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused>;
}

/// Cryptography says no, and not why.
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
