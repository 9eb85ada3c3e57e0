//! Network namespaces by name: how one is entered.

use std::fs::File;

use nix::sched::{CloneFlags, setns};

use crate::command::Command;
use crate::error::{Doing, Error, Result};
use crate::programs::NSENTER;

/// The file by which a namespace is entered.
pub(crate) fn path(name: &str) -> String {
    format!("/run/netns/{name}")
}

/// The command that runs another in a namespace.
pub(crate) fn run_inside(name: &str, command: Command) -> Command {
    Command::new(NSENTER, [format!("--net={}", path(name))]).running(command)
}

/// Takes this thread into the namespace at this path, for the rest of its life.
pub(crate) fn enter(path: &str) -> Result<()> {
    let file = File::open(path).doing(|| format!("open {path}"))?;
    setns(file, CloneFlags::CLONE_NEWNET).doing(|| format!("enter {path}"))
}

/// Does something inside a namespace, in a thread that ends with it.
pub(crate) fn inside<T: Send + 'static>(
    name: &str,
    what: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let path = path(name);
    std::thread::spawn(move || {
        enter(&path)?;
        what()
    })
    .join()
    .map_err(|_| Error::Failed("a thread inside a namespace panicked".into()))?
}
