//! TCP headers (RFC 9293).

use crate::Error;
use crate::bytes::{be16, be32};

/// The protocol number of TCP.
pub const PROTOCOL: u8 = 6;
/// Bytes of the header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// The offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 16;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Kinds of options (RFC 9293 §3.1, RFC 7323 §3.2).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The Timestamps option (RFC 7323 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the last clock value received from the peer; valid only with the ACK flag.
    pub echo: u32,
}

/// A complete header with its options.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// # Errors
    /// [`Error::Truncated`] if the header is not complete, [`Error::Malformed`] for a data offset
    /// below 5 words.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < MIN_HEADER_LEN {
            return Err(Error::Truncated("TCP"));
        }
        let packet = Self(bytes);
        if packet.header_len() < MIN_HEADER_LEN {
            return Err(Error::Malformed("TCP"));
        }
        if bytes.len() < packet.header_len() {
            return Err(Error::Truncated("TCP"));
        }
        Ok(packet)
    }

    /// Returns the source port.
    pub fn source_port(&self) -> u16 {
        be16(self.0, 0)
    }

    /// Returns the destination port.
    pub fn destination_port(&self) -> u16 {
        be16(self.0, 2)
    }

    /// Returns the sequence number.
    pub fn sequence(&self) -> u32 {
        be32(self.0, 4)
    }

    /// Returns the length of the header with options in bytes (data offset × 4).
    pub fn header_len(&self) -> usize {
        usize::from(self.0[12] >> 4) * 4
    }

    /// Returns the SYN flag.
    pub fn syn(&self) -> bool {
        self.0[13] & SYN != 0
    }

    /// Returns the ACK flag.
    pub fn ack(&self) -> bool {
        self.0[13] & ACK != 0
    }

    /// Returns the FIN flag.
    pub fn fin(&self) -> bool {
        self.0[13] & FIN != 0
    }

    /// Returns the RST flag.
    pub fn rst(&self) -> bool {
        self.0[13] & RST != 0
    }

    /// Returns the Timestamps option, if it is complete.
    pub fn timestamps(&self) -> Option<Timestamps> {
        let mut options = &self.0[MIN_HEADER_LEN..self.header_len()];
        loop {
            match *options {
                [] | [option::END, ..] => return None,
                [option::NO_OPERATION, ..] => options = &options[1..],
                [option::TIMESTAMPS, 10, ..] if options.len() >= 10 => {
                    return Some(Timestamps { value: be32(options, 2), echo: be32(options, 6) });
                }
                // Kind and length are two bytes: each round consumes some.
                [_, len, ..] if len >= 2 => options = options.get(usize::from(len)..)?,
                _ => return None,
            }
        }
    }

    /// Returns the captured bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{TcpHeader, TcpOptionElement};
    use proptest::prelude::*;

    fn header(options: &[TcpOptionElement]) -> Vec<u8> {
        let mut header = TcpHeader::new(40000, 21, 7, 65535);
        header.set_options(options).expect("options that fit");
        header.to_bytes().to_vec()
    }

    #[test]
    fn timestamps_are_found_behind_other_options() {
        let with = [
            TcpOptionElement::MaximumSegmentSize(1440),
            TcpOptionElement::SelectiveAcknowledgementPermitted,
            TcpOptionElement::Timestamp(7, 0xffff_fffe),
            TcpOptionElement::Noop,
            TcpOptionElement::WindowScale(7),
        ];
        let expected = Some(Timestamps { value: 7, echo: 0xffff_fffe });
        assert_eq!(Packet::new(&header(&with)).map(|tcp| tcp.timestamps()), Ok(expected));
        let without = [with[0].clone(), with[4].clone()];
        assert_eq!(Packet::new(&header(&without)).map(|tcp| tcp.timestamps()), Ok(None));
    }

    #[test]
    fn an_option_that_claims_no_length_ends_the_search() {
        let mut bytes = header(&[TcpOptionElement::Timestamp(7, 8)]);
        bytes[20..22].copy_from_slice(&[200, 0]);
        assert_eq!(Packet::new(&bytes).map(|tcp| tcp.timestamps()), Ok(None));
    }

    proptest! {
        #[test]
        fn arbitrary_options_never_panic(
            mut options in proptest::collection::vec(prop_oneof![0u8..12, any::<u8>()], 0..=40),
        ) {
            options.resize(options.len() / 4 * 4, 0);
            let mut bytes = vec![0; MIN_HEADER_LEN];
            bytes[12] = ((MIN_HEADER_LEN + options.len()) as u8 / 4) << 4;
            bytes.extend(&options);
            let found = Packet::new(&bytes).map(|tcp| tcp.timestamps());
            prop_assert!(found.is_ok());
            // The result equals the bytes in the packet.
            if let Ok(Some(Timestamps { value, echo })) = found {
                let mut option = vec![option::TIMESTAMPS, 10];
                option.extend(value.to_be_bytes());
                option.extend(echo.to_be_bytes());
                prop_assert!(options.windows(10).any(|window| window == option));
            }
        }

        #[test]
        fn any_timestamps_behind_any_padding_are_read(value: u32, echo: u32, padding in 0usize..10) {
            let mut options = vec![TcpOptionElement::Noop; padding];
            options.push(TcpOptionElement::Timestamp(value, echo));
            let bytes = header(&options);
            let found = Packet::new(&bytes).map(|tcp| tcp.timestamps());
            prop_assert_eq!(found, Ok(Some(Timestamps { value, echo })));
        }
    }
}
