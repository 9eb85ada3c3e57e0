//! One attempt to open one IPsec header, with one set of keys and one set of assumptions about
//! values that are not on the wire.

use std::net::IpAddr;

use headroom_ipsec::{Protocol, Reason, SaSpec, SaTransform, ah, esp, qesp};
use headroom_packet::Ip;
use headroom_suite::{AadInput, Authenticator, Transform};

/// An IPsec header with its protected bytes and the IP header before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed<'a> {
    pub(super) protocol: Protocol,
    /// The IP header with its extension headers.
    pub(super) header: &'a [u8],
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) udp: Option<(u16, u16)>,
    /// From the IPsec header to the end of the packet.
    pub(super) body: &'a [u8],
}

/// Values that the packet does not carry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assumptions {
    /// The full sequence number.
    pub(super) number: u64,
    /// Whether the ICV covers the high half of the sequence number.
    pub(super) extended: bool,
    /// The addresses that Q-ESP and AH cover.
    pub(super) addresses: Addresses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Addresses {
    AsReceived,
    Of(IpAddr, IpAddr),
    NotCovered,
}

impl<'a> Sealed<'a> {
    /// Returns the IPsec header of `packet`; `ip` is a view of `packet`.
    pub(super) fn new(
        packet: &'a [u8],
        ip: &Ip<'a>,
        protocol: Protocol,
        udp: Option<(u16, u16)>,
    ) -> Self {
        let (header, _) = packet.split_at(ip.upper_offset());
        let (source, destination) = (ip.source(), ip.destination());
        Self { protocol, header, source, destination, udp, body: ip.payload() }
    }

    /// Returns the SPI and the lower half of the sequence number.
    pub(super) fn numbers(&self) -> Result<(u32, u32), Reason> {
        match self.protocol {
            Protocol::Ah => ah::Header::read(self.body).map(|header| (header.spi, header.sequence)),
            Protocol::Esp | Protocol::QEsp(_) => {
                let at = self.header_len() - esp::HEADER_LEN;
                let header = esp::Header::read(self.body.get(at..).ok_or(Reason::Truncated)?)?;
                Ok((header.spi, header.sequence))
            }
        }
    }

    /// Returns the length of ESP's or Q-ESP's header.
    pub(super) fn header_len(&self) -> usize {
        match self.protocol {
            Protocol::QEsp(_) => qesp::HEADER_LEN,
            Protocol::Esp | Protocol::Ah => esp::HEADER_LEN,
        }
    }

    /// Returns the clear fields of Q-ESP.
    pub(super) fn clear(&self) -> Result<Option<qesp::Clear>, Reason> {
        match self.protocol {
            Protocol::QEsp(_) => qesp::Clear::read(self.body).map(Some),
            Protocol::Esp | Protocol::Ah => Ok(None),
        }
    }

    /// Checks whether the lengths are possible with these algorithms.
    pub(super) fn fits(&self, transform: &SaTransform) -> Result<(), Reason> {
        match transform {
            SaTransform::Mac(mac) => {
                let header = ah::Header::read(self.body)?;
                if header.len < ah::FIXED_LEN + mac.icv_len() {
                    Err(Reason::Truncated)
                } else {
                    Ok(())
                }
            }
            SaTransform::Cipher(transform) => {
                let around = self.header_len() + transform.iv_len() + transform.icv_len();
                let text = self.body.len().checked_sub(around).filter(|text| *text >= 2);
                match text.ok_or(Reason::Truncated)? % transform.block_len() {
                    0 => Ok(()),
                    _ => Err(Reason::WrongLength),
                }
            }
        }
    }

    /// Returns the plaintext with its trailer, or the bytes after AH, if the ICV is correct.
    pub(super) fn open(&self, transform: &SaTransform, assumed: Assumptions) -> Option<Vec<u8>> {
        match transform {
            SaTransform::Cipher(transform) => self.decrypt(transform.as_ref(), assumed),
            SaTransform::Mac(mac) => self.verify(mac, assumed),
        }
    }

    /// Checks whether the ICV is the first `icv_len` bytes of the correct one.
    pub(super) fn verifies_truncated(
        &self,
        transform: &dyn Transform,
        icv_len: usize,
        assumed: Assumptions,
    ) -> bool {
        let mut room = [0; qesp::MAX_ADDRESSES_LEN];
        let addresses = self.covered_addresses(assumed, &mut room);
        let Some((header, rest)) = self.body.split_at_checked(self.header_len()) else {
            return false;
        };
        let Assumptions { number: sequence, extended, .. } = assumed;
        transform.verifies_truncated(
            &AadInput { header, sequence, extended, addresses },
            rest,
            icv_len,
        )
    }

    /// Returns the addresses that Q-ESP covers.
    fn covered_addresses<'r>(
        &self,
        assumed: Assumptions,
        room: &'r mut [u8; qesp::MAX_ADDRESSES_LEN],
    ) -> &'r [u8] {
        match (self.protocol, assumed.addresses) {
            (Protocol::QEsp(_), Addresses::AsReceived) => {
                qesp::addresses(self.source, self.destination, room)
            }
            (Protocol::QEsp(_), Addresses::Of(source, destination)) => {
                qesp::addresses(source, destination, room)
            }
            _ => &[],
        }
    }

    fn decrypt(&self, transform: &dyn Transform, assumed: Assumptions) -> Option<Vec<u8>> {
        let mut room = [0; qesp::MAX_ADDRESSES_LEN];
        let addresses = self.covered_addresses(assumed, &mut room);
        let (header, rest) = self.body.split_at_checked(self.header_len())?;
        let mut rest = rest.to_vec();
        let end = rest.len().checked_sub(transform.icv_len())?;
        let text = transform.iv_len()..end;
        if text.is_empty() || text.len() % transform.block_len() != 0 {
            return None;
        }
        let Assumptions { number: sequence, extended, .. } = assumed;
        transform.open(&AadInput { header, sequence, extended, addresses }, &mut rest).ok()?;
        rest.truncate(end);
        rest.drain(..text.start);
        Some(rest)
    }

    fn verify(&self, mac: &Authenticator, assumed: Assumptions) -> Option<Vec<u8>> {
        let icv_len = mac.icv_len();
        let (len, icv, zeroed, body, high) = self.covered(icv_len, assumed)?;
        mac.verify(&[&zeroed, &body, &high], &icv).ok()?;
        Some(self.body[len..].to_vec())
    }

    /// Returns the length of the AH header, its ICV of `icv_len` bytes, and the bytes that the ICV
    /// covers (RFC 4302, section 3.3.3).
    pub(super) fn covered(&self, icv_len: usize, assumed: Assumptions) -> Option<Covered> {
        let header = ah::Header::read(self.body).ok()?;
        let end = ah::FIXED_LEN + icv_len;
        if header.len < end {
            return None;
        }
        let icv = self.body[ah::FIXED_LEN..end].to_vec();
        let mut body = self.body.to_vec();
        body[ah::FIXED_LEN..end].fill(0);
        let mut zeroed = ah::zero_mutable_fields(self.header).ok()?.as_slice().to_vec();
        if let Addresses::Of(source, destination) = assumed.addresses {
            put_addresses(&mut zeroed, source, destination)?;
        }
        let high = ((assumed.number >> 32) as u32).to_be_bytes();
        let high = if assumed.extended { high.to_vec() } else { Vec::new() };
        Some((header.len, icv, zeroed, body, high))
    }
}

/// The length of the AH header, the ICV, the IP header with mutable fields zeroed, the bytes from
/// AH on, and the high half of the sequence number.
pub(super) type Covered = (usize, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

fn put_addresses(header: &mut [u8], source: IpAddr, destination: IpAddr) -> Option<()> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header.get_mut(12..16)?.copy_from_slice(&source.octets());
            header.get_mut(16..20)?.copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            header.get_mut(8..24)?.copy_from_slice(&source.octets());
            header.get_mut(24..40)?.copy_from_slice(&destination.octets());
        }
        _ => return None,
    }
    Some(())
}

/// Joins a transport-mode payload and its IP header to a packet.
pub(super) fn rebuild(header: &[u8], next_header: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let field = last_field(header)?;
    let mut packet = [header, payload].concat();
    headroom_packet::header::set_total_len(&mut packet, header.len() + payload.len()).ok()?;
    headroom_packet::header::set_protocol(&mut packet, field, next_header).ok()?;
    Some(packet)
}

/// Returns the offset of the field that names the next header.
fn last_field(header: &[u8]) -> Option<usize> {
    match header.first()? >> 4 {
        4 => return Some(9),
        6 if header.len() >= 40 => {}
        _ => return None,
    }
    let (mut at, mut field, mut kind) = (40, 6, header[6]);
    while let Some([next, len]) = header.get(at..at + 2) {
        field = at;
        let fragment = kind == headroom_packet::protocol::FRAGMENT;
        at += if fragment { 8 } else { (usize::from(*len) + 1) * 8 };
        kind = *next;
    }
    (at == header.len()).then_some(field)
}

/// Returns the assumptions that match the SA's configuration.
pub(super) fn configured(spec: &SaSpec, number: u64) -> Assumptions {
    Assumptions { number, extended: spec.extended_sequence, addresses: Addresses::AsReceived }
}
