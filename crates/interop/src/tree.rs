//! A tree of unpacked packages of another release, with its own libc: programs in it are started
//! by chroot, in a mount namespace of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::namespace::Namespace;
use crate::peer::Peers;

/// Makes a root file system and starts a program in it: the tree's `usr` as it is, `etc` and `var`
/// as copies, accounts that daemons ask for, the host's devices, and the folder of this test.
const SCRIPT: &str = r#"set -e
tree=$1 root=$2 folder=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir -p usr etc var/lib var/empty run/pluto run/strongswan tmp proc dev sys root ".$folder"
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
mount --bind "$tree/usr" usr
mount -o remount,bind,ro usr
cp -r "$tree/etc/." etc
[ ! -d "$tree/var" ] || cp -r "$tree/var/." var
rm -rf var/run
ln -s /run var/run
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' >etc/group
printf 'passwd: files\ngroup: files\nhosts: files\n' >etc/nsswitch.conf
printf '127.0.0.1 localhost\n' >etc/hosts
: >etc/resolv.conf
mount --rbind /proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount --bind "$folder" ".$folder"
exec chroot . "$@"
"#;

/// The tree of `scripts/fetch-parts --with-ike-peers`.
#[derive(Debug, Clone)]
pub struct Tree(PathBuf);

impl Tree {
    /// Finds the tree.
    ///
    /// # Errors
    /// It is missing; the error says how to fetch it.
    pub fn find(peers: &Peers) -> Result<Self> {
        let path = peers.cache().join("ike-peers");
        ensure!(
            path.join("lock").is_file(),
            "there is no {}: run scripts/fetch-parts --with-ike-peers",
            path.display()
        );
        Ok(Self(path))
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
        let lock = std::fs::read_to_string(self.0.join("lock")).context("the tree's lock")?;
        let version = lock.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.len() == 5 && words[0] == "deb" && words[1] == package).then(|| words[2])
        });
        let version = version.with_context(|| format!("no package {package} in the lock"))?;
        Ok(version.split('-').next().unwrap_or_default().to_owned())
    }

    /// Makes a command that runs a program of the tree in a namespace, with a root of its own
    /// called `name` in `folder`, which it sees at the same path.
    ///
    /// # Errors
    /// The folder for its root cannot be made.
    pub fn command(
        &self,
        namespace: &Namespace,
        folder: &Path,
        name: &str,
        program: &str,
    ) -> Result<Command> {
        let root = folder.join(format!("{name}.root"));
        std::fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        let mut command = namespace.command(&["unshare", "--mount", "sh", "-c", SCRIPT, "sh"]);
        command.arg(&self.0).arg(root).arg(folder).arg(program);
        Ok(command)
    }
}
