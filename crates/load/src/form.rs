//! What is in a datagram: a header of sixteen octets, then what was asked for.

use std::io;

use crate::MOST;

/// Octets of the header, and of the shortest datagram.
pub const LEAST: usize = 16;
/// Octets of an answer.
pub const ANSWER: usize = 24;

const MAGIC: [u8; 2] = *b"HL";

/// What is to be done with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To be counted.
    Counted,
    /// To be counted, and the count to be told.
    Asking,
    /// To be sent back as it is.
    Echo,
    /// From the server: how many were counted.
    Answer,
}

/// A datagram's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What is to be done with it.
    pub kind: Kind,
    /// The run that it belongs to: what is late from another does not count.
    pub session: u32,
    /// From 0.
    pub number: u64,
}

impl Header {
    /// Writes it to the first [`LEAST`] octets of a datagram.
    ///
    /// # Panics
    /// The datagram is shorter.
    pub fn write(&self, datagram: &mut [u8]) {
        let kind = match self.kind {
            Kind::Counted => 0,
            Kind::Asking => 1,
            Kind::Echo => 2,
            Kind::Answer => 3,
        };
        datagram[..2].copy_from_slice(&MAGIC);
        datagram[2..4].copy_from_slice(&[kind, 0]);
        datagram[4..8].copy_from_slice(&self.session.to_be_bytes());
        datagram[8..LEAST].copy_from_slice(&self.number.to_be_bytes());
    }

    /// None where it is no datagram of ours.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (header, _) = datagram.split_first_chunk::<LEAST>()?;
        let kind = match header[..4] {
            [b'H', b'L', 0, 0] => Kind::Counted,
            [b'H', b'L', 1, 0] => Kind::Asking,
            [b'H', b'L', 2, 0] => Kind::Echo,
            [b'H', b'L', 3, 0] => Kind::Answer,
            _ => return None,
        };
        let session = u32::from_be_bytes(header[4..8].try_into().ok()?);
        let number = u64::from_be_bytes(header[8..].try_into().ok()?);
        Some(Self { kind, session, number })
    }
}

/// The server's word: how many were counted, up to which number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The run that was counted.
    pub session: u32,
    /// The highest number that arrived.
    pub highest: u64,
    /// How many arrived.
    pub counted: u64,
}

impl Answer {
    /// The datagram.
    pub fn octets(&self) -> [u8; ANSWER] {
        let mut octets = [0; ANSWER];
        Header { kind: Kind::Answer, session: self.session, number: self.highest }
            .write(&mut octets);
        octets[LEAST..].copy_from_slice(&self.counted.to_be_bytes());
        octets
    }

    /// None where it is no answer.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let header = Header::read(datagram).filter(|header| header.kind == Kind::Answer)?;
        let counted = datagram.get(LEAST..ANSWER)?.try_into().ok()?;
        let counted = u64::from_be_bytes(counted);
        Some(Self { session: header.session, highest: header.number, counted })
    }
}

/// The octets behind the header: `fill` again and again.
///
/// # Errors
/// No datagram has this size.
pub(crate) fn filled(size: usize, fill: &[u8]) -> io::Result<Vec<u8>> {
    if !(LEAST..=MOST).contains(&size) || fill.is_empty() {
        let sentence = format!("a datagram of this load has from {LEAST} to {MOST} octets");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    Ok(fill.iter().copied().cycle().take(size).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_answers_come_back() {
        for kind in [Kind::Counted, Kind::Asking, Kind::Echo] {
            let header = Header { kind, session: 0xdead_beef, number: 1 << 40 };
            let mut datagram = filled(64, b"ab").expect("a size that fits");
            header.write(&mut datagram);
            assert_eq!(Header::read(&datagram), Some(header));
            assert_eq!(&datagram[LEAST..LEAST + 4], b"abab");
        }
        let answer = Answer { session: 7, highest: 99, counted: 98 };
        assert_eq!(Answer::read(&answer.octets()), Some(answer));
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        let answer = Answer { session: 7, highest: 99, counted: 98 }.octets();
        for end in 0..ANSWER {
            assert_eq!(Answer::read(&answer[..end]), None, "{end}");
        }
        assert_eq!(Header::read(&[0; 64]), None);
        assert_eq!(Header::read(b"HL\x09\x00____________"), None);
    }
}
