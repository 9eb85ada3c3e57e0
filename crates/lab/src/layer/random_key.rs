//! Keys that both ends of a layer are given.

use rand::Rng;

/// Draws so many bytes, in hexadecimal; those of a dry run are all zeros.
pub(super) fn hex(bytes: usize, dry: bool) -> String {
    let mut key = vec![0; bytes];
    if !dry {
        rand::rng().fill_bytes(&mut key);
    }
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
