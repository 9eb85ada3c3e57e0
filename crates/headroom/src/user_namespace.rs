//! Runs the lab for an ordinary user, in a user namespace.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context;
use headroom_lab::Error;
use headroom_lab_host::privileges::{self, ENTER, Privileges};

/// Begins this program again as root of a user namespace, where an ordinary user has started
/// it; returns otherwise. A dry run without such a namespace prints what root would do.
pub(crate) fn enter_if_needed(dry_run: bool) -> anyhow::Result<()> {
    if Privileges::of_this_process() != Privileges::None {
        return Ok(());
    }
    let program = this_program()?;
    match privileges::probe(&program) {
        Err(_) if dry_run => return Ok(()),
        probed => probed?,
    }
    let mut again = Command::new(&program);
    again.args([ENTER, "--"]).args(std::env::args_os().skip(1));
    match become_command(again)? {}
}

/// Enters a user namespace, and becomes this program with these arguments there. Without
/// arguments it tries what a run begins with.
pub(crate) fn enter(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    privileges::enter()?;
    if arguments.is_empty() {
        privileges::try_out()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut again = Command::new(this_program()?);
    again.args(arguments);
    match become_command(again)? {}
}

/// Becomes a command for which setgroups(2) succeeds without effect.
pub(crate) fn without_groups(command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| Error::Plan("a command without a program".into()))?;
    privileges::ignore_setgroups()?;
    let mut server = Command::new(program);
    server.args(arguments);
    match become_command(server)? {}
}

fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

fn become_command(mut command: Command) -> anyhow::Result<Infallible> {
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", command.get_program().display()))
}
