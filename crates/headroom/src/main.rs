//! The command: arguments, output, exit codes. No logic.

// In this crate, the standard library's macros of these names are replaced: those panic
// where they cannot write (`| head`, a full disk).
macro_rules! println {
    ($($arguments:tt)*) => {{ crate::output::print_line(&format!($($arguments)*)); }};
}
macro_rules! print {
    ($($arguments:tt)*) => {{ crate::output::print(&format!($($arguments)*)); }};
}
macro_rules! eprintln {
    ($($arguments:tt)*) => {{ crate::output::print_error_line(&format!($($arguments)*)); }};
}

mod advise;
mod arguments;
mod browse;
mod campaign;
mod fetch;
mod file_set;
mod folder;
mod interruption;
mod lab;
mod link;
mod load;
mod log;
mod output;
mod pinned;
mod progress;
mod runs;
mod since;
#[cfg(feature = "transfer")]
mod transfer;
#[cfg(feature = "tunnel")]
mod tunnel;
mod user_namespace;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    output::exit_code(match Arguments::try_parse() {
        Ok(arguments) => run(arguments),
        Err(error) => explain(&error),
    })
}

/// Prints what clap has to say: help and version are output, mistakes are not.
fn explain(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // a terminal shows it in colour
        let _ = error.print();
    } else {
        let text = error.render();
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print!("{}", if colour { text.ansi().to_string() } else { text.to_string() });
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
}

fn run(arguments: Arguments) -> ExitCode {
    log::start(arguments.verbose, arguments.command.is_server());
    let outcome = match arguments.command {
        Command::Lab(command) => lab::run(command),
        Command::Link(arguments) => link::run(arguments),
        #[cfg(feature = "tunnel")]
        Command::Tunnel(command) => tunnel::run(command),
        #[cfg(feature = "transfer")]
        Command::Transfer(command) => transfer::run(&command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "headroom", &mut script);
            print!("{}", String::from_utf8_lossy(&script));
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => manual(folder.as_deref()),
        Command::Fetch(request) => fetch::run(request),
        Command::Browse(request) => browse::run(request),
        Command::BrowsePeer(request) => browse::serve(request),
        Command::Load(command) => load::run(command),
        Command::LabAgent => {
            headroom_lab_host::agent::serve();
            Ok(ExitCode::SUCCESS)
        }
        Command::LabUserNamespace { arguments } => user_namespace::enter(&arguments),
        Command::LabWithoutGroups { command } => user_namespace::without_groups(&command),
        Command::LabHost { bytes } => headroom_lab_host::remote_host::serve(bytes)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Into::into),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("headroom: {error:#}");
        ExitCode::from(exit_code(&error))
    })
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let codes = [
        error.downcast_ref().map(headroom_lab::Error::exit_code),
        error.downcast_ref().map(headroom_lab_results::Error::exit_code),
        error.downcast_ref().map(headroom_lab_parts::Error::exit_code),
        error.downcast_ref().map(headroom_emulator::Error::exit_code),
        #[cfg(feature = "tunnel")]
        tunnel::exit_code(error),
        #[cfg(feature = "transfer")]
        transfer::exit_code(error),
    ];
    codes.into_iter().flatten().next().unwrap_or(1)
}

/// The manual: one page on standard output, or a page for each subcommand in a
/// folder.
fn manual(folder: Option<&Path>) -> anyhow::Result<ExitCode> {
    match folder {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            print!("{}", String::from_utf8_lossy(&page));
        }
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder))
                .with_context(|| format!("cannot write manual pages to {}", folder.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
