//! A buffer before standard output.

use std::io::{self, BufWriter, StdoutLock, Write};

use crate::output::attempt;

/// A buffer before standard output, for much text.
pub(super) struct Buffered(BufWriter<StdoutLock<'static>>);

impl Buffered {
    pub(super) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        attempt(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        attempt(|| self.0.flush())
    }
}
