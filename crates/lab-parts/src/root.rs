//! Makes the tree the root file system of this process: its programs, libraries and settings in the
//! place of this machine's, everything else as it is. So servers find their own files at the paths
//! that they were built with (sshd starts others by absolute paths), and with their own libc.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::error::{Error, Result};
use crate::loader;
use crate::tree::{ROOT, Tree};

/// The folder of the new root that names the tree, and has this program: its own path may be in
/// a folder that the tree replaces.
const MARK: &str = ".headroom";
/// The links that the tree brings: a system's whose `/bin` and `/lib` are in `/usr`.
const LINKS: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Folders of this machine that are not there any more.
const REPLACED: [&str; 9] = ["usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32", MARK];
/// Files of this machine that stay: its users, its name and the names that it resolves.
const FILES_OF_THE_MACHINE: [&str; 10] = [
    "passwd",
    "group",
    "shadow",
    "hosts",
    "hostname",
    "resolv.conf",
    "nsswitch.conf",
    "localtime",
    "machine-id",
    "os-release",
];
/// Some minimal systems have no accounts, and ssh-keygen does not start without one.
const ACCOUNTS_OF_ROOT: [(&str, &str); 2] =
    [("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n")];
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns what the programs of this process are called in results, where it has entered a tree.
pub fn entered() -> Option<String> {
    fs::read_to_string(Path::new("/").join(MARK).join("programs")).ok()
}

/// Begins this program again, with the same arguments, where the tree's programs are the system's.
/// The calling thread must be root, of the machine or of a user namespace.
///
/// # Errors
/// [`Error::Enter`]: it is not possible here, and this process can go on without; its mounts end
/// with it. [`Error::Begin`]: it cannot go on.
pub fn enter(tree: &Tree) -> Result<Infallible> {
    let doing = |doing: &str| {
        let doing = doing.to_owned();
        move |cause: io::Error| Error::Enter { doing, cause }
    };
    let program = std::env::current_exe().map_err(doing("find this program's own file"))?;
    let folder = std::env::current_dir().map_err(doing("find the current folder"))?;
    if !loader::starts(tree, &program) {
        let cause = io::Error::other("it was built with a newer C library, or another one");
        return Err(doing("start this program with the tree's libraries")(cause));
    }
    let kept = tree.keep()?;
    fcntl(&*kept, FcntlArg::F_SETFD(FdFlag::empty())).map_err(refused("keep the tree"))?;
    let new = tree.path().join(ROOT);
    make_root(tree, &program, &new)?;
    nix::unistd::chroot(&new).map_err(refused("make it the root"))?;
    // from here on there is no way back
    std::env::set_current_dir(&folder).map_err(|cause| Error::Begin { cause })?;
    let mut again = Command::new(Path::new("/").join(MARK).join("headroom"));
    again.args(std::env::args_os().skip(1)).env("PATH", PATH);
    again.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    Err(Error::Begin { cause: again.exec() })
}

/// Makes the new root in a mount namespace of this thread's own.
fn make_root(tree: &Tree, program: &Path, new: &Path) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(refused("leave the machine's mount namespace"))?;
    let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(refused("mount"))?;
    let (kind, options) = (Some("tmpfs"), Some("mode=755,size=64m"));
    mount(Some("none"), new, kind, MsFlags::empty(), options)
        .map_err(refused(format!("mount a file system at {}", new.display())))?;

    make_folder(&new.join("usr"))?;
    bind(&tree.path().join("usr"), &new.join("usr"))?;
    make_read_only(&new.join("usr"))?;
    for name in LINKS {
        let link = new.join(name);
        symlink(Path::new("usr").join(name), &link).map_err(Error::of("create", &link))?;
    }
    copy(&tree.path().join("etc"), &new.join("etc"))?;
    for name in FILES_OF_THE_MACHINE {
        // what is missing here is missing there, and what may not be read
        let _ = fs::copy(Path::new("/etc").join(name), new.join("etc").join(name));
    }
    for (name, of_root) in ACCOUNTS_OF_ROOT {
        add_missing(&new.join("etc").join(name), of_root)?;
    }
    bring_the_rest_of_the_machine(new)?;
    let own = new.join(MARK);
    make_folder(&own)?;
    let name = own.join("programs");
    fs::write(&name, Tree::name()).map_err(Error::of("write", &name))?;
    let here = own.join("headroom");
    fs::write(&here, "").map_err(Error::of("create", &here))?;
    bind(program, &here)
}

/// Whether what a path names is the same after [`enter`]: a folder of this machine's root that stays
/// has it.
pub fn stays(path: &Path) -> bool {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // of what does not exist yet, the folder in which it will
    let known = full.ancestors().find_map(|path| path.canonicalize().ok());
    let mut parts = known.iter().flat_map(|path| path.components().skip(1));
    parts.next().is_some_and(|top| {
        let top = top.as_os_str();
        !is_replaced(top) && Path::new("/").join(top).is_dir()
    })
}

fn is_replaced(name: &OsStr) -> bool {
    REPLACED.iter().any(|replaced| name == *replaced)
}

/// Binds all folders of the root that the tree does not bring, with what is mounted in them.
fn bring_the_rest_of_the_machine(new: &Path) -> Result<()> {
    let root = Path::new("/");
    for entry in fs::read_dir(root).map_err(Error::of("read", root))? {
        let entry = entry.map_err(Error::of("read", root))?;
        let (from, name) = (entry.path(), entry.file_name());
        if is_replaced(&name) {
            continue;
        }
        let to = new.join(&name);
        let kind = entry.file_type().map_err(Error::of("read", &from))?;
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(Error::of("read", &from))?;
            symlink(target, &to).map_err(Error::of("create", &to))?;
        } else if kind.is_dir() {
            make_folder(&to)?;
            bind(&from, &to)?;
        }
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, None::<&str>, flags, None::<&str>).map_err(refused(format!(
        "mount {} at {}",
        from.display(),
        to.display()
    )))
}

/// Makes a bound folder read-only. In a user namespace the kernel keeps what it was bound with.
fn make_read_only(folder: &Path) -> Result<()> {
    let failed = |error| refused(format!("make {} read-only", folder.display()))(error);
    let kept = statvfs(folder).map_err(failed)?.flags();
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    // `relatime` stays without being named: it is what the kernel adds (mount(2))
    for (flag, of_mount) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
    ] {
        if kept.contains(flag) {
            flags |= of_mount;
        }
    }
    mount(None::<&str>, folder, None::<&str>, flags, None::<&str>).map_err(failed)
}

/// Copies a folder of settings: files, folders and links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    make_folder(to)?;
    for entry in fs::read_dir(from).map_err(Error::of("read", from))? {
        let entry = entry.map_err(Error::of("read", from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(Error::of("read", &from))?;
        if kind.is_dir() {
            copy(&from, &to)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(Error::of("read", &from))?;
            symlink(target, &to).map_err(Error::of("create", &to))?;
        } else {
            fs::copy(&from, &to).map_err(Error::of("copy", &from))?;
        }
    }
    Ok(())
}

/// Adds root's line to a file of accounts that has none.
fn add_missing(file: &Path, of_root: &str) -> Result<()> {
    let text = fs::read_to_string(file).unwrap_or_default();
    if text.lines().any(|line| line.starts_with("root:")) {
        return Ok(());
    }
    let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    fs::write(file, format!("{text}{separator}{of_root}")).map_err(Error::of("write", file))
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::of("create", path))
}

fn refused(doing: impl Into<String>) -> impl FnOnce(nix::Error) -> Error {
    let doing = doing.into();
    move |error| Error::Enter { doing, cause: error.into() }
}
