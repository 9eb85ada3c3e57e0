//! Builds the guest's file system: the program, the programs that its lab, transfer and
//! tunnel start, their libraries, and the kernel's network modules.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use headroom_lab_host::programs::{Located, Origin, Program};

use crate::kernel::archive::Archive;
use crate::kernel::modules::{self, Module};
use crate::peer::{self, BUSYBOX, Peers};

/// Kernel modules that the program may need and that some distributions do not build in. All
/// are loaded, as the guest has nothing that loads them on demand.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "af_packet",
    "veth",
    "tun",
    "dummy",
    "ifb",
    "sch_htb",
    "sch_netem",
    "sch_fq",
    "sch_prio",
    "sch_ingress",
    "cls_u32",
    "nf_tables",
    "nft_objref",
    "nft_ct",
    "nft_limit",
    "nft_log",
    "nft_reject_inet",
    "nft_fib_inet",
    "nft_xfrm",
    "nft_socket",
    "esp4",
    "act_mirred",
    "ctr",
    "ghash_generic",
    "gcm",
    "macsec",
    "tls",
];

/// Programs beside busybox's, each with the package that has it.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("ethtool", "ethtool"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("sysctl", "procps"),
    ("openssl", "openssl"),
    ("nft", "nftables"),
    ("pure-ftpd", "pure-ftpd"),
    ("pure-pw", "pure-ftpd"),
    ("nginx", "nginx-light"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("sftp", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    // busybox's would take its own applets for `ip` and others
    ("sh", "dash"),
];

/// `/init`. After ten minutes without a line it switches the machine off: its parent has
/// gone. The output of a line goes through a pipe, so that no program takes the console for a
/// terminal. Dynamically linked programs precede busybox's of the same name.
const INIT: &str = r#"#!/busybox sh
/busybox mkdir -p /proc /sys /dev /tmp /run /root /bin /var/log /var/empty
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sys /sys
/busybox mount -t devtmpfs dev /dev 2>/dev/null
/busybox mkdir -p /dev/pts /dev/shm
/busybox mount -t devpts devpts /dev/pts
/busybox mount -t tmpfs -o mode=1777 tmp /tmp
/busybox mount -t tmpfs -o mode=755 run /run
for module in $(/busybox cat /modules); do /busybox insmod /m/$module.ko 2>/dev/null; done
/busybox --install -s /bin
/busybox ln -sf /usr/sbin/sh /bin/sh
export PATH=/usr/sbin:/usr/bin:/bin HOME=/root LANG=C OPENSSL_CONF=/etc/ssl/openssl.cnf
/usr/sbin/ip link set lo up
stty raw -echo
echo @@ready
while IFS= read -r -t 600 line; do
  /bin/sh -c "$line" 2>&1 </dev/null
  echo "@@status $?"
done | cat
/busybox poweroff -f
"#;

const ACCOUNTS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";

/// Writes the archive: `modules` is the folder of one kernel's modules, `files` are
/// put into the folder `/files`.
///
/// # Errors
/// A program is missing, or a file cannot be read.
pub(super) fn build(
    peers: &Peers,
    modules: &Path,
    headroom: &Path,
    files: &[(&str, &[u8])],
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["dev", "lib", "m", "etc", "etc/ssl", "usr", "usr/bin", "usr/sbin", "files"] {
        archive.folder(folder);
    }
    // wherever a loader looks, on whichever distribution it was built
    for (name, target) in [
        ("lib64", "lib"),
        ("usr/lib", "../lib"),
        ("usr/lib64", "../lib"),
        ("lib/x86_64-linux-gnu", "."),
    ] {
        archive.link(name, target);
    }
    archive.console();
    archive.file("init", 0o755, INIT.as_bytes());
    archive.file("etc/passwd", 0o644, ACCOUNTS.as_bytes());
    archive.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
    archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n");
    archive.file("etc/ssl/openssl.cnf", 0o644, b"[req]\ndistinguished_name = name\n[name]\n");
    let busybox = peers.locate(BUSYBOX)?;
    archive.copy("busybox", &busybox.path)?;
    let mut libraries = BTreeSet::new();
    let own = Located {
        path: headroom.to_owned(),
        origin: Origin::System,
        environment: Default::default(),
    };
    archive.copy("usr/bin/headroom", headroom)?;
    libraries.extend(peer::libraries(&own)?);
    for &(name, package) in PROGRAMS {
        let program = peers.locate(Program::new(name, package, &[]))?;
        archive.copy(&format!("usr/sbin/{name}"), &program.path)?;
        libraries.extend(peer::libraries(&program)?);
    }
    // where sshd of OpenSSH 9.8 and later starts its own parts from
    archive.folder("lib/openssh");
    let sshd = peers.locate(Program::new("sshd", "openssh-server", &[]))?;
    for name in ["sshd-session", "sshd-auth"] {
        let beside = sshd.path.with_file_name("../lib/openssh").join(name);
        if beside.is_file() {
            archive.copy(&format!("lib/openssh/{name}"), &beside)?;
        }
    }
    let mut names = BTreeSet::new();
    for library in libraries {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if names.insert(name.clone()) {
            archive.copy(&format!("lib/{name}"), &library)?;
        }
    }
    for (name, content) in files {
        archive.file(&format!("files/{name}"), 0o644, content);
    }
    let mut list = String::new();
    for Module { name, content } in modules::closure(modules, MODULES, &busybox.path)? {
        archive.file(&format!("m/{name}.ko"), 0o644, &content);
        list += &format!("{name}\n");
    }
    archive.file("modules", 0o644, list.as_bytes());
    Ok(archive.finish())
}
