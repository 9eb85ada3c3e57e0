//! Exit codes, and mistakes in what was typed.

use headroom_transfer::Error;

/// A wrong word on the command line.
#[derive(Debug)]
pub(crate) struct Usage(pub(super) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl Usage {
    /// The exit code of wrong arguments.
    pub(crate) const fn exit_code(&self) -> u8 {
        2
    }
}

/// The exit code of a transfer that failed as a whole.
pub(crate) const fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Trust(_) | Error::Usage(_) => 2,
        Error::Unreachable { .. }
        | Error::Lost(_)
        | Error::Superseded
        | Error::Interrupted(_)
        | Error::Protocol(_) => 3,
        Error::UnknownHost { .. } | Error::ChangedHost { .. } | Error::NotTrusted { .. } => 4,
        Error::Refused(_) => 5,
        Error::Identity(_) | Error::Files(_) | Error::OnServer(_) | Error::System { .. } => 1,
    }
}

/// The exit code of a program that was interrupted.
pub(super) const INTERRUPTED: i32 = 130;
