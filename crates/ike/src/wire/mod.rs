//! Messages as they are on the wire: views of borrowed bytes that parse and emit.
//!
//! Names are those of RFC 7296 §3. Every length and count is checked against what contains it;
//! errors name the payload. Parsing allocates lists whose length the message bounds.

mod configuration;
mod encrypted;
mod error;
mod header;
mod identity;
mod key_exchange;
mod message;
mod notify;
mod payload;
mod reader;
mod registry;
mod security_association;
mod traffic_selector;

pub use configuration::{Configuration, Eap};
pub use encrypted::{Encrypted, Fragment};
pub use error::{Error, Problem};
pub(crate) use header::finish;
pub use header::{HEADER_LEN, Header, NON_ESP_MARKER};
pub use identity::{
    Authentication, Certificate, CertificateRequest, DigitalSignature, Identification,
};
pub use key_exchange::{KeyExchange, NONCE_LEN, Nonce};
pub use message::Message;
pub use notify::{Delete, Notify};
pub use payload::{MAX_PAYLOADS, Payload, emit_chain, parse_chain, parse_decrypted};
pub use registry::*;
pub use security_association::{MAX_PROPOSALS, Proposal, SecurityAssociation, Transform};
pub use traffic_selector::{AddressRange, TrafficSelector, TrafficSelectors};
