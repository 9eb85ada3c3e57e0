//! Fresh keys and SPIs of one instance, the same at both ends.

use headroom_lab_host::role::Role;

use super::options::Parameters;
use super::{Ipsec, Protocol};
use crate::layer::random_key::hex;

/// One protection with its numbers and keys, in both directions.
#[derive(Debug)]
pub(super) struct Keys {
    /// ESP or Q-ESP; none of AH alone.
    pub(super) encrypted: Option<KeyPair>,
    /// AH.
    pub(super) authenticated: Option<KeyPair>,
}

/// Both directions of one protection.
#[derive(Debug)]
pub(super) struct KeyPair {
    from_client: DirectionKeys,
    from_server: DirectionKeys,
}

/// One security association.
#[derive(Debug)]
pub(super) struct DirectionKeys {
    pub(super) spi: u32,
    /// Hexadecimal; of the cipher, or of AH's algorithm.
    pub(super) key: String,
    /// Hexadecimal; of the integrity algorithm, for a cipher that does not authenticate.
    pub(super) integrity_key: Option<String>,
}

impl Keys {
    /// Makes keys for the instance with this number; those of a dry run are all zeros.
    pub(super) fn fresh(layer: &Ipsec, number: u16, dry: bool) -> Self {
        Self::of_class(layer, number, 0, dry)
    }

    /// The same of a class of traffic, 0 or 1.
    pub(super) fn of_class(layer: &Ipsec, number: u16, class: u32, dry: bool) -> Self {
        let Parameters { cipher, mac, .. } = layer.parameters;
        let authenticator = mac.filter(|_| layer.protocol.has_ah());
        let keys = |nth: u32, key: usize, integrity_key: Option<usize>| DirectionKeys {
            spi: spi(number, nth, class, dry),
            key: hex(key, dry),
            integrity_key: integrity_key.map(|bytes| hex(bytes, dry)),
        };
        let encrypted = cipher.map(|cipher| {
            let integrity = mac.filter(|_| cipher.tag.is_none()).map(|mac| mac.key);
            KeyPair {
                from_client: keys(0, cipher.key, integrity),
                from_server: keys(1, cipher.key, integrity),
            }
        });
        let authenticated = authenticator.map(|mac| KeyPair {
            from_client: keys(2, mac.key, None),
            from_server: keys(3, mac.key, None),
        });
        Self { encrypted, authenticated }
    }

    /// Each protection, innermost first, with its name.
    pub(super) fn each(
        &self,
        protocol: Protocol,
    ) -> impl Iterator<Item = (&'static str, &KeyPair)> {
        let inner = if protocol == Protocol::QEsp { "qesp" } else { "esp" };
        let inner = self.encrypted.iter().map(move |pair| (inner, pair));
        inner.chain(self.authenticated.iter().map(|pair| ("ah", pair)))
    }
}

impl KeyPair {
    /// Returns the keys to send with, then those to receive with.
    pub(super) fn seen_from(&self, role: Role) -> [&DirectionKeys; 2] {
        match role {
            Role::Client => [&self.from_client, &self.from_server],
            Role::Server => [&self.from_server, &self.from_client],
        }
    }
}

/// A number above the reserved ones (RFC 4303 §2.1), unlike every other of the run.
fn spi(number: u16, nth: u32, class: u32, dry: bool) -> u32 {
    let chance: u32 = if dry { 0 } else { rand::random() };
    chance << 12 | 0x800 | class << 10 | u32::from(number) << 2 | nth
}
