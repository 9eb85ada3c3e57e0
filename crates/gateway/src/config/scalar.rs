//! Values with more than one notation. serde's untagged enumerations would lose the position in the
//! file.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// A number or a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scalar {
    Number(u64),
    Word(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a word in quotes")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                let number = u64::try_from(number);
                number.map(Scalar::Number).map_err(|_| E::custom("a number below zero"))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Scalar, E> {
                Ok(Scalar::Word(word.to_owned()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// The value of `dscp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DscpFile {
    Word(String),
    Number(u64),
    Map(BTreeMap<String, u64>),
}

impl<'de> Deserialize<'de> for DscpFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = DscpFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"copy\", \"keep\", a number from 0 to 63, or { map = { \"46\" = 46 } }",
                )
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<DscpFile, E> {
                let number = u64::try_from(number);
                number.map(DscpFile::Number).map_err(|_| E::custom("a number below zero"))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<DscpFile, E> {
                Ok(DscpFile::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<DscpFile, A::Error> {
                let mut map = None;
                while let Some(key) = entries.next_key::<String>()? {
                    if key != "map" {
                        return Err(A::Error::unknown_field(&key, &["map"]));
                    }
                    map = Some(entries.next_value()?);
                }
                map.map(DscpFile::Map).ok_or_else(|| A::Error::missing_field("map"))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// The text of a key: erased when dropped, never printed.
#[derive(Clone)]
pub(super) struct SecretText(pub(super) Zeroizing<String>);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        const EXPECTED: &str = "a key or a password is text in quotes";
        impl Visitor<'_> for Reader {
            type Value = SecretText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SecretText, E> {
                Ok(SecretText(Zeroizing::new(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<SecretText, E> {
                Ok(SecretText(Zeroizing::new(text)))
            }

            // serde's own message would contain the number.
            fn visit_i64<E: Error>(self, _: i64) -> Result<SecretText, E> {
                Err(E::custom(EXPECTED))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
