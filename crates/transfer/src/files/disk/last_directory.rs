//! The directory of the last small file that was stored: the next one is probably in it, too.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headroom_mutex::lock;

use super::beneath::Beneath;

/// How long an open directory is used. A file that is synced may keep its own open for as long.
const RECENT: Duration = Duration::from_millis(10);

/// The directory that was opened last. A clone has its own.
#[derive(Debug, Default)]
pub(super) struct LastDirectory(Mutex<Option<Opened>>);

#[derive(Debug)]
struct Opened {
    path: Box<[u8]>,
    at: Instant,
    directory: Arc<OwnedFd>,
}

impl LastDirectory {
    /// Does what [`Beneath::directory`] does, for many files one after the other: the directory of
    /// the last one is not looked up again if that was less than [`RECENT`] ago.
    ///
    /// No link led to it when it was opened below the top, and it stays the same directory. If
    /// another program has renamed it or put a link in its place since, the file goes into the
    /// renamed directory, as any file does whose directory is renamed after it was looked up. If
    /// another program has removed it, nothing can be made in it: look it up again.
    pub(super) fn open(&self, beneath: &Beneath, path: Option<&[u8]>) -> nix::Result<Arc<OwnedFd>> {
        let Some(path) = path else { return beneath.directory(None) };
        self.get(path, Instant::now(), || beneath.directory(Some(path)))
    }

    fn get(
        &self,
        path: &[u8],
        now: Instant,
        open: impl FnOnce() -> nix::Result<Arc<OwnedFd>>,
    ) -> nix::Result<Arc<OwnedFd>> {
        let mut last = lock(&self.0);
        if let Some(opened) = &*last
            && *opened.path == *path
            && now.saturating_duration_since(opened.at) < RECENT
        {
            return Ok(Arc::clone(&opened.directory));
        }
        let directory = open()?;
        *last = Some(Opened { path: path.into(), at: now, directory: Arc::clone(&directory) });
        Ok(directory)
    }
}

impl Clone for LastDirectory {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn only_the_last_directory_is_used_again_and_only_for_a_moment() {
        let folder = tempfile::tempdir().expect("a folder");
        let beneath = Beneath::new(folder.path()).expect("a directory");
        let last = LastDirectory::default();
        let start = Instant::now();
        let looked_up = |last: &LastDirectory, path: &[u8], now| {
            let mut opened = false;
            let open = || {
                opened = true;
                beneath.directory(None)
            };
            last.get(path, now, open).expect("a directory");
            opened
        };
        assert!(looked_up(&last, b"a", start));
        assert!(!looked_up(&last, b"a", start + RECENT / 2));
        assert!(looked_up(&last, b"a", start + RECENT), "counted from when it was opened");
        assert!(looked_up(&last, b"b", start + RECENT));
        assert!(looked_up(&last, b"a", start + RECENT), "one is kept");
        assert!(looked_up(&last.clone(), b"a", start + RECENT), "a clone has its own");
        let missing = last.get(b"c", start + RECENT, || Err(Errno::ENOENT));
        assert_eq!(missing.map(drop), Err(Errno::ENOENT));
        assert!(looked_up(&last, b"c", start + RECENT), "failures are not kept");
    }
}
