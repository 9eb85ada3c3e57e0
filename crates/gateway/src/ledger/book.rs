//! What a ledger's file says: numbers by key, as text with a checksum.
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
use std::fmt::{self, Write};

use headroom_ipsec::spec::{Direction, Protection, SaSpec};
use headroom_suite::Fingerprint;

/// Octets that a ledger's file may have.
pub(super) const MOST_OCTETS: u64 = 64 << 20;

const HEAD: &str = "headroom-ledger 1";

/// Which way packets under a key go, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// The number is the highest that may have been sent.
    Out,
    /// The number is the highest that was accepted.
    In,
}

/// What a number belongs to: a key, by its fingerprint, used in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account {
    /// The direction.
    pub way: Way,
    /// The fingerprint of the key that sequence numbers must not repeat under.
    pub key: [u8; 16],
}

impl Account {
    /// The account of an association: sequence numbers must not repeat under the key
    /// that authenticates them. (With separate integrity that is the integrity key; the
    /// cipher's IVs are random.)
    pub fn of(spec: &SaSpec) -> Self {
        let way = match spec.direction {
            Direction::Out => Way::Out,
            Direction::In => Way::In,
        };
        Self { way, key: *authenticating_key(&spec.protection).as_bytes() }
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

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.way {
            Way::Out => "out ",
            Way::In => "in ",
        })?;
        write_hex(f, &self.key)
    }
}

/// The content of a ledger's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Book {
    /// Which ledger this is; random.
    pub(super) id: [u8; 16],
    /// How often it was written. 0: never used.
    pub(super) generation: u64,
    /// The highest number used of each account.
    pub(super) numbers: BTreeMap<Account, u64>,
}

impl Book {
    /// The file, its checksum included.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\nid ");
        let _ = write_hex(&mut text, &self.id);
        let _ = write!(text, "\ngeneration {}\n", self.generation);
        for (account, number) in &self.numbers {
            let _ = writeln!(text, "{account} {number}");
        }
        let check = blake3::hash(text.as_bytes()).to_hex();
        text + "check " + check.as_str() + "\n"
    }

    /// Reads a ledger's file.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence. A file that differs by
    /// one bit from what was written is refused.
    pub fn parse(content: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not text".to_owned())?;
        let (body, check) = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once('\n'))
            .and_then(|(body, last)| Some((body, last.strip_prefix("check ")?)))
            .ok_or("it has no line `check` at its end; it was cut")?;
        let body = &text[..=body.len()];
        if blake3::hash(body.as_bytes()).to_hex().as_str() != check {
            return Err("its checksum does not match its content".into());
        }
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("its first line is not `{HEAD}`"));
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id ")).and_then(read_hex);
        let generation =
            lines.next().and_then(|line| line.strip_prefix("generation ")?.parse().ok());
        let (Some(id), Some(generation)) = (id, generation) else {
            return Err("it lacks its id or its generation".into());
        };
        let mut numbers = BTreeMap::new();
        for line in lines {
            let (account, number) =
                read_number(line).ok_or_else(|| format!("a line is not understood: `{line}`"))?;
            if numbers.insert(account, number).is_some() {
                return Err(format!("`{account}` is in it twice"));
            }
        }
        Ok(Self { id, generation, numbers })
    }
}

fn read_number(line: &str) -> Option<(Account, u64)> {
    let mut words = line.split(' ');
    let way = match words.next()? {
        "out" => Way::Out,
        "in" => Way::In,
        _ => return None,
    };
    let key = read_hex(words.next()?)?;
    let number = words.next()?.parse().ok()?;
    words.next().is_none().then_some((Account { way, key }, number))
}

pub(super) fn write_hex(out: &mut impl Write, octets: &[u8]) -> fmt::Result {
    octets.iter().try_for_each(|octet| write!(out, "{octet:02x}"))
}

fn read_hex(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 32 {
        return None;
    }
    let mut octets = [0; 16];
    for (octet, pair) in octets.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *octet = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let account = |way, first| Account { way, key: [first; 16] };
        let numbers = [(account(Way::Out, 1), 1 << 20), (account(Way::In, 0xfe), u64::MAX)];
        Book { id: [7; 16], generation: 3, numbers: numbers.into() }
    }

    #[test]
    fn what_was_written_is_read() {
        for book in [book(), Book { numbers: BTreeMap::new(), ..book() }] {
            assert_eq!(Book::parse(book.to_text().as_bytes()), Ok(book));
        }
    }

    #[test]
    fn any_changed_bit_and_any_cut_is_refused() {
        let text = book().to_text().into_bytes();
        for at in 0..text.len() {
            assert!(Book::parse(&text[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut text = text.clone();
                text[at] ^= 1 << bit;
                assert!(Book::parse(&text).is_err(), "octet {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn an_account_that_is_there_twice_is_refused() {
        let line = book().to_text().lines().nth(3).expect("an account").to_owned();
        let body = format!("{HEAD}\nid {}\ngeneration 1\n{line}\n{line}\n", "07".repeat(16));
        let text = format!("{body}check {}\n", blake3::hash(body.as_bytes()).to_hex());
        let error = Book::parse(text.as_bytes()).expect_err("twice");
        assert!(error.ends_with("is in it twice"), "{error}");
    }
}
