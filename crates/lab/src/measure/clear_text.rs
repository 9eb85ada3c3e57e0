//! Does a file's content show on the wire? Frames are searched for a random
//! marker that the file is full of: any run of it twice as long as the marker has
//! a whole one, so that no border between segments hides it.

use headroom_netio::Frame;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::measure::wire::Framing;
use crate::stack::Stack;
use crate::testbed::Sink;

/// What was found of one stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearText {
    /// Name of the stack.
    pub stack: String,
    /// Whether it says that it encrypts.
    pub secured: bool,
    /// Whether the file's content was seen on the wire.
    pub marker_seen: bool,
    /// Of all frames, both ways.
    pub octets_searched: u64,
}

/// The marker: printable, so that a command can say it, and too random to appear
/// by chance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

impl Marker {
    /// More than 64 KiB, which some programs treat otherwise than bulk data.
    const COPIES: usize = 8192;

    pub(crate) fn random() -> Self {
        Self(format!("{:016x}", rand::random::<u64>()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The content of a file that is full of it, 128 KiB.
    pub(crate) fn file(&self) -> String {
        self.0.repeat(Self::COPIES)
    }
}

/// Searches whole frames.
#[derive(Debug)]
pub(crate) struct Search {
    marker: Marker,
    seen: bool,
    octets: u64,
    /// Octets that the capture has cut off and nobody has searched.
    cut: u64,
}

impl Search {
    pub(crate) fn new(marker: Marker) -> Self {
        Self { marker, seen: false, octets: 0, cut: 0 }
    }

    fn add(&mut self, frame: &[u8], wire_len: u32) {
        let marker = self.marker.0.as_bytes();
        self.seen |= frame.windows(marker.len()).any(|window| window == marker);
        self.octets += frame.len() as u64;
        self.cut += u64::from(wire_len).saturating_sub(frame.len() as u64);
    }

    /// What this says of a stack.
    ///
    /// # Errors
    /// What is not to be seen showed the marker, what is did not, or frames were not
    /// captured whole.
    pub(crate) fn verdict(self, expected: Expected<'_>) -> Result<ClearText> {
        let Self { marker: _, seen, octets, cut } = self;
        let Expected { stack, secured, shows_content } = expected;
        if cut > 0 {
            return Err(Error::Failed(format!(
                "the clear-text check of {stack} is blind: {cut} octets were not captured; offload is still on"
            )));
        }
        match (shows_content, seen) {
            (false, true) => Err(Error::Failed(format!(
                "{stack} DOES NOT ENCRYPT: it is to be a {} stack, and a marker of the transferred file was \
                 read in clear on the wire. Nothing that it costs would be the cost of security",
                if secured { "secured" } else { "scrambled" }
            ))),
            (true, false) => Err(Error::Failed(format!(
                "the clear-text check is blind: {stack} does not encrypt, and the marker of the transferred file was \
                 not seen in {octets} octets on the wire"
            ))),
            _ => Ok(ClearText {
                stack: stack.to_owned(),
                secured,
                marker_seen: seen,
                octets_searched: octets,
            }),
        }
    }
}

/// What is to be found of a stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    stack: &'a str,
    secured: bool,
    /// Whether the file is to be seen as it is.
    shows_content: bool,
}

impl<'a> From<&'a Stack> for Expected<'a> {
    fn from(stack: &'a Stack) -> Self {
        let (secured, shows_content) = (stack.is_secured(), stack.shows_content());
        Self { stack: &stack.name, secured, shows_content }
    }
}

impl Sink for Search {
    fn take(&mut self, _: Framing, frame: Frame<'_>) {
        self.add(frame.bytes, frame.wire_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: &[u8] = &[0xaa; 86];

    /// A file in segments of 1448 octets behind headers; `key` encrypts it.
    fn search(key: u8) -> Search {
        let marker = Marker("0123456789abcdef".to_owned());
        let mut search = Search::new(marker.clone());
        for segment in marker.file().as_bytes().chunks(1448) {
            let mut frame = HEADERS.to_vec();
            frame.extend(segment.iter().map(|octet| octet ^ key));
            search.add(&frame, frame.len() as u32);
        }
        search
    }

    fn expected(stack: &str) -> Expected<'_> {
        let secured = matches!(stack, "ftps" | "https");
        Expected { stack, secured, shows_content: stack == "ftp" }
    }

    #[test]
    fn each_kind_of_stack_that_is_what_it_says_passes() {
        let plain = search(0).verdict(expected("ftp")).expect("plain shows");
        assert!(plain.marker_seen && !plain.secured);
        assert_eq!(plain.octets_searched, 131_072 + 86 * 131_072u64.div_ceil(1448));
        let secured = search(0x55).verdict(expected("ftps")).expect("secured hides");
        assert!(!secured.marker_seen && secured.secured);
        let scrambled = search(0x55).verdict(expected("xor")).expect("scrambled hides");
        assert!(!scrambled.marker_seen && !scrambled.secured);
        assert!(search(0).verdict(expected("xor")).is_err(), "and shows nothing");
    }

    #[test]
    fn a_secured_stack_that_is_really_plain_fails_loudly() {
        let error = search(0).verdict(expected("ftps")).expect_err("it leaks").to_string();
        assert!(error.contains("ftps DOES NOT ENCRYPT"), "{error}");
    }

    #[test]
    fn a_plain_stack_that_hides_the_marker_means_a_blind_check() {
        let error = search(0x55).verdict(expected("ftp")).expect_err("blind").to_string();
        assert!(error.contains("check is blind: ftp"), "{error}");
    }

    #[test]
    fn one_leaking_segment_of_any_cut_is_enough() {
        let marker = Marker("0123456789abcdef".to_owned());
        let file = marker.file();
        for at in 0..16 {
            let mut search = Search::new(marker.clone());
            search.add(&[HEADERS, &file.as_bytes()[at..at + 31]].concat(), 117);
            assert!(search.verdict(expected("https")).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_was_not_captured_was_not_searched() {
        let mut search = search(0x55);
        search.add(HEADERS, 9000);
        let error = search.verdict(expected("https")).expect_err("blind").to_string();
        assert!(error.contains("8914 octets were not captured"), "{error}");
    }

    #[test]
    fn markers_differ_and_can_be_typed() {
        let (a, b) = (Marker::random(), Marker::random());
        assert_ne!(a, b);
        assert!(a.as_str().len() == 16 && a.as_str().chars().all(|c| c.is_ascii_hexdigit()));
    }
}
