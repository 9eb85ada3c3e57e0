//! The tree in the private cache.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

use crate::error::{Error, Result};
use crate::fetch::{self, Progress};
use crate::lock::{self, Package};
use crate::unpack::unpack;

/// The empty folder of a tree that is the mount point of the root made from it.
pub(crate) const ROOT: &str = "root";
/// Digits of the lock's SHA-256 that name it.
const ID: usize = 12;

/// A folder with the packages of the lock; it may not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(PathBuf);

impl Tree {
    /// Names the tree of a private cache.
    pub fn of(cache: &Path) -> Self {
        Self(cache.join("debian-13"))
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it is there, with the packages that this program names.
    pub fn is_current(&self) -> bool {
        fs::read_to_string(self.0.join("lock")).is_ok_and(|text| text == lock::TEXT)
    }

    /// Returns what it is called in results: the release, and which packages of it.
    pub fn name() -> String {
        let hash = HEXLOWER.encode(digest(&SHA256, lock::TEXT.as_bytes()).as_ref());
        format!("Debian 13 (lock {})", &hash[..ID])
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

    /// Fetches and unpacks it beside an older one, which it then replaces.
    ///
    /// # Errors
    /// The archive has not all of it, the disk is full, or this is no x86-64 machine.
    pub fn fetch(&self, archive: &str, progress: &Progress<'_>) -> Result<()> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Error::Processor(std::env::consts::ARCH));
        }
        self.fetch_locked(lock::TEXT, archive, progress)
    }

    fn fetch_locked(&self, lock: &str, archive: &str, progress: &Progress<'_>) -> Result<()> {
        let new = self.0.with_extension("new");
        let old = self.0.with_extension("old");
        for left in [&new, &old] {
            remove(left)?;
        }
        // where it is mounted as a root: also by users who may not write here
        let root = new.join(ROOT);
        fs::create_dir_all(&root).map_err(Error::of("create", &root))?;
        let packages: Vec<Package<'_>> = lock::packages(lock).collect();
        let fetched = fetch::fetch(archive, &packages, progress, &|package, content| {
            unpack(package, content, &new)
        })
        .and_then(|()| open_to_all(&new.join("etc")))
        .and_then(|()| fs::write(new.join("lock"), lock).map_err(Error::of("write", &new)));
        if let Err(error) = fetched {
            let _ = remove(&new); // the first error says more
            return Err(error);
        }
        if self.0.exists() {
            fs::rename(&self.0, &old).map_err(Error::of("move", &self.0))?;
        }
        fs::rename(&new, &self.0).map_err(Error::of("move", &new))?;
        remove(&old)
    }
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
    fn fetches_what_the_lock_names_and_replaces_an_older_tree() {
        let cache = tempfile::tempdir().expect("a folder");
        let tree = Tree::of(cache.path());
        fs::create_dir_all(tree.path().join("usr/bin")).expect("an older tree");
        fs::write(tree.path().join("usr/bin/old"), "").expect("its program");
        let one = package_of(&[("usr/bin/one", 0o4755, b"one"), ("etc/secret/key", 0o600, b"")]);
        let two = package_of(&[("usr/bin/two", 0o755, b"two")]);
        let archive = serve(vec![
            ("/debian/one_1%2B1.deb", one.clone()),
            ("/debian/two_1%2B1.deb", two.clone()),
        ]);
        let lock = format!("# a lock\n{}{}", line("one", &one), line("two", &two));
        tree.fetch_locked(&lock, &archive, &|_| {}).expect("a tree");
        assert!(tree.has("one") && tree.has("two") && !tree.has("old") && !tree.is_current());
        let mode = |path: &str| {
            fs::metadata(tree.path().join(path)).expect(path).permissions().mode() & 0o7777
        };
        assert_eq!(mode("usr/bin/one"), 0o755, "without its set-user-ID bit");
        assert_eq!(mode("etc/secret"), 0o755);
        let names: Vec<_> = fs::read_dir(cache.path()).expect("the cache").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn what_is_not_what_the_lock_names_leaves_the_older_tree() {
        let cache = tempfile::tempdir().expect("a folder");
        let tree = Tree::of(cache.path());
        fs::create_dir_all(tree.path()).expect("an older tree");
        let package = package_of(&[("usr/bin/one", 0o755, b"one")]);
        let other = package_of(&[("usr/bin/one", 0o755, b"other")]);
        let archive = serve(vec![("/debian/one_1%2B1.deb", other)]);
        let get = |lock: &str, archive: &str| {
            let error = tree.fetch_locked(lock, archive, &|_| {}).expect_err("no tree");
            let names: Vec<_> = fs::read_dir(cache.path()).expect("the cache").collect();
            assert_eq!(names.len(), 1, "{error}: {names:?}");
            error
        };
        assert!(matches!(get(&line("one", &package), &archive), Error::Foreign { .. }));
        assert!(matches!(get(&line("two", &package), &archive), Error::Gone { .. }));
        let longer = [&package[..], b"!"].concat();
        assert!(matches!(get(&line("one", &longer), &archive), Error::Foreign { .. }));
    }
}
