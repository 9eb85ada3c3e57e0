//! What is tried with every peer.

use std::fmt;

use super::Side;
use crate::pki::KeyKind;
use crate::strongswan::road_warrior::Method;

/// What is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// We initiate, without ML-KEM.
    WeInitiate,
    /// The peer initiates, without ML-KEM.
    TheyInitiate,
    /// We initiate with X25519 and ML-KEM-768.
    PostQuantumByUs,
    /// The peer initiates with X25519 and ML-KEM-768.
    PostQuantumByThem,
    /// The peer sends fragments, and receives some where our messages are long enough.
    Fragments,
    /// We rekey the CHILD SA.
    ChildRekeyByUs,
    /// The peer rekeys the CHILD SA.
    ChildRekeyByThem,
    /// We rekey the IKE SA.
    IkeRekeyByUs,
    /// The peer rekeys the IKE SA, and then the CHILD SA on the new one.
    IkeRekeyByThem,
    /// We delete the IKE SA.
    DeleteByUs,
    /// The peer deletes the IKE SA.
    DeleteByThem,
    /// We ask whether the peer is alive.
    LivenessByUs,
    /// The peer asks whether we are alive.
    LivenessByThem,
    /// We initiate through a NAT.
    WeAreBehindNat,
    /// The peer initiates through a NAT.
    TheyAreBehindNat,
    /// We get another address (MOBIKE, RFC 4555).
    WeMove,
    /// Both prove by signatures of certificates' keys (RFC 7427); this side initiates.
    Certificates(KeyKind, Side),
    /// The peer is a client that proves by EAP and gets an address of our pool.
    Eap(Method),
    /// The peer sets up an IKE SA without a CHILD SA (RFC 6023), and adds one.
    Childless,
}

impl Trial {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::WeInitiate,
        Self::TheyInitiate,
        Self::PostQuantumByUs,
        Self::PostQuantumByThem,
        Self::Fragments,
        Self::ChildRekeyByUs,
        Self::ChildRekeyByThem,
        Self::IkeRekeyByUs,
        Self::IkeRekeyByThem,
        Self::DeleteByUs,
        Self::DeleteByThem,
        Self::LivenessByUs,
        Self::LivenessByThem,
        Self::WeAreBehindNat,
        Self::TheyAreBehindNat,
        Self::WeMove,
        Self::Certificates(KeyKind::EcdsaP256, Side::Ours),
        Self::Certificates(KeyKind::EcdsaP256, Side::Theirs),
        Self::Certificates(KeyKind::EcdsaP384, Side::Ours),
        Self::Certificates(KeyKind::EcdsaP384, Side::Theirs),
        Self::Certificates(KeyKind::Ed25519, Side::Ours),
        Self::Certificates(KeyKind::Ed25519, Side::Theirs),
        Self::Certificates(KeyKind::Rsa, Side::Ours),
        Self::Certificates(KeyKind::Rsa, Side::Theirs),
        Self::Eap(Method::MsChapV2),
        Self::Eap(Method::Tls),
        Self::Childless,
    ];

    pub(super) fn they_initiate(self) -> bool {
        matches!(
            self,
            Self::TheyInitiate
                | Self::PostQuantumByThem
                | Self::ChildRekeyByThem
                | Self::IkeRekeyByThem
                | Self::DeleteByThem
                | Self::LivenessByThem
                | Self::TheyAreBehindNat
                | Self::Certificates(_, Side::Theirs)
                | Self::Eap(_)
                | Self::Childless
        )
    }

    /// Returns the kind of both certificates' keys; none: there is a pre-shared key.
    pub(super) fn certificates(self) -> Option<KeyKind> {
        match self {
            Self::Certificates(kind, _) => Some(kind),
            _ => None,
        }
    }

    /// Returns whether the exchange is post-quantum where the peer can.
    pub(super) fn wants_post_quantum(self) -> bool {
        !matches!(self, Self::WeInitiate | Self::TheyInitiate)
    }

    /// Returns the side behind a NAT.
    pub(super) fn nat(self) -> Option<Side> {
        match self {
            Self::WeAreBehindNat => Some(Side::Ours),
            Self::TheyAreBehindNat => Some(Side::Theirs),
            _ => None,
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WeInitiate => "set-up with X25519, we initiate",
            Self::TheyInitiate => "set-up with X25519, the peer initiates",
            Self::PostQuantumByUs => "set-up with X25519 and ML-KEM-768, we initiate",
            Self::PostQuantumByThem => "set-up with X25519 and ML-KEM-768, the peer initiates",
            Self::Fragments => "fragments (RFC 7383)",
            Self::ChildRekeyByUs => "CHILD SA rekeyed by us",
            Self::ChildRekeyByThem => "CHILD SA rekeyed by the peer",
            Self::IkeRekeyByUs => "IKE SA rekeyed by us",
            Self::IkeRekeyByThem => "IKE SA rekeyed by the peer",
            Self::DeleteByUs => "deleted by us",
            Self::DeleteByThem => "deleted by the peer",
            Self::LivenessByUs => "liveness asked by us",
            Self::LivenessByThem => "liveness asked by the peer",
            Self::WeAreBehindNat => "we are behind a NAT",
            Self::TheyAreBehindNat => "the peer is behind a NAT",
            Self::WeMove => "we move to another address (MOBIKE)",
            Self::Certificates(kind, Side::Ours) => {
                return write!(f, "certificates, {kind}, we initiate");
            }
            Self::Certificates(kind, Side::Theirs) => {
                return write!(f, "certificates, {kind}, the peer initiates");
            }
            Self::Eap(Method::MsChapV2) => {
                "EAP-MSCHAPv2 and an address from our pool, the peer is the client"
            }
            Self::Eap(Method::Tls) => {
                "EAP-TLS and an address from our pool, the peer is the client"
            }
            Self::Childless => "IKE SA without a CHILD SA (RFC 6023), the peer initiates",
        })
    }
}
