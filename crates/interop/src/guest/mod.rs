//! Boots a small system under a kernel of its own, in which the program itself runs: its
//! lab, its transfer, its tunnel, with the programs that they start.

mod image;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::folder::Folder;
use crate::kernel::console::Console;
use crate::kernel::emulator::{Emulator, Qemu, Shape, Wire};
use crate::peer::Peers;

/// Timeout of a line, long enough for a busy machine.
const LINE: Duration = Duration::from_secs(400);

/// A processor with AES instructions, as most have. Without `cmpxchg16b`: the
/// software emulation of qemu 7.2 sometimes leaves parts of an address in the flags, which
/// crashes Linux 6.12.
const SHAPE: Shape = Shape { processor: "Westmere,-cx16", megabytes: 2048 };

/// A booted system. Dropping it switches it off.
#[derive(Debug)]
pub struct Guest {
    console: Console,
    /// `uname -r` inside.
    pub release: String,
    /// The other end of its network card, unused.
    _wire: UnixDatagram,
    _folder: Folder,
}

/// The output and exit code of a line of shell.
#[derive(Debug)]
pub struct Answer {
    /// Standard output and error, interleaved.
    pub text: String,
    /// The exit code.
    pub code: String,
}

impl Guest {
    /// Boots the kernel of this version, such as `6.1`, with the program `headroom`, and files
    /// in the folder `/files`; `words` are for the kernel.
    ///
    /// # Errors
    /// Something is missing, or booting failed; the error holds the console's last output.
    pub fn boot(
        peers: &Peers,
        version: &str,
        headroom: &Path,
        files: &[(&str, &[u8])],
        words: &str,
    ) -> Result<Self> {
        let qemu = Qemu::with_kernel(peers, version, SHAPE, words)?;
        let folder = Folder::new()?;
        let (initrd, stderr) = (folder.0.join("initrd"), folder.0.join("stderr"));
        let image = image::build(peers, qemu.modules(), headroom, files)?;
        std::fs::write(&initrd, image).context("writing the initramfs")?;
        let (ours, its) = UnixDatagram::pair().context("making the link")?;
        // a second descriptor, as the first one closes itself in children
        let its = nix::unistd::dup(&its).context("making the link")?;
        let child = qemu
            .command(&initrd, Wire::Inherited(its.as_raw_fd()), &folder.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("starting {}", qemu.version()))?;
        let mut console = Console::new(child)?;
        console.wait_for_boot().with_context(|| {
            let said = std::fs::read_to_string(&stderr).unwrap_or_default();
            format!("booting Linux {version} under {}: {said}", qemu.version())
        })?;
        let release = console.run("uname -r")?.trim().to_owned();
        Ok(Self { console, release, _wire: ours, _folder: folder })
    }

    /// Runs a line of shell.
    ///
    /// # Errors
    /// The machine stopped, or the line hangs.
    pub fn try_run(&mut self, line: &str) -> Result<Answer> {
        let answer = self.console.run_for(line, LINE);
        let (code, text) = answer.with_context(|| format!("in the guest, `{line}`"))?;
        Ok(Answer { text, code })
    }

    /// Runs a line of shell that must succeed, and returns its output.
    ///
    /// # Errors
    /// Those of [`Guest::try_run`], or the line failed.
    pub fn run(&mut self, line: &str) -> Result<String> {
        let Answer { text, code } = self.try_run(line)?;
        if code != "0" {
            bail!("in the guest with Linux {}, `{line}` ended with {code}:\n{text}", self.release);
        }
        Ok(text)
    }
}
