//! Compresses data where it gets shorter.

use std::cell::RefCell;
use std::io;
use std::sync::Mutex;

use headroom_mutex::lock;
use headroom_transfer_proto::message::Compress;
use zstd::bulk::{Compressor, Decompressor};

/// The fastest level except the negative ones: faster than most networks.
const LEVEL: i32 = 1;
/// A span is sent compressed if it shrinks to this many sixteenths.
const WORTH_16THS: usize = 15;
/// Consecutive spans that do not shrink, after which compression pauses.
const MISSES: u32 = 3;
/// Pieces sent uncompressed during a pause: at first, and at most.
const PAUSE: (u32, u32) = (2, 64);

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses the data of a transfer where it is worth it.
#[derive(Debug)]
pub(super) struct AdaptiveCompressor {
    how: Compress,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    misses: u32,
    /// Pieces left in the current pause.
    pause: u32,
    next_pause: u32,
}

impl AdaptiveCompressor {
    pub(super) fn new(how: Compress) -> Self {
        Self { how, state: Mutex::new(State { misses: 0, pause: 0, next_pause: PAUSE.0 }) }
    }

    /// Whether to try to compress the next piece.
    pub(super) fn should_try(&self) -> bool {
        match self.how {
            Compress::Never => false,
            Compress::Always => true,
            Compress::Auto => {
                let mut state = lock(&self.state);
                let tries = state.pause == 0;
                state.pause = state.pause.saturating_sub(1);
                tries
            }
        }
    }

    /// Compresses a span; `None` if it does not shrink.
    pub(super) fn compress(&self, span: &[u8]) -> Option<Vec<u8>> {
        if self.how == Compress::Auto && lock(&self.state).pause > 0 {
            return None;
        }
        let compressed = compress_frame(span);
        if self.how == Compress::Auto {
            let mut state = lock(&self.state);
            if compressed.is_some() {
                *state = State { misses: 0, pause: 0, next_pause: PAUSE.0 };
            } else {
                state.misses += 1;
                if state.misses >= MISSES {
                    // if the first span after a pause does not shrink, the next pause is longer
                    state.misses = MISSES - 1;
                    state.pause = state.next_pause;
                    state.next_pause = (2 * state.next_pause).min(PAUSE.1);
                }
            }
        }
        compressed
    }
}

/// Compresses a span to one zstd frame (RFC 8878); `None` if it does not shrink.
fn compress_frame(span: &[u8]) -> Option<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = Compressor::new(LEVEL).ok();
        }
        let mut buffer = vec![0; span.len() * WORTH_16THS / 16];
        // a frame that does not fit is not worth it
        let len = compressor.as_mut()?.compress_to_buffer(span, &mut buffer[..]).ok()?;
        buffer.truncate(len);
        Some(buffer)
    })
}

/// Decompresses one zstd frame into a span, which bounds what is written.
///
/// # Errors
/// It is not a frame, or one of another length.
pub(super) fn decompress(frame: &[u8], span: &mut [u8]) -> io::Result<()> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = Some(Decompressor::new()?);
        }
        let buffer = span.len();
        match decompressor.as_mut().map(|d| d.decompress_to_buffer(frame, &mut span[..])) {
            Some(Ok(len)) if len == buffer => Ok(()),
            Some(Err(error)) => Err(error),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise
    }

    #[test]
    fn decompression_gives_the_same_content_or_an_error() {
        let text = "the same words over and over ".repeat(10_000).into_bytes();
        let frame = compress_frame(&text).expect("it is worth it");
        assert!(frame.len() < text.len() / 50);
        let mut again = vec![0; text.len()];
        decompress(&frame, &mut again).expect("a frame");
        assert_eq!(again, text);
        assert_eq!(compress_frame(&noise(100_000)), None);
        // one that would expand beyond the span, or not fill it, or is cut
        for (frame, buffer) in [
            (&frame[..], text.len() - 1),
            (&frame, 10),
            (&frame, text.len() + 1),
            (&frame[..frame.len() / 2], text.len()),
            (b"no frame", 100),
            (b"", 100),
        ] {
            assert!(decompress(frame, &mut vec![0; buffer]).is_err());
        }
    }

    #[test]
    fn incompressible_content_is_noticed_and_compression_retried_later() {
        let (noise, text) = (noise(50_000), vec![b'a'; 50_000]);
        let auto = AdaptiveCompressor::new(Compress::Auto);
        let mut tried = 0;
        for _ in 0..1000 {
            if auto.should_try() {
                tried += 1;
                assert_eq!(auto.compress(&noise), None);
            }
        }
        assert!((5..30).contains(&tried), "{tried} pieces of 1000 were tried");
        while !auto.should_try() {}
        assert!(auto.compress(&text).is_some());
        assert!((0..100).all(|_| auto.should_try() && auto.compress(&text).is_some()));
        let never = AdaptiveCompressor::new(Compress::Never);
        let always = AdaptiveCompressor::new(Compress::Always);
        assert!((0..100).all(|_| !never.should_try() && always.should_try()));
        assert!(always.compress(&noise).is_none() && always.compress(&text).is_some());
    }
}
