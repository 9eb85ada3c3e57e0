//! What a sync says of the content of a changed file: its chunks, and ranges of bytes.
//!
//! Blocks find what did not change beside what did. Chunks begin and end where the content says so
//! (FastCDC), so that content that moved within a file gives the same chunks again.

use minicbor::{Decode, Encode};

/// How ranges of a file are cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ChunkKind {
    /// Into blocks of the average length, from the beginning of the range on.
    #[n(0)]
    Block,
    /// Where the content says so.
    #[n(1)]
    Chunk,
    /// Into groups of such chunks.
    #[n(2)]
    Group,
}

/// The length and the hash of a chunk of a file, or of a group of consecutive chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkHash {
    /// Its length in bytes, at least 1.
    pub len: u32,
    /// The first 16 bytes of the BLAKE3 hash of the chunk's content; of a group, of the encodings
    /// of its chunks ([`Self::to_bytes`]). [`Self::NO_HASH`] of a chunk of less than
    /// [`Self::MIN_HASHED`] bytes, and of a group that has one.
    pub hash: [u8; 16],
}

impl ChunkHash {
    /// Bytes of an encoding.
    pub const BYTES: usize = 20;
    /// The least length in bytes of a chunk that is hashed. The end of a range may be shorter, and
    /// a sender chooses the ranges: who tries all contents would find few bytes by their hash.
    pub const MIN_HASHED: u32 = 1 << 10;
    /// What stands for the hash of a shorter chunk. It equals no other.
    pub const NO_HASH: [u8; 16] = [0; 16];

    /// Whether it has a hash, and can be compared.
    #[must_use]
    pub fn has_hash(&self) -> bool {
        self.hash != Self::NO_HASH
    }

    /// Encodes it: the length in four bytes, most significant first, then the hash.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.len.to_be_bytes());
        bytes[4..].copy_from_slice(&self.hash);
        bytes
    }

    /// Reads an encoding; `None` if the length is 0.
    fn of_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (len, hash) = bytes.split_first_chunk::<4>()?;
        let (len, hash) = (u32::from_be_bytes(*len), <[u8; 16]>::try_from(hash).ok()?);
        (len > 0).then_some(Self { len, hash })
    }
}

/// The average length of chunks: a power of two from 4 KiB to 1 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkSize(u32);

impl ChunkSize {
    /// The shortest.
    pub const MIN: Self = Self(4 << 10);
    /// The longest.
    pub const MAX: Self = Self(1 << 20);

    /// Makes one of an average of this many bytes; `None` if there is none such.
    #[must_use]
    pub const fn new(bytes: u32) -> Option<Self> {
        match bytes.is_power_of_two() && bytes >= Self::MIN.0 && bytes <= Self::MAX.0 {
            true => Some(Self(bytes)),
            false => None,
        }
    }

    /// Returns the average length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// Returns the shortest length in bytes of a chunk that is not the last of its range.
    #[must_use]
    pub const fn least_bytes(self) -> u32 {
        self.0 / 4
    }

    /// Returns the greatest length of a chunk in bytes.
    #[must_use]
    pub const fn most_bytes(self) -> u32 {
        self.0 * 4
    }
}

/// The codec of the average length of chunks.
pub(super) mod chunk_size {
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    use crate::message::delta::ChunkSize;

    pub(crate) fn encode<C, W: Write>(
        value: &ChunkSize,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.u32(value.bytes())?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<ChunkSize, Error> {
        ChunkSize::new(d.u32()?)
            .ok_or_else(|| Error::message("chunks of this average length are not made"))
    }
}

/// The codec of ranges of a file, an array of their first bytes and ends. They are not empty, and
/// neither touch nor overlap: their bounds ascend.
pub(super) mod ranges {
    use std::ops::Range;

    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    use crate::message::bounded;
    use crate::message::limits::MAX_DESCRIBED;

    pub(crate) fn encode<C, W: Write>(
        ranges: &[Range<u64>],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.array(2 * ranges.len() as u64)?;
        for range in ranges {
            e.u64(range.start)?.u64(range.end)?;
        }
        Ok(())
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<Range<u64>>, Error> {
        let bounds: Vec<u64> = bounded::items(d, 2 * MAX_DESCRIBED)?;
        let (ranges, rest) = bounds.as_chunks::<2>();
        if !rest.is_empty() || bounds.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::message("these are no ranges, or not in order"));
        }
        Ok(ranges.iter().map(|[start, end]| *start..*end).collect())
    }
}

/// The codec of chunks, one after the other in one byte string.
pub(super) mod chunks {
    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    use crate::message::delta::ChunkHash;
    use crate::message::limits::MAX_CHUNKS;

    pub(crate) fn encode<C, W: Write>(
        chunks: &[ChunkHash],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_bytes()).collect();
        e.bytes(&bytes)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<ChunkHash>, Error> {
        let (chunks, rest) = d.bytes()?.as_chunks::<{ ChunkHash::BYTES }>();
        if chunks.len() > MAX_CHUNKS || !rest.is_empty() {
            return Err(Error::message("these are no chunks, or too many"));
        }
        let chunks = chunks.iter().map(ChunkHash::of_bytes).collect::<Option<Vec<_>>>();
        chunks.ok_or_else(|| Error::message("a chunk is empty"))
    }
}
