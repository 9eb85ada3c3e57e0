//! NAT detection (RFC 7296 §2.23).

use std::net::SocketAddr;

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};

use crate::crypto::Spis;
use crate::wire::{Notify, NotifyType, Payload};

use crate::contents::Contents;

/// Who is behind a NAT.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Nat {
    pub(crate) local: bool,
    /// The peer is, or says so.
    pub(crate) remote: bool,
    /// We say that we are.
    pub(crate) pretended: bool,
}

/// What we say of our address and the peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashes {
    pub(crate) source: [u8; 20],
    pub(crate) destination: [u8; 20],
}

impl Hashes {
    /// Returns NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP.
    pub(crate) fn payloads(&self) -> [Payload<'_>; 2] {
        [
            Payload::Notify(Notify::new(NotifyType::NatDetectionSourceIp, &self.source)),
            Payload::Notify(Notify::new(NotifyType::NatDetectionDestinationIp, &self.destination)),
        ]
    }
}

impl Nat {
    /// Compares a peer's hashes with the addresses of its message. A peer that sends none does not
    /// know of NATs.
    pub(crate) fn detect(
        contents: &Contents<'_>,
        spis: Spis,
        local: SocketAddr,
        remote: SocketAddr,
        pretended: bool,
    ) -> Self {
        let differs = |notify_type, address| {
            let mut hashes = contents.notifies.iter().filter(|one| one.notify_type == notify_type);
            let expected = hash(spis, address);
            contents.has(notify_type) && !hashes.any(|one| one.data == expected)
        };
        Self {
            local: differs(NotifyType::NatDetectionDestinationIp, local),
            remote: differs(NotifyType::NatDetectionSourceIp, remote),
            pretended,
        }
    }

    pub(crate) fn is_there(self) -> bool {
        self.local || self.remote || self.pretended
    }
}

/// SHA-1 of SPIs, address and port: no secret, the RFC's choice.
pub(crate) fn hash(spis: Spis, address: SocketAddr) -> [u8; 20] {
    let mut context = digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&spis.initiator.to_be_bytes());
    context.update(&spis.responder.to_be_bytes());
    match address {
        SocketAddr::V4(address) => context.update(&address.ip().octets()),
        SocketAddr::V6(address) => context.update(&address.ip().octets()),
    }
    context.update(&address.port().to_be_bytes());
    let mut hash = [0; 20];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_strongswan() {
        // psk-mlkem768.A.log: natd_chunk and natd_hash of 10.77.0.2[500]
        let spis = Spis { initiator: 0xca04_49dd_1842_5d6e, responder: 0 };
        let expected = [
            0xab, 0x79, 0x6c, 0xe7, 0xb2, 0xcc, 0xb4, 0x1d, 0x78, 0x1e, 0xbc, 0x9a, 0x1d, 0x5c,
            0x44, 0xdd, 0x34, 0x7e, 0xd0, 0x8a,
        ];
        assert_eq!(hash(spis, SocketAddr::from(([10, 77, 0, 2], 500))), expected);
    }
}
