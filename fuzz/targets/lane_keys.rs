//! Keys for lanes: real ones, and one that everybody has.
#![allow(dead_code)]

use std::marker::PhantomData;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use headroom_transfer_proto::lane::{
    Context, Derived, Direction, Header, Keys, LaneId, PacketKey, Refused, TAG_LEN, TransferId,
};

pub(crate) const LANE: LaneId = LaneId(0x0102_0304_0506_0708);
pub(crate) const TRANSFER: TransferId = TransferId([7; 16]);

pub(crate) fn context(direction: Direction) -> Context {
    Context { transfer: TRANSFER, lane: LANE, direction, epoch: 0 }
}

/// One secret for both ends.
pub(crate) struct Exporter<K>(PhantomData<K>);

impl<K> Exporter<K> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<K: From<[u8; 16]> + PacketKey> Keys for Exporter<K> {
    type Key = K;

    fn derive(&mut self, context: &Context) -> Result<Derived<K>, Refused> {
        let secret = blake3::keyed_hash(&[9; 32], &context.bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&secret.as_bytes()[..16]);
        let mut iv = [0; 12];
        iv.copy_from_slice(&secret.as_bytes()[16..28]);
        Ok(Derived { key: K::from(key), iv })
    }
}

/// AES-128-GCM.
pub(crate) struct Aes(LessSafeKey);

impl From<[u8; 16]> for Aes {
    fn from(key: [u8; 16]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("16 bytes")))
    }
}

impl PacketKey for Aes {
    fn seal(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        let (nonce, additional) = (Nonce::assume_unique_for_key(nonce), Aad::from(additional));
        self.0.seal_in_place_scatter(nonce, additional, text, &[], tag).map_err(|_| Refused)
    }

    fn open(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused> {
        let (nonce, additional) = (Nonce::assume_unique_for_key(nonce), Aad::from(additional));
        let opened = self.0.open_in_place_separate_tag(nonce, additional, tag, text);
        opened.map(drop).map_err(|_| Refused)
    }
}

/// The tag is the header again: a fuzzer that plays the peer can make packets.
pub(crate) struct Open;

impl From<[u8; 16]> for Open {
    fn from(_: [u8; 16]) -> Self {
        Self
    }
}

impl PacketKey for Open {
    fn seal(
        &self,
        _: [u8; 12],
        additional: &[u8],
        _: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        tag.copy_from_slice(additional);
        Ok(())
    }

    fn open(
        &self,
        _: [u8; 12],
        additional: &[u8],
        _: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused> {
        if additional == tag { Ok(()) } else { Err(Refused) }
    }
}

/// A packet as a peer seals it with [`Open`].
pub(crate) fn sealed(header: Header, text: &[u8]) -> Vec<u8> {
    [&header.bytes()[..], text, &header.bytes()].concat()
}
