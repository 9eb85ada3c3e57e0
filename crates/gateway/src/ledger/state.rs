//! The content of a ledger's file: sequence numbers by key, as text with a checksum.
//!
//! ```text
//! headroom-ledger 1
//! id 4f1d…                       128 bits, the same in both copies
//! generation 17
//! out 0c55… 2097152              direction, fingerprint of the key, number
//! in 91e0… 733412
//! check 5ab3…                    BLAKE3 of all lines above
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use headroom_ipsec::spec::{Direction, Protection, SaSpec};
use headroom_suite::Fingerprint;

/// The longest file that is read, in bytes.
pub(super) const MAX_FILE_LEN: u64 = 64 << 20;

const HEAD: &str = "headroom-ledger 1";

/// Identifies what a sequence number belongs to: a key, by its fingerprint, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    /// Out: its number is the highest that may have been sent. In: the highest accepted.
    pub direction: Direction,
    /// The fingerprint of the key under which sequence numbers must not repeat.
    pub key: Fingerprint,
}

impl KeyId {
    /// Returns the key that authenticates an association's sequence numbers: the AEAD's key,
    /// or the integrity key beside a cipher with random IVs.
    pub fn of(spec: &SaSpec) -> Self {
        Self { direction: spec.direction, key: authenticating_key(&spec.protection) }
    }
}

fn authenticating_key(protection: &Protection) -> Fingerprint {
    match protection {
        Protection::Ah { key, .. } => key.fingerprint(),
        Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => {
            secrets.mac_key.as_ref().unwrap_or(&secrets.key).fingerprint()
        }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.direction, self.key)
    }
}

/// The content of a ledger's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerState {
    /// Which ledger this is; random.
    pub(super) id: u128,
    /// How often it was written. 0: never used.
    pub(super) generation: u64,
    /// The highest number used with each key.
    pub(super) numbers: BTreeMap<KeyId, u64>,
}

impl LedgerState {
    /// Returns the text of the file, with its checksum.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\nid {:032x}\ngeneration {}\n", self.id, self.generation);
        for (key_id, number) in &self.numbers {
            let _ = writeln!(text, "{key_id} {number}");
        }
        let check = blake3::hash(text.as_bytes()).to_hex();
        text + "check " + check.as_str() + "\n"
    }

    /// Parses a ledger's file. Refuses a file of which one bit was changed.
    ///
    /// # Errors
    /// What is wrong with the file, as the end of a sentence.
    pub fn parse(content: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not text".to_owned())?;
        let (body, check) = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once('\n'))
            .and_then(|(body, last)| Some((body, last.strip_prefix("check ")?)))
            .ok_or("it is truncated: the line `check` at its end is missing")?;
        let body = &text[..=body.len()];
        if blake3::hash(body.as_bytes()).to_hex().as_str() != check {
            return Err("its checksum does not match its content".into());
        }
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("its first line is not `{HEAD}`"));
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id ")).and_then(parse_id);
        let generation =
            lines.next().and_then(|line| line.strip_prefix("generation ")?.parse().ok());
        let (Some(id), Some(generation)) = (id, generation) else {
            return Err("it lacks its id or its generation".into());
        };
        let mut numbers = BTreeMap::new();
        for line in lines {
            let (key_id, number) =
                read_number(line).ok_or_else(|| format!("a line is not understood: `{line}`"))?;
            if numbers.insert(key_id, number).is_some() {
                return Err(format!("`{key_id}` is in it twice"));
            }
        }
        Ok(Self { id, generation, numbers })
    }
}

/// Parses 32 hexadecimal digits, without a sign.
fn parse_id(digits: &str) -> Option<u128> {
    let plain = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u128::from_str_radix(digits, 16).ok().filter(|_| plain)
}

fn read_number(line: &str) -> Option<(KeyId, u64)> {
    let mut words = line.split(' ');
    let direction = match words.next()? {
        "out" => Direction::Out,
        "in" => Direction::In,
        _ => return None,
    };
    let key = words.next()?.parse().ok()?;
    let number = words.next()?.parse().ok()?;
    words.next().is_none().then_some((KeyId { direction, key }, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> LedgerState {
        let key_id =
            |direction, first| KeyId { direction, key: Fingerprint::from_bytes([first; 16]) };
        let numbers =
            [(key_id(Direction::Out, 1), 1 << 20), (key_id(Direction::In, 0xfe), u64::MAX)];
        LedgerState { id: 7 << 100, generation: 3, numbers: numbers.into() }
    }

    #[test]
    fn parses_what_it_wrote() {
        for state in [state(), LedgerState { numbers: BTreeMap::new(), ..state() }] {
            assert_eq!(LedgerState::parse(state.to_text().as_bytes()), Ok(state));
        }
    }

    #[test]
    fn refuses_any_changed_bit_and_any_truncation() {
        let text = state().to_text().into_bytes();
        for at in 0..text.len() {
            assert!(LedgerState::parse(&text[..at]).is_err(), "truncated at {at}");
            for bit in 0..8 {
                let mut text = text.clone();
                text[at] ^= 1 << bit;
                assert!(LedgerState::parse(&text).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn refuses_a_key_that_is_listed_twice() {
        let line = state().to_text().lines().nth(3).expect("a key").to_owned();
        let body = format!("{HEAD}\nid {}\ngeneration 1\n{line}\n{line}\n", "07".repeat(16));
        let text = format!("{body}check {}\n", blake3::hash(body.as_bytes()).to_hex());
        let error = LedgerState::parse(text.as_bytes()).expect_err("twice");
        assert!(error.ends_with("is in it twice"), "{error}");
    }
}
