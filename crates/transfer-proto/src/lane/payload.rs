//! The encrypted payload of a packet: its type and fields.

use super::feedback::{Feedback, Ranges};

/// Bytes ahead of the data in a data packet: type, file, offset.
pub const DATA_HEAD: usize = 13;

const ASK: u8 = 0x80;
const DATA: u8 = 1;
const PROBE: u8 = 2;
const PATH: u8 = 3;
const FEEDBACK: u8 = 4;
const CLOSE: u8 = 5;

/// Bytes of a path packet ahead of its padding.
const PATH_LEN: usize = 18;

/// The payload of one packet, borrowed from it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Payload<'a> {
    /// Bytes of a file. They may arrive twice, in packets of other numbers and sizes.
    Data {
        /// The file's number in the transfer.
        file: u32,
        /// The offset of the first byte in the file, not beyond `u64::MAX - len`.
        offset: u64,
        /// At least one.
        bytes: &'a [u8],
    },
    /// Only padding: probes whether the path carries its length.
    Probe,
    /// A path challenge or response.
    Path(Path),
    /// Feedback about packets that arrived.
    Feedback(Feedback<Ranges<'a>>),
    /// The lane is closed; nothing follows.
    Close {
        /// The reason: 0 is success.
        reason: u32,
    },
    /// A type of another version; ignored.
    Unknown,
}

/// A challenge, a response, or both (RFC 9000, section 8.2).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Path {
    /// To be returned by the other end.
    pub challenge: Option<[u8; 8]>,
    /// The other end's challenge.
    pub response: Option<[u8; 8]>,
}

impl<'a> Payload<'a> {
    /// Reads a packet's payload, and whether it asks for immediate feedback.
    pub fn parse(bytes: &'a [u8]) -> Option<(Self, bool)> {
        let (&first, rest) = bytes.split_first()?;
        let payload = match first & !ASK {
            DATA => {
                let (file, rest) = rest.split_first_chunk()?;
                let (offset, bytes) = rest.split_first_chunk()?;
                let (file, offset) = (u32::from_be_bytes(*file), u64::from_be_bytes(*offset));
                if bytes.is_empty() || offset.checked_add(bytes.len() as u64).is_none() {
                    return None;
                }
                Self::Data { file, offset, bytes }
            }
            PROBE => Self::Probe,
            PATH => Self::Path(Path::parse(rest)?),
            FEEDBACK => Self::Feedback(Feedback::parse(rest)?),
            CLOSE => Self::Close { reason: u32::from_be_bytes(*rest.first_chunk()?) },
            _ => Self::Unknown,
        };
        Some((payload, first & ASK != 0))
    }

    /// Writes the fields ahead of the data into the first [`DATA_HEAD`] bytes.
    #[inline]
    pub fn write_data_head(file: u32, offset: u64, ask: bool, out: &mut [u8]) {
        out[0] = DATA | if ask { ASK } else { 0 };
        out[1..5].copy_from_slice(&file.to_be_bytes());
        out[5..DATA_HEAD].copy_from_slice(&offset.to_be_bytes());
    }

    /// Fills `out` as a probe, which always asks for feedback.
    pub fn write_probe(out: &mut [u8]) {
        out.fill(0);
        out[0] = PROBE | ASK;
    }

    /// Writes a feedback and returns its length.
    pub fn write_feedback<R>(feedback: Feedback<R>, out: &mut [u8]) -> usize
    where
        R: Iterator<Item = std::ops::RangeInclusive<u64>>,
    {
        out[0] = FEEDBACK;
        1 + feedback.write(&mut out[1..])
    }

    /// Writes a close and returns its length.
    pub fn write_close(reason: u32, out: &mut [u8]) -> usize {
        out[0] = CLOSE;
        out[1..5].copy_from_slice(&reason.to_be_bytes());
        5
    }
}

impl Path {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&flags, rest) = bytes.split_first()?;
        let (challenge, rest) = rest.split_first_chunk::<8>()?;
        let response = rest.first_chunk::<8>()?;
        Some(Self {
            challenge: (flags & 1 != 0).then_some(*challenge),
            response: (flags & 2 != 0).then_some(*response),
        })
    }

    /// Fills `out`, of 18 bytes at least, padded with zeros: a path that carries it carries packets
    /// of that length.
    pub fn write(&self, out: &mut [u8]) {
        out.fill(0);
        out[0] = PATH;
        out[1] = u8::from(self.challenge.is_some()) | u8::from(self.response.is_some()) << 1;
        out[2..10].copy_from_slice(&self.challenge.unwrap_or_default());
        out[10..PATH_LEN].copy_from_slice(&self.response.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bytes_of_data_are_those_of_the_document() {
        let mut out = [0xff; DATA_HEAD + 2];
        Payload::write_data_head(0x0102_0304, 0x0506, true, &mut out);
        assert_eq!(out, [0x81, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 255, 255]);
        let data = Payload::Data { file: 0x0102_0304, offset: 0x0506, bytes: &[255, 255] };
        assert_eq!(Payload::parse(&out), Some((data, true)));
        assert_eq!(Payload::parse(&out[..DATA_HEAD]), None, "data of no bytes");
    }

    #[test]
    fn data_ends_within_the_offsets_there_are() {
        let mut out = [0; DATA_HEAD + 1];
        Payload::write_data_head(1, u64::MAX, false, &mut out);
        assert_eq!(Payload::parse(&out), None);
    }

    #[test]
    fn an_unknown_kind_is_no_error() {
        assert_eq!(Payload::parse(&[0x86, 1, 2]), Some((Payload::Unknown, true)));
        assert_eq!(Payload::parse(&[]), None);
    }

    proptest! {
        #[test]
        fn paths_probes_and_closes_are_read_again(
            challenge: Option<[u8; 8]>, response: Option<[u8; 8]>, reason: u32, len in PATH_LEN..1200_usize,
        ) {
            let path = Path { challenge, response };
            let mut out = vec![0xff; len];
            path.write(&mut out);
            prop_assert_eq!(Payload::parse(&out), Some((Payload::Path(path), false)));
            Payload::write_probe(&mut out);
            prop_assert_eq!(Payload::parse(&out), Some((Payload::Probe, true)));
            let len = Payload::write_close(reason, &mut out);
            prop_assert_eq!(Payload::parse(&out[..len]), Some((Payload::Close { reason }, false)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), kind in 0_u8..8) {
            if let Some(first) = bytes.first_mut() {
                *first = *first & ASK | kind;
            }
            if let Some((Payload::Data { bytes: data, .. }, _)) = Payload::parse(&bytes) {
                prop_assert_eq!(data.len(), bytes.len() - DATA_HEAD);
            }
        }
    }
}
