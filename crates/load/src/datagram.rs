//! The format of datagrams: a header of 16 bytes, then the requested content.

use std::io;

/// Bytes of the header, and so of the shortest datagram.
pub const MIN_DATAGRAM: usize = 16;
/// Bytes of the longest datagram. Kernels on the path may not pass longer ones.
pub const MAX_DATAGRAM: usize = 16_000;
/// Bytes of a report.
pub const REPORT_LEN: usize = 24;

const MAGIC: [u8; 2] = *b"HL";

/// How the receiver treats a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramKind {
    /// The server counts it.
    Data,
    /// The server counts it and replies with a [`Report`].
    Query,
    /// The server returns it unchanged.
    Echo,
    /// The server's [`Report`].
    Report,
}

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The datagram's kind.
    pub kind: DatagramKind,
    /// The run it belongs to. The receiver ignores late datagrams of other runs.
    pub session: u32,
    /// The sequence number, from 0.
    pub number: u64,
}

impl Header {
    /// Writes the header to the first [`MIN_DATAGRAM`] bytes of a datagram.
    ///
    /// # Panics
    /// The datagram is shorter.
    pub fn write(&self, datagram: &mut [u8]) {
        let kind = match self.kind {
            DatagramKind::Data => 0,
            DatagramKind::Query => 1,
            DatagramKind::Echo => 2,
            DatagramKind::Report => 3,
        };
        datagram[..2].copy_from_slice(&MAGIC);
        datagram[2..4].copy_from_slice(&[kind, 0]);
        datagram[4..8].copy_from_slice(&self.session.to_be_bytes());
        datagram[8..MIN_DATAGRAM].copy_from_slice(&self.number.to_be_bytes());
    }

    /// Reads the header; none: the datagram has another format.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (header, _) = datagram.split_first_chunk::<MIN_DATAGRAM>()?;
        let kind = match header[..4] {
            [b'H', b'L', 0, 0] => DatagramKind::Data,
            [b'H', b'L', 1, 0] => DatagramKind::Query,
            [b'H', b'L', 2, 0] => DatagramKind::Echo,
            [b'H', b'L', 3, 0] => DatagramKind::Report,
            _ => return None,
        };
        let session = u32::from_be_bytes(header[4..8].try_into().ok()?);
        let number = u64::from_be_bytes(header[8..].try_into().ok()?);
        Some(Self { kind, session, number })
    }
}

/// The server's count of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The run.
    pub session: u32,
    /// The highest sequence number that arrived.
    pub highest: u64,
    /// The number of datagrams that arrived.
    pub counted: u64,
}

impl Report {
    /// Writes the report as a datagram.
    pub fn octets(&self) -> [u8; REPORT_LEN] {
        let mut octets = [0; REPORT_LEN];
        Header { kind: DatagramKind::Report, session: self.session, number: self.highest }
            .write(&mut octets);
        octets[MIN_DATAGRAM..].copy_from_slice(&self.counted.to_be_bytes());
        octets
    }

    /// Reads a report; none: the datagram is no report.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let header = Header::read(datagram).filter(|header| header.kind == DatagramKind::Report)?;
        let counted = datagram.get(MIN_DATAGRAM..REPORT_LEN)?.try_into().ok()?;
        let counted = u64::from_be_bytes(counted);
        Some(Self { session: header.session, highest: header.number, counted })
    }
}

/// Makes a datagram of `size` bytes that repeats `fill`.
///
/// # Errors
/// The size is out of bounds, or `fill` is empty.
pub(crate) fn datagram_of(size: usize, fill: &[u8]) -> io::Result<Vec<u8>> {
    if !(MIN_DATAGRAM..=MAX_DATAGRAM).contains(&size) || fill.is_empty() {
        let sentence =
            format!("a datagram of this load has {MIN_DATAGRAM} to {MAX_DATAGRAM} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    Ok(fill.iter().copied().cycle().take(size).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_reports_round_trip() {
        for kind in [DatagramKind::Data, DatagramKind::Query, DatagramKind::Echo] {
            let header = Header { kind, session: 0xdead_beef, number: 1 << 40 };
            let mut datagram = datagram_of(64, b"ab").expect("a size that fits");
            header.write(&mut datagram);
            assert_eq!(Header::read(&datagram), Some(header));
            assert_eq!(&datagram[MIN_DATAGRAM..MIN_DATAGRAM + 4], b"abab");
        }
        let report = Report { session: 7, highest: 99, counted: 98 };
        assert_eq!(Report::read(&report.octets()), Some(report));
    }

    #[test]
    fn rejects_other_formats() {
        let report = Report { session: 7, highest: 99, counted: 98 }.octets();
        for end in 0..REPORT_LEN {
            assert_eq!(Report::read(&report[..end]), None, "{end}");
        }
        assert_eq!(Header::read(&[0; 64]), None);
        assert_eq!(Header::read(b"HL\x09\x00____________"), None);
    }
}
