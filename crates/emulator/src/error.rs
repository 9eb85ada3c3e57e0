//! Why the emulator could not do what was asked, in sentences.

use std::io;

use nix::errno::Errno;

/// Why the emulator could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments ask for something that cannot be.
    #[error("{0}")]
    Arguments(String),
    /// This process lacks a privilege.
    #[error("{0}")]
    Missing(String),
    /// Something that worked does not any more.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Arguments(_) => 2,
            Self::Missing(_) => 3,
        }
    }

    /// Why an interface could not be opened.
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

    /// Why an interface that was open could not be read or written.
    pub(crate) fn using(interface: &str, error: &io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV) => Self::Failed(format!(
                "the interface `{interface}` went down or away; the link needs both interfaces up"
            )),
            _ => Self::Failed(format!("cannot forward frames on `{interface}`: {error}")),
        }
    }
}
