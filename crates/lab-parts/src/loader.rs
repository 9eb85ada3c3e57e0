//! Which programs that the tree does not bring can start in it: those that its loader can load.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tree::Tree;

impl Tree {
    /// Whether a program that is not of the tree can start there, with libraries of these folders
    /// and of the tree, none of this machine.
    pub fn can_start(&self, program: &Path, folders: &[PathBuf]) -> bool {
        if !verify(self, program) {
            return true; // linked statically, or a script
        }
        let own = libraries(self);
        let searched: Vec<&OsStr> =
            folders.iter().chain([&own]).map(|folder| folder.as_os_str()).collect();
        let list = loader(self)
            .arg("--library-path")
            .arg(searched.join(":".as_ref()))
            .args(["--list".as_ref(), program.as_os_str()])
            .stderr(Stdio::null())
            .output();
        let is_known = |line: &str| match line.split_once(" => ") {
            // the loader also looks where this machine's libraries are
            Some((_, found)) => {
                Path::new(found).starts_with(self.path())
                    || folders.iter().any(|folder| Path::new(found).starts_with(folder))
            }
            None => true, // the kernel's
        };
        list.is_ok_and(|list| {
            list.status.success() && String::from_utf8_lossy(&list.stdout).lines().all(is_known)
        })
    }
}

/// Whether this program, which runs here, starts with the tree's libraries: built with a newer C
/// library, or another one, it does not.
pub(crate) fn starts(tree: &Tree, program: &Path) -> bool {
    // what the loader does not load itself needs no libraries
    !verify(tree, program)
        || succeeds(
            loader(tree)
                .arg("--library-path")
                .arg(libraries(tree))
                .args([program.as_os_str(), "--version".as_ref()]),
        )
}

fn verify(tree: &Tree, program: &Path) -> bool {
    succeeds(loader(tree).args(["--verify".as_ref(), program.as_os_str()]))
}

fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn loader(tree: &Tree) -> Command {
    let mut loader = Command::new(tree.path().join("usr/lib64/ld-linux-x86-64.so.2"));
    loader.stdin(Stdio::null()).env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    loader
}

fn libraries(tree: &Tree) -> PathBuf {
    tree.path().join("usr/lib/x86_64-linux-gnu")
}
