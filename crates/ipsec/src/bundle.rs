//! Protecting what leaves: ESP or Q-ESP, AH, or AH over one of them (RFC 4301,
//! section 5.1; "SA bundle"), into one buffer, in one pass.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use headroom_packet::header::{self, IpHeader};
use headroom_packet::protocol;
use headroom_suite::{AadInput, Authenticator, Transform};

use crate::ah;
use crate::esp;
use crate::headers::Headers;
use crate::qesp::{self, Clear};
use crate::reason::Reason;
use crate::sa::{Sa, Sizes};
use crate::spec::{AH, DontFragment, Mode, Padding, Protocol, UdpPorts};
use crate::transform::SaTransform;

/// The hop limit of a new outer header (RFC 4301, section 5.1.2: "the usual way").
const HOP_LIMIT: u8 = 64;
const UDP_HEADER_LEN: usize = 8;
/// The longest payload that an IP header can say.
const MAX_LEN: usize = 65_535;

/// Associations that are applied together to what leaves.
#[derive(Debug)]
pub struct Bundle {
    /// ESP, Q-ESP, or AH alone.
    inner: Arc<Sa>,
    /// AH over ESP or Q-ESP.
    over: Option<Arc<Sa>>,
    shape: Shape,
}

/// Octets of each part, in the order in which they stand.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    /// A new outer IP header; in transport mode the packet's own takes its place.
    ip: usize,
    ah: usize,
    ah_icv: usize,
    udp: usize,
    /// ESP's or Q-ESP's header.
    esp: usize,
    iv: usize,
    /// What text is padded to.
    block: usize,
    /// Pad length and next header.
    trailer: usize,
    icv: usize,
}

/// Where the parts of one packet are.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Octets of the outer IP header.
    ip_len: usize,
    /// Where the text begins: what is protected, then padding against traffic analysis, then the trailer.
    text: usize,
    /// Traffic flow confidentiality padding.
    tfc: usize,
    trailer: usize,
    /// Where the check value begins.
    icv: usize,
    total: usize,
}

/// Sequence numbers taken for packets that are about to be protected, and where
/// these go. What is not used is never used.
#[derive(Debug)]
pub struct Reservation {
    inner: u64,
    over: u64,
    left: u64,
    to: SocketAddr,
}

impl Reservation {
    /// Where the packets go: the peer's address now, and its port of ESP in UDP
    /// or 0.
    pub fn destination(&self) -> SocketAddr {
        self.to
    }
}

impl Bundle {
    /// `inner` with AH over it, if any.
    ///
    /// # Errors
    /// A sentence: the two do not go together.
    pub(crate) fn new(inner: Arc<Sa>, over: Option<Arc<Sa>>) -> Result<Self, &'static str> {
        if let Some(over) = &over {
            let (inner, over) = (&inner.spec, &over.spec);
            if over.mode != Mode::Transport {
                return Err(
                    "AH over ESP is in transport mode: the outer header is made by the inner one",
                );
            }
            if (over.source, over.destination) != (inner.source, inner.destination) {
                return Err("AH over ESP must have the same addresses as the ESP");
            }
            if inner.udp.is_some() {
                return Err(
                    "AH cannot be put over ESP in UDP, which is there for NATs: it covers addresses",
                );
            }
        }
        let shape = Shape::new(&inner, over.as_deref());
        Ok(Self { inner, over, shape })
    }

    /// The associations, from the inside to the outside.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Sa>> {
        std::iter::once(&self.inner).chain(&self.over)
    }

    /// Transport or tunnel.
    pub fn mode(&self) -> Mode {
        self.inner.spec.mode
    }

    /// Outer source address.
    pub fn source(&self) -> IpAddr {
        self.inner.spec.source
    }

    /// Outer destination address, now: that of a peer which is followed changes.
    pub fn destination(&self) -> IpAddr {
        self.inner.remote().ip()
    }

    /// The ports, where it is ESP in UDP.
    pub fn udp(&self) -> Option<UdpPorts> {
        self.inner.spec.udp
    }

    /// The protocol in the outer IP header.
    pub fn outer_protocol(&self) -> u8 {
        match (&self.over, self.udp()) {
            (Some(_), _) => AH,
            (None, Some(_)) => protocol::UDP,
            (None, None) => self.inner.spec.protection.protocol().number(),
        }
    }

    /// DSCP and ECN of the outer header of a packet with this octet.
    pub fn outer_tos(&self, inner: u8) -> u8 {
        match self.mode() {
            Mode::Transport => inner,
            Mode::Tunnel => self.inner.tos.encapsulate(inner),
        }
    }

    /// Whether it can carry this packet: its class of traffic, and in transport
    /// mode its addresses.
    pub(crate) fn serves(&self, headers: &Headers) -> bool {
        let class = self.inner.spec.classes >> (headers.tos >> 2) & 1 == 1;
        let own = (headers.source, headers.destination)
            == (self.inner.spec.source, self.inner.spec.destination);
        class && (self.mode() == Mode::Tunnel || own)
    }

    /// Returns the bytes of the outer packet for one of `len` bytes, of which
    /// `header_len` stand before the place of ESP in transport mode; without padding
    /// that hides lengths, which takes only what is left of the path.
    pub fn sealed_len(&self, len: usize, header_len: usize) -> usize {
        let header_len = self.header_len(header_len);
        self.layout(header_len, len.saturating_sub(header_len), 0).total
    }

    /// The longest packet that fits `path_mtu` octets when it is protected, with
    /// `header_len` as in [`Bundle::sealed_len`].
    pub fn inner_mtu(&self, path_mtu: usize, header_len: usize) -> usize {
        let header_len = self.header_len(header_len);
        let bare = self.layout(header_len, 0, 0);
        let room = path_mtu.saturating_sub(bare.text + self.shape.icv);
        let text = room & !(self.shape.block - 1);
        header_len + text.saturating_sub(self.shape.trailer)
    }

    /// Takes sequence numbers for `packets` packets of `bytes` octets in all.
    ///
    /// # Errors
    /// An association is over, or has no numbers left.
    pub fn reserve(&self, packets: u64, bytes: u64) -> Result<Reservation, Reason> {
        let take = |sa: &Sa| {
            sa.count_outbound(packets, bytes)?;
            sa.state.sequence.take(packets)
        };
        let inner = take(&self.inner)?;
        let over = self.over.as_deref().map_or(Ok(0), take)?;
        Ok(Reservation { inner, over, left: packets, to: self.inner.remote() })
    }

    /// Writes the protected packet into `out`, outer IP header and all, and
    /// returns its length. `write` is given room for exactly the `len` octets of
    /// the packet, and fills it; `headers` say what it is. A UDP header has no
    /// checksum (RFC 3948, section 2.1). Padding that hides lengths ends where
    /// `out` does: pass no more than the path takes.
    ///
    /// # Errors
    /// [`Reason::FragmentInTransport`], [`Reason::TooLong`], and what may be
    /// wrong with the headers under AH.
    pub fn seal(
        &self,
        reservation: &mut Reservation,
        headers: &Headers,
        len: usize,
        out: &mut [u8],
        write: impl FnOnce(&mut [u8]),
    ) -> Result<usize, Reason> {
        // RFC 4303, section 3.3.4: transport mode is for whole datagrams only
        if self.mode() == Mode::Transport && headers.fragment {
            return Err(Reason::FragmentInTransport);
        }
        let header_len = self.header_len(headers.security_offset);
        let inside = len.checked_sub(header_len).ok_or(Reason::Malformed)?;
        let layout = self.layout(header_len, inside, out.len());
        let out = layout.fit(out)?;
        let packet = layout.text - header_len;
        write(&mut out[packet..packet + len]);
        let next_header = match (self.mode(), headers.source) {
            (Mode::Tunnel, IpAddr::V4(_)) => protocol::IPV4,
            (Mode::Tunnel, IpAddr::V6(_)) => protocol::IPV6,
            (Mode::Transport, _) => {
                out.copy_within(packet..layout.text, 0);
                std::mem::replace(&mut out[headers.security_field], self.outer_protocol())
            }
        };
        if self.mode() == Mode::Tunnel {
            self.write_ip(headers, reservation, out)?;
        } else {
            // AH is void where the kernel fills in an ID (raw(7))
            if self.source().is_ipv4() && out[4..6] == [0, 0] {
                out[4..6].copy_from_slice(&identification(reservation.inner).to_be_bytes());
            }
            header::set_total_len(out, layout.total).map_err(|_| Reason::Malformed)?;
        }
        self.protect(reservation, headers, next_header, &layout, out)
    }

    /// Writes a dummy packet (RFC 4303, section 2.6) as long as one with `len`
    /// octets behind its headers, and returns its length.
    ///
    /// # Errors
    /// [`Reason::TooLong`]; [`Reason::NoAssociation`] for AH, which hides nothing.
    pub fn seal_dummy(
        &self,
        reservation: &mut Reservation,
        len: usize,
        out: &mut [u8],
    ) -> Result<usize, Reason> {
        if self.shape.esp == 0 {
            return Err(Reason::NoAssociation);
        }
        let headers = Headers::dummy(self.source(), reservation.to.ip());
        let layout = self.layout(self.header_len(self.shape.ip), len, out.len());
        let out = layout.fit(out)?;
        out[layout.text..layout.icv].fill(0);
        self.write_ip(&headers, reservation, out)?;
        self.protect(reservation, &headers, protocol::NO_NEXT_HEADER, &layout, out)
    }

    /// All but the outer IP header and the packet itself, which are in their
    /// places.
    fn protect(
        &self,
        reservation: &mut Reservation,
        headers: &Headers,
        next_header: u8,
        layout: &Layout,
        out: &mut [u8],
    ) -> Result<usize, Reason> {
        reservation.left = reservation.left.checked_sub(1).ok_or(Reason::SequenceExhausted)?;
        let ah_at = layout.ip_len;
        let mut covered = next_header;
        match &self.inner.transform {
            SaTransform::Cipher(transform) => {
                self.encrypt(
                    transform.as_ref(),
                    reservation.inner,
                    headers,
                    next_header,
                    layout,
                    out,
                )?;
                covered = self.inner.spec.protection.protocol().number();
            }
            SaTransform::Mac(mac) => {
                self.sign(&self.inner, mac, reservation.inner, covered, ah_at, out)?
            }
        }
        if let Some(ports) = self.udp() {
            let ports = UdpPorts { destination: reservation.to.port(), ..ports };
            write_udp(ports, &mut out[ah_at..]);
        }
        if let Some(sa) = &self.over
            && let SaTransform::Mac(mac) = &sa.transform
        {
            self.sign(sa, mac, reservation.over, covered, ah_at, out)?;
        }
        reservation.inner += 1;
        reservation.over += 1;
        Ok(layout.total)
    }

    /// Trailer, header, IV, encryption and check value of ESP or Q-ESP.
    fn encrypt(
        &self,
        transform: &dyn Transform,
        number: u64,
        headers: &Headers,
        next_header: u8,
        layout: &Layout,
        out: &mut [u8],
    ) -> Result<(), Reason> {
        let trailer_at = layout.icv - layout.trailer;
        out[trailer_at - layout.tfc..trailer_at].fill(0);
        esp::write_trailer(&mut out[trailer_at..layout.icv], next_header);

        let header = esp::Header { spi: self.inner.spec.spi, sequence: number as u32 };
        let body_at = layout.text - self.shape.iv;
        let (before, body) = out.split_at_mut(body_at);
        let place = &mut before[body_at - self.shape.esp..];
        let mut room = [0; qesp::MAX_ADDRESSES_LEN];
        let mut addresses: &[u8] = &[];
        if let Protocol::QEsp(_) = self.inner.spec.protection.protocol() {
            place[..qesp::CLEAR_LEN].copy_from_slice(&Clear::of(headers).octets());
            place[qesp::CLEAR_LEN..].copy_from_slice(&header.octets());
            addresses = qesp::addresses(self.source(), self.destination(), &mut room);
        } else {
            place.copy_from_slice(&header.octets());
        }
        let extended = self.inner.spec.extended_sequence;
        let aad = AadInput { header: place, sequence: number, extended, addresses };
        transform.seal(&aad, body).map_err(|_| Reason::NotSealed)
    }

    /// AH's header and check value, over the packet as it is now.
    fn sign(
        &self,
        sa: &Sa,
        mac: &Authenticator,
        number: u64,
        next_header: u8,
        at: usize,
        out: &mut [u8],
    ) -> Result<(), Reason> {
        let (ip, rest) = out.split_at_mut(at);
        let sequence = number as u32;
        let header = ah::Header { next_header, len: self.shape.ah, spi: sa.spec.spi, sequence };
        header.write(&mut rest[..self.shape.ah]);
        let mut icv = [0; 64];
        let icv = &mut icv[..self.shape.ah_icv];
        let high = ah::high_bits(sa, number);
        mac.sign(&[ah::zero_mutable_fields(ip)?.as_slice(), rest, high.as_slice()], icv);
        rest[ah::FIXED_LEN..][..icv.len()].copy_from_slice(icv);
        Ok(())
    }

    /// A new outer header (RFC 4301, section 5.1.2).
    fn write_ip(
        &self,
        headers: &Headers,
        reservation: &Reservation,
        out: &mut [u8],
    ) -> Result<(), Reason> {
        let header = IpHeader {
            source: self.source(),
            destination: reservation.to.ip(),
            tos: self.outer_tos(headers.tos),
            hop_limit: HOP_LIMIT,
            protocol: self.outer_protocol(),
            id: identification(reservation.inner),
            dont_fragment: match self.inner.spec.dont_fragment {
                DontFragment::Copy => headers.dont_fragment,
                DontFragment::Set => true,
                DontFragment::Clear => false,
            },
            flow_label: 0,
        };
        let behind = out.len() - self.shape.ip;
        header.write(behind, out).map(drop).map_err(|_| Reason::Malformed)
    }

    /// Octets of the packet that become the outer IP header.
    fn header_len(&self, security_offset: usize) -> usize {
        if self.mode() == Mode::Tunnel { 0 } else { security_offset }
    }

    /// The places in a packet that protects `len` octets behind `header_len`, with as
    /// much of the wanted padding against traffic analysis as leaves the packet within `limit` bytes.
    fn layout(&self, header_len: usize, len: usize, limit: usize) -> Layout {
        let Shape { ip, ah, udp, esp, iv, block, trailer, icv, .. } = self.shape;
        let ip_len = if self.mode() == Mode::Tunnel { ip } else { header_len };
        let text = ip_len + ah + udp + esp + iv;
        // padding up to this total length, or to the next shorter whole block
        let up_to = |total: usize| {
            let room = total.saturating_sub(text + icv) & !(block - 1);
            room.saturating_sub(len + trailer)
        };
        let limit = limit.min(MAX_LEN);
        let tfc = match self.inner.spec.padding {
            Padding::Multiple(of) if trailer > 0 => {
                let wanted = len.next_multiple_of(usize::from(of.max(1))) - len;
                wanted.min(up_to(limit))
            }
            Padding::Outer(outer) if trailer > 0 => up_to(limit.min(outer.into())),
            _ => 0,
        };
        // the next multiple of the block, which is a power of two
        let trailer = ((len + tfc + trailer + block - 1) & !(block - 1)) - (len + tfc);
        let end = text + len + tfc + trailer;
        Layout { ip_len, text, tfc, trailer, icv: end, total: end + icv }
    }
}

impl Shape {
    fn new(inner: &Sa, over: Option<&Sa>) -> Self {
        let v6 = inner.spec.source.is_ipv6();
        let mut shape = Self { ip: if v6 { 40 } else { 20 }, block: 1, ..Self::default() };
        for sa in std::iter::once(inner).chain(over) {
            match &sa.transform {
                SaTransform::Cipher(_) => {
                    let Sizes { header: esp, iv, block, icv } = sa.sizes;
                    shape = Self { esp, iv, block, icv, trailer: esp::TRAILER_LEN, ..shape };
                }
                SaTransform::Mac(_) => {
                    shape.ah_icv = sa.sizes.icv;
                    let alignment = if v6 { 8 } else { sa.spec.ah_alignment };
                    shape.ah = ah::header_len(shape.ah_icv, alignment);
                }
            }
        }
        if inner.spec.udp.is_some() {
            shape.udp = UDP_HEADER_LEN;
        }
        shape
    }
}

impl Layout {
    /// As much of `out` as the packet takes.
    fn fit<'a>(&self, out: &'a mut [u8]) -> Result<&'a mut [u8], Reason> {
        if self.total > MAX_LEN {
            return Err(Reason::TooLong);
        }
        out.get_mut(..self.total).ok_or(Reason::TooLong)
    }
}

fn write_udp(ports: UdpPorts, datagram: &mut [u8]) {
    let len = datagram.len() as u16; // at most MAX_LEN
    datagram[..2].copy_from_slice(&ports.source.to_be_bytes());
    datagram[2..4].copy_from_slice(&ports.destination.to_be_bytes());
    datagram[4..6].copy_from_slice(&len.to_be_bytes());
    datagram[6..8].fill(0);
}

/// An IPv4 identification that repeats as late as it can and is never 0, which
/// asks a kernel to fill one in.
fn identification(number: u64) -> u16 {
    (number % 65_535) as u16 + 1
}
