//! Packets that are **not encrypted**, for measurements of what encryption costs. A checksum
//! (CRC32C, RFC 9260 appendix A) takes the place of the tag: it finds damage, and nothing else.
//! Anybody on the path can read and change them.

use crate::lane::keys::{PacketKey, Refused};
use crate::lane::limits::TAG_LEN;

/// Bytes of the checksum, the first of the tag.
const CRC_LEN: usize = 4;
/// Bytes of SimpleCrypt's key.
const KEY_LEN: usize = 8;

/// What takes the place of a key.
#[derive(Clone, Copy, Debug)]
pub enum Unencrypted {
    /// No transformation.
    Null,
    /// SimpleCrypt, the scheme of Tornai et al., "Encryption in a High-Speed Connectionless File
    /// Transfer System", 2020, section 3, and there reference 18
    /// (<https://wiki.qt.io/SimpleCrypt_algorithm_details>): each byte, XOR the next of eight key
    /// bytes, XOR the byte sent before it, after one random byte. It is not encryption: any eight
    /// known or guessed bytes of a file reveal the key.
    SimpleCrypt([u8; KEY_LEN]),
}

impl PacketKey for Unencrypted {
    #[inline]
    fn seal(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        tag.fill(0);
        if let Self::SimpleCrypt(key) = self {
            // as random as the IV
            let first = nonce[11] ^ key[0];
            tag[CRC_LEN] = first;
            chain(follow(*key), first, text);
        }
        let crc = checksum(additional, text, tag);
        tag[..CRC_LEN].copy_from_slice(&crc);
        Ok(())
    }

    #[inline]
    fn open(
        &self,
        _nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused> {
        if checksum(additional, text, tag) != tag[..CRC_LEN] {
            return Err(Refused);
        }
        if let Self::SimpleCrypt(key) = self {
            unchain(follow(*key), tag[CRC_LEN], text);
        }
        Ok(())
    }
}

/// Computes the checksum of everything in the packet but itself.
#[inline]
fn checksum(additional: &[u8], text: &[u8], tag: &[u8; TAG_LEN]) -> [u8; CRC_LEN] {
    let crc = crc32c::crc32c(additional);
    let crc = crc32c::crc32c_append(crc, text);
    crc32c::crc32c_append(crc, &tag[CRC_LEN..]).to_be_bytes()
}

/// Returns the key bytes for the text: the first went to the random byte.
#[inline]
fn follow(mut key: [u8; KEY_LEN]) -> u64 {
    key.rotate_left(1);
    u64::from_le_bytes(key)
}

/// Transforms each byte: XOR the key's, XOR the byte sent before; eight at a time.
#[inline]
fn chain(key: u64, before: u8, text: &mut [u8]) {
    let mut before = before;
    let mut words = text.chunks_exact_mut(KEY_LEN);
    for word in words.by_ref() {
        let Some(bytes) = word.first_chunk_mut::<KEY_LEN>() else { return };
        let mut chained = u64::from_le_bytes(*bytes) ^ key;
        // each byte, XOR all before it in the word, and the last of the word before
        chained ^= chained << 8;
        chained ^= chained << 16;
        chained ^= chained << 32;
        chained ^= u64::from_le_bytes([before; KEY_LEN]);
        *bytes = chained.to_le_bytes();
        before = bytes[KEY_LEN - 1];
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(key.to_le_bytes()) {
        *byte ^= key ^ before;
        before = *byte;
    }
}

/// Reverses [`chain`].
#[inline]
fn unchain(key: u64, before: u8, text: &mut [u8]) {
    let mut before = before;
    let mut words = text.chunks_exact_mut(KEY_LEN);
    for word in words.by_ref() {
        let Some(bytes) = word.first_chunk_mut::<KEY_LEN>() else { return };
        let chained = u64::from_le_bytes(*bytes);
        *bytes = (chained ^ chained << 8 ^ u64::from(before) ^ key).to_le_bytes();
        before = (chained >> 56) as u8;
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(key.to_le_bytes()) {
        let chained = *byte;
        *byte = chained ^ key ^ before;
        before = chained;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 8] = *b"8 octets";
    const NONCE: [u8; 12] = [0xa5; 12];

    /// SimpleCrypt as its page tells it, byte by byte, the random one ahead.
    fn told(random: u8, text: &[u8]) -> Vec<u8> {
        let mut last = 0;
        let bytes = std::iter::once(&random).chain(text).enumerate();
        let chained = bytes.map(|(at, byte)| {
            last ^= byte ^ KEY[at % 8];
            last
        });
        chained.collect()
    }

    fn seal(key: Unencrypted, text: &[u8]) -> (Vec<u8>, [u8; TAG_LEN]) {
        let (mut text, mut tag) = (text.to_vec(), [7; TAG_LEN]);
        key.seal(NONCE, b"a header", &mut text, &mut tag).expect("sealed");
        (text, tag)
    }

    #[test]
    fn the_checksum_is_that_of_the_document() {
        // RFC 3720, appendix B.4
        assert_eq!(crc32c::crc32c(&[0; 32]).to_be_bytes(), [0x8a, 0x91, 0x36, 0xaa]);
        let (text, tag) = seal(Unencrypted::Null, b"a text");
        let all = [&b"a header"[..], b"a text", &[0; 12]].concat();
        assert_eq!(text, b"a text", "everybody can read it");
        assert_eq!(tag[..4], crc32c::crc32c(&all).to_be_bytes());
        assert_eq!(tag[4..], [0; 12]);
    }

    proptest! {
        #[test]
        fn simplecrypt_is_that_of_its_page_and_comes_back(text in proptest::collection::vec(any::<u8>(), 0..70)) {
            let (mut sealed, tag) = seal(Unencrypted::SimpleCrypt(KEY), &text);
            let told = told(NONCE[11], &text);
            prop_assert_eq!((tag[4], &sealed[..]), (told[0], &told[1..]));
            let opened = Unencrypted::SimpleCrypt(KEY).open(NONCE, b"a header", &mut sealed, &tag);
            prop_assert_eq!((opened, sealed), (Ok(()), text));
        }

        #[test]
        fn damage_is_found(text in proptest::collection::vec(any::<u8>(), 0..70), bit: usize) {
            for key in [Unencrypted::Null, Unencrypted::SimpleCrypt(KEY)] {
                let (mut sealed, mut tag) = seal(key, &text);
                let bytes = sealed.iter_mut().chain(&mut tag);
                let bit = bit % ((text.len() + TAG_LEN) * 8);
                bytes.enumerate().filter(|(at, _)| *at == bit / 8).for_each(|(_, byte)| *byte ^= 1 << (bit % 8));
                prop_assert_eq!(key.open(NONCE, b"a header", &mut sealed, &tag), Err(Refused));
            }
        }
    }
}
