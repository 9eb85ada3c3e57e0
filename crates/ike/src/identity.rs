//! Names of peers (RFC 7296 §3.5).

use std::fmt;
use std::net::IpAddr;

use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use crate::wire::{IdType, Identification};

/// A peer's name.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Identity {
    /// An IP address.
    Address(IpAddr),
    /// A fully qualified domain name, or any word.
    Fqdn(String),
    /// An e-mail address.
    Email(String),
    /// A distinguished name in DER.
    Dn(Vec<u8>),
    /// Any bytes.
    KeyId(Vec<u8>),
}

impl Identity {
    /// Reads a text: an IP address, an e-mail address, or else a domain name.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        match text.parse() {
            Ok(address) => Self::Address(address),
            Err(_) if text.contains('@') => Self::Email(text.to_owned()),
            Err(_) => Self::Fqdn(text.to_owned()),
        }
    }

    /// Reads an ID payload; none if its type is not known or its text not UTF-8.
    #[must_use]
    pub fn from_payload(payload: &Identification<'_>) -> Option<Self> {
        let text = || String::from_utf8(payload.data.to_vec()).ok();
        match payload.id_type {
            IdType::Ipv4 => {
                <[u8; 4]>::try_from(payload.data).ok().map(|one| Self::Address(one.into()))
            }
            IdType::Ipv6 => {
                <[u8; 16]>::try_from(payload.data).ok().map(|one| Self::Address(one.into()))
            }
            IdType::Fqdn => text().map(Self::Fqdn),
            IdType::Email => text().map(Self::Email),
            IdType::Dn => Some(Self::Dn(payload.data.to_vec())),
            IdType::KeyId => Some(Self::KeyId(payload.data.to_vec())),
            IdType::Gn | IdType::Unknown(_) => None,
        }
    }

    /// Returns the body of the ID payload.
    pub(crate) fn body(&self) -> Vec<u8> {
        let address;
        let (id_type, data): (_, &[u8]) = match self {
            Self::Address(IpAddr::V4(one)) => {
                address = one.octets().to_vec();
                (IdType::Ipv4, &address)
            }
            Self::Address(IpAddr::V6(one)) => {
                address = one.octets().to_vec();
                (IdType::Ipv6, &address)
            }
            Self::Fqdn(text) => (IdType::Fqdn, text.as_bytes()),
            Self::Email(text) => (IdType::Email, text.as_bytes()),
            Self::Dn(bytes) => (IdType::Dn, bytes),
            Self::KeyId(bytes) => (IdType::KeyId, bytes),
        };
        Identification { id_type, data }.body()
    }

    /// Returns the same identity for all names that [match](Self::matches).
    #[must_use]
    pub fn folded(&self) -> Self {
        match self {
            Self::Fqdn(text) => Self::Fqdn(text.to_ascii_lowercase()),
            // RFC 5280 §7.5
            Self::Email(text) => {
                let (mailbox, domain) = text.split_at(text.rfind('@').unwrap_or(text.len()));
                Self::Email(mailbox.to_owned() + &domain.to_ascii_lowercase())
            }
            other => other.clone(),
        }
    }

    /// Checks whether two names are the same. Domain names have no case, also in an e-mail address; its
    /// mailbox has.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Fqdn(text) | Self::Email(text) => write!(f, "{}", text.escape_debug()),
            Self::Dn(bytes) => match X509Name::from_der(bytes) {
                Ok((_, name)) => write!(f, "{}", name.to_string().escape_debug()),
                Err(_) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            },
            Self::KeyId(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Identification;

    #[test]
    fn names_are_sent_and_read_as_they_are() {
        for text in ["192.0.2.1", "2001:db8::1", "gate.example", "me@example.org"] {
            let name = Identity::from_text(text);
            let body = name.body();
            let payload = Identification { id_type: body[0].into(), data: &body[4..] };
            assert_eq!(Identity::from_payload(&payload), Some(name.clone()));
            assert_eq!(name.to_string(), text);
        }
        let bytes = Identification { id_type: IdType::Fqdn, data: &[0xff] };
        assert_eq!(Identity::from_payload(&bytes), None);
        assert!(Identity::from_text("Gate.Example").matches(&Identity::from_text("gate.example")));
        assert!(!Identity::from_text("gate").matches(&Identity::KeyId(b"gate".to_vec())));
        let [root, same, other] = ["root@gate.example", "root@Gate.Example", "Root@gate.example"]
            .map(Identity::from_text);
        assert!(root.matches(&same) && root.folded() == same.folded());
        assert!(!root.matches(&other) && root.folded() != other.folded(), "another mailbox");
    }
}
