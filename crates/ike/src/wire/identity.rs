//! Who a peer is and how it proves it: the ID (RFC 7296 §3.5), CERT (§3.6), CERTREQ (§3.7) and AUTH
//! (§3.8, RFC 7427 §3) payloads.

use super::reader::Reader;
use super::{AuthMethod, CertificateEncoding, IdType, Problem};

/// A name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identification<'a> {
    /// What kind of name.
    pub id_type: IdType,
    /// The name: an address, a text without terminator, or DER.
    pub data: &'a [u8],
}

impl<'a> Identification<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let id_type = reader.u8()?.into();
        reader.bytes(3)?;
        let data = reader.rest();
        let fits = match id_type {
            IdType::Ipv4 => data.len() == 4,
            IdType::Ipv6 => data.len() == 16,
            _ => !data.is_empty(),
        };
        if fits { Ok(Self { id_type, data }) } else { Err(Problem::Length(data.len())) }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.body());
    }

    /// Returns the body of the payload, whose MAC is authenticated (RFC 7296 §2.15).
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        [&[self.id_type.into(), 0, 0, 0], self.data].concat()
    }
}

/// A certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Certificate<'a> {
    /// How it is encoded.
    pub encoding: CertificateEncoding,
    /// The certificate.
    pub data: &'a [u8],
}

impl<'a> Certificate<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let encoding = reader.u8()?.into();
        Ok(Self { encoding, data: reader.rest() })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.encoding.into());
        out.extend(self.data);
    }
}

/// The authorities whose certificates are wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CertificateRequest<'a> {
    /// How the certificate is to be encoded.
    pub encoding: CertificateEncoding,
    /// SHA-1 hashes of public keys of authorities, 20 bytes each; may be empty.
    pub authorities: &'a [u8],
}

impl<'a> CertificateRequest<'a> {
    /// Bytes of the hash of an authority's public key.
    const HASH_LEN: usize = 20;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let encoding = reader.u8()?.into();
        let authorities = reader.rest();
        let hashes = matches!(encoding, CertificateEncoding::X509Signature);
        if hashes && !authorities.len().is_multiple_of(Self::HASH_LEN) {
            return Err(Problem::Length(authorities.len()));
        }
        Ok(Self { encoding, authorities })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.encoding.into());
        out.extend(self.authorities);
    }
}

/// A proof of identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Authentication<'a> {
    /// Its method.
    pub method: AuthMethod,
    /// A MAC or a signature; with [`AuthMethod::DigitalSignature`] a [`DigitalSignature`].
    pub data: &'a [u8],
}

impl<'a> Authentication<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let method = reader.u8()?.into();
        reader.bytes(3)?;
        match reader.rest() {
            [] => Err(Problem::Empty("authentication data")),
            data => Ok(Self { method, data }),
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.method.into(), 0, 0, 0]);
        out.extend(self.data);
    }
}

/// A signature with the name of its algorithm (RFC 7427 §3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DigitalSignature<'a> {
    /// An `AlgorithmIdentifier` in DER.
    pub algorithm: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

impl<'a> DigitalSignature<'a> {
    /// Splits authentication data.
    ///
    /// # Errors
    /// The algorithm is longer than the data, or one of both is empty.
    pub fn parse(data: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(data);
        let length = reader.u8()?;
        let algorithm = reader.bytes(length.into())?;
        match (algorithm, reader.rest()) {
            ([], _) => Err(Problem::Empty("algorithm identifier")),
            (_, []) => Err(Problem::Empty("signature")),
            (algorithm, signature) => Ok(Self { algorithm, signature }),
        }
    }

    /// Returns the authentication data.
    ///
    /// # Panics
    /// The algorithm is longer than 255 bytes.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let length = u8::try_from(self.algorithm.len()).expect("identifiers are short");
        [&[length], self.algorithm, self.signature].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_length_of_their_family() {
        for (id_type, len, fits) in
            [(1, 4, true), (1, 5, false), (5, 16, true), (5, 4, false), (2, 0, false), (2, 1, true)]
        {
            let body = [&[id_type, 0, 0, 0], &[7; 16][..len]].concat();
            assert_eq!(Identification::parse(&body).is_ok(), fits, "type {id_type}, {len} bytes");
        }
    }

    #[test]
    fn signatures_name_their_algorithm() {
        let signature = DigitalSignature { algorithm: &[0x30, 0], signature: &[1, 2, 3] };
        assert_eq!(signature.emit(), [2, 0x30, 0, 1, 2, 3]);
        assert_eq!(DigitalSignature::parse(&signature.emit()), Ok(signature));
        for broken in [&[][..], &[0, 1], &[3, 1, 2], &[2, 0x30, 0]] {
            assert!(DigitalSignature::parse(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn authorities_are_whole_hashes() {
        assert!(CertificateRequest::parse(&[&[4][..], &[0; 40]].concat()).is_ok());
        assert!(CertificateRequest::parse(&[&[4][..], &[0; 41]].concat()).is_err());
    }
}
