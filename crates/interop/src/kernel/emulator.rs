//! Selects how to boot a kernel: in qemu, or as a process (user-mode-linux).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use headroom_lab_host::programs::{Located, Origin};

use super::frames::ITS_MAC;
use crate::peer::{self, Peers, QEMU, USER_MODE_LINUX};

/// The other end of the machine's network card.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire<'a> {
    /// A datagram socket that the emulator inherits under this number.
    Inherited(i32),
    /// A tap interface.
    Tap(&'a str),
}

/// An emulator.
pub(crate) trait Emulator {
    /// Its command.
    fn command(&self, initrd: &Path, wire: Wire<'_>, folder: &Path) -> Command;
    /// The folder of its kernel's modules.
    fn modules(&self) -> &Path;
    /// Its description.
    fn version(&self) -> String;
}

pub(crate) struct Qemu {
    program: Located,
    shape: Shape,
    /// The tree of unpacked packages it came from, if any.
    root: Option<PathBuf>,
    kernel: PathBuf,
    modules: PathBuf,
    version: String,
    /// Further arguments of the kernel's command line.
    words: String,
}

/// What qemu emulates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) processor: &'static str,
    pub(crate) megabytes: u32,
}

impl Qemu {
    /// The newest kernel of the system's own release.
    pub(crate) fn find(peers: &Peers) -> Result<Self> {
        let small = Shape { processor: "qemu64,-cx16", megabytes: 256 };
        Self::with(peers, peers.root(), "", small)
    }

    /// A kernel of this version, such as `6.1`, of any release, with `words` on its command line.
    pub(crate) fn with_kernel(
        peers: &Peers,
        version: &str,
        shape: Shape,
        words: &str,
    ) -> Result<Self> {
        let others = std::fs::read_dir(peers.cache().join("kernels"));
        let others = others.into_iter().flatten().flatten().map(|entry| entry.path());
        let beginning = format!("{version}.");
        let has = |root: &PathBuf| newest(&root.join("boot"), &format!("vmlinuz-{beginning}"));
        let root =
            std::iter::once(peers.root().to_owned()).chain(others).find(|root| has(root).is_some());
        let root = root.with_context(|| {
            format!("no unpacked Linux {version}: run scripts/fetch-parts --with-peers")
        })?;
        let words = words.to_owned();
        Ok(Self { words, ..Self::with(peers, &root, &beginning, shape)? })
    }

    /// Finds the newest kernel in the tree `home` whose version starts with a prefix.
    fn with(peers: &Peers, home: &Path, version: &str, shape: Shape) -> Result<Self> {
        let program = peers.locate(QEMU)?;
        let kernel = newest(&home.join("boot"), &format!("vmlinuz-{version}"))
            .context("no unpacked Linux kernel: run scripts/fetch-parts --with-peers")?;
        let release = kernel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let release = release.trim_start_matches("vmlinuz-");
        let modules = ["lib/modules", "usr/lib/modules"]
            .map(|folder| home.join(folder).join(release))
            .into_iter()
            .find(|folder| folder.is_dir())
            .context("the unpacked Linux kernel has no modules")?;
        let root = (program.origin == Origin::Cache).then(|| peers.root().to_owned());
        let version = peers.version(QEMU);
        let words = String::new();
        Ok(Self { words, program, shape, root, kernel, modules, version })
    }
}

impl Emulator for Qemu {
    fn command(&self, initrd: &Path, wire: Wire<'_>, _: &Path) -> Command {
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
            .args(["-accel", "tcg,thread=single", "-M", "pc", "-cpu", self.shape.processor])
            .args(["-m", &self.shape.megabytes.to_string()])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(initrd)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet loglevel=1 panic=-1 tsc=reliable \
                 mitigations=off nokaslr random.trust_cpu=on net.ifnames=0 {}",
                self.words
            ))
            .args(["-serial", "stdio"])
            .arg("-netdev")
            .arg(match wire {
                Wire::Inherited(number) => {
                    format!("dgram,id=link,local.type=fd,local.str={number}")
                }
                Wire::Tap(name) => {
                    format!("tap,id=link,ifname={name},script=no,downscript=no,vnet_hdr=off")
                }
            })
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

pub(crate) struct Uml {
    program: Located,
    modules: PathBuf,
}

impl Uml {
    pub(crate) fn find(peers: &Peers) -> Result<Self> {
        let program = peers.locate(USER_MODE_LINUX)?;
        let root = match program.origin {
            Origin::System | Origin::Pinned => Path::new("/"),
            Origin::Cache => peers.root(),
        };
        let modules = newest(&root.join("usr/lib/uml/modules"), "")
            .context("user-mode-linux has no modules")?;
        Ok(Self { program, modules })
    }
}

impl Emulator for Uml {
    fn command(&self, initrd: &Path, wire: Wire<'_>, folder: &Path) -> Command {
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
            .arg(match wire {
                Wire::Inherited(number) => format!("vec0:transport=fd,fd={number},mac={mac}"),
                Wire::Tap(name) => format!("vec0:transport=tap,ifname={name},mac={mac}"),
            });
        command
    }

    fn modules(&self) -> &Path {
        &self.modules
    }

    fn version(&self) -> String {
        "user-mode-linux".to_owned()
    }
}

/// Returns the last of a folder's entries that start with `prefix`, by the numbers in
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
