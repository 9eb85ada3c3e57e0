//! Files as `headroom lab advise` is asked about them.

use std::str::FromStr;

use headroom_lab::units;

/// `2000x1MiB`, or `1MiB` for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Files {
    /// How many.
    pub(crate) count: u32,
    /// Bytes of each.
    pub(crate) bytes: u64,
}

impl FromStr for Files {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        if !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!(
                "`{text}` has no unit: write {trimmed}x1MB for so many files of 1 MB, or {trimmed}B for one file of so \
                 many bytes"
            ));
        }
        if let Some((count, size)) = trimmed.split_once(['*', '×']) {
            let (count, size) = (count.trim(), size.trim());
            return Err(format!(
                "`{text}` is not a number of files and their size: write {count}x{size}"
            ));
        }
        let (count, size) = text.split_once('x').unwrap_or(("1", text));
        let count = count.trim().parse().ok().filter(|count| (1..=1_000_000).contains(count));
        let count = count.filter(|_| !size.trim().is_empty()).ok_or_else(|| {
            format!("`{text}` is not a number of files and their size, such as 2000x1MiB")
        })?;
        Ok(Self { count, bytes: units::parse_size(size)?.max(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_a_number_and_a_size() {
        let of = |text: &str| text.parse::<Files>();
        assert_eq!(of("2000x1MiB"), Ok(Files { count: 2000, bytes: 1 << 20 }));
        assert_eq!(of("64KiB"), Ok(Files { count: 1, bytes: 1 << 16 }));
        for wrong in ["0x1MiB", "x1MiB", "manyx1MiB", "2x", ""] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn says_how_several_files_are_written() {
        assert_eq!("10000B".parse::<Files>(), Ok(Files { count: 1, bytes: 10_000 }));
        for (wrong, expected) in [
            ("10000", "write 10000x1MB for"),
            ("10000*1MB", "write 10000x1MB"),
            ("10x", "`10x` is not a number of files and their size"),
            ("10000 × 1MB", "write 10000x1MB"),
        ] {
            let error = wrong.parse::<Files>().expect_err(wrong);
            assert!(error.contains(expected), "{error}");
        }
    }
}
