//! Files between hosts: `headroom serve`, `put`, `get`, `sync`, `ls`, `mkdir`, `mv`, `rm`,
//! `share`, `identity`, `trust`, `ui` and `fleet`.

mod arguments;
mod connect;
mod copy;
mod exit;
#[cfg(feature = "fleet")]
mod fleet;
mod frame;
mod hosts;
mod identity;
mod ls;
mod moving;
mod names;
mod progress;
mod remote;
mod remotes;
mod request_log;
mod serve;
mod serving;
mod settings;
mod share;
mod shutdown;
mod spread;
mod ui;

use std::process::ExitCode;

pub(crate) use arguments::Command;
pub(crate) use exit::exit_code;

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(arguments) => serve::serve(arguments),
        Command::ServeOnce(arguments) => serve::serve_once(arguments),
        Command::Put(arguments) => copy::put(arguments),
        Command::Get(arguments) => copy::get(arguments),
        Command::Sync(arguments) => copy::sync(arguments),
        Command::Ls(arguments) => ls::ls(arguments),
        Command::Mkdir(arguments) => remote::mkdir(arguments),
        Command::Mv(arguments) => remote::mv(arguments),
        Command::Rm(arguments) => remote::rm(arguments),
        Command::Share(arguments) => share::share(arguments),
        Command::Identity(arguments) => identity::identity(arguments),
        Command::Trust(arguments) => identity::trust(arguments),
        Command::Ui(arguments) => ui::ui(arguments),
        #[cfg(feature = "fleet")]
        Command::Fleet(arguments) => fleet::run(arguments),
    }
}
