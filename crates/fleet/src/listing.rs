//! Lists the source, directory by directory in the order of a walk, and fills the queue.
//!
//! Items are staged as they fill, in little memory. A checkpoint makes them visible together with
//! the directories that were listed; it follows a complete directory. After a crash the listing
//! resumes there, and what was listed since then is listed again and has been seen by nobody.

mod found;
mod lister;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use headroom_transfer::files::Root;
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, Error as TransferError};

use self::found::of_metadata;
pub(crate) use self::found::{Found, check, of_listed};
use self::lister::Lister;
use crate::ends::listed_on_server;
use crate::engine::Engine;
use crate::error::Error;
use crate::job::Batch;

/// How often a paused listing checks whether it may continue.
const LOOK: Duration = Duration::from_millis(100);

/// Lets a listing continue, wait or stop; set by another thread.
#[derive(Debug, Default)]
pub(crate) struct Switch(AtomicU8);

/// What a listing is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    Continue,
    Wait,
    Stop,
}

impl Switch {
    pub(crate) fn set(&self, advice: Advice) {
        self.0.store(advice as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Advice {
        match self.0.load(Ordering::Relaxed) {
            0 => Advice::Continue,
            1 => Advice::Wait,
            _ => Advice::Stop,
        }
    }
}

/// Lists the directory or store `root`. Returns early if it is stopped. Waits for disk and store,
/// as no task may.
pub(crate) fn list_folder<E: Engine>(
    engine: &mut E,
    root: &Root,
    batch: Batch,
    switch: &Switch,
) -> Result<(), Error> {
    let mut lister = Lister::begin(engine, batch)?;
    while let Some(directory) = lister.next()? {
        while switch.get() == Advice::Wait {
            std::thread::sleep(LOOK);
        }
        if switch.get() == Advice::Stop {
            return Ok(());
        }
        let mut failure = None;
        match root.list(directory.as_ref()) {
            Ok(mut listing) => {
                while let Some(found) = listing.next() {
                    if switch.get() == Advice::Stop {
                        return Ok(());
                    }
                    match found {
                        Ok((name, metadata)) => {
                            let target = || listing.target(&name);
                            lister.add(&name, of_metadata(&metadata, target))?;
                        }
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    }
                }
            }
            Err(error) => failure = Some(error),
        }
        match failure {
            Some(error) => lister.failed(&error.to_string())?,
            None => lister.listed()?,
        }
    }
    Ok(())
}

/// Lists the directory `from` of a server. Returns early if it is stopped.
pub(crate) async fn list_server<E: Engine, C>(
    engine: &mut E,
    from: &[u8],
    batch: Batch,
    switch: &Switch,
    connect: &mut C,
) -> Result<(), Error>
where
    C: AsyncFnMut() -> Result<Client, TransferError>,
{
    let mut lister = Lister::begin(engine, batch)?;
    let mut client = connect().await?;
    while let Some(directory) = lister.next()? {
        while switch.get() == Advice::Wait {
            tokio::time::sleep(LOOK).await;
        }
        if switch.get() == Advice::Stop {
            return Ok(());
        }
        let path = listed_on_server(from, directory.as_ref());
        let mut last: Option<RelPath> = None;
        let mut added = Ok(());
        let listed = client.list(&path, |found| {
            if added.is_err() {
                return;
            }
            added = match check(last.as_ref(), &found) {
                Ok(()) => lister.add(&found.path, of_listed(&found)),
                Err(error) => Err(error.into()),
            };
            last = Some(found.path);
        });
        let listed = listed.await;
        added?;
        match listed {
            Ok(()) => lister.listed()?,
            // also of a path that is too long for a request
            Err(error @ (TransferError::OnServer { .. } | TransferError::Usage(_))) => {
                lister.failed(&error.to_string())?;
            }
            Err(error) if error.is_temporary() => {
                tracing::info!("{error}");
                lister.discard()?;
                client = reconnect(connect, switch).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    client.close().await;
    Ok(())
}

/// Connects again, with pauses, until that succeeds or is stopped.
async fn reconnect<C>(connect: &mut C, switch: &Switch) -> Result<Client, Error>
where
    C: AsyncFnMut() -> Result<Client, TransferError>,
{
    let mut pause = Duration::from_millis(500);
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
        match connect().await {
            Err(error) if error.is_temporary() && switch.get() != Advice::Stop => {}
            connected => return Ok(connected?),
        }
    }
}
