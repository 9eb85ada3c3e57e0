//! The TOML file of a configuration, before any check.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::scalar::{DscpFile, Scalar, SecretText};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) address: Vec<Spanned<String>>,
    pub(super) mtu: Option<Spanned<u64>>,
    pub(super) path_mtu: Option<Spanned<u64>>,
    pub(super) queues: Option<Spanned<u64>>,
    pub(super) keepalive: Option<Spanned<u64>>,
    pub(super) clamp_mss: Option<bool>,
    #[serde(default)]
    pub(super) allow_insecure: bool,
    pub(super) ledger: Option<PathBuf>,
    pub(super) ledger_copy: Option<PathBuf>,
    #[serde(default)]
    pub(super) sa: Vec<SaFile>,
    #[serde(default)]
    pub(super) policy: Vec<PolicyFile>,
    #[serde(default)]
    pub(super) ike: IkeFiles,
    #[serde(default)]
    pub(super) child: Vec<Spanned<ChildFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaFile {
    pub(super) name: Spanned<String>,
    pub(super) direction: Spanned<DirectionFile>,
    pub(super) protocol: Spanned<ProtocolFile>,
    pub(super) protocol_number: Option<Spanned<u64>>,
    pub(super) mode: Spanned<ModeFile>,
    pub(super) spi: Spanned<u64>,
    pub(super) source: Spanned<String>,
    pub(super) destination: Spanned<String>,
    pub(super) suite: Spanned<String>,
    pub(super) key: Option<Spanned<SecretText>>,
    pub(super) key_file: Option<Spanned<PathBuf>>,
    pub(super) integrity_key: Option<Spanned<SecretText>>,
    pub(super) integrity_key_file: Option<Spanned<PathBuf>>,
    pub(super) esn: Option<bool>,
    pub(super) window: Option<Spanned<u64>>,
    pub(super) udp: Option<Spanned<UdpFile>>,
    pub(super) follow_peer: Option<Spanned<bool>>,
    pub(super) lifetime: Option<Spanned<LifetimeFile>>,
    pub(super) dscp: Option<Spanned<DscpFile>>,
    pub(super) ecn: Option<bool>,
    pub(super) dont_fragment: Option<Spanned<String>>,
    pub(super) padding: Option<Spanned<Scalar>>,
    pub(super) dummy: Option<Spanned<String>>,
    pub(super) traffic_class: Option<Spanned<Vec<u64>>>,
    pub(super) ah_align: Option<Spanned<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DirectionFile {
    Out,
    In,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProtocolFile {
    Esp,
    Ah,
    Qesp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ModeFile {
    Transport,
    Tunnel,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UdpFile {
    pub(super) source: Spanned<u64>,
    pub(super) destination: Spanned<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LifetimeFile {
    pub(super) soft_bytes: Option<Spanned<Scalar>>,
    pub(super) hard_bytes: Option<Spanned<Scalar>>,
    pub(super) soft_packets: Option<Spanned<Scalar>>,
    pub(super) hard_packets: Option<Spanned<Scalar>>,
    pub(super) soft_seconds: Option<Spanned<Scalar>>,
    pub(super) hard_seconds: Option<Spanned<Scalar>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    pub(super) name: Spanned<String>,
    pub(super) action: Spanned<ActionFile>,
    pub(super) local: Option<Spanned<String>>,
    pub(super) remote: Option<Spanned<String>>,
    pub(super) protocol: Option<Spanned<Scalar>>,
    pub(super) local_port: Option<Spanned<Scalar>>,
    pub(super) remote_port: Option<Spanned<Scalar>>,
    pub(super) icmp: Option<Spanned<Scalar>>,
    #[serde(default)]
    pub(super) out: Vec<Spanned<String>>,
    #[serde(default, rename = "in")]
    pub(super) inbound: Vec<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ActionFile {
    Protect,
    Bypass,
    Discard,
}

/// `[ike]`, or several `[[ike]]`.
#[derive(Debug, Default)]
pub(super) struct IkeFiles(pub(super) Vec<IkeFile>);

impl<'de> Deserialize<'de> for IkeFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = IkeFiles;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table [ike], or several [[ike]]")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<IkeFiles, A::Error> {
                let one = IkeFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(IkeFiles(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, many: A) -> Result<IkeFiles, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(many)).map(IkeFiles)
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IkeFile {
    pub(super) name: Option<Spanned<String>>,
    pub(super) local: Option<Spanned<String>>,
    pub(super) remote: Spanned<String>,
    pub(super) local_id: Option<String>,
    pub(super) remote_id: Option<String>,
    pub(super) address: Option<Spanned<AddressFile>>,
    pub(super) pool: Option<Spanned<OneOrMany>>,
    pub(super) dns: Option<Spanned<OneOrMany>>,
    pub(super) psk: Option<Spanned<SecretText>>,
    pub(super) psk_file: Option<Spanned<PathBuf>>,
    pub(super) cert_file: Option<Spanned<PathBuf>>,
    pub(super) key_file: Option<Spanned<PathBuf>>,
    pub(super) ca_file: Option<Spanned<PathBuf>>,
    pub(super) crl_file: Option<Spanned<PathBuf>>,
    pub(super) eap: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    pub(super) user: Vec<UserFile>,
    pub(super) ppk_file: Option<Spanned<PathBuf>>,
    pub(super) ppk_id: Option<Spanned<String>>,
    pub(super) ppk_exchange: Option<Spanned<PpkExchangeFile>>,
    pub(super) suites: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    pub(super) post_quantum: PostQuantumFile,
    #[serde(default)]
    pub(super) modp2048: bool,
    pub(super) initiate: Option<Spanned<bool>>,
    pub(super) rekey_seconds: Option<Spanned<u64>>,
    pub(super) reauth_seconds: Option<Spanned<u64>>,
    pub(super) liveness_seconds: Option<Spanned<u64>>,
}

/// A user of EAP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserFile {
    pub(super) name: Spanned<String>,
    pub(super) password: Option<Spanned<SecretText>>,
    pub(super) password_file: Option<Spanned<PathBuf>>,
}

/// Where this host's inner address comes from.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AddressFile {
    Request,
}

/// A text, or a list of texts.
#[derive(Debug, Clone)]
pub(super) struct OneOrMany(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text in quotes, or a list of them")
            }

            fn visit_str<E: serde::de::Error>(self, one: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![one.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, many: A) -> Result<OneOrMany, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(many)).map(OneOrMany)
            }
        }
        deserializer.deserialize_any(Texts)
    }
}

/// The exchange in which a post-quantum pre-shared key is agreed on.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PpkExchangeFile {
    Either,
    Intermediate,
    Auth,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PostQuantumFile {
    #[default]
    Required,
    Preferred,
    Off,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChildFile {
    pub(super) name: Option<Spanned<String>>,
    /// The name of an `[[ike]]`.
    pub(super) ike: Option<Spanned<String>>,
    pub(super) mode: Option<ModeFile>,
    pub(super) suites: Option<Spanned<OneOrMany>>,
    pub(super) local: Option<Spanned<OneOrMany>>,
    pub(super) remote: Option<Spanned<OneOrMany>>,
    pub(super) rekey_seconds: Option<Spanned<u64>>,
    pub(super) rekey_bytes: Option<Spanned<Scalar>>,
    pub(super) rekey_packets: Option<Spanned<Scalar>>,
    pub(super) life_seconds: Option<Spanned<u64>>,
    pub(super) life_bytes: Option<Spanned<Scalar>>,
    pub(super) life_packets: Option<Spanned<Scalar>>,
    pub(super) per_queue: Option<Spanned<bool>>,
    pub(super) start_action: Option<Spanned<ActionWhenFile>>,
    pub(super) close_action: Option<Spanned<ActionWhenFile>>,
    pub(super) dpd_action: Option<Spanned<ActionWhenFile>>,
    #[serde(default)]
    pub(super) qesp: QEspFile,
}

/// What is done about a child, in the words of swanctl.conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ActionWhenFile {
    #[serde(alias = "restart")]
    Start,
    Trap,
    #[serde(alias = "clear")]
    None,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum QEspFile {
    #[default]
    Off,
    Prefer,
    Require,
}
