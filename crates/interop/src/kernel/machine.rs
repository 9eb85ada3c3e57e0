//! A virtual machine with a real Linux kernel. Its console is a pair of pipes; its
//! network card is one end of a socketpair, which needs no interface, no
//! namespace and no root, or a tap interface in a namespace.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use headroom_lab_host::programs::{Located, Origin};

use super::console::Console;
use super::emulator::{Emulator, Qemu, Shape, Uml, Wire};
use super::frames::Frames;
use super::initramfs;
use crate::folder::Folder;
use crate::namespace::Namespace;
use crate::peer::{BUSYBOX, IP, Peers};
use crate::transfer;

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
        let emulator = emulator(peers, emulators)?;
        let machine = Self::start(peers, &*emulator, (helper, None), wire, |command| command)?;
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
        let emulator = emulator(peers, emulators)?;
        Self::start(peers, &*emulator, (helper, None), Wire::Tap(tap), inside)
    }

    /// Boots a machine with Linux 6.12 and a tree of programs in `/tree`, inside a namespace that
    /// has the tap interface `tap`.
    ///
    /// # Errors
    /// Those of [`Machine::boot`].
    pub(crate) fn boot_with_tree(
        peers: &Peers,
        helper: &Path,
        tree: &Path,
        namespace: &Namespace,
        tap: &str,
    ) -> Result<Self> {
        /// Has AES instructions, and room for the tree (`guest/mod.rs` says why no `cmpxchg16b`).
        const SHAPE: Shape = Shape { processor: "Westmere,-cx16", megabytes: 768 };
        let inside = |command: Command| namespace.enclose(&command);
        let emulator = Qemu::with_kernel(peers, "6.12", SHAPE, "")?;
        Self::start(peers, &emulator, (helper, Some(tree)), Wire::Tap(tap), inside)
    }

    fn start(
        peers: &Peers,
        emulator: &dyn Emulator,
        (helper, tree): (&Path, Option<&Path>),
        wire: Wire<'_>,
        place: impl FnOnce(Command) -> Command,
    ) -> Result<Self> {
        let (busybox, ip) = (peers.locate(BUSYBOX)?, peers.locate(IP)?);
        let environment = ip.environment.clone();
        let helper = Located { path: helper.to_owned(), origin: Origin::System, environment };
        let folder = Folder::new()?;
        let (initrd, stderr) = (folder.0.join("initrd"), folder.0.join("stderr"));
        let archive = initramfs::build(&busybox, &ip, emulator.modules(), &helper, tree)?;
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

    /// Transfers `octets` bytes from `ours` in a namespace to `theirs` in the machine by TCP, and
    /// then as many back, and compares hashes.
    ///
    /// # Errors
    /// A transfer fails, or the hashes differ.
    pub(crate) fn transfer(
        &mut self,
        namespace: &Namespace,
        [ours, theirs]: [IpAddr; 2],
        port: u16,
        octets: u64,
    ) -> Result<()> {
        self.receive(namespace, ours, SocketAddr::new(theirs, port), octets)?;
        self.send(namespace, SocketAddr::new(ours, port), theirs, octets)
    }

    fn receive(
        &mut self,
        namespace: &Namespace,
        from: IpAddr,
        to: SocketAddr,
        octets: u64,
    ) -> Result<()> {
        self.run(&format!("/helper --receive-at {to} >/tmp/sum 2>&1 </dev/null &"))?;
        self.run(&format!(
            "n=0; until grep -q ':{:04X} [0-9A-F]*:0000 0A ' /proc/net/tcp /proc/net/tcp6; do \
             n=$((n+1)); [ $n -lt 500 ] || break; usleep 10000; done",
            to.port()
        ))?;
        let sent = namespace.spawn(move || transfer::send(from, to, 1, octets)).join()?;
        let received = self.run("wait $!; cat /tmp/sum").context("receiving in the machine")?;
        if received.trim() != sent.to_string() {
            bail!("the machine received {received:?}, not {sent}");
        }
        Ok(())
    }

    fn send(
        &mut self,
        namespace: &Namespace,
        to: SocketAddr,
        from: IpAddr,
        octets: u64,
    ) -> Result<()> {
        let (ready, listening) = std::sync::mpsc::channel();
        let receiver = namespace.spawn(move || transfer::receive(to, &ready));
        let Ok(to) = listening.recv() else {
            receiver.join()?;
            bail!("the receiver ended early");
        };
        let line = format!("/helper --send-to {to} --source {from} --octets {octets}");
        let sent = self.run(&line)?;
        let received = receiver.join()?;
        if sent.trim() != received.to_string() {
            bail!("received {received}, not {sent:?}");
        }
        Ok(())
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
