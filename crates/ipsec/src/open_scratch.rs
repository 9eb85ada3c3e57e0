//! Memory for the headers of a packet while it is opened.

use std::net::{IpAddr, Ipv4Addr};

use crate::headers::Headers;

/// Holds the headers of a packet while it is opened. Reused for the next packet.
#[derive(Debug)]
pub struct OpenScratch {
    pub(crate) header: HeaderBuf,
    pub(crate) headers: Headers,
}

impl Default for OpenScratch {
    fn default() -> Self {
        const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self { header: HeaderBuf::default(), headers: Headers::dummy(NOBODY, NOBODY) }
    }
}

/// A header of bounded length, stored inline.
pub struct HeaderBuf {
    len: u8,
    octets: [u8; Self::CAPACITY],
}

impl Default for HeaderBuf {
    fn default() -> Self {
        Self { len: 0, octets: [0; Self::CAPACITY] }
    }
}

impl HeaderBuf {
    /// The longest header that is rebuilt in transport mode, in bytes.
    pub(crate) const CAPACITY: usize = 192;

    /// Copies `header`, or returns none if it is too long.
    pub(crate) fn hold(&mut self, header: &[u8]) -> Option<()> {
        self.octets.get_mut(..header.len())?.copy_from_slice(header);
        self.len = header.len() as u8; // at most CAPACITY
        Some(())
    }

    /// Empties the buffer.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.octets[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for HeaderBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HeaderBuf").field(&self.as_slice()).finish()
    }
}
