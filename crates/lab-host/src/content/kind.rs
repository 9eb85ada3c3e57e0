//! Makes the content of transferred files: random bytes, or bytes that compress as text or
//! as records do.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// The content of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentKind {
    /// Bytes of chance, which nothing makes shorter.
    #[default]
    Random,
    /// Words as frequent as those of a language: zstd makes half of it, or less.
    Text,
    /// Records of chance with regular headers: zstd makes 95 % of it.
    Binary,
}

impl ContentKind {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Text => "text",
            Self::Binary => "binary",
        }
    }

    /// Returns its generator; equal seeds make equal content.
    pub(super) fn maker(self, seed: u64) -> Maker {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let words = if self == Self::Text { vocabulary(&mut random) } else { Vec::new() };
        Maker { kind: self, random, words, made: 0, rest: Vec::new() }
    }
}

/// Makes content, piece by piece.
pub(super) struct Maker {
    kind: ContentKind,
    random: ChaCha8Rng,
    /// The most frequent first.
    words: Vec<String>,
    /// Bytes that were made.
    made: u64,
    /// The end of the last sentence or record, which did not fit.
    rest: Vec<u8>,
}

/// Bytes of a record, and of its header.
const RECORD: usize = 1024;
const HEADER: usize = 64;

impl Maker {
    /// The next bytes.
    pub(super) fn fill(&mut self, piece: &mut [u8]) {
        if self.kind == ContentKind::Random {
            self.random.fill_bytes(piece);
            return;
        }
        while self.rest.len() < piece.len() {
            let more = match self.kind {
                ContentKind::Text => self.sentence(),
                _ => self.record(),
            };
            self.made += more.len() as u64;
            self.rest.extend(more);
        }
        let left = self.rest.split_off(piece.len());
        piece.copy_from_slice(&self.rest);
        self.rest = left;
    }

    /// Five to twenty words; a word's frequency is as its rank (Zipf's law).
    fn sentence(&mut self) -> Vec<u8> {
        let words = self.random.random_range(5..=20);
        let mut text = String::new();
        for nth in 0..words {
            let rank = (self.words.len() as f64).powf(self.random.random::<f64>()) as usize;
            let word = &self.words[rank.saturating_sub(1).min(self.words.len() - 1)];
            text += if nth == 0 { "" } else { " " };
            text += word;
        }
        text += ".\n";
        text.into_bytes()
    }

    /// A header that hardly differs from the last one, and what no program compresses.
    fn record(&mut self) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        record[..8].copy_from_slice(b"\x7fRECORD\x01");
        record[8..16].copy_from_slice(&(self.made / RECORD as u64).to_be_bytes());
        self.random.fill_bytes(&mut record[HEADER..]);
        record
    }
}

/// Words of one to four syllables.
fn vocabulary(random: &mut ChaCha8Rng) -> Vec<String> {
    const WORDS: usize = 8192;
    const ONSETS: [&str; 16] =
        ["b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr"];
    const RHYMES: [&str; 16] = [
        "a", "e", "i", "o", "u", "an", "en", "in", "er", "or", "al", "is", "et", "on", "ing", "ea",
    ];
    let syllable = |random: &mut ChaCha8Rng| {
        let of =
            |from: [&'static str; 16], random: &mut ChaCha8Rng| from[random.random_range(0..16)];
        [of(ONSETS, random), of(RHYMES, random)].concat()
    };
    let word = |rank: usize| {
        // what is said often is short
        let longest = 1 + (rank + 2).ilog10().min(3) as usize;
        let syllables = random.random_range(1..=longest);
        (0..syllables).map(|_| syllable(random)).collect()
    };
    (0..WORDS).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: ContentKind, seed: u64, pieces: &[usize]) -> Vec<u8> {
        let mut maker = kind.maker(seed);
        let piece = |&len: &usize| {
            let mut piece = vec![0; len];
            maker.fill(&mut piece);
            piece
        };
        pieces.iter().flat_map(piece).collect()
    }

    #[test]
    fn each_compresses_as_it_says() {
        for (kind, share) in [
            (ContentKind::Random, 1.0..1.001),
            (ContentKind::Text, 0.3..0.5),
            (ContentKind::Binary, 0.94..0.96),
        ] {
            let bytes = made(kind, 7, &[1 << 20]);
            let squeezed = zstd::bulk::compress(&bytes, 3).expect("it compresses").len();
            let found = squeezed as f64 / bytes.len() as f64;
            assert!(share.contains(&found), "{}: {found}", kind.name());
        }
    }

    #[test]
    fn content_depends_on_the_seed_alone() {
        for kind in [ContentKind::Random, ContentKind::Text, ContentKind::Binary] {
            let whole = made(kind, 7, &[4096]);
            assert_eq!(whole, made(kind, 7, &[1024, 1024, 2048]), "{}", kind.name());
            assert_ne!(whole, made(kind, 8, &[4096]), "{}", kind.name());
        }
    }
}
