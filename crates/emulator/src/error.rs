//! Errors of the emulator.

use std::io;

use nix::errno::Errno;

/// Why the emulator could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments contradict each other or name nothing that exists.
    #[error("{0}")]
    Arguments(String),
    /// This process lacks a privilege.
    #[error("{0}")]
    Missing(String),
    /// Something failed while the emulator ran.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Returns the exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Arguments(_) => 2,
            Self::Missing(_) => 3,
        }
    }

    /// Explains why an interface could not be opened.
    pub(crate) fn opening(interface: &str, error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENODEV) => Self::Arguments(format!(
                "there is no interface `{interface}` in this network namespace; `ip link` lists those that are"
            )),
            Some(Errno::EPERM | Errno::EACCES) => Self::Missing(format!(
                "cannot open `{interface}`: forwarding frames needs root, or CAP_NET_RAW and CAP_NET_ADMIN"
            )),
            _ => Self::Failed(format!("cannot open the interface `{interface}`: {error}")),
        }
    }

    /// Explains why an open interface could not be read or written.
    pub(crate) fn using(interface: &str, error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV) => Self::Failed(format!(
                "the interface `{interface}` went down or disappeared; the link needs both interfaces up"
            )),
            _ => Self::Failed(format!("cannot forward frames on `{interface}`: {error}")),
        }
    }
}
