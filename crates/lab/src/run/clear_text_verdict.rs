//! Judges a stack by a search for the marker: does the file's content show on the wire where
//! it should not?

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::schema::ClearText;
use headroom_lab_trace::MarkerSearch;

use crate::stack::Stack;

/// The expectation of a stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    stack: &'a str,
    secured: bool,
    /// Whether the file's content is to be seen.
    shows_content: bool,
}

impl<'a> From<&'a Stack> for Expected<'a> {
    fn from(stack: &'a Stack) -> Self {
        let (secured, shows_content) = (stack.is_secured(), stack.shows_content());
        Self { stack: &stack.name, secured, shows_content }
    }
}

impl Expected<'_> {
    /// Judges a search.
    ///
    /// # Errors
    /// A stack that encrypts showed the marker, one that does not hid it, or frames were
    /// not captured whole.
    pub(super) fn verdict(self, search: &MarkerSearch) -> Result<ClearText> {
        let Self { stack, secured, shows_content } = self;
        let (seen, bytes) = (search.is_seen(), search.bytes());
        if search.bytes_missing() > 0 {
            return Err(Error::Failed(format!(
                "the clear-text check of {stack} is blind: {} bytes were not captured; offload is still on",
                search.bytes_missing()
            )));
        }
        match (shows_content, seen) {
            (false, true) => Err(Error::Failed(format!(
                "{stack} DOES NOT ENCRYPT: it should be {}, and a marker in the transferred file was \
                 readable on the wire. Its costs would not be those of security",
                if secured { "secured" } else { "obfuscated" }
            ))),
            (true, false) => Err(Error::Failed(format!(
                "the clear-text check is blind: {stack} does not encrypt, and the marker of the transferred file was \
                 not seen in {bytes} bytes on the wire"
            ))),
            _ => Ok(ClearText {
                stack: stack.to_owned(),
                secured,
                marker_seen: seen,
                bytes_searched: bytes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_lab_trace::Marker;

    const HEADERS: &[u8] = &[0xaa; 86];

    /// A file in segments of 1448 bytes behind headers; `key` encrypts it.
    fn search(key: u8) -> MarkerSearch {
        let marker = Marker::new(0x0123_4567_89ab_cdef);
        let mut search = MarkerSearch::new(marker.clone());
        for segment in marker.file().as_bytes().chunks(1448) {
            let mut frame = HEADERS.to_vec();
            frame.extend(segment.iter().map(|byte| byte ^ key));
            search.add(&frame, frame.len() as u32);
        }
        search
    }

    fn verdict(stack: &str, search: &MarkerSearch) -> Result<ClearText> {
        let secured = matches!(stack, "ftps" | "https");
        Expected { stack, secured, shows_content: stack == "ftp" }.verdict(search)
    }

    #[test]
    fn each_kind_of_stack_that_is_what_it_says_passes() {
        let plain = verdict("ftp", &search(0)).expect("plain shows");
        assert!(plain.marker_seen && !plain.secured);
        assert_eq!(plain.bytes_searched, 131_072 + 86 * 131_072u64.div_ceil(1448));
        let secured = verdict("ftps", &search(0x55)).expect("secured hides");
        assert!(!secured.marker_seen && secured.secured);
        let scrambled = verdict("xor", &search(0x55)).expect("scrambled hides");
        assert!(!scrambled.marker_seen && !scrambled.secured);
        assert!(verdict("xor", &search(0)).is_err(), "and shows nothing");
    }

    #[test]
    fn a_secured_stack_that_is_really_plain_fails_loudly() {
        let error = verdict("ftps", &search(0)).expect_err("it leaks").to_string();
        assert!(error.contains("ftps DOES NOT ENCRYPT"), "{error}");
    }

    #[test]
    fn a_plain_stack_that_hides_the_marker_means_a_blind_check() {
        let error = verdict("ftp", &search(0x55)).expect_err("blind").to_string();
        assert!(error.contains("check is blind: ftp"), "{error}");
    }

    #[test]
    fn a_truncated_frame_means_a_blind_check() {
        let mut search = search(0x55);
        search.add(HEADERS, 9000);
        let error = verdict("https", &search).expect_err("blind").to_string();
        assert!(error.contains("8914 bytes were not captured"), "{error}");
    }
}
