//! Reading what another process writes, line by line.

use std::io::{BufRead, BufReader, Read};

/// Gives each line of a stream to `take`, until the stream ends. One without end is cut
/// after `longest` bytes, so that it cannot fill the memory.
pub(crate) fn each_line(stream: impl Read, longest: u64, mut take: impl FnMut(&str)) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut lines).take(longest).read_until(b'\n', &mut line) {
        take(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_a_line_without_end() {
        let mut lines = Vec::new();
        each_line(&b"one\nabcdefgh\n\xff"[..], 5, |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one\n", "abcde", "fgh\n", "\u{fffd}"]);
    }
}
