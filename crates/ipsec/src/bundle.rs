//! Protects outbound packets with ESP or Q-ESP, AH, or AH over one of them (an SA bundle; RFC 4301,
//! section 5.1), into one buffer, in one pass.

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
/// The longest packet that the length field of an IP header can express.
const MAX_LEN: usize = 65_535;

/// Associations that are applied together to outbound packets.
#[derive(Debug)]
pub struct Bundle {
    /// ESP, Q-ESP, or AH alone.
    inner: Arc<Sa>,
    /// AH over ESP or Q-ESP.
    over: Option<Arc<Sa>>,
    shape: Shape,
}

/// Length of each part in bytes, in the order of the packet.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    /// A new outer IP header; transport mode uses the packet's own.
    ip: usize,
    ah: usize,
    ah_icv: usize,
    udp: usize,
    /// ESP's or Q-ESP's header.
    esp: usize,
    iv: usize,
    /// The unit to which the payload is padded.
    block: usize,
    /// Pad length and next header.
    trailer: usize,
    icv: usize,
}

/// The offsets of the parts of one packet.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Length of the outer IP header.
    ip_len: usize,
    /// The offset of the payload, which is followed by padding against traffic analysis and the
    /// trailer.
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
    /// Returns the destination of the packets: the peer's current address, and its port for ESP in
    /// UDP, else 0.
    pub fn destination(&self) -> SocketAddr {
        self.to
    }
}

impl Bundle {
    /// Makes a bundle of `inner` and an AH over it, if any.
    ///
    /// # Errors
    /// A sentence, if the two do not fit.
    pub(crate) fn new(inner: Arc<Sa>, over: Option<Arc<Sa>>) -> Result<Self, &'static str> {
        if let Some(over) = &over {
            let (inner, over) = (&inner.spec, &over.spec);
            if over.mode != Mode::Transport {
                return Err(
                    "AH over ESP must be in transport mode: the inner SA makes the outer header",
                );
            }
            if (over.source, over.destination) != (inner.source, inner.destination) {
                return Err("AH over ESP must have the same addresses as the ESP");
            }
            if inner.udp.is_some() {
                return Err(
                    "AH over ESP in UDP is impossible: AH covers the addresses that a NAT changes",
                );
            }
        }
        let shape = Shape::new(&inner, over.as_deref());
        Ok(Self { inner, over, shape })
    }

    /// Returns the associations, from the innermost to the outermost.
    pub fn associations(&self) -> impl Iterator<Item = &Arc<Sa>> {
        std::iter::once(&self.inner).chain(&self.over)
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.inner.spec.mode
    }

    /// Returns the outer source address.
    pub fn source(&self) -> IpAddr {
        self.inner.spec.source
    }

    /// Returns the current outer destination address, which changes if the peer is followed.
    pub fn destination(&self) -> IpAddr {
        self.inner.remote().ip()
    }

    /// Returns the ports of ESP in UDP.
    pub fn udp(&self) -> Option<UdpPorts> {
        self.inner.spec.udp
    }

    /// Returns the protocol number in the outer IP header.
    pub fn outer_protocol(&self) -> u8 {
        match (&self.over, self.udp()) {
            (Some(_), _) => AH,
            (None, Some(_)) => protocol::UDP,
            (None, None) => self.inner.spec.protection.protocol().number(),
        }
    }

    /// Returns DSCP and ECN of the outer header, given the packet's.
    pub fn outer_tos(&self, inner: u8) -> u8 {
        match self.mode() {
            Mode::Transport => inner,
            Mode::Tunnel => self.inner.tos.encapsulate(inner),
        }
    }

    /// Returns the queue whose packets it is for.
    pub(crate) fn queue(&self) -> Option<u32> {
        self.inner.spec.queue
    }

    /// Whether the bundle carries this packet's traffic class and, in transport mode, its addresses.
    pub(crate) fn serves(&self, headers: &Headers) -> bool {
        let class = self.inner.spec.classes >> (headers.tos >> 2) & 1 == 1;
        let own = (headers.source, headers.destination)
            == (self.inner.spec.source, self.inner.spec.destination);
        class && (self.mode() == Mode::Tunnel || own)
    }

    /// Returns the length of the outer packet for one of `len` bytes, of which `header_len` precede
    /// ESP in transport mode. Excludes padding that hides lengths, which uses only spare bytes.
    pub fn sealed_len(&self, len: usize, header_len: usize) -> usize {
        let header_len = self.header_len(header_len);
        self.layout(header_len, len.saturating_sub(header_len), 0).total
    }

    /// Returns the longest packet that fits `path_mtu` when it is protected, with `header_len` as in
    /// [`Bundle::sealed_len`].
    pub fn inner_mtu(&self, path_mtu: usize, header_len: usize) -> usize {
        let header_len = self.header_len(header_len);
        let bare = self.layout(header_len, 0, 0);
        let room = path_mtu.saturating_sub(bare.text + self.shape.icv);
        let text = room & !(self.shape.block - 1);
        header_len + text.saturating_sub(self.shape.trailer)
    }

    /// Takes sequence numbers for `packets` packets of `bytes` bytes in all.
    ///
    /// # Errors
    /// An association has expired or has no numbers left.
    pub fn reserve(&self, packets: u64, bytes: u64) -> Result<Reservation, Reason> {
        let take = |sa: &Sa| {
            sa.count_outbound(packets, bytes)?;
            sa.state.sequence.take(packets)
        };
        let inner = take(&self.inner)?;
        let over = self.over.as_deref().map_or(Ok(0), take)?;
        Ok(Reservation { inner, over, left: packets, to: self.inner.remote() })
    }

    /// Writes the protected packet with its outer IP header into `out`, and returns its length.
    /// `write` fills a slice of exactly `len` bytes with the packet; `headers` are its fields. A UDP
    /// header has no checksum (RFC 3948, section 2.1). Padding that hides lengths may fill `out`, so
    /// `out` should not exceed the path MTU.
    ///
    /// # Errors
    /// [`Reason::FragmentInTransport`], [`Reason::TooLong`], or a problem with the headers under AH.
    pub fn seal(
        &self,
        reservation: &mut Reservation,
        headers: &Headers,
        len: usize,
        out: &mut [u8],
        write: impl FnOnce(&mut [u8]),
    ) -> Result<usize, Reason> {
        // RFC 4303, section 3.3.4: transport mode protects whole datagrams only
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
                std::mem::replace(&mut out[headers.next_header_offset], self.outer_protocol())
            }
        };
        if self.mode() == Mode::Tunnel {
            self.write_ip(headers, reservation, out)?;
        } else {
            // the kernel would fill in an ID of 0 (raw(7)), which breaks the ICV of AH
            if self.source().is_ipv4() && out[4..6] == [0, 0] {
                out[4..6].copy_from_slice(&identification(reservation.inner).to_be_bytes());
            }
            header::set_total_len(out, layout.total).map_err(|_| Reason::Malformed)?;
        }
        self.protect(reservation, headers, next_header, &layout, out)
    }

    /// Writes a dummy packet (RFC 4303, section 2.6) as long as one with a payload of `len` bytes, and
    /// returns its length.
    ///
    /// # Errors
    /// [`Reason::TooLong`]; [`Reason::NoAssociation`] for AH, which has no dummy packets.
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

    /// Protects a packet whose payload and outer IP header are in place.
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
                self.sign(&self.inner, mac, reservation.inner, covered, ah_at, out)?;
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

    /// Writes trailer, header, IV and check value of ESP or Q-ESP, and encrypts.
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
        let mut buffer = [0; qesp::MAX_ADDRESSES_LEN];
        let mut addresses: &[u8] = &[];
        if let Protocol::QEsp(_) = self.inner.spec.protection.protocol() {
            place[..qesp::CLEAR_LEN].copy_from_slice(&Clear::of(headers).octets());
            place[qesp::CLEAR_LEN..].copy_from_slice(&header.octets());
            addresses = qesp::addresses(self.source(), self.destination(), &mut buffer);
        } else {
            place.copy_from_slice(&header.octets());
        }
        let extended = self.inner.spec.extended_sequence;
        let aad = AadInput { header: place, sequence: number, extended, addresses };
        transform.seal(&aad, body).map_err(|_| Reason::NotSealed)
    }

    /// Writes AH's header and check value over the packet as it is.
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

    /// Writes a new outer header (RFC 4301, section 5.1.2).
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

    /// Returns the length of the packet's own header that becomes the outer IP header.
    fn header_len(&self, security_offset: usize) -> usize {
        if self.mode() == Mode::Tunnel { 0 } else { security_offset }
    }

    /// Returns the layout of a packet that protects `len` bytes behind a header of `header_len`, with
    /// as much of the wanted padding against traffic analysis as fits `limit` bytes.
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
        // rounds up to the block, which is a power of two
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
    /// Returns the part of `out` that the packet takes.
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

/// Returns an IPv4 identification that repeats as late as possible and is never 0, which would ask the
/// kernel to fill one in (raw(7)).
fn identification(number: u64) -> u16 {
    (number % 65_535) as u16 + 1
}
