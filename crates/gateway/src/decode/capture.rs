//! Reads captures of libpcap and Wireshark frame by frame: pcap, and pcapng as of
//! draft-ietf-opsawg-pcapng. No length field of a file makes the reader allocate memory.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::time::Duration;

/// The most bytes of a frame.
const MAX_FRAME: usize = 1 << 20;
/// The most bytes of a block with a frame and its options.
const MAX_BLOCK: usize = MAX_FRAME + (64 << 10);
/// The most interfaces of a section.
const MAX_INTERFACES: usize = 1 << 16;
/// Link types have 16 bits; the bits above describe frame check sequences.
const LINK_TYPE: u32 = 0xffff;

/// A frame of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The position of the frame in the capture, from 1.
    pub number: u64,
    /// The time of the capture, since 1970.
    pub time: Duration,
    /// The link type (tcpdump.org/linktypes.html).
    pub link: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The original length of the frame.
    pub original_len: usize,
}

/// Why a capture cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not begin like a capture.
    #[error("this is not a pcap or pcapng file")]
    NotACapture,
    /// The file ends inside a frame, as after a crash.
    #[error("the capture is truncated: it ends inside frame {0}")]
    Cut(u64),
    /// A field has an impossible value.
    #[error("the capture is damaged at frame {0}: {1}")]
    Damaged(u64, &'static str),
    /// The file cannot be read.
    #[error("cannot read the capture: {0}")]
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An open capture.
#[derive(Debug)]
pub struct Capture<R> {
    input: R,
    format: Format,
    number: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Format {
    Pcap { big_endian: bool, nanoseconds: bool, link: u32 },
    Ng { big_endian: bool, interfaces: Vec<Interface> },
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: u32,
    snaplen: usize,
    resolution: u8,
    offset_seconds: i64,
}

/// A frame whose bytes are in the buffer.
struct Head {
    time: Duration,
    link: u32,
    range: Range<usize>,
    original_len: usize,
}

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

impl<R: Read> Capture<R> {
    /// Reads the beginning of a capture. `input` should be buffered.
    ///
    /// # Errors
    /// The input is not a capture.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(|_| Error::NotACapture)?;
        let format = match u32::from_be_bytes(magic) {
            SECTION => section(&mut input, 1)?,
            word => {
                let (big_endian, nanoseconds) = match word {
                    0xa1b2_c3d4 => (true, false),
                    0xd4c3_b2a1 => (false, false),
                    0xa1b2_3c4d => (true, true),
                    0x4d3c_b2a1 => (false, true),
                    _ => return Err(Error::NotACapture),
                };
                let mut rest = [0; 20];
                input.read_exact(&mut rest).map_err(|_| Error::NotACapture)?;
                let link = word_at(&rest, 16, big_endian) & LINK_TYPE;
                Format::Pcap { big_endian, nanoseconds, link }
            }
        };
        Ok(Self { input, format, number: 0, buffer: Vec::new() })
    }

    /// Reads the next frame; None at the end.
    ///
    /// # Errors
    /// The capture is truncated or damaged, or cannot be read. No further frame can be read then.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        self.number += 1;
        let number = self.number;
        let Self { input, format, buffer, .. } = self;
        let head = match format {
            Format::Pcap { big_endian, nanoseconds, link } => {
                next_record(input, *big_endian, *nanoseconds, *link, buffer, number)?
            }
            Format::Ng { .. } => next_block(input, format, buffer, number)?,
        };
        let Some(Head { time, link, range, original_len }) = head else { return Ok(None) };
        let data = &self.buffer[range];
        Ok(Some(Frame { number, time, link, data, original_len: original_len.max(data.len()) }))
    }
}

fn next_record(
    input: &mut impl Read,
    big_endian: bool,
    nanoseconds: bool,
    link: u32,
    buffer: &mut Vec<u8>,
    number: u64,
) -> Result<Option<Head>, Error> {
    let mut record = [0; 16];
    if !read_or_end(input, &mut record, number)? {
        return Ok(None);
    }
    let word = |at| word_at(&record, at, big_endian);
    let fraction = u64::from(word(4)) * if nanoseconds { 1 } else { 1000 };
    let time = Duration::from_secs(word(0).into()) + Duration::from_nanos(fraction);
    let (len, original_len) = (word(8) as usize, word(12) as usize);
    if len > MAX_FRAME {
        return Err(Error::Damaged(number, "a frame of more than 1 MiB"));
    }
    buffer.resize(len, 0);
    read_whole(input, buffer, number)?;
    Ok(Some(Head { time, link, range: 0..len, original_len }))
}

/// Reads blocks up to the next one with a frame.
fn next_block(
    input: &mut impl Read,
    format: &mut Format,
    buffer: &mut Vec<u8>,
    number: u64,
) -> Result<Option<Head>, Error> {
    loop {
        let mut kind = [0; 4];
        if !read_or_end(input, &mut kind, number)? {
            return Ok(None);
        }
        if u32::from_be_bytes(kind) == SECTION {
            *format = section(input, number)?;
            continue;
        }
        let Format::Ng { big_endian, interfaces } = &mut *format else { return Ok(None) };
        let big_endian = *big_endian;
        let len = body_len(input, big_endian, number)?;
        let kind = word_at(&kind, 0, big_endian);
        if !matches!(kind, INTERFACE | PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
            skip(input, len as u64 + 4, number)?;
            continue;
        }
        if len > MAX_BLOCK {
            return Err(Error::Damaged(number, "a block of more than 1 MiB"));
        }
        buffer.resize(len, 0);
        read_whole(input, buffer, number)?;
        skip(input, 4, number)?;
        if kind == INTERFACE {
            if interfaces.len() == MAX_INTERFACES {
                return Err(Error::Damaged(number, "more than 65536 interfaces"));
            }
            let interface = Interface::read(buffer, big_endian);
            let interface =
                interface.ok_or(Error::Damaged(number, "an interface block is too short"))?;
            interfaces.push(interface);
            continue;
        }
        let frame = frame(kind, buffer, big_endian, interfaces);
        return frame
            .map(Some)
            .ok_or(Error::Damaged(number, "a packet block whose fields do not fit"));
    }
}

fn frame(kind: u32, block: &[u8], big_endian: bool, interfaces: &[Interface]) -> Option<Head> {
    let word = |at: usize| block.get(at..at + 4).map(|_| word_at(block, at, big_endian));
    if kind == SIMPLE_PACKET {
        let Interface { link, snaplen, .. } = *interfaces.first()?;
        let original_len = word(0)? as usize;
        let most = if snaplen == 0 { usize::MAX } else { snaplen };
        let len = original_len.min(most).min(block.len() - 4);
        return Some(Head { time: Duration::ZERO, link, range: 4..4 + len, original_len });
    }
    let index = match kind {
        // The older block has 16 bits of interface, then a count of drops.
        PACKET if big_endian => word(0)? >> 16,
        PACKET => word(0)? & 0xffff,
        _ => word(0)?,
    };
    let interface = interfaces.get(index as usize)?;
    let ticks = u64::from(word(4)?) << 32 | u64::from(word(8)?);
    let (len, original_len) = (word(12)? as usize, word(16)? as usize);
    let end = len.checked_add(20).filter(|end| *end <= block.len())?;
    Some(Head { time: interface.time(ticks), link: interface.link, range: 20..end, original_len })
}

impl Interface {
    fn read(block: &[u8], big_endian: bool) -> Option<Self> {
        const RESOLUTION: u16 = 9;
        const OFFSET: u16 = 14;
        let short = |at: usize| {
            let octets = block.get(at..at + 2)?.try_into().ok()?;
            Some(if big_endian { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) })
        };
        let mut interface = Self {
            link: short(0)?.into(),
            snaplen: block.get(4..8).map(|_| word_at(block, 4, big_endian))? as usize,
            resolution: 6,
            offset_seconds: 0,
        };
        let mut at = 8;
        while let (Some(code), Some(len)) = (short(at), short(at + 2)) {
            let len = usize::from(len);
            let Some(value) = block.get(at + 4..at + 4 + len) else { break };
            match (code, value) {
                (0, _) => break,
                (RESOLUTION, [resolution]) => interface.resolution = *resolution,
                (OFFSET, value) => {
                    if let Ok(octets) = value.try_into() {
                        let number =
                            if big_endian { i64::from_be_bytes } else { i64::from_le_bytes };
                        interface.offset_seconds = number(octets);
                    }
                }
                _ => {}
            }
            at += 4 + len.next_multiple_of(4);
        }
        Some(interface)
    }

    /// Returns the time since 1970; 0 if the timestamp is out of range.
    fn time(&self, ticks: u64) -> Duration {
        let exponent = u32::from(self.resolution & 0x7f);
        let units = if self.resolution & 0x80 == 0 {
            10u128.checked_pow(exponent)
        } else {
            1u128.checked_shl(exponent)
        };
        let Some(units) = units.filter(|units| *units > 0) else { return Duration::ZERO };
        const SECOND: u128 = 1_000_000_000;
        let nanoseconds = u128::from(ticks) * SECOND / units;
        let seconds = u64::try_from(nanoseconds / SECOND).unwrap_or(0);
        let time = Duration::new(seconds, (nanoseconds % SECOND) as u32);
        let offset = Duration::from_secs(self.offset_seconds.unsigned_abs());
        let moved = if self.offset_seconds < 0 {
            time.checked_sub(offset)
        } else {
            time.checked_add(offset)
        };
        moved.unwrap_or_default()
    }
}

/// Reads a section header after its type. A section has its own byte order and interfaces.
fn section(input: &mut impl Read, number: u64) -> Result<Format, Error> {
    let mut head = [0; 8];
    read_whole(input, &mut head, number)?;
    let big_endian = match word_at(&head, 4, true) {
        BYTE_ORDER => true,
        word if word.swap_bytes() == BYTE_ORDER => false,
        _ => return Err(Error::NotACapture),
    };
    // Type, length and byte order were read before.
    let rest = word_at(&head, 0, big_endian).checked_sub(12).filter(|rest| *rest >= 16);
    let rest = rest.ok_or(Error::Damaged(number, "a section header is too short"))?;
    skip(input, rest.into(), number)?;
    Ok(Format::Ng { big_endian, interfaces: Vec::new() })
}

/// Reads a block's length and returns the length of its body.
fn body_len(input: &mut impl Read, big_endian: bool, number: u64) -> Result<usize, Error> {
    let mut len = [0; 4];
    read_whole(input, &mut len, number)?;
    let body = word_at(&len, 0, big_endian).checked_sub(12).filter(|body| body % 4 == 0);
    body.map(|body| body as usize).ok_or(Error::Damaged(number, "a block of an impossible length"))
}

fn word_at(octets: &[u8], at: usize, big_endian: bool) -> u32 {
    let octets = [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
    if big_endian { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
}

fn read_whole(input: &mut impl Read, buffer: &mut [u8], number: u64) -> Result<(), Error> {
    input.read_exact(buffer).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Error::Cut(number),
        _ => Error::Io(error),
    })
}

/// Fills the buffer; false at the end of the file.
fn read_or_end(input: &mut impl Read, buffer: &mut [u8], number: u64) -> Result<bool, Error> {
    let read = loop {
        match input.read(&mut buffer[..1]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if read == 0 {
        return Ok(false);
    }
    read_whole(input, &mut buffer[1..], number)?;
    Ok(true)
}

fn skip(input: &mut impl Read, octets: u64, number: u64) -> Result<(), Error> {
    let skipped = io::copy(&mut input.take(octets), &mut io::sink())?;
    if skipped == octets { Ok(()) } else { Err(Error::Cut(number)) }
}

/// Writes packets as a pcap file of raw IP.
#[derive(Debug)]
pub struct Writer<W>(W);

impl<W: io::Write> Writer<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        const NANOSECONDS: u32 = 0xa1b2_3c4d;
        const VERSION: u32 = 2 | 4 << 16;
        const SNAPLEN: u32 = 262_144;
        const RAW_IP: u32 = 101;
        for word in [NANOSECONDS, VERSION, 0, 0, SNAPLEN, RAW_IP] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Self(out))
    }

    /// Writes an IP packet.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, time: Duration, packet: &[u8]) -> io::Result<()> {
        // The format's seconds have 32 bits.
        let len = packet.len() as u32;
        for word in [time.as_secs() as u32, time.subsec_nanos(), len, len] {
            self.0.write_all(&word.to_le_bytes())?;
        }
        self.0.write_all(packet)
    }

    /// Writes the buffered bytes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
