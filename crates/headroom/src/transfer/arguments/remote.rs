//! The arguments of `headroom ls`, `mkdir`, `mv` and `rm`.

use std::ffi::OsString;

use clap::Args;

use super::connect::{Connect, OverSsh};
use super::exit_codes::EXIT_CODES;

/// List a directory of a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Ls {
    /// Also print type, permissions, size and time of change
    #[arg(short)]
    pub(crate) long: bool,
    /// A directory or file below the server's root
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) remote: OsString,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Print entries as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make directories on a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Mkdir {
    /// Make missing parent directories; do not fail if a directory exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Directories to make, below the server's root
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) remotes: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
}

/// Rename or move a file or directory on a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Mv {
    /// Replace a file or link that has the new name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What to rename, below the server's root
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) from: OsString,
    /// The new name on the same host, or the directory to move it into
    #[arg(value_name = "HOST[:PORT]:NEW")]
    pub(crate) to: OsString,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
}

/// Remove files and directories on a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Rm {
    /// Remove directories and everything in them; without it, files, links and empty directories
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// What to remove, below the server's root; no patterns
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) remotes: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Print events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}
