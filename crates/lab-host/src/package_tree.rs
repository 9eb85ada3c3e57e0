//! Unpacked packages of another Debian release, with their own libc
//! (`scripts/fetch-parts --with-ike-peers`).

use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, Result};

/// The folder of such packages in the private cache.
#[derive(Debug, Clone)]
pub struct PackageTree(PathBuf);

impl PackageTree {
    /// Names the tree of IKE daemons in a private cache; it may not be there.
    pub fn of_ike_peers(cache: &Path) -> Self {
        Self(cache.join("ike-peers"))
    }

    /// Checks that it is there.
    ///
    /// # Errors
    /// [`Error::Missing`]: how to fetch it.
    pub fn require(&self) -> Result<()> {
        if self.lock().is_file() {
            return Ok(());
        }
        Err(Error::Missing(format!(
            "there is no {}: run scripts/fetch-parts --with-ike-peers",
            self.0.display()
        )))
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the version of one of its packages, without that of the packaging.
    ///
    /// # Errors
    /// It has no such package.
    pub fn version(&self, package: &str) -> Result<String> {
        let lock = std::fs::read_to_string(self.lock())
            .doing(|| format!("read {}", self.lock().display()))?;
        let version = lock.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.len() == 5 && words[0] == "deb" && words[1] == package).then(|| words[2])
        });
        let version = version.ok_or_else(|| {
            Error::Failed(format!("no package {package} in {}", self.lock().display()))
        })?;
        Ok(version.split('-').next().unwrap_or_default().to_owned())
    }

    /// Returns the words that start one of its programs with its own libraries, on the host's file
    /// system: a program that reads no other file of its release needs no root of its own. The lock
    /// has packages for x86-64 alone.
    pub fn loading(&self, program: &str) -> [String; 4] {
        let inside = |path: &str| self.0.join(path).display().to_string();
        let libraries = [inside("usr/lib/x86_64-linux-gnu"), inside("usr/lib/ipsec")];
        [
            inside("usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            libraries.join(":"),
            inside(program),
        ]
    }

    fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
}
