//! Locates the peers, and decides whether a missing one is a failure.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use headroom_lab_host::programs::{Located, Program, SearchPath};

/// The full-system emulator.
pub const QEMU: Program = Program::new("qemu-system-x86_64", "qemu-system-x86", &["--version"]);
/// A Linux kernel as a process.
pub const USER_MODE_LINUX: Program = Program::new("linux.uml", "user-mode-linux", &["--version"]);
/// The shell and tools of the virtual machine.
pub const BUSYBOX: Program = Program::new("busybox", "busybox-static", &["--help"]);
/// Configures the virtual machine's IPsec.
pub const IP: Program = Program::new("ip", "iproute2", &["-V"]);

/// Programs and files of the peers, on the system or in the private cache.
#[derive(Debug, Clone)]
pub struct Peers {
    parts: SearchPath,
}

impl Peers {
    /// Searches where [`SearchPath::from_environment`] does.
    pub fn from_environment() -> Self {
        Self { parts: SearchPath::from_environment() }
    }

    /// Locates a program.
    ///
    /// # Errors
    /// It is missing; the error says how to install it.
    pub fn locate(&self, program: Program) -> Result<Located> {
        self.parts.locate(program).with_context(|| "see scripts/fetch-parts --with-peers")
    }

    /// Asks a program for its version.
    pub fn version(&self, program: Program) -> String {
        self.parts.version(program).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Returns the private cache's tree of unpacked packages, which may be missing.
    pub fn root(&self) -> &Path {
        self.parts.cache()
    }

    /// Returns the private cache.
    pub fn cache(&self) -> PathBuf {
        self.root().parent().map_or_else(|| self.root().to_owned(), Path::to_owned)
    }
}

/// Makes a command that runs a located program with the variables it needs.
pub fn command(program: &Located) -> Command {
    let mut command = Command::new(&program.path);
    command.envs(&program.environment);
    command
}

/// Asks the loader for a dynamic program's libraries and the loader itself.
///
/// # Errors
/// The loader fails, or a library is missing.
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

/// Tells whether a missing kernel is a failure: only x86-64 has one to boot.
pub fn kernel_required() -> bool {
    required() && cfg!(target_arch = "x86_64")
}

/// Tells whether a missing peer fails a test: `KERNEL_PEER=required`, or where
/// all tests are required.
pub fn required() -> bool {
    let is = |name: &str| std::env::var_os(name).as_deref() == Some(OsStr::new("required"));
    is("KERNEL_PEER") || is("HEADROOM_TESTS") || std::env::var_os("CI").is_some()
}
