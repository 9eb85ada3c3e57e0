//! IKE: peers, what is protected with them, and pools of addresses.

use std::net::Ipv6Addr;

use headroom_ike::VirtualAddresses;
use headroom_ike::wire::AddressRange;
use headroom_ipsec::spec::Addresses;

use super::{parse, refused};
use crate::config::{ChildAction, ChildActions};

const IKE: &str = "name = \"hr0\"\n[ike]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n\
                   psk = \"twenty bytes and some more\"\n[[child]]\nlocal = \"10.1.0.0/16\"\nremote = \"10.2.0.0/16\"\n";

#[test]
fn reads_the_peers_of_ike_and_what_is_protected_with_them() {
    let config = parse(IKE).unwrap_or_else(|error| panic!("{error}"));
    let peer = &config.ike[0];
    assert_eq!((peer.name.as_str(), peer.initiate), ("hr0", true));
    assert_eq!(peer.remote, Some("192.0.2.2:500".parse().expect("an address")));
    assert_eq!(peer.remote_id.as_ref().map(ToString::to_string).as_deref(), Some("192.0.2.2"));
    assert_eq!(peer.children[0].rekey.as_secs(), 3600);
    // the host is set up for what will be negotiated, and the ledger tracks none of it
    assert_eq!(config.policies[0].name, "hr0");
    assert!(config.associations.len() == 2 && config.associations.iter().all(|sa| sa.negotiated));
    assert_eq!(config.key_ids(), []);
    let two = IKE.replace("[ike]", "[[ike]]")
        + "ike = \"hr0\"\n[[ike]]\nname = \"b\"\nremote = \"192.0.2.3\"\nlocal = \"192.0.2.1\"\npsk = \"another key of twenty bytes\"\ninitiate = false\n[[child]]\nike = \"b\"\nremote = \"10.3.0.0/16\"\nrekey_seconds = 60\n";
    let config = parse(&two).unwrap_or_else(|error| panic!("{error}"));
    let local = "192.0.2.1".parse().expect("an address");
    assert_eq!(config.ike[1].children[0].selectors[0].local, Addresses::Range(local, local));
    assert_eq!(config.policies.len(), 2);
}

const POOL: &str = "name = \"hr0\"\naddress = [\"10.9.0.1/24\"]\n[ike]\nlocal = \"192.0.2.1\"\nremote = \"any\"\n\
                    psk = \"twenty bytes and some more\"\npool = [\"10.9.0.0/24\", \"fd09::/64\"]\n\
                    dns = [\"10.9.0.3\", \"fd01::53\"]\n[[child]]\nlocal = [\"10.1.0.0/16\", \"fd01::/64\"]\n";

#[test]
fn reads_a_pool_of_addresses_for_many_peers() {
    let config = parse(POOL).unwrap_or_else(|error| panic!("{error}"));
    let peer = &config.ike[0];
    assert_eq!((peer.remote, &peer.remote_id, peer.initiate), (None, &None, false));
    let VirtualAddresses::Assign(pool) = &peer.virtual_addresses else { panic!("{peer:?}") };
    let v4 = |first: [u8; 4], last: [u8; 4]| AddressRange::V4(first.into()..=last.into());
    let v6 = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let expected = [
        // not the network's, this host's, a DNS server's and the broadcast address
        v4([10, 9, 0, 2], [10, 9, 0, 2]),
        v4([10, 9, 0, 4], [10, 9, 0, 254]),
        AddressRange::V6(v6("fd09::1")..=v6("fd09::ffff:ffff:ffff:ffff")),
    ];
    assert_eq!(pool.ranges, expected);
    let child = &peer.children[0];
    assert!(child.is_shared && child.selectors.len() == 2, "{child:?}");
    assert_eq!(config.policies.len(), 2, "one of each IP version");
}

#[test]
fn reads_a_request_for_an_address() {
    let asks = "name = \"hr0\"\n[ike]\nlocal = \"192.0.2.2\"\nremote = \"192.0.2.1\"\naddress = \"request\"\n\
                psk = \"twenty bytes and some more\"\n[[child]]\nremote = \"10.1.0.0/16\"\n";
    let config = parse(asks).unwrap_or_else(|error| panic!("{error}"));
    let peer = &config.ike[0];
    let expected = VirtualAddresses::Request { ipv4: true, ipv6: false };
    assert_eq!(peer.virtual_addresses, expected, "what is behind the peer has IPv4");
    let every = Addresses::Range([0, 0, 0, 0].into(), [255, 255, 255, 255].into());
    assert_eq!(peer.children[0].selectors[0].local, every);
    for (from, to, line, words) in [
        ("[[child]]\n", "[[child]]\nlocal = \"10.9.0.0/16\"\n", 8, "that the peer assigns"),
        ("[[child]]\n", "[[child]]\nmode = \"transport\"\n", 9, "tunnel mode"),
        ("\"request\"", "\"10.9.0.7\"", 5, "unknown variant"),
        ("[ike]", "address = [\"10.9.0.7/24\"]\n[ike]", 6, "remove one"),
        ("[[child]]\n", "pool = \"10.9.0.0/24\"\n[[child]]\n", 5, "both present"),
    ] {
        refused(&asks.replacen(from, to, 1), line, words);
    }
}

#[test]
fn refuses_pools_with_their_line() {
    for (from, to, line, words) in [
        ("local = \"192.0.2.1\"\n", "", 4, "needs `local`"),
        ("\"any\"", "\"192.0.2.2\"", 7, "write `remote = \"any\"`"),
        ("pool = [\"10.9.0.0/24\", \"fd09::/64\"]\n", "", 7, "`dns` needs `pool`"),
        (
            "pool = [\"10.9.0.0/24\", \"fd09::/64\"]\ndns = [\"10.9.0.3\", \"fd01::53\"]\n",
            "",
            5,
            "or `remote_id`, for one",
        ),
        ("\"10.9.0.0/24\", ", "\"10.9.0.0/24\", \"10.9.0.7\", ", 7, "overlaps"),
        ("\"10.9.0.0/24\", ", "\"any\", ", 7, "no prefix or range"),
        ("\"10.9.0.0/24\", ", "\"10.9.0.1\", ", 7, "no address left"),
        ("\"10.9.0.0/24\", ", "\"10.9.0.1/24\", ", 7, "zero bits"),
        ("[\"10.9.0.0/24\", \"fd09::/64\"]", "[]", 7, "1 to 16"),
        ("\"fd01::53\"", "\"here\"", 8, "not the address of a DNS server"),
        ("[[child]]\n", "initiate = true\n[[child]]\n", 9, "cannot begin"),
        ("[[child]]\n", "[[child]]\nstart_action = \"trap\"\n", 10, "cannot begin"),
        ("[[child]]\n", "[[child]]\nremote = \"10.9.0.0/24\"\n", 10, "remove it"),
        ("[\"10.1.0.0/16\", \"fd01::/64\"]", "[]", 10, "1 to 16"),
        ("[\"10.1.0.0/16\", \"fd01::/64\"]", "[7]", 10, "write it in quotes"),
    ] {
        refused(&POOL.replacen(from, to, 1), line, words);
    }
}

#[test]
fn what_is_done_about_a_child_is_as_at_its_start() {
    let actions = |lines: &str| {
        let text = IKE.replace("[[child]]\n", &format!("[[child]]\n{lines}"));
        let config = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let ChildActions { start, close, dpd } = config.ike[0].children[0].actions;
        [start, close, dpd]
    };
    let [start, trap, none] = [ChildAction::Start, ChildAction::Trap, ChildAction::None];
    assert_eq!(actions(""), [start; 3]);
    assert_eq!(actions("start_action = \"trap\"\n"), [trap; 3]);
    assert_eq!(actions("close_action = \"clear\"\n"), [start, none, start]);
    let three = "start_action = \"none\"\nclose_action = \"trap\"\ndpd_action = \"restart\"\n";
    assert_eq!(actions(three), [none, trap, start]);
    let waits = IKE.replace("[ike]\n", "[ike]\ninitiate = false\n");
    let config = parse(&waits).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.ike[0].children[0].actions.start, none);
}

#[test]
fn what_peers_of_ike_have_only_if_it_is_written() {
    let config = parse(IKE).unwrap_or_else(|error| panic!("{error}"));
    let peer = &config.ike[0];
    assert_eq!((peer.reauthenticate, peer.modp2048, peer.children[0].per_queue), (None, false, 0));
    let text = IKE
        .replace("[ike]\n", "queues = 4\n[ike]\nreauth_seconds = 3600\nmodp2048 = true\n")
        .replace("[[child]]\n", "[[child]]\nper_queue = true\n");
    let config = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let peer = &config.ike[0];
    let hour = Some(std::time::Duration::from_secs(3600));
    assert_eq!((peer.reauthenticate, peer.modp2048, peer.children[0].per_queue), (hour, true, 4));
}

#[test]
fn refuses_peers_of_ike_with_their_line() {
    for (from, to, line, words) in [
        ("psk = \"twenty bytes and some more\"\n", "", 4, "pre-shared key"),
        ("twenty bytes and some more", "short", 5, "20 at least"),
        ("psk = ", "psk_file = \"x\"\npsk = ", 5, "both present"),
        ("psk = ", "ppk_id = \"x\"\npsk = ", 5, "`ppk_id` needs `ppk_file`"),
        ("psk = ", "ppk_file = \"x\"\npsk = ", 5, "`ppk_file` needs `ppk_id`"),
        ("psk = ", "ppk_exchange = \"auth\"\npsk = ", 5, "needs `ppk_file` and `ppk_id`"),
        ("psk = ", "ca_file = \"x\"\npsk = ", 6, "certificates are both present"),
        (
            "psk = \"twenty bytes and some more\"",
            "cert_file = \"a\"\nca_file = \"x\"",
            4,
            "write `key_file`",
        ),
        ("192.0.2.2", "fd00::2", 4, "both must be IPv4 or both IPv6"),
        ("192.0.2.2", "gateway", 4, "not an IPv4 or IPv6 address"),
        (
            "[ike]\n",
            "[ike]\ninitate = true\n",
            3,
            "unknown field `initate` (did you mean `initiate`?)",
        ),
        ("[ike]\n", "[ike]\nrekey_seconds = 0\n", 3, "must be 1 to"),
        ("[ike]\n", "[ike]\nreauth_seconds = 0\n", 3, "must be 1 to"),
        ("[ike]\n", "[ike]\nmodp2048 = 1\n", 3, "true or false"),
        ("[[child]]\n", "[[child]]\nper_queue = true\n", 7, "needs `queues` above 1"),
        ("[ike]\n", "[ike]\nsuites = \"aes-512-gcm\"\n", 3, "aes-256-gcm"),
        ("[ike]\n", "[ike]\nsuites = [\"aes-256-gcm\", \"3des-cbc+hmac-sha1\"]\n", 3, "not secure"),
        ("[[child]]\n", "[[child]]\nsuites = \"null+hmac-sha256\"\n", 7, "not secure"),
        ("[[child]]\n", "[[child]]\nsuites = []\n", 7, "1 to 16"),
        (
            "[[child]]\n",
            "[[child]]\nsuites = [\"aes-128-gcm\", \"aes-128-gcm\"]\n",
            7,
            "there twice",
        ),
        ("[ike]\n", "[ike]\npost_quantum = \"maybe\"\n", 3, "unknown variant `maybe`"),
        ("remote = \"10.2.0.0/16\"", "remote = \"any\"", 8, "0.0.0.0/0"),
        ("remote = \"10.2.0.0/16\"", "remote = \"fd00::/64\"", 8, "different IP versions"),
        ("[[child]]\n", "[[child]]\nike = \"b\"\n", 7, "no [[ike]] of this name"),
        ("[[child]]\n", "[[child]]\nrekey_bytes = \"99KB\"\n", 7, "100000 at least"),
        ("[[child]]\n", "[[child]]\nrekey_bytes = \"many\"\n", 7, "many"),
        (
            "[[child]]\n",
            "[[child]]\nlife_seconds = 3600\n",
            7,
            "more than `rekey_seconds`, which is 3600",
        ),
        ("[[child]]\n", "[[child]]\nlife_bytes = \"1GB\"\n", 7, "needs a `rekey_bytes`"),
        ("[[child]]\n", "[[child]]\nlife_packets = 100\nrekey_packets = 100\n", 7, "that is less"),
        ("[[child]]\n", "[[child]]\nlife_seconds = \"x\"\n", 7, "number"),
        ("[[child]]\n", "[[child]]\nrekey_packets = 99\n", 7, "100 at least"),
        ("[[child]]\n", "[[child]]\nstart_action = \"now\"\n", 7, "unknown variant `now`"),
        ("[[child]]\n", "[[child]]\nrekey_second = 60\n", 7, "(did you mean `rekey_seconds`?)"),
        ("[[child]]\n", "[[child]]\nqesp = \"maybe\"\n", 7, "unknown variant `maybe`"),
        (
            "[[child]]\n",
            "[[child]]\nmode = \"transport\"\nqesp = \"require\"\n",
            10,
            "for tunnel mode",
        ),
    ] {
        refused(&IKE.replacen(from, to, 1), line, words);
    }
    let child = "[[child]]\nremote = \"10.2.0.0/16\"\n";
    refused(&format!("name = \"a\"\n{child}"), 2, "needs an [ike]");
    refused(IKE.split("[[child]]").next().unwrap_or_default(), 4, "no [[child]]");
    let again = "[[child]]\nname = \"c\"\nlocal = \"10.1.2.0/24\"\nremote = \"10.2.0.0/16\"\n";
    refused(&format!("{IKE}{again}"), 12, "already decides");
    let secret = IKE.replace("psk = \"twenty", "psk = 7 # \"twenty");
    let error = parse(&secret).expect_err("a number").to_string();
    assert!(!error.contains("twenty"), "{error}");
}
