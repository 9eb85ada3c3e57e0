//! A tree of unpacked packages of another release, with its own libc: programs in it are started
//! by chroot, in a mount namespace of their own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use headroom_lab_host::package_tree::PackageTree;

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
pub struct Tree(PackageTree);

impl Tree {
    /// Finds the tree.
    ///
    /// # Errors
    /// It is missing; the error says how to fetch it.
    pub fn find(peers: &Peers) -> Result<Self> {
        let tree = PackageTree::of_ike_peers(&peers.cache());
        tree.require()?;
        Ok(Self(tree))
    }

    /// Returns its folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Reads the version of one of its packages, without that of the packaging.
    ///
    /// # Errors
    /// It has no such package.
    pub fn version(&self, package: &str) -> Result<String> {
        Ok(self.0.version(package)?)
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
        command.arg(self.path()).arg(root).arg(folder).arg(program);
        Ok(command)
    }
}
