//! `rekey=SIZE`: the bytes after which a layer's keys are updated.

use std::fmt;

use crate::units;

/// The fewest bytes between two updates of keys.
const MIN: u64 = 1_000_000;

/// Bytes between two updates of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RekeyInterval(u64);

impl RekeyInterval {
    /// Parses the size in `option`.
    ///
    /// # Errors
    /// A sentence: it is no size, or too small.
    pub(super) fn parse(option: &str, size: &str) -> Result<Self, String> {
        let bytes = units::parse_size(size).map_err(|why| format!("`{option}`: {why}"))?;
        if bytes < MIN {
            return Err(format!(
                "`{option}`: keys are updated after 1 MB at least; less carries no transfer"
            ));
        }
        Ok(Self(bytes))
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RekeyInterval {
    /// Writes the size as an option has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::exact_size(self.0))
    }
}
