//! Opens directories below another one so that no name and no symbolic link leads out of it,
//! whatever other programs do to the tree meanwhile.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

/// For resolving names in a directory, without permission to list it.
const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// A directory that nothing opened through it can leave.
#[derive(Debug, Clone)]
pub(super) struct Beneath {
    top: Arc<OwnedFd>,
    resolution: Resolution,
}

/// How a path is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolution {
    /// By the kernel, in one call (`openat2`, Linux 5.6).
    Kernel,
    /// By this program, one component after the other.
    Components,
    /// As by any program, following links. Only for sending trees whose owner asks for that.
    Follow,
}

impl Beneath {
    /// Opens a directory, which may itself be reached by links.
    pub(super) fn new(top: &Path) -> nix::Result<Self> {
        let top = Arc::new(openat(nix::fcntl::AT_FDCWD, top, DIRECTORY, Mode::empty())?);
        // refused by old kernels, and by sandboxes that do not know it
        let resolution = match by_kernel(&top, b".") {
            Ok(_) => Resolution::Kernel,
            Err(_) => Resolution::Components,
        };
        Ok(Self { top, resolution })
    }

    /// Follows links in the tree.
    pub(super) fn following(self) -> Self {
        Self { resolution: Resolution::Follow, ..self }
    }

    /// Whether links are followed.
    pub(super) fn follows(&self) -> bool {
        self.resolution == Resolution::Follow
    }

    /// The same directory, walked as on a kernel without `openat2`.
    #[cfg(test)]
    pub(super) fn by_components(self) -> Self {
        Self { resolution: Resolution::Components, ..self }
    }

    /// Opens a directory below this one as a root of its own.
    pub(super) fn below(&self, path: &[u8]) -> nix::Result<Self> {
        Ok(Self { top: self.directory(Some(path))?, resolution: self.resolution })
    }

    /// Opens a directory to resolve names in. `path` is relative and has no component `..`, which
    /// its type guarantees (`RelPath`); `None` is the top.
    pub(super) fn directory(&self, path: Option<&[u8]>) -> nix::Result<Arc<OwnedFd>> {
        let Some(path) = path else { return Ok(Arc::clone(&self.top)) };
        match self.resolution {
            Resolution::Kernel => by_kernel(&self.top, path).map(Arc::new),
            Resolution::Components => by_components(&self.top, path),
            Resolution::Follow => openat(&self.top, path, DIRECTORY, Mode::empty()).map(Arc::new),
        }
    }
}

/// A directory below another one, and its descriptor as long as a walk has it open. This keeps none
/// open itself, however many files are known of it.
#[derive(Debug, Clone)]
pub(super) struct Parent {
    beneath: Beneath,
    path: Option<Box<[u8]>>,
    walked: Weak<OwnedFd>,
}

impl Parent {
    /// Names a directory; `None` is the top. `walked` is its descriptor, if a walk has it open.
    pub(super) fn new(beneath: Beneath, path: Option<&[u8]>, walked: Weak<OwnedFd>) -> Self {
        Self { beneath, path: path.map(Box::from), walked }
    }

    /// Returns the descriptor of the walk, or opens the directory by its path.
    pub(super) fn open(&self) -> nix::Result<Arc<OwnedFd>> {
        self.walked.upgrade().map_or_else(|| self.open_by_path(), Ok)
    }

    /// Opens the directory that has the path now.
    pub(super) fn open_by_path(&self) -> nix::Result<Arc<OwnedFd>> {
        self.beneath.directory(self.path.as_deref())
    }

    /// Whether links are followed.
    pub(super) fn follows(&self) -> bool {
        self.beneath.follows()
    }
}

fn by_kernel(top: &OwnedFd, path: &[u8]) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(DIRECTORY).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    loop {
        match openat2(top, path, how) {
            // something on the path was renamed just now
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            outcome => return outcome,
        }
    }
}

fn by_components(top: &Arc<OwnedFd>, path: &[u8]) -> nix::Result<Arc<OwnedFd>> {
    path.split(|byte| *byte == b'/').try_fold(Arc::clone(top), |directory, component| {
        // with O_PATH a link itself would be opened, but O_DIRECTORY refuses it
        openat(&directory, component, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty()).map(Arc::new)
    })
}
