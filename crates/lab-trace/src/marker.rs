//! Searches frames for a random marker that the transferred file is full of: any run of
//! it twice as long as the marker holds a whole one, so no border between segments hides
//! it.

/// A marker: printable, so that a command can echo it, and too random to appear by
/// chance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker(String);

impl Marker {
    /// Makes 128 KiB. Some programs treat files up to 64 KiB differently from bulk data.
    const COPIES: usize = 8192;

    /// Makes a marker of a random number.
    pub fn new(random: u64) -> Self {
        Self(format!("{random:016x}"))
    }

    /// Returns the marker once.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the content of a file that is full of the marker, 128 KiB.
    pub fn file(&self) -> String {
        self.0.repeat(Self::COPIES)
    }
}

/// A search through whole frames.
#[derive(Debug)]
pub struct MarkerSearch {
    marker: Marker,
    seen: bool,
    bytes: u64,
    missing: u64,
}

impl MarkerSearch {
    /// Starts a search.
    pub fn new(marker: Marker) -> Self {
        Self { marker, seen: false, bytes: 0, missing: 0 }
    }

    /// Searches one captured frame that was `wire_len` bytes long on the wire.
    pub fn add(&mut self, frame: &[u8], wire_len: u32) {
        let marker = self.marker.0.as_bytes();
        self.seen |= frame.windows(marker.len()).any(|window| window == marker);
        self.bytes += frame.len() as u64;
        self.missing += u64::from(wire_len).saturating_sub(frame.len() as u64);
    }

    /// Tells whether a frame showed the marker.
    pub fn is_seen(&self) -> bool {
        self.seen
    }

    /// Returns the bytes that were searched, of both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes that the capture truncated, so that nobody searched them.
    pub fn bytes_missing(&self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: &[u8] = &[0xaa; 86];

    #[test]
    fn finds_one_leaking_segment_wherever_it_begins() {
        let marker = Marker::new(0x0123_4567_89ab_cdef);
        let file = marker.file();
        for at in 0..16 {
            let mut search = MarkerSearch::new(marker.clone());
            search.add(&[HEADERS, &file.as_bytes()[at..at + 31]].concat(), 117);
            assert!(search.is_seen(), "at {at}");
        }
    }

    #[test]
    fn counts_bytes_that_were_not_captured() {
        let mut search = MarkerSearch::new(Marker::new(1));
        search.add(HEADERS, 9000);
        assert_eq!((search.bytes(), search.bytes_missing()), (86, 8914));
    }

    #[test]
    fn markers_are_sixteen_printable_characters() {
        assert_eq!(Marker::new(1).as_str(), "0000000000000001");
        assert_eq!(Marker::new(u64::MAX).as_str().len(), 16);
        assert_eq!(Marker::new(1).file().len(), 128 << 10);
    }
}
