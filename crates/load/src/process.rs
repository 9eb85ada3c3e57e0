//! What a child process wrote to its standard error.

use std::io::Read;
use std::process::ChildStderr;
use std::thread::{self, JoinHandle};

/// Bytes that are kept.
const KEPT: usize = 200;

/// Reads a program's error output to its end, in a thread; returns the last part of it, in
/// one line.
pub(crate) fn stderr_tail(stderr: Option<ChildStderr>) -> JoinHandle<String> {
    thread::spawn(move || stderr.map_or(String::new(), tail))
}

fn tail(mut stderr: impl Read) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(octets @ 1..) = stderr.read(&mut piece) {
        kept.extend_from_slice(&piece[..octets]);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
    let text = String::from_utf8_lossy(&kept);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "no error output".to_owned() } else { lines.join(" | ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_in_one_line() {
        assert_eq!(tail(&b"one\n\n two \n"[..]), "one | two");
        assert_eq!(tail(&b""[..]), "no error output");
        assert!(tail(&[b'x'; 5000][..]).len() <= KEPT);
    }
}
