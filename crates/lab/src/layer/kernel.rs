//! Tests once which layers the kernel supports.

use std::process::Stdio;
use std::sync::LazyLock;

use headroom_lab_host::command::{Command, Executor};
use headroom_lab_host::programs::{SearchPath, UNSHARE};

/// WireGuard.
pub(super) fn has_wireguard() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| works("ip link add probe type wireguard"));
    *HAS
}

/// ESP with AES-GCM, and interfaces for it.
pub(super) fn has_esp() -> bool {
    const ESP: &str = "ip link add probe type xfrm if_id 1 \
        && ip xfrm state add src ::1 dst ::1 proto esp spi 0x100 mode tunnel if_id 1 \
           aead 'rfc4106(gcm(aes))' 0x0001020304050607080910111213141516171819 128";
    static HAS: LazyLock<bool> = LazyLock::new(|| works(ESP));
    *HAS
}

/// MACsec with keys, and a router that passes its frames on.
pub(crate) fn has_macsec() -> bool {
    const MACSEC: &str = "ip link add lower type veth peer name other \
        && ip link add link lower name probe type macsec cipher gcm-aes-128 \
        && ip macsec add probe tx sa 0 pn 1 on key 00 00010203040506070809101112131415 \
        && tc qdisc add dev lower clsact \
        && tc filter add dev lower ingress protocol 0x88e5 prio 1 u32 match u32 0 0 \
           action mirred egress redirect dev other";
    static HAS: LazyLock<bool> = LazyLock::new(|| works(MACSEC));
    *HAS
}

/// Whether a script succeeds in a network namespace that ends with it.
pub(super) fn works(script: &str) -> bool {
    let user = if nix::unistd::geteuid().is_root() { "" } else { "--user --map-root-user" };
    let mut command = Command::words(UNSHARE, user);
    command.args(["--net", "sh", "-c", script]);
    let process = Executor::real(SearchPath::from_environment()).process(&command);
    process.is_ok_and(|mut process| {
        let silent = process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        silent.status().is_ok_and(|status| status.success())
    })
}
