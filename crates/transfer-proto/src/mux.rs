//! Streams over one ordered connection of messages, a WebSocket: for browsers where UDP is blocked.
//!
//! Each message is one frame: a kind, the number of a stream, and what belongs to the kind. The two
//! low bits of a stream's number say who opened it and whether it goes one way, as in QUIC
//! (RFC 9000, section 2.1); streams of one kind are numbered in order.

/// The most bytes of a stream in one frame.
pub const MAX_DATA: usize = 64 << 10;
/// The most bytes of a frame.
pub const MAX_FRAME: usize = HEAD + MAX_DATA;
/// Bytes that a stream may have on the way until its receiver grants more.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes that all streams together may have on the way to the server until it grants more.
pub const SERVER_WINDOW: u32 = 128 << 10;
/// The same to the client.
pub const CLIENT_WINDOW: u32 = 16 << 20;
/// Streams that the client may have open at once. The server may have a span of each in memory.
pub const MAX_STREAMS: usize = 24;

/// Bytes ahead of the data.
const HEAD: usize = 5;
/// Stands for all streams together, in a credit.
const ALL: u32 = u32::MAX;

/// The number of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// Makes the number of the stream of this index, among those of its kind.
    #[must_use]
    pub const fn new(index: u32, by_server: bool, one_way: bool) -> Self {
        Self(index << 2 | (one_way as u32) << 1 | by_server as u32)
    }

    /// Returns its index among the streams of its kind.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 >> 2
    }

    /// Whether the server opened it.
    #[must_use]
    pub const fn is_by_server(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether only the side that opened it sends on it.
    #[must_use]
    pub const fn is_one_way(self) -> bool {
        self.0 & 2 == 2
    }
}

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Bytes of a stream. The first frame of a stream opens it.
    Data {
        /// The stream.
        stream: StreamId,
        /// Whether these are the last.
        end: bool,
        /// At most [`MAX_DATA`].
        bytes: &'a [u8],
    },
    /// The sender gives the stream up.
    Reset {
        /// The stream.
        stream: StreamId,
    },
    /// The receiver wants no more of it: the sender gives it up.
    Stop {
        /// The stream.
        stream: StreamId,
    },
    /// The receiver takes so many bytes more.
    Credit {
        /// The stream; `None` for all together.
        stream: Option<StreamId>,
        /// Bytes.
        bytes: u32,
    },
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is too short or too long for its kind.
    #[error("the peer sent a frame of a wrong length")]
    Length,
    /// There is no such kind.
    #[error("the peer sent a frame of the unknown kind {0}")]
    Kind(u8),
}

impl Frame<'_> {
    /// Parses a frame.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(FrameError::Length)?;
        let [kind, number @ ..] = head;
        let number = u32::from_be_bytes(*number);
        let stream = StreamId(number);
        let nothing = |frame| if rest.is_empty() { Ok(frame) } else { Err(FrameError::Length) };
        match kind {
            0 | 1 if rest.len() > MAX_DATA => Err(FrameError::Length),
            0 | 1 => Ok(Frame::Data { stream, end: *kind == 1, bytes: rest }),
            2 => nothing(Frame::Reset { stream }),
            3 => nothing(Frame::Stop { stream }),
            4 => {
                let bytes = rest.try_into().map_err(|_| FrameError::Length)?;
                let stream = (number != ALL).then_some(stream);
                Ok(Frame::Credit { stream, bytes: u32::from_be_bytes(bytes) })
            }
            kind => Err(FrameError::Kind(*kind)),
        }
    }

    /// Returns its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, number, rest): (u8, u32, &[u8]) = match self {
            Self::Data { stream, end, bytes } => (u8::from(*end), stream.0, bytes),
            Self::Reset { stream } => (2, stream.0, &[]),
            Self::Stop { stream } => (3, stream.0, &[]),
            Self::Credit { stream, bytes } => {
                let number = stream.map_or(ALL, |stream| stream.0);
                return [&[4], &number.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
            }
        };
        [&[kind], &number.to_be_bytes()[..], rest].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, number: u32, bytes: &[u8]) -> Frame<'_> {
        let stream = StreamId(number);
        match kind % 4 {
            0 => Frame::Data { stream, end: kind > 3, bytes },
            1 => Frame::Reset { stream },
            2 => Frame::Stop { stream },
            _ => Frame::Credit { stream: (number != ALL).then_some(stream), bytes: number ^ 77 },
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_parsed(
            kind in 0..8_u8, number in any::<u32>(), bytes in prop::collection::vec(any::<u8>(), 0..300)
        ) {
            let frame = frame(kind, number, &bytes);
            let encoded = frame.encode();
            prop_assert_eq!(Frame::parse(&encoded), Ok(frame));
        }

        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(frame) = Frame::parse(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
            }
        }
    }

    #[test]
    fn frames_of_wrong_length_or_kind_are_refused() {
        for (bytes, error) in [
            (vec![], FrameError::Length),
            (vec![0; 4], FrameError::Length),
            (vec![0; MAX_FRAME + 1], FrameError::Length),
            (vec![2, 0, 0, 0, 0, 0], FrameError::Length),
            (vec![4, 0, 0, 0, 0, 0, 0, 0], FrameError::Length),
            (vec![5, 0, 0, 0, 0], FrameError::Kind(5)),
        ] {
            assert_eq!(Frame::parse(&bytes), Err(error), "{} bytes", bytes.len());
        }
        assert!(Frame::parse(&vec![0; MAX_FRAME]).is_ok());
    }

    #[test]
    fn a_stream_number_says_who_opened_it_and_its_direction() {
        for index in [0, 1, 7, u32::MAX >> 3] {
            for (by_server, one_way) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let stream = StreamId::new(index, by_server, one_way);
                let parts = (stream.index(), stream.is_by_server(), stream.is_one_way());
                assert_eq!(parts, (index, by_server, one_way));
            }
        }
    }
}
