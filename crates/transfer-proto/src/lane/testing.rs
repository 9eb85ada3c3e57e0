//! What tests of lanes share: keys without a connection.

use std::marker::PhantomData;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::header::LaneId;
use super::keys::{Context, Derived, Direction, Keys, PacketKey, Refused, TransferId};
use super::limits::TAG_LEN;

pub(crate) fn context() -> Context {
    Context {
        transfer: TransferId([3; 16]),
        lane: LaneId(0x5eed),
        direction: Direction::ToServer,
        epoch: 0,
    }
}

/// A secret that both ends have, and what was made of it.
#[derive(Debug)]
pub(crate) struct Exporter<K> {
    pub(crate) derived: Vec<Context>,
    key: PhantomData<K>,
}

impl<K> Default for Exporter<K> {
    fn default() -> Self {
        Self { derived: Vec::new(), key: PhantomData }
    }
}

/// A key made of a secret's bytes.
pub(crate) trait FromSecret: PacketKey {
    fn from_secret(secret: &[u8; 16]) -> Self;
}

impl<K: FromSecret> Keys for Exporter<K> {
    type Key = K;

    fn derive(&mut self, context: &Context) -> Result<Derived<K>, Refused> {
        self.derived.push(*context);
        let secret = blake3::keyed_hash(&[9; 32], &context.bytes());
        let (key, iv) = secret.as_bytes().split_at(20);
        let mut secret = [0; 16];
        secret.copy_from_slice(&key[..16]);
        let mut nonce = [0; 12];
        nonce.copy_from_slice(iv);
        Ok(Derived { key: K::from_secret(&secret), iv: nonce })
    }
}

/// AES-128-GCM.
#[derive(Debug)]
pub(crate) struct Aes(LessSafeKey);

impl FromSecret for Aes {
    fn from_secret(secret: &[u8; 16]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, secret).expect("16 bytes")))
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
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_scatter(nonce, Aad::from(additional), text, &[], tag)
            .map_err(|_| Refused)
    }

    fn open(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(additional), tag, text)
            .map(|_| ())
            .map_err(|_| Refused)
    }
}

/// No cryptography: the tag is the header again. For simulations of gigabytes.
#[derive(Debug)]
pub(crate) struct Cheap;

impl FromSecret for Cheap {
    fn from_secret(_: &[u8; 16]) -> Self {
        Self
    }
}

impl PacketKey for Cheap {
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
