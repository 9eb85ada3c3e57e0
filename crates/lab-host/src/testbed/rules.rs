//! Writes the router's rules for packets by their headers, for the nftables of a stock
//! kernel: the class of the shaper that they go to, and the DSCP that they get.

use headroom_link_spec::{Flow, LinkDirection, LinkSpec};

use super::netns::{Names, ROUTER_TO_CLIENT, ROUTER_TO_SERVER};
use crate::command::Command;
use crate::namespace;
use crate::programs::NFT;

/// The shaper's class of what is preferred (tc's words are hexadecimal), and of all else.
pub(super) const PREFERRED: &str = "1:10";
pub(super) const OTHERS: &str = "1:20";

const TABLE: &str = "inet headroom-link";
/// Q-ESP, unless a gateway is told otherwise (docs/qesp.md).
const QESP: u8 = 253;

/// Whether a link needs rules.
pub fn needed(spec: &LinkSpec) -> bool {
    [&spec.down, &spec.up].iter().any(|way| way.priority.is_some() || way.dscp.is_some())
}

/// The command that makes a link's rules; none where it needs none.
pub(super) fn make(names: &Names, spec: &LinkSpec) -> Option<Command> {
    let ways = [(ROUTER_TO_CLIENT, &spec.down), (ROUTER_TO_SERVER, &spec.up)];
    let rules: Vec<String> =
        ways.iter().flat_map(|(interface, way)| rules(interface, way)).collect();
    needed(spec).then(|| {
        let chain = "type filter hook forward priority mangle";
        nft(
            names,
            format!("table {TABLE} {{ chain forward {{ {chain}; {}; }}; }}", rules.join("; ")),
        )
    })
}

/// The command that unmakes them, whether they are there or not.
pub(super) fn remove(names: &Names) -> Command {
    nft(names, format!("add table {TABLE}; delete table {TABLE}"))
}

fn rules(interface: &str, way: &LinkDirection) -> Vec<String> {
    let out = format!("oifname {interface:?}");
    let dscp = way.dscp.map(|dscp| {
        let bits = dscp.bits();
        ["ip", "ip6"].map(|family| format!("{out} {family} dscp set {bits}"))
    });
    let preferred = way.priority.map(|flow| {
        recognised(flow).map(|packets| format!("{out} {packets} meta priority set {PREFERRED:?}"))
    });
    dscp.into_iter().chain(preferred).flatten().collect()
}

/// A flow's packets in clear and inside Q-ESP, whose header begins as theirs and has
/// their protocol in its fifth byte. Behind IPv6 extension headers too.
fn recognised(Flow { transport, port }: Flow) -> [String; 2] {
    let (name, number) = (transport.name(), transport.number());
    [
        format!("{name} dport {port}"),
        format!("meta l4proto {QESP} @th,16,16 {port} @th,32,8 {number}"),
    ]
}

fn nft(names: &Names, words: String) -> Command {
    namespace::run_inside(&names.router, Command::new(NFT, [words]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_rules_that_it_asks_for() {
        let names = Names::new("0badf00d");
        let rules = |text: &str| {
            make(&names, &text.parse().expect(text)).map(|command| command.to_string())
        };
        assert_eq!(rules("10mbit,queue=9"), None);
        let both = rules("10mbit,priority=udp:5004,up-dscp=ef").expect("rules");
        for words in [
            r#"oifname "to-server" udp dport 5004 meta priority set "1:10""#,
            r#"oifname "to-client" meta l4proto 253 @th,16,16 5004 @th,32,8 17 meta priority set "1:10""#,
            r#"oifname "to-server" ip6 dscp set 46"#,
        ] {
            assert!(both.contains(words), "`{words}` is not in {both}");
        }
        assert!(!both.contains(r#"oifname "to-client" ip dscp"#), "{both}");
    }
}
