//! `headroom mkdir`, `mv` and `rm`: names on a host.

use std::process::ExitCode;

use headroom_transfer::{Error, block_on};

use super::arguments::{Mkdir, Mv, Rm};
use super::connect::Connector;
use super::progress::Progress;
use super::remotes::remotes_on_one_host;

pub(crate) fn mkdir(arguments: &Mkdir) -> anyhow::Result<ExitCode> {
    let Mkdir { parents, remotes, connect, over_ssh } = arguments;
    let (host, paths) = remotes_on_one_host(remotes, over_ssh)?;
    let mut connector = Connector::new(connect, over_ssh)?;
    block_on(async {
        let mut client = connector.connect(&host).await?;
        let mut failed = false;
        for path in &paths {
            failed |= goes_on(client.make_directory(path, *parents).await)?;
        }
        client.close().await;
        Ok(code(failed))
    })?
}

pub(crate) fn mv(arguments: &Mv) -> anyhow::Result<ExitCode> {
    let Mv { force, from, to, connect, over_ssh } = arguments;
    let (host, paths) = remotes_on_one_host(&[from.clone(), to.clone()], over_ssh)?;
    let mut connector = Connector::new(connect, over_ssh)?;
    block_on(async {
        let mut client = connector.connect(&host).await?;
        let failed = goes_on(client.rename(&paths[0], &paths[1], *force).await)?;
        client.close().await;
        Ok(code(failed))
    })?
}

pub(crate) fn rm(arguments: &Rm) -> anyhow::Result<ExitCode> {
    let Rm { recursive, remotes, connect, over_ssh, json } = arguments;
    let (host, paths) = remotes_on_one_host(remotes, over_ssh)?;
    let mut connector = Connector::new(connect, over_ssh)?;
    let progress = Progress::new(*json);
    block_on(async {
        let mut client = connector.connect(&host).await?;
        let mut failed = false;
        for path in &paths {
            let removed = client.remove(path, *recursive, progress.clone()).await;
            failed |= removed.as_ref().is_ok_and(|summary| summary.failed > 0);
            failed |= goes_on(removed.map(drop))?;
        }
        client.close().await;
        Ok(code(failed))
    })?
}

/// Tells what is wrong with one name, and goes on with the next; whether something was.
/// Whatever else is wrong ends the command.
fn goes_on(done: Result<(), Error>) -> anyhow::Result<bool> {
    match done {
        Ok(()) => Ok(false),
        Err(error @ Error::OnServer { .. }) => {
            crate::output::print_error_line(&format!("headroom: {error}"));
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

fn code(failed: bool) -> ExitCode {
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
