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
