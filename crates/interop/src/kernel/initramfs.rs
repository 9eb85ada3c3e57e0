//! The virtual machine's first and only file system: a shell, `ip`, the modules
//! of IPsec, and an agent that evaluates the lines it reads on the console.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use headroom_lab::parts::Located;

use crate::peer;

/// Wanted of the kernel's modules, those they depend on aside. One that a kernel
/// has built in has no file, which is no error.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "af_packet",
    "ipv6",
    "xfrm_user",
    "esp4",
    "esp6",
    "ah4",
    "ah6",
    "tunnel4",
    "tunnel6",
    "xfrm4_tunnel",
    "xfrm6_tunnel",
    "ip6_tunnel",
    "authenc",
    "authencesn",
    "echainiv",
    "seqiv",
    "gcm",
    "ghash-generic",
    "ctr",
    "cbc",
    "ccm",
    "chacha20poly1305",
    "chacha_generic",
    "poly1305_generic",
    "des_generic",
    "crypto_null",
    "hmac",
    "md5",
    "sha1_generic",
    "sha256_generic",
    "sha512_generic",
    "cmac",
    "drbg",
    "ansi_cprng",
];

/// What the agent says when it is ready, and before each return code.
pub(super) const READY: &str = "@@ready";
pub(super) const STATUS: &str = "@@status ";

/// `/init`. Without a line for two minutes it switches the machine off: whoever
/// started it is gone.
const INIT: &str = r#"#!/busybox sh
/busybox mkdir -p /proc /sys /dev /tmp
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sys /sys
/busybox mount -t devtmpfs dev /dev 2>/dev/null
for module in $(/busybox cat /modules); do /busybox insmod /m/$module.ko 2>/dev/null; done
export PATH=/bin LD_LIBRARY_PATH=/lib
/busybox --install -s /bin
rm -f /bin/ip
stty raw -echo
echo @@ready
while IFS= read -r -t 120 line; do
  eval "$line" 2>&1
  echo "@@status $?"
done
/busybox poweroff -f
"#;

/// Writes the archive.
///
/// `modules` is the folder of one kernel's modules; `helper` is a program of
/// ours, which stands at `/helper` in the machine.
///
/// # Errors
/// Where a file cannot be read.
pub(super) fn build(
    busybox: &Located,
    ip: &Located,
    modules: &Path,
    helper: &Located,
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["dev", "bin", "lib", "lib64", "m"] {
        archive.folder(folder);
    }
    archive.console();
    archive.file("init", 0o755, INIT.as_bytes());
    archive.copy("busybox", &busybox.path)?;
    let mut libraries = BTreeSet::new();
    for (name, program) in [("ip", ip), ("helper", helper)] {
        archive.copy(name, &program.path)?;
        libraries.extend(peer::libraries(program)?);
    }
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // the loader's path is written in each program
        let folder = if name.starts_with("ld-") { "lib64" } else { "lib" };
        archive.copy(&format!("{folder}/{name}"), &library)?;
    }
    let mut list = String::new();
    for (name, path) in closure(modules)? {
        archive.copy(&format!("m/{name}.ko"), &path)?;
        list += &format!("{name}\n");
    }
    archive.file("modules", 0o644, list.as_bytes());
    Ok(archive.finish())
}

/// [`MODULES`] and what they depend on, in an order that loads: each module says
/// in its `.modinfo` what it needs, so no `depmod` is.
fn closure(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    find(folder, &mut files)
        .with_context(|| format!("reading the kernel's modules in {}", folder.display()))?;
    let mut ordered = Vec::new();
    for module in MODULES {
        add(module, &files, &mut ordered)?;
    }
    Ok(ordered)
}

fn add(name: &str, files: &[PathBuf], ordered: &mut Vec<(String, PathBuf)>) -> Result<()> {
    // file names have dashes where module names have underscores, or not
    let plain = |name: &str| name.replace('-', "_");
    let known = |(other, _): &(String, PathBuf)| plain(other) == plain(name);
    if ordered.iter().any(known) {
        return Ok(());
    }
    let named = |path: &&PathBuf| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        plain(&stem) == plain(name)
    };
    let Some(path) = files.iter().find(named) else { return Ok(()) };
    let content = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    for needed in dependencies(&content) {
        add(&needed, files, ordered)?;
    }
    ordered.push((plain(name), path.clone()));
    Ok(())
}

/// The value of `depends=` among a module's NUL-terminated `.modinfo` strings.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..].split(|&octet| octet == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if entry.path().extension().is_some_and(|extension| extension == "ko") {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// A cpio archive in the "new ASCII" format that the kernel unpacks
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    inodes: usize,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    fn console(&mut self) {
        self.entry("dev/console", 0o020_600, (5, 1), &[]);
    }

    fn file(&mut self, name: &str, mode: usize, content: &[u8]) {
        self.entry(name, 0o100_000 | mode, (0, 0), content);
    }

    fn copy(&mut self, name: &str, path: &Path) -> Result<()> {
        let content = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        self.file(name, 0o755, &content);
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: usize, device: (usize, usize), content: &[u8]) {
        self.inodes += 1;
        let fields = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            device.0,
            device.1,
            name.len() + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=xfrm_algo,libdes\0name=x\0";
        assert_eq!(dependencies(module), ["xfrm_algo", "libdes"]);
        assert_eq!(dependencies(b"\0depends=\0name=y\0"), [""; 0]);
    }

    #[test]
    fn an_archive_has_aligned_entries_and_an_end() {
        let mut archive = Archive::default();
        archive.file("a", 0o644, b"hello");
        let bytes = archive.finish();
        assert!(bytes.starts_with(b"07070100000001000081a4"));
        assert_eq!(&bytes[112..117], b"hello");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
