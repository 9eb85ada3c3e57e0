//! Standard output. A reader that has gone (`| head`) is no error: the command
//! prints no more, does the rest of what it was asked for, and exits as it would
//! have. Any other failure to write is reported on standard error at once, and
//! turns the exit code of success into 1.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The first error of standard output: what is printed after it would have gaps.
static FAILED: OnceLock<ErrorKind> = OnceLock::new();

/// Prints a line at once, and returns whether it was written.
pub(crate) fn print_line(line: &str) -> bool {
    print(&format!("{line}\n"))
}

/// Prints text at once, and returns whether it was written.
pub(crate) fn print(text: &str) -> bool {
    let mut out = io::stdout().lock();
    attempt(|| out.write_all(text.as_bytes()).and_then(|()| out.flush())).is_ok()
}

/// Prints a line on standard error. Where nobody reads that either, nothing is left to
/// report it to, and the command goes on.
pub(crate) fn print_error_line(line: &str) {
    // a message may quote what somebody else wrote
    let steers = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    let line = line.replace(steers, "\u{fffd}");
    let _ = writeln!(io::stderr(), "{line}");
}

/// Columns of the terminal, or of `COLUMNS`.
pub(crate) fn width() -> usize {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || console::Term::stdout().size_checked().map(|(_, columns)| columns.into());
    set.or_else(terminal).unwrap_or(80).clamp(60, 140)
}

/// Returns the exit code of a command: a failure, where something was printed in vain.
pub(crate) fn exit_code(of_command: ExitCode) -> ExitCode {
    let failed = FAILED.get().is_some_and(|kind| *kind != ErrorKind::BrokenPipe);
    if failed && of_command == ExitCode::SUCCESS { ExitCode::FAILURE } else { of_command }
}

/// Writes, unless writing has failed before; the first failure is reported.
pub(crate) fn attempt<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if let Some(kind) = FAILED.get() {
        return Err((*kind).into());
    }
    write().inspect_err(|error| {
        let is_first = FAILED.set(error.kind()).is_ok();
        if is_first && error.kind() != ErrorKind::BrokenPipe {
            eprintln!("headroom: cannot write to standard output: {error}");
        }
    })
}
