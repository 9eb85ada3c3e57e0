//! The mounts of a run on one machine: a namespace for them, and the folder of its files.

use std::path::{Path, PathBuf};

use nix::mount::MsFlags;

use super::Settings;
use crate::command::{Command, Executor};
use crate::error::{Doing, Error, Result};
use crate::privileges::Privileges;
use crate::programs::MOUNT;
use crate::scratch;

/// Leaves the machine's mount namespace and covers `/run`, so that namespaces,
/// sockets and pid files end with this process, however it ends.
pub(super) fn enter_private(executor: &Executor) -> Result<()> {
    if let Privileges::UserNamespace { .. } = Privileges::of_this_process() {
        executor
            .note(|| "unshare --user --map-root-user --net sh  # the rest happens inside".into());
    }
    executor.note(|| "unshare --mount --propagation private sh  # the rest happens inside".into());
    executor.act(|| "mount -t tmpfs -o mode=755 none /run".into(), leave_the_machines).map(drop)
}

fn leave_the_machines() -> Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(|error| {
        Error::Missing(format!("cannot leave the machine's mount namespace ({error}): run as root"))
    })?;
    // Not by the program `mount`, which keeps a folder in `/run`: still the machine's here
    let mount = |source: Option<&str>, target: &str, kind: Option<&str>, flags, options| {
        nix::mount::mount(source, target, kind, flags, options)
            .doing(|| format!("cover {target} with mounts of the lab's own"))
    };
    mount(None, "/", None, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None)?;
    mount(Some("none"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
}

/// A mount that ends with this value; without it the folder below could not be
/// removed.
#[derive(Debug)]
pub(super) struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // Fails only where nothing is mounted: in a dry run.
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// A tmpfs where the files fit into half of the free memory, else the disk, as
/// where the user chose the folder.
pub(super) fn mount_root(
    executor: &Executor,
    folder: &Path,
    settings: &Settings,
) -> Result<(PathBuf, Option<Mount>)> {
    let root = folder.join("root");
    make_folder(executor, &root)?;
    let bytes = settings.scratch_bytes;
    if let Some(options) = scratch::tmpfs_options(bytes).filter(|_| !settings.scratch_chosen) {
        let target = root.display().to_string();
        executor.run(&Command::new(MOUNT, ["-t", "tmpfs", "-o", &options, "none", &target]))?;
        let mount = Mount(root.clone());
        return Ok((root, Some(mount)));
    }
    executor.really(|| {
        let advice = "choose another with --scratch";
        scratch::require_space(
            folder,
            &format!("the scratch folder {}", folder.display()),
            bytes,
            advice,
        )
    })?;
    Ok((root, None))
}

pub(super) fn make_folder(executor: &Executor, path: &Path) -> Result<()> {
    let make = || std::fs::create_dir_all(path).doing(|| format!("create {}", path.display()));
    executor.act(|| format!("mkdir -p {}", path.display()), make).map(drop)
}
