//! The exit codes of the commands that move files, for their help.

/// The exit codes of all of these commands.
macro_rules! exit_codes {
    () => {
        "Exit codes:
    0  everything was done
    1  a file or directory is missing or cannot be read or written; each is named
    2  wrong arguments or configuration
    3  the host cannot be reached, or the connection was lost
    4  the host is not trusted
    5  the server refuses: it does not know this key, or the key may not do this
  130  interrupted"
    };
}

pub(super) use exit_codes;

pub(super) const EXIT_CODES: &str = exit_codes!();
