//! Wireshark's terminal program.

use std::path::Path;
use std::process::Command;

use super::{Ground, part, parts};

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/qesp.lua");
/// Link types of captures (tcpdump.org/linktypes.html).
pub(crate) const ETHERNET: u32 = 1;
pub(crate) const RAW_IP: u32 = 101;

/// Packets or frames as a pcap file.
pub(crate) fn pcap(link_type: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 262_144, link_type]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    for (at, packet) in packets.iter().enumerate() {
        let len = packet.len() as u32;
        file.extend([at as u32, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(packet);
    }
    file
}

/// tshark with the dissector, reading `capture`.
pub(crate) fn tshark(ground: &Ground, capture: &Path) -> Command {
    let located = part("tshark");
    let root = nix::unistd::geteuid().is_root();
    // it runs no scripts for root
    let mut command = if root {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=65534", "--map-group=65534"]);
        command.arg(located.get_program());
        command
    } else {
        Command::new(located.get_program())
    };
    for (name, value) in located.get_envs() {
        command.env(name, value.expect("set"));
    }
    // the cache's copy looks for its scripts where an installation has them
    let installed = parts().join("root/etc/wireshark/init.lua");
    if installed.exists() {
        let data = ground.path("data");
        std::fs::create_dir_all(&data).expect("a folder");
        std::fs::copy(&installed, data.join("init.lua")).expect("its first script");
        let console = parts().join("root/usr/share/wireshark/console.lua");
        std::fs::copy(console, data.join("console.lua")).expect("its second script");
        command.env("WIRESHARK_DATA_DIR", &data);
    }
    command.env("HOME", ground.scratch()).arg("-r").arg(capture);
    command.args(["-X", &format!("lua_script:{DISSECTOR}")]);
    command
}

pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).expect("text")
}
