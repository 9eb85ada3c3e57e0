//! A virtual machine with a real Linux kernel. Its console is a pair of pipes; its
//! network card is one end of a socketpair, which needs no interface, no
//! namespace and no root, or a tap interface in a namespace.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use headroom_lab_host::programs::{Located, Origin};

use super::console::Console;
use super::emulator::{Emulator, Qemu, Uml, Wire};
use super::frames::Frames;
use super::initramfs;
use crate::folder::Folder;
use crate::namespace::Namespace;
use crate::peer::{BUSYBOX, IP, Peers};

/// A booted machine. Dropping it switches it off.
#[derive(Debug)]
pub struct Machine {
    console: Console,
    /// Its emulator and version.
    pub emulator: String,
    /// `uname -r` and `-v` inside.
    pub release: String,
    _folder: Folder,
}

/// The permitted emulators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulators {
    /// qemu, else user-mode-linux.
    Any,
    /// user-mode-linux even where qemu exists.
    UserModeLinux,
}

impl Machine {
    /// Boots a kernel under the first emulator that exists, with its network card
    /// connected to [`Frames`]. `helper` is a program of ours that the machine gets
    /// as `/helper`.
    ///
    /// # Errors
    /// Something is missing, or the machine did not boot; the error holds its last output.
    pub fn boot(peers: &Peers, emulators: Emulators, helper: &Path) -> Result<(Self, Frames)> {
        let (ours, its) = UnixDatagram::pair().context("making the link")?;
        // a second descriptor, as the first one closes itself in children
        let its = nix::unistd::dup(&its).context("making the link")?;
        let wire = Wire::Inherited(its.as_raw_fd());
        let machine = Self::start(peers, emulators, helper, wire, |command| command)?;
        Ok((machine, Frames(ours)))
    }

    /// Boots a machine inside a namespace that has the tap interface `tap`.
    ///
    /// # Errors
    /// Those of [`Machine::boot`].
    pub fn boot_behind_tap(
        peers: &Peers,
        emulators: Emulators,
        helper: &Path,
        namespace: &Namespace,
        tap: &str,
    ) -> Result<Self> {
        let inside = |command: Command| namespace.enclose(&command);
        Self::start(peers, emulators, helper, Wire::Tap(tap), inside)
    }

    fn start(
        peers: &Peers,
        emulators: Emulators,
        helper: &Path,
        wire: Wire<'_>,
        place: impl FnOnce(Command) -> Command,
    ) -> Result<Self> {
        let emulator = emulator(peers, emulators)?;
        let (busybox, ip) = (peers.locate(BUSYBOX)?, peers.locate(IP)?);
        let environment = ip.environment.clone();
        let helper = Located { path: helper.to_owned(), origin: Origin::System, environment };
        let folder = Folder::new()?;
        let (initrd, stderr) = (folder.0.join("initrd"), folder.0.join("stderr"));
        let archive = initramfs::build(&busybox, &ip, emulator.modules(), &helper)?;
        std::fs::write(&initrd, archive).context("writing the initramfs")?;
        let child = place(emulator.command(&initrd, wire, &folder.0))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("starting {}", emulator.version()))?;
        let mut console = Console::new(child)?;
        console.wait_for_boot().with_context(|| {
            let said = std::fs::read_to_string(stderr).unwrap_or_default();
            format!("booting under {}: {said}", emulator.version())
        })?;
        let release = console.run("uname -rv")?.trim().to_owned();
        // user-mode-linux calls its card vec0
        let up = "n=0; [ ! -e /sys/class/net/vec0 ] || /ip link set vec0 name eth0; \
             /ip link set lo up; /ip link set eth0 up; \
             until [ \"$(cat /sys/class/net/eth0/carrier)\" = 1 ]; do \
             n=$((n+1)); [ $n -lt 100 ] || break; usleep 50000; done; [ $n -lt 100 ]";
        console.run(up).context("waiting for the machine's network card")?;
        Ok(Self { console, emulator: emulator.version(), release, _folder: folder })
    }

    /// Runs a line of shell and returns its output.
    ///
    /// # Errors
    /// It fails; the error holds its output.
    pub fn run(&mut self, line: &str) -> Result<String> {
        self.console.run(line)
    }
}

fn emulator(peers: &Peers, wanted: Emulators) -> Result<Box<dyn Emulator>> {
    let no_qemu = match Qemu::find(peers) {
        Ok(qemu) if wanted == Emulators::Any => return Ok(Box::new(qemu)),
        Ok(_) => "qemu is not wanted".to_owned(),
        Err(error) => format!("{error:#}"),
    };
    match Uml::find(peers) {
        Ok(uml) => Ok(Box::new(uml)),
        Err(no_uml) => bail!("no kernel to test against: {no_qemu}; {no_uml:#}"),
    }
}
