//! Where the peers are, and what happens when one is missing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use headroom_lab::parts::{Located, Parts, Program};

/// The full-system emulator.
pub const QEMU: Program =
    Program { name: "qemu-system-x86_64", package: "qemu-system-x86", version: &["--version"] };
/// A Linux kernel that is a process.
pub const USER_MODE_LINUX: Program =
    Program { name: "linux.uml", package: "user-mode-linux", version: &["--version"] };
/// The shell and tools of the virtual machine.
pub const BUSYBOX: Program =
    Program { name: "busybox", package: "busybox-static", version: &["--help"] };
/// What configures the virtual machine's IPsec.
pub const IP: Program = Program { name: "ip", package: "iproute2", version: &["-V"] };

/// Programs and files of the peers, on the system or in the private cache.
#[derive(Debug, Clone)]
pub struct Peers {
    parts: Parts,
}

impl Peers {
    /// Looks where [`Parts::from_environment`] looks.
    pub fn from_environment() -> Self {
        Self { parts: Parts::from_environment() }
    }

    /// A program.
    ///
    /// # Errors
    /// A sentence that says how to get it.
    pub fn locate(&self, program: Program) -> Result<Located> {
        self.parts.locate(program).with_context(|| "see scripts/fetch-parts --with-peers")
    }

    /// What a program says of its version.
    pub fn version(&self, program: Program) -> String {
        self.parts.version(program).unwrap_or_else(|| "unknown".to_owned())
    }

    /// The private cache's tree of unpacked packages; it may be missing.
    pub fn root(&self) -> &Path {
        self.parts.cache()
    }

    /// The cache itself.
    pub fn cache(&self) -> PathBuf {
        self.root().parent().map_or_else(|| self.root().to_owned(), Path::to_owned)
    }
}

/// A command that runs a located program with the variables that it needs.
pub fn command(program: &Located) -> Command {
    let mut command = Command::new(&program.path);
    command.envs(&program.environment);
    command
}

/// A dynamic program's libraries and its loader, by what the loader itself says.
///
/// # Errors
/// Where it cannot be asked, or lacks one.
pub fn libraries(program: &Located) -> Result<Vec<PathBuf>> {
    let output = command(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .with_context(|| format!("asking for the libraries of {}", program.path.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.contains("not found") {
        bail!("{} lacks a library: {said}", program.path.display());
    }
    let paths = said.lines().filter_map(|line| {
        let word = line.split("=>").last()?.split_whitespace().next()?;
        word.starts_with('/').then(|| PathBuf::from(word))
    });
    Ok(paths.collect())
}

/// Whether a missing kernel is one: there is none to boot elsewhere.
pub fn kernel_required() -> bool {
    required() && cfg!(target_arch = "x86_64")
}

/// Whether a missing peer is a failure of a test: `KERNEL_PEER=required`, or where
/// all tests are required.
pub fn required() -> bool {
    let is = |name: &str| std::env::var_os(name).as_deref() == Some(OsStr::new("required"));
    is("KERNEL_PEER") || is("HEADROOM_TESTS") || std::env::var_os("CI").is_some()
}
