//! A virtual machine with a real Linux kernel: qemu in software, else
//! user-mode-linux. Its network card is one end of a datagram socketpair and its
//! console a pair of pipes: no interface, no namespace, no root.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use headroom_lab::parts::{Located, Origin};

use super::initramfs::{self, READY, STATUS};
use crate::peer::{self, BUSYBOX, IP, Peers, QEMU, USER_MODE_LINUX};

/// Our and its hardware address on the link between us.
pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Its hardware address.
pub const ITS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Longer than a busy machine takes to boot it (3 s when idle).
const BOOT: Duration = Duration::from_secs(120);
/// Longer than any line of ours takes there.
const LINE: Duration = Duration::from_secs(30);
/// The longest frame that we read.
const FRAME: usize = 4096;

/// A booted machine; switched off when dropped.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    link: UnixDatagram,
    /// What emulates it, with its version.
    pub emulator: String,
    /// `uname -r` and `-v` inside.
    pub release: String,
    folder: Folder,
}

/// Which emulators may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulators {
    /// qemu, else user-mode-linux.
    Any,
    /// The second one even where there is the first.
    UserModeLinux,
}

impl Machine {
    /// Boots a kernel under the first emulator that is there. `helper` is a
    /// program of ours that the machine gets as `/helper`.
    ///
    /// # Errors
    /// A sentence that names what is missing, or what the machine said last.
    pub fn boot(peers: &Peers, emulators: Emulators, helper: &Path) -> Result<Self> {
        let busybox = peers.locate(BUSYBOX)?;
        let ip = peers.locate(IP)?;
        let helper = Located {
            path: helper.to_owned(),
            origin: Origin::System,
            environment: ip.environment.clone(),
        };
        let qemu = match emulators {
            Emulators::Any => Qemu::find(peers),
            Emulators::UserModeLinux => Err(anyhow!("qemu is not wanted")),
        };
        match qemu {
            Ok(qemu) => Self::start(&qemu, &busybox, &ip, &helper),
            Err(no_qemu) => match Uml::find(peers) {
                Ok(uml) => Self::start(&uml, &busybox, &ip, &helper),
                Err(no_uml) => bail!("no kernel to test against: {no_qemu:#}; {no_uml:#}"),
            },
        }
    }

    fn start(
        emulator: &dyn Emulator,
        busybox: &Located,
        ip: &Located,
        helper: &Located,
    ) -> Result<Self> {
        let folder = Folder::new()?;
        let initrd = folder.0.join("initrd");
        let archive = initramfs::build(busybox, ip, emulator.modules(), helper)?;
        std::fs::write(&initrd, archive).context("writing the initramfs")?;
        let (link, its) = UnixDatagram::pair().context("making the link")?;
        // a second descriptor, as the first one closes itself in children
        let its: OwnedFd = nix::unistd::dup(&its).context("making the link")?;
        let mut child = emulator
            .command(&initrd, its.as_raw_fd(), &folder.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(File::create(folder.0.join("stderr"))?))
            .spawn()
            .with_context(|| format!("starting {}", emulator.version()))?;
        drop(its);
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the emulator has no console");
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        let mut machine = Self {
            child,
            input,
            output: lines,
            link,
            emulator: emulator.version(),
            release: String::new(),
            folder,
        };
        machine.until(BOOT, |line| line.ends_with(READY)).with_context(|| {
            let path = machine.folder.0.join("stderr");
            format!(
                "booting under {}: {}",
                machine.emulator,
                std::fs::read_to_string(path).unwrap_or_default()
            )
        })?;
        machine.release = machine.run("uname -rv")?.trim().to_owned();
        // user-mode-linux calls its card vec0
        let up = "n=0; [ ! -e /sys/class/net/vec0 ] || /ip link set vec0 name eth0; \
             /ip link set lo up; /ip link set eth0 up; \
             until [ \"$(cat /sys/class/net/eth0/carrier)\" = 1 ]; do \
             n=$((n+1)); [ $n -lt 100 ] || break; usleep 50000; done; [ $n -lt 100 ]";
        machine.run(up).context("waiting for the machine's network card")?;
        Ok(machine)
    }

    /// Evaluates a line of shell and gives what it printed.
    ///
    /// # Errors
    /// Where it fails, with what it printed.
    pub fn run(&mut self, line: &str) -> Result<String> {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.input.flush())
            .context("writing to the machine's console")?;
        let said = self.until(LINE, |line| line.starts_with(STATUS))?;
        let (output, status) = said.split_at(said.len() - 1);
        let output = output.join("\n");
        if status[0] == format!("{STATUS}0") {
            return Ok(output);
        }
        Err(anyhow!("the machine's kernel refused `{line}`: {output}"))
    }

    /// Lines of the console up to one that ends the wait, which is the last.
    fn until(&mut self, limit: Duration, ends: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(line) => {
                    let last = ends(&line);
                    lines.push(line);
                    if last {
                        return Ok(lines);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "nothing came for {} s; the console said: {}",
                        limit.as_secs(),
                        lines.join("\n")
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the machine went off; the console said: {}", lines.join("\n"))
                }
            }
        }
    }

    /// Sends an IP packet to the machine.
    ///
    /// # Errors
    /// Where the link is gone.
    pub fn send(&self, packet: &[u8]) -> Result<()> {
        let ethertype = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        let frame = [&ITS_MAC[..], &OUR_MAC, &ethertype, packet].concat();
        self.link.send(&frame).context("sending a frame to the machine")?;
        Ok(())
    }

    /// The next IP packet that the machine sends to us, or `None` when none
    /// comes within `limit`. The padding of short frames is still there.
    ///
    /// # Errors
    /// Where the link is gone.
    pub fn receive(&self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + limit;
        let mut frame = vec![0; FRAME];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.link.set_read_timeout(Some(left)).context("waiting for a frame")?;
            let length = match self.link.recv(&mut frame) {
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error).context("reading a frame of the machine"),
            };
            let is_ip = matches!(frame[12..14], [0x08, 0x00] | [0x86, 0xdd]);
            if length > 14 && frame[..6] == OUR_MAC && is_ip {
                return Ok(Some(frame[14..length].to_vec()));
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a kernel runs in.
trait Emulator {
    /// How it is started; `link` is the inherited descriptor of the link.
    fn command(&self, initrd: &Path, link: i32, folder: &Path) -> Command;
    fn modules(&self) -> &Path;
    fn version(&self) -> String;
}

struct Qemu {
    program: Located,
    /// The tree it was unpacked into, if it was.
    root: Option<PathBuf>,
    kernel: PathBuf,
    modules: PathBuf,
    version: String,
}

impl Qemu {
    fn find(peers: &Peers) -> Result<Self> {
        let program = peers.locate(QEMU)?;
        let root = peers.root();
        let kernel = newest(&root.join("boot"), "vmlinuz-")
            .context("no unpacked Linux kernel: run scripts/fetch-parts --with-peers")?;
        let release = kernel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let release = release.trim_start_matches("vmlinuz-");
        let modules = ["lib/modules", "usr/lib/modules"]
            .map(|folder| root.join(folder).join(release))
            .into_iter()
            .find(|folder| folder.is_dir())
            .context("the unpacked Linux kernel has no modules")?;
        let root = (program.origin == Origin::Cache).then(|| root.to_owned());
        let version = peers.version(QEMU);
        Ok(Self { program, root, kernel, modules, version })
    }
}

impl Emulator for Qemu {
    fn command(&self, initrd: &Path, link: i32, _: &Path) -> Command {
        let mut command = peer::command(&self.program);
        if let Some(root) = &self.root {
            for firmware in ["usr/share/qemu", "usr/share/seabios"] {
                command.arg("-L").arg(root.join(firmware));
            }
            let modules = root.join("usr/lib/x86_64-linux-gnu/qemu");
            if modules.is_dir() {
                command.env("QEMU_MODULE_DIR", modules);
            }
        }
        let mac = ITS_MAC.map(|octet| format!("{octet:02x}")).join(":");
        command
            .args(["-accel", "tcg,thread=single", "-M", "pc", "-cpu", "qemu64", "-m", "256"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initrd)
            .args([
                "-append",
                "console=ttyS0 quiet loglevel=1 panic=-1 tsc=reliable \
                mitigations=off nokaslr random.trust_cpu=on net.ifnames=0",
            ])
            .args(["-serial", "stdio"])
            .arg("-netdev")
            .arg(format!("dgram,id=link,local.type=fd,local.str={link}"))
            .arg("-device")
            .arg(format!("virtio-net-pci,netdev=link,mac={mac},romfile="));
        command
    }

    fn modules(&self) -> &Path {
        &self.modules
    }

    fn version(&self) -> String {
        self.version.clone()
    }
}

struct Uml {
    program: Located,
    modules: PathBuf,
}

impl Uml {
    fn find(peers: &Peers) -> Result<Self> {
        let program = peers.locate(USER_MODE_LINUX)?;
        let root = match program.origin {
            Origin::System => Path::new("/"),
            Origin::Cache => peers.root(),
        };
        let modules = newest(&root.join("usr/lib/uml/modules"), "")
            .context("user-mode-linux has no modules")?;
        Ok(Self { program, modules })
    }
}

impl Emulator for Uml {
    fn command(&self, initrd: &Path, link: i32, folder: &Path) -> Command {
        // Below 256 MB, or with addresses randomised, it loses algorithms; without
        // a PID namespace of its own its helpers outlive it.
        let mac = ITS_MAC.map(|octet| format!("{octet:02x}")).join(":");
        let mut command = Command::new("setarch");
        command
            .envs(&self.program.environment)
            .args(["-R", "unshare", "--pid", "--fork", "--kill-child"])
            .arg(&self.program.path)
            .args(["mem=256M", "con=null", "con0=fd:0,fd:1", "console=tty0", "quiet", "loglevel=1"])
            .arg(format!("initrd={}", initrd.display()))
            .arg(format!("uml_dir={}/", folder.display()))
            .arg(format!("vec0:transport=fd,fd={link},mac={mac}"));
        command
    }

    fn modules(&self) -> &Path {
        &self.modules
    }

    fn version(&self) -> String {
        "user-mode-linux".to_owned()
    }
}

/// The last of a folder's entries that begin with `prefix`, by the numbers in
/// their names.
fn newest(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let numbers = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let words = name.split(|c: char| !c.is_ascii_digit());
        words.filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
    };
    std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .max_by_key(numbers)
}

/// A scratch folder; removed when dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("headroom-interop-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
