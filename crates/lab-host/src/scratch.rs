//! The run's own folder and control group: everything a run leaves outside its
//! mount namespace, and so everything that `lab clean` has to look for.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headroom_file_lock::LockedFile;

use crate::error::{Doing, Error, Result};
use crate::machine;

const PREFIX: &str = "headroom-";
const LOCK: &str = "lock";

/// A folder that is this run's alone, removed when dropped. The lock inside it
/// tells the living from the dead.
#[derive(Debug)]
pub struct Scratch {
    /// Unique name of the run, eight letters and digits.
    pub id: String,
    path: PathBuf,
    _lock: LockedFile,
}

impl Scratch {
    /// Makes the folder `headroom-ID` in `parent`.
    ///
    /// # Errors
    /// It cannot be created; the error names the path.
    pub fn create(parent: &Path) -> Result<Self> {
        let id = new_id();
        let path = parent.join(format!("{PREFIX}{id}"));
        std::fs::create_dir(&path).doing(|| {
            format!("create the scratch folder {} (choose another with --scratch)", path.display())
        })?;
        match lock(&path) {
            Ok(lock) => Ok(Self { id, path, _lock: lock }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&path);
                Err(error)
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            eprintln!(
                "headroom: cannot remove {}: {error}; run `headroom lab clean`",
                self.path.display()
            );
        }
    }
}

/// Options of a tmpfs for so many bytes of files; none where they do not fit into half of
/// the free memory.
pub(crate) fn tmpfs_options(bytes: u64) -> Option<String> {
    (bytes <= machine::available_memory() / 2).then(|| format!("mode=755,size={bytes}"))
}

/// Refuses a folder, called `name`, whose disk has less than `bytes` free.
pub(crate) fn require_space(path: &Path, name: &str, bytes: u64, advice: &str) -> Result<()> {
    let free = free_space(path)?;
    if free >= bytes {
        return Ok(());
    }
    let (free, needed) = (headroom_units::size(free), headroom_units::size(bytes));
    Err(Error::Failed(format!(
        "{name} has {free} free and this plan needs {needed} for its files; {advice}"
    )))
}

/// A name for a run.
pub(crate) fn new_id() -> String {
    format!("{:08x}", rand::random::<u32>())
}

/// The name next to another: for a run's second machine.
pub(crate) fn next_id(id: &str) -> String {
    let number = u32::from_str_radix(id, 16).unwrap_or(0);
    format!("{:08x}", number.wrapping_add(1))
}

/// Takes the lock of a run's folder, which tells the living from the dead.
pub(crate) fn lock(path: &Path) -> Result<LockedFile> {
    let lock = || -> std::io::Result<LockedFile> {
        // Under its name it is locked from the first moment: another run removes a folder
        // whose lock it can take.
        let new = path.join("lock.new");
        let lock = LockedFile::exclusive(File::create(&new)?)?;
        std::fs::rename(new, path.join(LOCK))?;
        Ok(lock)
    };
    lock().doing(|| format!("write to the scratch folder {}", path.display()))
}

/// Removes a scratch folder, its lock last: what is left without a lock could not
/// be told from a stranger's folder.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)?.flatten().filter(|entry| entry.file_name() != LOCK) {
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir_all(path)
}

/// The folder's path ends up in configurations of several programs, each with
/// its own idea of quoting.
pub(crate) fn require_plain(folder: &Path) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if folder.to_string_lossy().chars().all(plain) {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "the scratch folder {} has a character other than letters, digits, `.`, `_` and `-`, which the servers' \
         configurations cannot hold; choose another with --scratch",
        folder.display()
    )))
}

/// Bytes that the file system of a folder has left.
pub fn free_space(folder: &Path) -> Result<u64> {
    let space = nix::sys::statvfs::statvfs(folder)
        .doing(|| format!("ask {} for its free space", folder.display()))?;
    Ok(space.blocks_available() * space.fragment_size())
}

/// Names of runs in `parent` whose process is gone, and the folders they left.
///
/// # Errors
/// `parent` cannot be read.
pub fn abandoned(parent: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(parent).doing(|| format!("look into {}", parent.display()))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix(PREFIX).filter(|id| is_id(id)) else { continue };
        // not a link to somewhere else, nor what somebody else has put here
        let ours = entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry.metadata().is_ok_and(|meta| meta.uid() == nix::unistd::geteuid().as_raw());
        if !ours {
            continue;
        }
        let dead = match File::open(entry.path().join(LOCK)).map(LockedFile::try_exclusive) {
            Ok(Err(TryLockError::WouldBlock)) => false,
            Ok(Ok(_) | Err(TryLockError::Error(_))) => true,
            Err(_) => continue, // not ours: no lock in it
        };
        if dead {
            found.push((id.to_owned(), entry.path()));
        }
    }
    Ok(found)
}

/// The name of the control group and of everything else that is named by the run.
pub(crate) fn run_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// The run's id in the name of a control group.
pub(crate) fn id_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|id| is_id(id))
}

fn is_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_run_is_not_abandoned_and_a_dropped_one_is_gone() {
        let ground = tempfile::tempdir().expect("a folder");
        let parent = ground.path();
        let scratch = Scratch::create(parent).expect("created");
        assert_eq!(abandoned(parent).expect("read"), []);
        let dead = parent.join("headroom-0badf00d");
        std::fs::create_dir(&dead).expect("made");
        File::create(dead.join(LOCK)).expect("made");
        std::fs::create_dir(parent.join("headroom-deadbeef")).expect("a folder without lock");
        assert_eq!(abandoned(parent).expect("read"), [("0badf00d".to_owned(), dead)]);
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
