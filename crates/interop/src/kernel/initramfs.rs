//! The virtual machine's first and only file system: a shell, `ip`, the modules
//! of IPsec, and an agent that evaluates the lines it reads on the console.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use headroom_lab_host::programs::Located;

use super::archive::Archive;
use super::modules::{self, Module};
use crate::peer;

/// Kernel modules to load, besides their dependencies.
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
    "af_key",
];

/// The agent's marks of readiness and of each exit code.
pub(crate) const READY: &str = "@@ready";
pub(crate) const STATUS: &str = "@@status ";

/// `/init`. After two minutes without a line it switches the machine off: its parent
/// has gone.
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
/// ours, installed as `/helper`; `tree` becomes `/tree`, without its documentation.
///
/// # Errors
/// A file cannot be read.
pub(super) fn build(
    busybox: &Located,
    ip: &Located,
    modules: &Path,
    helper: &Located,
    tree: Option<&Path>,
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    if let Some(tree) = tree {
        archive.folder("tree");
        add_tree(&mut archive, tree, "tree")?;
    }
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
    for Module { name, content } in modules::closure(modules, MODULES, &busybox.path)? {
        archive.file(&format!("m/{name}.ko"), 0o644, &content);
        list += &format!("{name}\n");
    }
    archive.file("modules", 0o644, list.as_bytes());
    Ok(archive.finish())
}

/// Adds what a folder has.
fn add_tree(archive: &mut Archive, folder: &Path, inside: &str) -> Result<()> {
    let reading = || format!("reading {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let (path, kind) = (entry.path(), entry.file_type().with_context(reading)?);
        let name = format!("{inside}/{}", entry.file_name().to_string_lossy());
        if name.ends_with("usr/share") {
            continue;
        }
        if kind.is_dir() {
            archive.folder(&name);
            add_tree(archive, &path, &name)?;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&path).with_context(reading)?;
            archive.link(&name, &target.to_string_lossy());
        } else {
            archive.copy(&name, &path)?;
        }
    }
    Ok(())
}
