//! Opens packets that arrive (RFC 4301, section 5.2): finds the association, checks the window,
//! verifies, decrypts, and checks the policies.

use std::ops::Range;

use headroom_packet::header::{self, IpHeader};
use headroom_packet::ip::Ip;
use headroom_packet::protocol;
use headroom_suite::{AadInput, Authenticator, Transform};

use crate::engine::{Engine, Entry};
use crate::headers::{Headers, Outer};
use crate::open_scratch::{HeaderBuf, OpenScratch};
use crate::policy::Policy;
use crate::qesp::{self, Clear};
use crate::reason::Reason;
use crate::sa::{Sa, Sizes};
use crate::spec::{Mode, Protocol};
use crate::transform::SaTransform;
use crate::{ah, esp};

/// The hop limit of a packet whose header a UDP socket has removed.
const HOP_LIMIT: u8 = 64;
/// Bytes behind an IP header that are searched for ports.
const PEEK: usize = 128;

/// An opened packet: `header`, followed by the bytes `payload` of the body.
#[derive(Debug)]
pub struct Opened<'e> {
    /// The IP header in transport mode; empty in tunnel mode.
    pub header: &'e [u8],
    /// The rest of the packet, as a range of the body.
    pub payload: Range<usize>,
    /// The packet's header fields.
    pub headers: &'e Headers,
    /// The associations, the outermost first.
    pub associations: [Option<&'e Sa>; 2],
    /// The whole sequence number of the innermost association.
    pub sequence: u64,
    /// The policy that allows it.
    pub policy: &'e Policy,
    /// Whether this packet moved the peer, if its address is followed.
    pub moved: bool,
}

/// Associations that were applied, the outermost first.
type Applied<'e> = [Option<&'e Entry>; 2];

/// The content of an IPsec header. Filled in place: a copy right after the stores would wait for
/// them.
#[derive(Default)]
struct Decapsulated {
    next_header: u8,
    /// Its range of the body.
    range: Range<usize>,
    sequence: u64,
    /// The clear fields of Q-ESP.
    clear: Option<Clear>,
    /// Whether the packet moved the peer.
    moved: bool,
}

impl Engine {
    /// Opens a packet in place. `body` begins with the header of `protocol` (ESP in UDP: with ESP's)
    /// and ends with the packet. `scratch` receives the packet's headers. Counts failures, also at
    /// the association if it is known.
    ///
    /// # Errors
    /// The reason to drop the packet. The content of `body` is then unspecified.
    pub fn open<'e>(
        &'e self,
        outer: &Outer<'_>,
        protocol: u8,
        body: &mut [u8],
        scratch: &'e mut OpenScratch,
    ) -> Result<Opened<'e>, Reason> {
        let mut applied = [None; 2];
        self.try_open(outer, protocol, body, scratch, &mut applied).inspect_err(|&reason| {
            self.counters().add(reason, 1);
            if let Some(entry) = applied.into_iter().flatten().last() {
                entry.sa.state.failures.add(reason, 1);
            }
        })
    }

    #[inline(always)]
    fn try_open<'e>(
        &'e self,
        outer: &Outer<'_>,
        protocol: u8,
        body: &mut [u8],
        scratch: &'e mut OpenScratch,
        applied: &mut Applied<'e>,
    ) -> Result<Opened<'e>, Reason> {
        let first = self.addressed(outer, protocol, body)?;
        applied[0] = Some(first);
        let mut sa = first.sa.as_ref();
        let mut inner = Decapsulated::default();
        decapsulate(sa, outer, body, &mut inner)?;
        // AH over ESP or Q-ESP: a second header
        if sa.spec.protection.protocol() == Protocol::Ah
            && sa.spec.mode == Mode::Transport
            && self.is_cipher(inner.next_header)
        {
            let start = inner.range.start;
            let second = self.addressed(outer, inner.next_header, &body[start..])?;
            applied[1] = Some(second);
            sa = second.sa.as_ref();
            decapsulate(sa, outer, &mut body[start..], &mut inner)?;
            inner.range = inner.range.start + start..inner.range.end + start;
        }
        if inner.next_header == protocol::NO_NEXT_HEADER {
            return Err(Reason::Dummy);
        }
        scratch.header.clear();
        let payload = match sa.spec.mode {
            Mode::Tunnel => take_inner_packet(sa, outer, &inner, body, &mut scratch.headers)?,
            Mode::Transport => {
                restore_packet(outer, &inner, body, scratch)?;
                inner.range
            }
        };
        let OpenScratch { header, headers } = scratch;
        // docs/qesp.md, "Receiving", step 11
        if inner.clear.is_some_and(|clear| clear != Clear::of(headers)) {
            return Err(Reason::PortsMismatch);
        }
        let policy = self.allow(headers, applied)?;
        let sequence = inner.sequence;
        let associations = applied.map(|entry| entry.map(|entry| entry.sa.as_ref()));
        let (moved, header) = (inner.moved, header.as_slice());
        Ok(Opened { header, payload, headers, associations, sequence, policy, moved })
    }

    /// Returns the association of the IPsec header at the beginning of `body`.
    #[inline(always)]
    fn addressed(&self, outer: &Outer<'_>, protocol: u8, body: &[u8]) -> Result<&Entry, Reason> {
        let protocol = self.protocol(protocol).ok_or(Reason::Malformed)?;
        let spi = match protocol {
            Protocol::Esp => esp::Header::read(body)?.spi,
            Protocol::Ah => ah::Header::read(body)?.spi,
            Protocol::QEsp(_) => {
                esp::Header::read(body.get(qesp::CLEAR_LEN..).ok_or(Reason::Truncated)?)?.spi
            }
        };
        self.find(spi, protocol, &outer.destination).ok_or(Reason::UnknownSpi)
    }
}

/// Removes one IPsec header with its IV, trailer and check value.
#[inline(always)]
fn decapsulate(
    sa: &Sa,
    outer: &Outer<'_>,
    body: &mut [u8],
    inner: &mut Decapsulated,
) -> Result<(), Reason> {
    if sa.spec.udp.is_some() != outer.udp.is_some() {
        return Err(Reason::WrongEncapsulation);
    }
    match &sa.transform {
        SaTransform::Cipher(transform) => decrypt(sa, transform.as_ref(), outer, body, inner),
        SaTransform::Mac(mac) => verify(sa, mac, outer, body, inner),
    }
}

/// Opens ESP (RFC 4303, section 3.4) or Q-ESP.
#[inline(always)]
fn decrypt(
    sa: &Sa,
    transform: &dyn Transform,
    outer: &Outer<'_>,
    body: &mut [u8],
    inner: &mut Decapsulated,
) -> Result<(), Reason> {
    let Sizes { header: header_len, iv: iv_len, block, icv: icv_len } = sa.sizes;
    let text_len =
        body.len().checked_sub(header_len + iv_len + icv_len).ok_or(Reason::Truncated)?;
    if text_len < esp::TRAILER_LEN {
        return Err(Reason::Truncated);
    }
    // a multiple of four (RFC 4303, section 2.4) and of the cipher's block
    if text_len & (block - 1) != 0 {
        return Err(Reason::WrongLength);
    }
    let mut buffer = [0; qesp::MAX_ADDRESSES_LEN];
    let (mut clear, mut addresses): (_, &[u8]) = (None, &[]);
    if header_len == qesp::HEADER_LEN {
        clear = Some(Clear::read(body)?);
        require_source(sa, outer)?;
        addresses = qesp::addresses(outer.source, outer.destination, &mut buffer);
    }
    let (header, rest) = body.split_at_mut(header_len);
    let low = esp::Header::read(&header[header_len - esp::HEADER_LEN..])?.sequence;
    let extended = sa.spec.extended_sequence;
    let pending = sa.receive(low)?;
    let sequence = pending.sequence;
    let aad = AadInput { header, sequence, extended, addresses };
    transform.open(&aad, rest).map_err(|_| Reason::Forged)?;
    let moved = pending.accept(outer, text_len)?;

    let (next_header, len) = esp::read_trailer(&rest[iv_len..iv_len + text_len])?;
    let start = header_len + iv_len;
    *inner = Decapsulated { next_header, range: start..start + len, sequence, clear, moved };
    Ok(())
}

/// Verifies AH (RFC 4302, section 3.4).
fn verify(
    sa: &Sa,
    mac: &Authenticator,
    outer: &Outer<'_>,
    body: &mut [u8],
    inner: &mut Decapsulated,
) -> Result<(), Reason> {
    let header = ah::Header::read(body)?;
    let end = ah::FIXED_LEN + sa.sizes.icv;
    if header.len < end || outer.header.is_empty() {
        return Err(Reason::Truncated);
    }
    require_source(sa, outer)?;
    let pending = sa.receive(header.sequence)?;
    let sequence = pending.sequence;
    let mut icv = [0; 64];
    let icv = &mut icv[..sa.sizes.icv];
    icv.copy_from_slice(&body[ah::FIXED_LEN..end]);
    body[ah::FIXED_LEN..end].fill(0);
    let zeroed = ah::zero_mutable_fields(outer.header)?;
    let high = ah::high_bits(sa, sequence);
    mac.verify(&[zeroed.as_slice(), body, high.as_slice()], icv).map_err(|_| Reason::Forged)?;
    let moved = pending.accept(outer, body.len() - header.len)?;
    let range = header.len..body.len();
    *inner = Decapsulated { next_header: header.next_header, range, sequence, clear: None, moved };
    Ok(())
}

/// Checks the outer source address where the check value covers it, so that a NAT is distinguished
/// from a forgery.
fn require_source(sa: &Sa, outer: &Outer<'_>) -> Result<(), Reason> {
    if outer.source == sa.spec.source { Ok(()) } else { Err(Reason::AddressChanged) }
}

/// Finds the inner packet of tunnel mode without its padding, and updates its DSCP and ECN.
#[inline(always)]
fn take_inner_packet(
    sa: &Sa,
    outer: &Outer<'_>,
    inner: &Decapsulated,
    body: &mut [u8],
    headers: &mut Headers,
) -> Result<Range<usize>, Reason> {
    let octets = &mut body[inner.range.clone()];
    // by reference: moving the parsed packet takes longer than parsing it
    let total_len = match &Ip::parse(octets) {
        Ok(ip) if ip.version().protocol() == inner.next_header => {
            *headers = Headers::read(ip);
            ip.total_len()
        }
        _ => return Err(Reason::BadInner),
    };
    let payload = inner.range.start..inner.range.start + total_len;
    let tos = sa.tos.decapsulate(headers.tos, outer.tos)?;
    if tos != headers.tos {
        header::set_tos(octets, tos).map_err(|_| Reason::BadInner)?;
        headers.tos = tos;
    }
    Ok(payload)
}

/// Restores the IP header of a transport mode packet.
fn restore_packet(
    outer: &Outer<'_>,
    inner: &Decapsulated,
    body: &[u8],
    scratch: &mut OpenScratch,
) -> Result<(), Reason> {
    let OpenScratch { header, headers } = scratch;
    if outer.header.is_empty() {
        let mut octets = [0; 40];
        let rebuilt = IpHeader {
            source: outer.source,
            destination: outer.destination,
            tos: outer.tos,
            hop_limit: HOP_LIMIT,
            protocol: inner.next_header,
            id: 0,
            dont_fragment: true,
            flow_label: 0,
        };
        let len = rebuilt.write(0, &mut octets).map_err(|_| Reason::Malformed)?;
        header.hold(&octets[..len])
    } else {
        header.hold(outer.header)
    }
    .ok_or(Reason::HeaderTooLong)?;
    let octets = header.as_mut_slice();
    let field = last_field(octets)?;
    octets[field] = inner.next_header;
    let total = octets.len() + inner.range.len();
    header::set_total_len(octets, total).map_err(|_| Reason::TooLong)?;

    // headers and ports are at the beginning; the length field is not checked
    let mut begin = [0; HeaderBuf::CAPACITY + PEEK];
    let (front, payload) = (header.as_slice(), &body[inner.range.clone()]);
    let peek = payload.len().min(PEEK);
    begin[..front.len()].copy_from_slice(front);
    begin[front.len()..][..peek].copy_from_slice(&payload[..peek]);
    let ip = Ip::parse_train(&begin[..front.len() + peek]).map_err(|_| Reason::BadInner)?;
    *headers = Headers::read(&ip);
    Ok(())
}

/// Returns the offset of the field that names what follows a header.
fn last_field(header: &[u8]) -> Result<usize, Reason> {
    const V4_PROTOCOL: usize = 9;
    const V6_NEXT_HEADER: usize = 6;
    match header.first().map(|octet| octet >> 4) {
        Some(4) if header.len() >= 20 => return Ok(V4_PROTOCOL),
        Some(6) if header.len() >= 40 => {}
        _ => return Err(Reason::Malformed),
    }
    let (mut at, mut field) = (40, V6_NEXT_HEADER);
    while let Some([_, len]) = header.get(at..at + 2) {
        field = at;
        // the length field of a fragment header is reserved and zero
        at += (usize::from(*len) + 1) * 8;
    }
    if at == header.len() { Ok(field) } else { Err(Reason::Malformed) }
}
