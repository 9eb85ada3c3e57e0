//! Reads Wireshark's tables of keys, as `tunnel up --keylog` and Wireshark write them.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use headroom_ike::crypto::{Protector, Spis};
use headroom_ipsec::SaSpec;
use headroom_ipsec::spec::{Direction, Mode, Protection, QESP, Secrets};
use headroom_suite::{Key, Suite};
use zeroize::Zeroizing;

use super::esp_table::suite as esp_suite;
use super::ike_table::suite as ike_suite;
use super::{ESP_TABLE, IKE_TABLE};

/// The most lines of a table of which it is said why they are not used.
const MAX_NOTES: usize = 8;

/// The keys of both tables.
#[derive(Debug, Default)]
pub struct KeyTables {
    /// IKE SAs, in the order of the table: the keys of one may be replaced by a later line
    /// (RFC 9370, section 2.2.2).
    pub(crate) ike: Vec<IkeEntry>,
    /// SAs of ESP, and the same keys for Q-ESP: the table does not tell which of the two it is, nor
    /// the mode, the encapsulation and the length of sequence numbers.
    pub(crate) esp: Vec<SaSpec>,
    /// Whether tables were read.
    pub(crate) were_read: bool,
    /// Lines that are not used, and why.
    pub notes: Vec<String>,
}

/// The keys of an IKE SA.
#[derive(Debug)]
pub(crate) struct IkeEntry {
    pub(crate) spis: Spis,
    /// Opens the messages of the initiator of the IKE SA.
    pub(crate) initiator: Protector,
    /// Opens those of its responder.
    pub(crate) responder: Protector,
}

/// A folder has no tables, or a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeyTableError {
    /// There is neither table.
    #[error("{} has neither {IKE_TABLE} nor {ESP_TABLE}: name the folder of `tunnel up --keylog`", .0.display())]
    NoTable(PathBuf),
    /// A table cannot be read.
    #[error("cannot read {}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

impl KeyTables {
    /// Reads the tables in `folder`; one of them may be missing. Lines that cannot be used are
    /// noted.
    ///
    /// # Errors
    /// There is no table, or one cannot be read.
    pub fn read(folder: &Path) -> Result<Self, KeyTableError> {
        let [ike, esp] = Self::files(folder);
        let (ike, esp) = (read_if_there(&ike)?, read_if_there(&esp)?);
        if ike.is_none() && esp.is_none() {
            return Err(KeyTableError::NoTable(folder.to_owned()));
        }
        let text = |table: Option<Zeroizing<String>>| table.unwrap_or_default();
        Ok(Self::parse(&text(ike), &text(esp)))
    }

    /// Returns the paths of the tables in `folder`.
    pub fn files(folder: &Path) -> [PathBuf; 2] {
        [IKE_TABLE, ESP_TABLE].map(|table| folder.join(table))
    }

    /// Reads the texts of both tables.
    pub fn parse(ike: &str, esp: &str) -> Self {
        let mut tables = Self { were_read: true, ..Self::default() };
        tables.ike = tables.lines(IKE_TABLE, ike, |_, fields| ike_entry(fields).map(|one| [one]));
        tables.esp = tables.lines(ESP_TABLE, esp, esp_entries);
        tables
    }

    /// Reads each line once; a line may be there several times, as when both ends write one log.
    fn lines<T, const N: usize>(
        &mut self,
        table: &str,
        text: &str,
        mut entries: impl FnMut(usize, &[&str]) -> Result<[T; N], Unusable>,
    ) -> Vec<T> {
        let mut seen = std::collections::HashSet::new();
        let mut found = Vec::new();
        let mut unusable = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || !seen.insert(line) {
                continue;
            }
            match entries(number, &fields(line)) {
                Ok(entries) => found.extend(entries),
                Err(why) => {
                    unusable += 1;
                    if unusable <= MAX_NOTES {
                        // not the line: it has keys
                        self.notes.push(format!("{table}, line {number}, is not used: {why}"));
                    }
                }
            }
        }
        if unusable > MAX_NOTES {
            self.notes.push(format!("{table}: {} more lines are not used", unusable - MAX_NOTES));
        }
        found
    }
}

/// Why a line is not used.
#[derive(Debug, Clone, Copy)]
enum Unusable {
    Fields,
    Field(&'static str),
    Suite,
    Key,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields => write!(f, "it has too few fields"),
            Self::Field(field) => write!(f, "its {field} is no single value"),
            Self::Suite => write!(f, "its algorithms are not supported"),
            Self::Key => write!(f, "a key is not hexadecimal or has another length"),
        }
    }
}

fn read_if_there(path: &Path) -> Result<Option<Zeroizing<String>>, KeyTableError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(KeyTableError::Io(path.to_owned(), error)),
    }
}

/// Splits a line at its commas; no value of these tables contains one.
fn fields(line: &str) -> Vec<&str> {
    line.split(',').map(|field| field.trim().trim_matches('"')).collect()
}

/// SPIs of initiator and responder, SK_ei, SK_er, cipher, SK_ai, SK_ar, integrity algorithm.
fn ike_entry(fields: &[&str]) -> Result<IkeEntry, Unusable> {
    let &[initiator, responder, ei, er, encryption, ai, ar, integrity, ..] = fields else {
        return Err(Unusable::Fields);
    };
    let spi = |text: &str| u64::from_str_radix(digits(text), 16);
    let (Ok(initiator), Ok(responder)) = (spi(initiator), spi(responder)) else {
        return Err(Unusable::Field("SPI"));
    };
    let suite = ike_suite(encryption, integrity).ok_or(Unusable::Suite)?;
    let protector = |encryption: &str, integrity: &str| {
        Protector::new(suite, &key(encryption)?, &key(integrity)?).ok_or(Unusable::Key)
    };
    Ok(IkeEntry {
        spis: Spis { initiator, responder },
        initiator: protector(ei, ai)?,
        responder: protector(er, ar)?,
    })
}

/// Family, source, destination, SPI, cipher, its key, integrity algorithm, its key. Newer versions
/// of Wireshark add the length of sequence numbers.
fn esp_entries(number: usize, fields: &[&str]) -> Result<[SaSpec; 2], Unusable> {
    let &[family, source, destination, spi, cipher, encryption, mac, integrity, ..] = fields else {
        return Err(Unusable::Fields);
    };
    let address = |text: &str| match (text, family) {
        ("*", "IPv4") => Ok(IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        ("*", "IPv6") => Ok(IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        _ => text.parse().map_err(|_| Unusable::Field("address")),
    };
    let ends = (address(source)?, address(destination)?);
    let spi = match spi.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => spi.parse(),
    };
    let spi = spi.map_err(|_| Unusable::Field("SPI"))?;
    let (encryption, integrity) = (key(encryption)?, key(integrity)?);
    let suite = esp_suite(cipher, encryption.len(), mac).ok_or(Unusable::Suite)?;
    if (encryption.len(), integrity.len()) != (suite.key_len(), suite.mac_key_len()) {
        return Err(Unusable::Key);
    }
    let secrets = || Secrets {
        suite,
        key: Key::from_bytes(encryption.as_bytes()),
        mac_key: matches!(suite, Suite::Separate(..))
            .then(|| Key::from_bytes(integrity.as_bytes())),
    };
    let both = [Protection::Esp(secrets()), Protection::QEsp { number: QESP, secrets: secrets() }];
    Ok(both.map(|protection| {
        let name = format!("{ESP_TABLE}:{number}");
        SaSpec::new(name, Direction::In, Mode::Tunnel, spi, ends, protection)
    }))
}

fn key(text: &str) -> Result<Key, Unusable> {
    match digits(text) {
        "" => Ok(Key::empty()),
        digits => Key::from_hex(digits).map_err(|_| Unusable::Key),
    }
}

fn digits(text: &str) -> &str {
    text.strip_prefix("0x").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireshark::{esp_line, ike_line};
    use headroom_ike::crypto::{IkeKeys, Prf};
    use headroom_suite::Aead;

    fn bytes(len: usize) -> Key {
        Key::from_bytes(&vec![7; len])
    }

    fn ike_table() -> String {
        let suites = Suite::ALL.into_iter().filter(Suite::is_secure);
        let lines = suites.filter_map(|suite| {
            let keys = IkeKeys {
                suite,
                prf: Prf::HmacSha256,
                sk_d: bytes(0),
                sk_ai: bytes(suite.mac_key_len()),
                sk_ar: bytes(suite.mac_key_len()),
                sk_ei: bytes(suite.key_len()),
                sk_er: bytes(suite.key_len()),
                sk_pi: bytes(0),
                sk_pr: bytes(0),
            };
            ike_line(Spis { initiator: 1, responder: u64::MAX }, &keys)
        });
        lines.map(|line| line.to_string()).collect()
    }

    fn esp_table() -> String {
        let lines = (1..).zip(Suite::ALL).filter_map(|(spi, suite)| {
            let ends = ("192.0.2.1".parse().expect("v4"), "192.0.2.2".parse().expect("v4"));
            let separate = matches!(suite, Suite::Separate(..));
            let mac_key = separate.then(|| bytes(suite.mac_key_len()));
            let secrets = Secrets { suite, key: bytes(suite.key_len()), mac_key };
            let protection = Protection::Esp(secrets);
            esp_line(&SaSpec::new("a", Direction::In, Mode::Tunnel, spi, ends, protection))
        });
        lines.map(|line| line.to_string()).collect()
    }

    #[test]
    fn every_line_that_is_written_is_read() {
        let (ike, esp) = (ike_table(), esp_table());
        let tables = KeyTables::parse(&ike, &esp);
        assert!(tables.notes.is_empty(), "{:?}", tables.notes);
        let suites: Vec<Suite> = tables.ike.iter().map(|one| one.initiator.suite()).collect();
        assert_eq!(suites.len(), ike.lines().count());
        assert!(suites.contains(&Suite::Aead(Aead::Aes256Gcm)));
        assert_eq!(tables.ike[0].spis, Spis { initiator: 1, responder: u64::MAX });
        let read: Vec<Suite> = tables
            .esp
            .iter()
            .filter_map(|spec| match &spec.protection {
                Protection::Esp(secrets) => Some(secrets.suite),
                _ => None,
            })
            .collect();
        assert_eq!(read, Suite::ALL);
        assert_eq!(tables.esp.len(), 2 * read.len(), "and for Q-ESP");
    }

    #[test]
    fn a_line_twice_is_one_and_a_comment_none() {
        let esp = esp_table();
        let line = esp.lines().next().expect("a line");
        let tables = KeyTables::parse("", &format!("# comment\n{line}\n\n{line}\n"));
        assert_eq!((tables.esp.len(), tables.notes.len()), (2, 0));
    }

    #[test]
    fn lines_that_cannot_be_used_are_named_by_number_without_their_keys() {
        let (ike, esp) = (ike_table(), esp_table());
        let (ike, esp) = (ike.lines().next().expect("one"), esp.lines().next().expect("one"));
        let wrong_ike = [
            "1,2,3",
            &ike.replacen("0707", "07", 1),
            &ike.replacen("0707", "x7", 1),
            &ike.replacen("AES", "RC4", 1),
            &ike.replacen("0000000000000001", "one", 1),
        ]
        .map(str::to_owned);
        let wrong_esp = [
            &esp.replacen("192.0.2.1", "host", 1),
            &esp.replacen("0x0000", "*", 1),
            &esp.replacen("0707", "07", 1),
        ]
        .map(String::clone);
        let tables = KeyTables::parse(&wrong_ike.join("\n"), &wrong_esp.join("\n"));
        assert!(tables.ike.is_empty() && tables.esp.is_empty(), "{tables:?}");
        assert_eq!(tables.notes.len(), 8, "{:?}", tables.notes);
        assert!(tables.notes.iter().all(|note| !note.contains("0707")), "{:?}", tables.notes);
        let many: String = (0..20).map(|number| format!("{number}\n")).collect();
        assert_eq!(KeyTables::parse(&many, "").notes.len(), MAX_NOTES + 1);
    }

    #[test]
    fn a_folder_without_tables_is_refused() {
        let error = KeyTables::read(Path::new("/dev")).expect_err("no table");
        assert!(error.to_string().starts_with("/dev has neither"), "{error}");
    }
}
