//! One payload of any type, and chains of them (RFC 7296 §3.2).

use super::reader::Reader;
use super::{
    Authentication, Certificate, CertificateRequest, Configuration, Delete, Eap, Encrypted, Error,
    Identification, KeyExchange, Nonce, Notify, PayloadType, Problem, SecurityAssociation,
    TrafficSelectors,
};

/// Most payloads of a message. The longest exchanges have about 20; certificates add a few.
pub const MAX_PAYLOADS: usize = 64;
/// Bytes of the generic payload header.
const GENERIC_LEN: usize = 4;
/// The critical bit.
const CRITICAL: u8 = 0x80;

/// A payload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Payload<'a> {
    /// SA.
    SecurityAssociation(SecurityAssociation<'a>),
    /// KE.
    KeyExchange(KeyExchange<'a>),
    /// IDi.
    IdInitiator(Identification<'a>),
    /// IDr.
    IdResponder(Identification<'a>),
    /// CERT.
    Certificate(Certificate<'a>),
    /// CERTREQ.
    CertificateRequest(CertificateRequest<'a>),
    /// AUTH.
    Authentication(Authentication<'a>),
    /// Ni or Nr.
    Nonce(Nonce<'a>),
    /// N.
    Notify(Notify<'a>),
    /// D.
    Delete(Delete),
    /// V: any bytes.
    VendorId(&'a [u8]),
    /// TSi.
    TsInitiator(TrafficSelectors),
    /// TSr.
    TsResponder(TrafficSelectors),
    /// SK or SKF.
    Encrypted(Encrypted<'a>),
    /// CP.
    Configuration(Configuration<'a>),
    /// EAP.
    Eap(Eap<'a>),
    /// A payload of an unknown type that is not critical: to be skipped (RFC 7296 §2.5).
    Unknown {
        /// Its type.
        payload_type: u8,
        /// Its body.
        body: &'a [u8],
    },
}

impl<'a> Payload<'a> {
    /// Returns its type.
    #[must_use]
    pub fn payload_type(&self) -> PayloadType {
        match self {
            Self::SecurityAssociation(_) => PayloadType::SecurityAssociation,
            Self::KeyExchange(_) => PayloadType::KeyExchange,
            Self::IdInitiator(_) => PayloadType::IdInitiator,
            Self::IdResponder(_) => PayloadType::IdResponder,
            Self::Certificate(_) => PayloadType::Certificate,
            Self::CertificateRequest(_) => PayloadType::CertificateRequest,
            Self::Authentication(_) => PayloadType::Authentication,
            Self::Nonce(_) => PayloadType::Nonce,
            Self::Notify(_) => PayloadType::Notify,
            Self::Delete(_) => PayloadType::Delete,
            Self::VendorId(_) => PayloadType::VendorId,
            Self::TsInitiator(_) => PayloadType::TsInitiator,
            Self::TsResponder(_) => PayloadType::TsResponder,
            Self::Encrypted(Encrypted { fragment: None, .. }) => PayloadType::Encrypted,
            Self::Encrypted(_) => PayloadType::EncryptedFragment,
            Self::Configuration(_) => PayloadType::Configuration,
            Self::Eap(_) => PayloadType::Eap,
            Self::Unknown { payload_type, .. } => PayloadType::Unknown(*payload_type),
        }
    }

    /// Reads the body of a payload. `next` is the type of the one after it, or, in SK and SKF, of
    /// the first one inside.
    fn parse(
        payload_type: PayloadType,
        next: PayloadType,
        body: &'a [u8],
    ) -> Result<Self, Problem> {
        Ok(match payload_type {
            PayloadType::SecurityAssociation => {
                Self::SecurityAssociation(SecurityAssociation::parse(body)?)
            }
            PayloadType::KeyExchange => Self::KeyExchange(KeyExchange::parse(body)?),
            PayloadType::IdInitiator => Self::IdInitiator(Identification::parse(body)?),
            PayloadType::IdResponder => Self::IdResponder(Identification::parse(body)?),
            PayloadType::Certificate => Self::Certificate(Certificate::parse(body)?),
            PayloadType::CertificateRequest => {
                Self::CertificateRequest(CertificateRequest::parse(body)?)
            }
            PayloadType::Authentication => Self::Authentication(Authentication::parse(body)?),
            PayloadType::Nonce => Self::Nonce(Nonce::parse(body)?),
            PayloadType::Notify => Self::Notify(Notify::parse(body)?),
            PayloadType::Delete => Self::Delete(Delete::parse(body)?),
            PayloadType::VendorId => Self::VendorId(body),
            PayloadType::TsInitiator => Self::TsInitiator(TrafficSelectors::parse(body)?),
            PayloadType::TsResponder => Self::TsResponder(TrafficSelectors::parse(body)?),
            PayloadType::Encrypted => Self::Encrypted(Encrypted::whole(next, body)),
            PayloadType::EncryptedFragment => {
                Self::Encrypted(Encrypted::parse_fragment(next, body)?)
            }
            PayloadType::Configuration => Self::Configuration(Configuration::parse(body)?),
            PayloadType::Eap => Self::Eap(Eap::parse(body)?),
            PayloadType::None => Self::Unknown { payload_type: 0, body },
            PayloadType::Unknown(payload_type) => Self::Unknown { payload_type, body },
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::SecurityAssociation(payload) => payload.emit(out),
            Self::KeyExchange(payload) => payload.emit(out),
            Self::IdInitiator(payload) | Self::IdResponder(payload) => payload.emit(out),
            Self::Certificate(payload) => payload.emit(out),
            Self::CertificateRequest(payload) => payload.emit(out),
            Self::Authentication(payload) => payload.emit(out),
            Self::Notify(payload) => payload.emit(out),
            Self::Delete(payload) => payload.emit(out),
            Self::TsInitiator(payload) | Self::TsResponder(payload) => payload.emit(out),
            Self::Encrypted(payload) => payload.emit(out),
            Self::Configuration(payload) => payload.emit(out),
            Self::Eap(payload) => payload.emit(out),
            Self::Nonce(Nonce(body)) | Self::VendorId(body) | Self::Unknown { body, .. } => {
                out.extend(*body);
            }
        }
    }
}

/// Reads a chain of payloads that begins with one of the type `first` and fills `bytes`.
///
/// # Errors
/// A payload is malformed, unknown and critical, or one too many; bytes are left over; SK or SKF is
/// followed by another.
pub fn parse_chain(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload<'_>>, Error> {
    let mut reader = Reader::new(bytes);
    let mut payloads = Vec::new();
    let mut payload_type = first;
    while payload_type != PayloadType::None {
        if payloads.len() == MAX_PAYLOADS {
            return Err(Error::TooManyPayloads { max: MAX_PAYLOADS });
        }
        let at = |problem| Error::Payload { payload: payload_type, problem };
        let [next, flags] = reader.array().map_err(at)?;
        let length = reader.u16().map_err(at)?;
        let body = reader.counted(length, GENERIC_LEN).map_err(at)?;
        if let PayloadType::Unknown(number) = payload_type
            && flags & CRITICAL != 0
        {
            return Err(Error::UnknownCritical(number));
        }
        let payload = Payload::parse(payload_type, next.into(), body.rest()).map_err(at)?;
        let last = matches!(payload, Payload::Encrypted(_));
        payloads.push(payload);
        if last {
            if !reader.is_empty() {
                return Err(Error::Misplaced(payload_type));
            }
            return Ok(payloads);
        }
        payload_type = next.into();
    }
    if reader.is_empty() { Ok(payloads) } else { Err(Error::Trailing(reader.len())) }
}

/// Reads the payloads inside of SK: a chain without SK and SKF.
///
/// # Errors
/// As [`parse_chain`].
pub fn parse_decrypted(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload<'_>>, Error> {
    let payloads = parse_chain(first, bytes)?;
    match payloads.last() {
        Some(payload @ Payload::Encrypted(_)) => Err(Error::Misplaced(payload.payload_type())),
        _ => Ok(payloads),
    }
}

/// Appends a chain of payloads and returns the type of the first.
///
/// # Panics
/// A payload is longer than 65535 bytes.
pub fn emit_chain(payloads: &[Payload<'_>], out: &mut Vec<u8>) -> PayloadType {
    for (at, payload) in payloads.iter().enumerate() {
        let next = match payload {
            Payload::Encrypted(encrypted) => encrypted.first,
            _ => payloads.get(at + 1).map_or(PayloadType::None, Payload::payload_type),
        };
        let start = out.len();
        out.extend([next.into(), 0, 0, 0]);
        payload.emit(out);
        let length = u16::try_from(out.len() - start).expect("a payload fits its length field");
        out[start + 2..start + GENERIC_LEN].copy_from_slice(&length.to_be_bytes());
    }
    payloads.first().map_or(PayloadType::None, Payload::payload_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_payloads_are_skipped_unless_critical() {
        let mut bytes = vec![40, 0, 0, 5, 9, 0, 0, 0, 20];
        bytes.extend([7; 16]);
        let parsed = parse_chain(PayloadType::Unknown(200), &bytes).expect("not critical");
        assert_eq!(parsed[0], Payload::Unknown { payload_type: 200, body: &[9] });
        assert_eq!(parsed[1], Payload::Nonce(Nonce(&[7; 16])));
        bytes[1] = 0x80;
        let error = parse_chain(PayloadType::Unknown(200), &bytes);
        assert_eq!(error, Err(Error::UnknownCritical(200)));
        // the bit of a known payload is ignored (RFC 7296 §3.2)
        bytes[1] = 0;
        bytes[6] = 0x80;
        assert!(parse_chain(PayloadType::Unknown(200), &bytes).is_ok());
    }

    #[test]
    fn errors_name_the_payload() {
        let short_nonce = [0, 0, 0, 5, 1];
        let error = parse_chain(PayloadType::Nonce, &short_nonce).expect_err("too short");
        assert_eq!(error.to_string(), "Nonce payload: length 1 does not fit");
        for length in [0, 3, 6] {
            let bytes = [0, 0, 0, length, 1];
            let error = parse_chain(PayloadType::VendorId, &bytes).expect_err("a wrong length");
            assert_eq!(error.to_string(), format!("V payload: length {length} does not fit"));
        }
    }

    #[test]
    fn an_encrypted_payload_is_the_last_and_only_outermost() {
        let sk = [33, 0, 0, 6, 1, 2];
        assert!(parse_chain(PayloadType::Encrypted, &sk).is_ok());
        let misplaced = Err(Error::Misplaced(PayloadType::Encrypted));
        assert_eq!(parse_decrypted(PayloadType::Encrypted, &sk), misplaced);
        assert_eq!(parse_chain(PayloadType::Encrypted, &[&sk[..], &[0]].concat()), misplaced);
    }

    #[test]
    fn the_number_of_payloads_is_bounded() {
        let vendor = [43, 0, 0, 4];
        let mut bytes = vendor.repeat(MAX_PAYLOADS);
        bytes[4 * (MAX_PAYLOADS - 1)] = 0;
        assert_eq!(parse_chain(PayloadType::VendorId, &bytes).map(|all| all.len()), Ok(64));
        let bytes = vendor.repeat(MAX_PAYLOADS + 1);
        let error = parse_chain(PayloadType::VendorId, &bytes);
        assert_eq!(error, Err(Error::TooManyPayloads { max: 64 }));
    }
}
