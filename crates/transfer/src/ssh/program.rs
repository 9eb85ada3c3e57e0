//! This program as it is sent to a host: without what is not loaded when it runs.

use std::fs;
use std::io;

/// The parts of a 64-bit ELF file's header that are used here (`elf(5)`).
mod field {
    use std::ops::Range;

    pub(super) const HEADER: usize = 64;
    pub(super) const PROGRAM_HEADERS: Range<usize> = 0x20..0x28;
    pub(super) const SECTION_HEADERS: Range<usize> = 0x28..0x30;
    pub(super) const PROGRAM_HEADER_BYTES: Range<usize> = 0x36..0x38;
    pub(super) const PROGRAM_HEADER_COUNT: Range<usize> = 0x38..0x3a;
    pub(super) const SECTION_COUNT_AND_NAMES: Range<usize> = 0x3c..0x40;
    /// Within a program header.
    pub(super) const OFFSET: Range<usize> = 8..16;
    pub(super) const BYTES_IN_FILE: Range<usize> = 32..40;
}

/// Reads the running program, without debug information.
///
/// # Errors
/// It cannot be read.
pub(super) fn own() -> io::Result<Vec<u8>> {
    // works also if the file was replaced since the start
    let mut program = fs::read("/proc/self/exe")?;
    if let Some(end) = end_of_what_is_loaded(&program) {
        program.truncate(end);
        program[field::SECTION_HEADERS].fill(0);
        program[field::SECTION_COUNT_AND_NAMES].fill(0);
    }
    Ok(program)
}

/// Returns the end of what the kernel maps; `None` if this is not a 64-bit, little-endian ELF
/// file. Symbols and debug information follow it.
fn end_of_what_is_loaded(program: &[u8]) -> Option<usize> {
    if program.len() < field::HEADER || !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let first = number(program, field::PROGRAM_HEADERS)?;
    let bytes = number(program, field::PROGRAM_HEADER_BYTES)?;
    let count = number(program, field::PROGRAM_HEADER_COUNT)?;
    let mut end = first.checked_add(bytes.checked_mul(count)?)?;
    for n in 0..count {
        let header = program.get(first + n * bytes..)?;
        let offset = number(header, field::OFFSET)?;
        end = end.max(offset.checked_add(number(header, field::BYTES_IN_FILE)?)?);
    }
    (count > 0 && end <= program.len()).then_some(end)
}

fn number(bytes: &[u8], field: std::ops::Range<usize>) -> Option<usize> {
    let bytes = bytes.get(field)?;
    let value = bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_sent_program_is_smaller_and_runs() {
        let program = own().expect("this test can be read");
        let whole = fs::metadata("/proc/self/exe").expect("it is there").len();
        assert!((program.len() as u64) < whole, "{} of {whole}", program.len());
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("program");
        headroom_testing::write_executable(&path, &program);
        let listed = Command::new(&path).arg("--list").output().expect("it starts");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(text.contains("the_sent_program_is_smaller_and_runs"), "{listed:?}");
    }

    #[test]
    fn other_files_are_sent_as_they_are() {
        let mut torn = fs::read("/proc/self/exe").expect("this test");
        torn.truncate(4096);
        for bytes in [&b""[..], b"#!/bin/sh\nexit\n", b"\x7fELF\x01\x01", &torn, &[0xff; 100]] {
            assert_eq!(end_of_what_is_loaded(bytes), None);
        }
    }
}
