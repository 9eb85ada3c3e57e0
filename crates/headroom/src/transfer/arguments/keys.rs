//! The arguments of `headroom identity` and `trust`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::connect::Connect;
use super::exit_codes::EXIT_CODES;

/// Print your public key; it is made if there is none
#[derive(Debug, Args)]
pub(crate) struct Identity {
    #[command(subcommand)]
    pub(crate) command: Option<IdentityCommand>,
    /// The key file [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) identity: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Print the public key for authorized_keys, and its fingerprint
    Show,
    /// Make a key; fails if there is one
    New,
}

/// Trust a host from now on, after comparing its fingerprint
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Trust {
    /// The host; an IPv6 address in brackets
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) connect: Connect,
}
