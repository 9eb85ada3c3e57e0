//! A few octets of header, held inline.

/// Octets of the longest header that is rebuilt in transport mode.
const CAPACITY: usize = 192;

/// The header of a packet whose payload stands somewhere else. Empty where the
/// packet is whole there.
#[derive(Clone)]
pub struct Head {
    len: u8,
    octets: [u8; CAPACITY],
}

impl Head {
    /// No header.
    pub(crate) const EMPTY: Self = Self { len: 0, octets: [0; CAPACITY] };

    /// A copy of `header`; none where it is longer than any that is rebuilt.
    pub(crate) fn copy(header: &[u8]) -> Option<Self> {
        let mut head = Self::EMPTY;
        head.octets.get_mut(..header.len())?.copy_from_slice(header);
        head.len = header.len() as u8; // at most CAPACITY
        Some(head)
    }

    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.octets[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Head").field(&self.as_slice()).finish()
    }
}
