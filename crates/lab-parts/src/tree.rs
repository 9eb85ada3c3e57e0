//! The tree in the private cache.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use headroom_file_lock::LockedFile;

use crate::error::{Error, Result};
use crate::fetch::{self, Progress};
use crate::lock::{self, Package};
use crate::unpack::unpack;

/// The empty folder of a tree that is the mount point of the root made from it.
pub(crate) const ROOT: &str = "root";
/// The release, and the beginning of every tree's name.
const RELEASE: &str = "debian-13";
/// Digits of the lock's SHA-256 that name it.
const ID: usize = 12;

/// A folder with the packages of the lock; it may not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(PathBuf);

impl Tree {
    /// Names the tree of a private cache. Those of other versions of this program are beside it.
    pub fn of(cache: &Path) -> Self {
        Self::named_after(lock::TEXT, cache)
    }

    fn named_after(lock: &str, cache: &Path) -> Self {
        Self(cache.join(format!("{RELEASE}-{}", id(lock))))
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it is there, with the packages that this program names.
    pub fn is_current(&self) -> bool {
        fs::read_to_string(self.0.join("lock")).is_ok_and(|text| text == lock::TEXT)
    }

    /// Whether the cache has the tree of another version of this program.
    pub fn has_other_version(&self) -> bool {
        self.other_versions().next().is_some()
    }

    fn other_versions(&self) -> impl Iterator<Item = PathBuf> {
        let entries = self.0.parent().and_then(|cache| fs::read_dir(cache).ok());
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        paths.filter(|path| {
            *path != self.0 && path.join("lock").is_file() && {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(RELEASE))
            }
        })
    }

    /// Returns what it is called in results: the release, and which packages of it.
    pub fn name() -> String {
        format!("Debian 13 (lock {})", id(lock::TEXT))
    }

    /// Returns how many packages it has, and how many bytes of them are fetched.
    pub fn size() -> (usize, u64) {
        let packages: Vec<Package<'_>> = lock::packages(lock::TEXT).collect();
        (packages.len(), packages.iter().map(|package| package.bytes).sum())
    }

    /// Whether it will have a package.
    pub fn names_package(name: &str) -> bool {
        lock::packages(lock::TEXT).any(|package| package.name == name)
    }

    /// Whether it has a program.
    pub fn has(&self, program: &str) -> bool {
        ["usr/sbin", "usr/bin"].iter().any(|folder| self.0.join(folder).join(program).is_file())
    }

    /// Fetches and unpacks it, and removes the trees of other versions that no run uses.
    ///
    /// # Errors
    /// The archive has not all of it, the disk is full, or this is no x86-64 machine.
    pub fn fetch(&self, archive: &str, progress: &Progress<'_>) -> Result<()> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Error::Processor(std::env::consts::ARCH));
        }
        if !archive.starts_with("http://") {
            return Err(Error::Archive(archive.to_owned()));
        }
        self.fetch_locked(lock::TEXT, archive, progress)
    }

    /// Whether nobody but root can change it; its own folder is looked at, not those above.
    pub fn is_roots(&self) -> bool {
        fs::metadata(&self.0).is_ok_and(|folder| folder.uid() == 0 && folder.mode() & 0o022 == 0)
    }

    fn fetch_locked(&self, lock: &str, archive: &str, progress: &Progress<'_>) -> Result<()> {
        let new = self.0.with_extension("new");
        let cache = self.0.parent().unwrap_or(&self.0);
        fs::create_dir_all(cache).map_err(Error::of("create", cache))?;
        // one fetch at a time; the kernel lets go of it with the process
        let one = self.0.with_extension("fetch");
        let _one = LockedFile::exclusive(open(&one)?).map_err(Error::of("lock", &one))?;
        if fs::read_to_string(self.0.join("lock")).is_ok_and(|text| text == lock) {
            return Ok(());
        }
        for left in [&new, &self.0] {
            remove(left)?;
        }
        // where it is mounted as a root: also by users who may not write here
        let root = new.join(ROOT);
        fs::create_dir_all(&root).map_err(Error::of("create", &root))?;
        let packages: Vec<Package<'_>> = lock::packages(lock).collect();
        let fetched = fetch::fetch(archive, &packages, progress, &|package, content| {
            unpack(package, content, &new)
        })
        .and_then(|()| open_to_all(&new))
        .and_then(|()| open_to_all(&new.join("etc")))
        .and_then(|()| sync(&new))
        .and_then(|()| fs::write(new.join("lock"), lock).map_err(Error::of("write", &new)))
        .and_then(|()| fs::rename(&new, &self.0).map_err(Error::of("move", &new)));
        if let Err(error) = fetched {
            let _ = remove(&new); // the first error says more
            return Err(error);
        }
        for other in self.other_versions() {
            // locked until it is removed, so that no run begins to use it meanwhile
            if let Ok(file) = open(&other.join("lock"))
                && let Ok(_locked) = LockedFile::try_exclusive(file)
            {
                remove(&other)?;
            }
        }
        Ok(())
    }

    /// Keeps other versions of this program from removing it until the process ends.
    pub(crate) fn keep(&self) -> Result<LockedFile> {
        let lock = self.0.join("lock");
        let locked = LockedFile::try_shared(open(&lock)?);
        locked.map_err(|error| Error::of("lock", &lock)(error.into()))
    }
}

fn id(lock: &str) -> String {
    HEXLOWER.encode(digest(&SHA256, lock.as_bytes()).as_ref())[..ID].to_owned()
}

/// Opens a file to lock, which is made if it is not there.
fn open(file: &Path) -> Result<File> {
    let opened = match File::open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            File::options().create(true).append(true).open(file)
        }
        opened => opened,
    };
    opened.map_err(Error::of("open", file))
}

/// Writes what was unpacked to the disk, so that no power cut leaves a tree that looks complete.
fn sync(folder: &Path) -> Result<()> {
    let opened = File::open(folder).map_err(Error::of("open", folder))?;
    nix::unistd::syncfs(opened).map_err(|error| Error::of("sync", folder)(error.into()))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::of("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// Lets every user read the folders of a tree: packages close some to keep keys in, and here
/// everything is public.
fn open_to_all(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(Error::of("change", folder))?;
    for entry in fs::read_dir(folder).map_err(Error::of("read", folder))? {
        let entry = entry.map_err(Error::of("read", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_to_all(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::unpack::tests::package_of;

    /// Serves files over HTTP until the process ends; returns its address.
    fn serve(files: Vec<(&'static str, Vec<u8>)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                let mut lines = BufReader::new(&stream).lines();
                let first = lines.next().expect("a request").expect("text");
                lines
                    .take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
                    .for_each(drop);
                let asked = first.split(' ').nth(1).unwrap_or_default();
                let found = files.iter().find(|(path, _)| *path == asked);
                let (status, body) =
                    found.map_or(("404 Gone", &[][..]), |(_, body)| ("200 OK", body));
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            }
        });
        address
    }

    fn line(name: &str, content: &[u8]) -> String {
        let hash = HEXLOWER.encode(digest(&SHA256, content).as_ref());
        format!("deb {name} 1+1 {} {hash} debian/{name}_1+1.deb\n", content.len())
    }

    #[test]
    fn fetches_what_the_lock_names_once_and_removes_trees_that_no_run_uses() {
        let cache = tempfile::tempdir().expect("a folder");
        let [unused, used] = ["unused", "used"].map(|lock| {
            let older = Tree::named_after(lock, cache.path());
            fs::create_dir_all(older.path()).expect("an older tree");
            fs::write(older.path().join("lock"), lock).expect("its lock");
            older
        });
        let run = used.keep().expect("a run");
        let one = package_of(&[("usr/bin/one", 0o4755, b"one"), ("etc/secret/key", 0o600, b"")]);
        let two = package_of(&[("usr/bin/two", 0o755, b"two")]);
        let archive = serve(vec![
            ("/debian/one_1%2B1.deb", one.clone()),
            ("/debian/two_1%2B1.deb", two.clone()),
        ]);
        let lock = format!("# a lock\n{}{}", line("one", &one), line("two", &two));
        let tree = Tree::named_after(&lock, cache.path());
        assert!(tree.has_other_version());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| tree.fetch_locked(&lock, &archive, &|_| {}).expect("a tree"));
            }
        });
        assert!(tree.has("one") && tree.has("two") && !tree.is_current());
        assert!(used.path().exists() && !unused.path().exists());
        drop(run);
        let mode = |path: &str| {
            fs::metadata(tree.path().join(path)).expect(path).permissions().mode() & 0o7777
        };
        assert_eq!(mode("usr/bin/one"), 0o755, "without its set-user-ID bit");
        assert_eq!(mode("etc/secret"), 0o755);
        assert!(!tree.path().with_extension("new").exists());
    }

    #[test]
    fn refuses_packages_that_the_lock_does_not_name() {
        let cache = tempfile::tempdir().expect("a folder");
        let tree = Tree::of(cache.path());
        let package = package_of(&[("usr/bin/one", 0o755, b"one")]);
        let other = package_of(&[("usr/bin/one", 0o755, b"other")]);
        let archive = serve(vec![("/debian/one_1%2B1.deb", other)]);
        let get = |lock: &str, archive: &str| {
            let error = tree.fetch_locked(lock, archive, &|_| {}).expect_err("no tree");
            assert!(!tree.path().exists() && !tree.path().with_extension("new").exists());
            error
        };
        assert!(matches!(get(&line("one", &package), &archive), Error::Foreign { .. }));
        assert!(matches!(get(&line("two", &package), &archive), Error::Gone { .. }));
        let longer = [&package[..], b"!"].concat();
        assert!(matches!(get(&line("one", &longer), &archive), Error::Foreign { .. }));
    }
}
