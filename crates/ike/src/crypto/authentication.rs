//! What IKE_AUTH proves (RFC 7296 §2.15, RFC 9242 §3.3.2).

use headroom_suite::Key;

use super::Prf;
use crate::wire::{HEADER_LEN, Header, PayloadType, finish};

/// Hides the shared key from an attacker who knows no more than the peers' messages.
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// What a peer signs: its first message, the other's nonce, its name, and all IKE_INTERMEDIATE
/// exchanges.
#[derive(Clone, Copy, Debug)]
pub struct SignedOctets<'a> {
    /// Its IKE_SA_INIT message, from the header to the end.
    pub message: &'a [u8],
    /// The other's nonce.
    pub nonce: &'a [u8],
    /// The body of its ID payload.
    pub id_body: &'a [u8],
    /// IntAuth with the message ID of IKE_AUTH; empty without IKE_INTERMEDIATE.
    pub int_auth: &'a [u8],
}

impl SignedOctets<'_> {
    /// Returns the octets; `sk_p` is the peer's SK_pi or SK_pr.
    #[must_use]
    pub fn concat(&self, prf: Prf, sk_p: &Key) -> Vec<u8> {
        let maced_id = prf.compute(sk_p.as_bytes(), &[self.id_body]);
        [self.message, self.nonce, maced_id.as_bytes(), self.int_auth].concat()
    }
}

/// Computes the authentication data of a shared key.
#[must_use]
pub fn shared_key_mac(prf: Prf, shared_key: &Key, octets: &[u8]) -> Key {
    let key = prf.compute(shared_key.as_bytes(), &[KEY_PAD]);
    prf.compute(key.as_bytes(), &[octets])
}

/// Computes IntAuth of one IKE_INTERMEDIATE message (RFC 9242 §3.3.2): `inner` are its decrypted
/// payloads, `previous` is the sender's IntAuth of the exchange before. Fragments count as the
/// message that they make.
#[must_use]
pub fn intermediate_mac(
    prf: Prf,
    sk_p: &Key,
    previous: &[u8],
    header: &Header,
    (first, inner): (PayloadType, &[u8]),
) -> Key {
    let mut associated = Vec::with_capacity(HEADER_LEN + 4);
    header.emit(&mut associated);
    let length = (4 + inner.len()) as u16;
    associated.extend([first.into(), 0]);
    associated.extend(length.to_be_bytes());
    finish(&mut associated, PayloadType::Encrypted, inner.len());
    prf.compute(sk_p.as_bytes(), &[previous, &associated, inner])
}
