//! The arguments of the commands that move files.

mod connect;
mod copy;
mod exit_codes;
mod keys;
mod moving;
mod remote;
mod serve;
mod share;
mod ui;
mod values;

use clap::Subcommand;

pub(crate) use connect::{Connect, OverSsh};
pub(crate) use copy::{Get, Put, Sync};
pub(crate) use keys::{Identity, IdentityCommand, Trust};
pub(crate) use moving::{Moving, OnLanes, Verify, Verifying};
pub(crate) use remote::{Ls, Mkdir, Mv, Rm};
pub(crate) use serve::{LogFormat, Serve, ServeOnce};
pub(crate) use share::Share;
pub(crate) use ui::Ui;

/// The commands that move files.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a command line has one, made once")]
pub(crate) enum Command {
    Serve(Serve),
    Put(Put),
    Get(Get),
    Sync(Sync),
    Ls(Ls),
    Mkdir(Mkdir),
    Mv(Mv),
    Rm(Rm),
    Share(Share),
    Identity(Identity),
    Trust(Trust),
    Ui(Ui),
    #[cfg(feature = "fleet")]
    Fleet(super::fleet::arguments::Fleet),
    #[command(hide = true)]
    ServeOnce(ServeOnce),
}
