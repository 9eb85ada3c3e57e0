//! How the commands reach a server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use headroom_transfer::Fingerprint;

use super::values::timeout;

/// Which key to use, and which servers to trust.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Your key file, made if it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Trust an unknown host if its key has this fingerprint
    #[arg(long, value_name = "SHA256:…")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Trust hosts whose certificate is valid for their name and signed by one of these authorities
    /// (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// How long to wait for an answer, at each address of the host; up to 30s. A closed port and a
    /// missing host are reported at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    pub(crate) timeout: Duration,
}

/// Starting a server through ssh.
#[derive(Debug, Args)]
pub(crate) struct OverSsh {
    /// Start a server on the host through ssh, for this command only: nothing needs to be installed
    /// or trusted there, but a UDP port from 4860 to 4879 must be open, or that of HOST:PORT; paths
    /// are those of scp
    #[arg(long, conflicts_with_all = ["identity", "fingerprint", "ca"])]
    pub(crate) ssh: bool,
    /// The ssh command with its options [default: `$HEADROOM_SSH`, else ssh]
    #[arg(long, value_name = "COMMAND", requires = "ssh")]
    pub(crate) ssh_command: Option<String>,
}
