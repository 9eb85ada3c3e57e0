//! Has the router pass MACsec frames on between its interfaces as a switch does, so that the two
//! hosts are ends of one Ethernet link to each other, as by a provider's Ethernet line. All other
//! frames it still routes. The frames pass the queueing discipline of the link like packets.

use super::netns::{Names, ROUTER_TO_CLIENT, ROUTER_TO_SERVER};
use crate::command::Command;
use crate::programs::TC;

/// The EtherType of MACsec (IEEE 802.1AE-2018, table 9-1).
const MACSEC: &str = "0x88e5";

/// The commands that begin it.
pub(super) fn make(names: &Names) -> Vec<Command> {
    let router = &names.router;
    let ways = [(ROUTER_TO_CLIENT, ROUTER_TO_SERVER), (ROUTER_TO_SERVER, ROUTER_TO_CLIENT)];
    let lines = ways.iter().flat_map(|(from, to)| {
        [
            format!("-n {router} qdisc add dev {from} clsact"),
            format!(
                "-n {router} filter add dev {from} ingress protocol {MACSEC} prio 1 u32 match u32 0 0 \
                 action mirred egress redirect dev {to}"
            ),
        ]
    });
    lines.map(|line| Command::words(TC, &line)).collect()
}

/// The commands that end it.
pub(super) fn remove(names: &Names) -> Vec<Command> {
    let remove = |interface: &str| format!("-n {} qdisc del dev {interface} clsact", names.router);
    [ROUTER_TO_CLIENT, ROUTER_TO_SERVER].map(|one| Command::words(TC, &remove(one))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_from_either_side_leave_by_the_other() {
        let lines: Vec<String> =
            make(&Names::new("0badf00d")).iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].contains("dev to-client ingress protocol 0x88e5"), "{lines:?}");
        assert!(lines[1].ends_with("egress redirect dev to-server"), "{lines:?}");
        assert!(lines[3].ends_with("egress redirect dev to-client"), "{lines:?}");
    }
}
