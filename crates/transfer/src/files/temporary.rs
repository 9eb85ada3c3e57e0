//! Names of partial files: hidden, beside the final name, and the same whenever the same file
//! is offered.

use headroom_transfer_proto::message::Time;

/// The suffix of partial files.
pub(super) const SUFFIX: &str = ".headroom-part";

const MAX_BYTES: usize = 255;
const TAG_BYTES: usize = 16;

/// Whether this is the name of a partial file.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(SUFFIX.as_bytes())
}

/// Returns the name of a partial file: `.NAME.TAG.headroom-part`. The tag distinguishes offers
/// of one name. It is not secret, and if two offers have the same tag, hashes decide what can
/// be reused.
pub(super) fn of_file(name: &[u8], size: u64, mtime: Time) -> Vec<u8> {
    let mut offer = Vec::from(size.to_le_bytes());
    offer.extend(mtime.seconds.to_le_bytes());
    offer.extend(mtime.nanoseconds.to_le_bytes());
    temporary(name, &offer)
}

/// Returns the temporary name of a link that replaces something.
pub(super) fn of_link(name: &[u8], target: &[u8]) -> Vec<u8> {
    temporary(name, target)
}

/// Returns the name of the file that marks a directory as an incomplete copy of the tree
/// `source`.
pub(super) fn of_tree(source: &[u8]) -> Vec<u8> {
    temporary(source, b"a tree")
}

fn temporary(name: &[u8], offer: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    // the length separates name and offer
    hasher.update(&(name.len() as u64).to_le_bytes()).update(name).update(offer);
    let tag = hasher.finalize().to_hex();
    let most = MAX_BYTES - 2 - TAG_BYTES - SUFFIX.len();
    let readable = cut(name, most);
    [b".", readable, b".", &tag.as_bytes()[..TAG_BYTES], SUFFIX.as_bytes()].concat()
}

/// Shortens a name, at a character boundary if it is UTF-8.
fn cut(name: &[u8], most: usize) -> &[u8] {
    match std::str::from_utf8(name) {
        Ok(text) => &name[..text.floor_char_boundary(most)],
        Err(_) => &name[..most.min(name.len())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Time = Time { seconds: 7, nanoseconds: 8 };

    #[test]
    fn a_name_is_that_of_one_offer_and_fits() {
        let name = of_file(b"film.mkv", 9, TIME);
        assert_eq!(name, of_file(b"film.mkv", 9, TIME));
        assert!(name.starts_with(b".film.mkv.") && is_temporary(&name));
        let later = Time { nanoseconds: 9, ..TIME };
        for other in
            [of_file(b"film.mkv", 8, TIME), of_file(b"film.mkv", 9, later), of_file(b"x", 9, TIME)]
        {
            assert_ne!(name, other);
        }
        let long = of_file("ü".repeat(127).as_bytes(), 9, TIME);
        assert!(long.len() <= 255 && std::str::from_utf8(&long).is_ok() && is_temporary(&long));
        assert_eq!(of_file(&[0xff; 255], 9, TIME).len(), 255);
        assert_ne!(of_file(&[b'a'; 255], 9, TIME), of_file(&[b'a'; 254], 9, TIME));
        assert!(!is_temporary(b"film.mkv") && !is_temporary(b"a.headroom-part"));
    }
}
