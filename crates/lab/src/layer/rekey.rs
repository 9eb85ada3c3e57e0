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
        f.write_str(&exact_size(self.0))
    }
}

/// Writes a size with the largest unit of which it is a whole number.
fn exact_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 6] = [
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1_000),
    ];
    let whole = UNITS.into_iter().find(|(_, scale)| bytes.is_multiple_of(*scale));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, scale)| format!("{}{unit}", bytes / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_without_rounding() {
        for (bytes, written) in [
            (50_000_000, "50MB"),
            (1 << 20, "1MiB"),
            (1_500_000, "1500kB"),
            (1_000_001, "1000001B"),
            (2_000_000_000, "2GB"),
        ] {
            assert_eq!(exact_size(bytes), written);
            assert_eq!(units::parse_size(written), Ok(bytes));
        }
    }
}
