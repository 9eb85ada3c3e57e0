//! What can be loaded, and each refusal with its line.

use std::net::Ipv6Addr;
use std::path::Path;

use headroom_ike::VirtualAddresses;
use headroom_ike::wire::AddressRange;
use headroom_ipsec::spec::{Action, Addresses, Direction, Dscp, Padding, Ports};

use super::problem::line_of;
use super::*;
use crate::ledger::KeyId;

/// A file of which everything is used.
const WHOLE: &str = r#"
name = "hr0"
address = ["10.9.0.1/24", "fd00::1/64"]
mtu = 1400
queues = 2
[[sa]]
name = "out-1"
direction = "out"
protocol = "esp"
mode = "tunnel"
spi = 0x1001
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "aes-128-gcm"
key = "000102030405060708090a0b0c0d0e0f10111213"
udp = { source = 4500, destination = 4500 }
lifetime = { soft_bytes = "1GiB", hard_bytes = "2GiB", hard_seconds = 3600 }
dscp = { map = { "46" = 46, "0" = 8 } }
padding = 256
dummy = "10/s"
traffic_class = [0, 46]
[[sa]]
name = "in-1"
direction = "in"
protocol = "esp"
mode = "tunnel"
spi = 0x1002
source = "192.0.2.2"
destination = "192.0.2.1"
suite = "aes-128-cbc+hmac-sha256"
key = "101112131415161718191a1b1c1d1e1f"
integrity_key = "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
esn = false
window = 64
[[policy]]
name = "web"
action = "protect"
local = "10.1.0.0/16"
remote = "10.2.0.5-10.2.0.9"
protocol = "tcp"
remote_port = "80-443"
out = ["out-1"]
in = ["in-1"]
[[policy]]
name = "rest"
action = "discard"
"#;

/// A pair of transport-mode SAs; the tests change lines of it.
fn pair(protocol: &str, suite: &str, more: &str) -> String {
    let sa = |name, direction, spi, from, to, key: u8| {
        let key = format!("{key:02x}").repeat(20);
        format!(
            "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nprotocol = \"{protocol}\"\nmode = \"transport\"\n\
             spi = {spi}\nsource = \"{from}\"\ndestination = \"{to}\"\nsuite = \"{suite}\"\nkey = \"{key}\"\n{more}"
        )
    };
    format!(
        "name = \"hr0\"\n{}{}",
        sa("out-1", "out", 300, "192.0.2.1", "192.0.2.2", 0x11),
        sa("in-1", "in", 301, "192.0.2.2", "192.0.2.1", 0x22)
    )
}

fn policy(lines: &str) -> String {
    pair("esp", "aes-128-gcm", "") + "[[policy]]\nname = \"p\"\n" + lines
}

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, Path::new("hr0.toml"))
}

#[track_caller]
fn refused(text: &str, line: usize, words: &str) {
    let error = parse(text).map(|_| ()).expect_err("a refusal").to_string();
    assert!(error.starts_with(&format!("hr0.toml:{line}: ")), "{error}\n{text}");
    assert!(error.contains(words), "{error}");
}

/// `from` in the whole file is replaced; the error names that line.
#[track_caller]
fn refused_with(from: &str, to: &str, words: &str) {
    let place = WHOLE.find(from).unwrap_or_else(|| panic!("`{from}` is not in the file"));
    refused(&WHOLE.replacen(from, to, 1), line_of(WHOLE, place), words);
}

#[test]
fn reads_a_whole_file() {
    let config = parse(WHOLE).expect("a configuration");
    assert_eq!(config.addresses.len(), 2);
    assert_eq!((config.mtu, config.queues, config.qesp_number()), (Some(1400), 2, None));
    let [out, inbound] = &config.associations[..] else { panic!("two associations") };
    assert_eq!((out.spec.spi, out.dummies_per_second, out.line), (0x1001, 10, 7));
    assert_eq!(out.spec.dscp, Dscp::Map([(46, 46), (0, 8)].into()));
    assert_eq!(out.spec.padding, Padding::Multiple(256));
    assert_eq!(out.spec.classes, 1 | 1 << 46);
    assert_eq!(out.spec.lifetime.soft.bytes, Some(1 << 30));
    assert_eq!(out.spec.lifetime.hard.seconds, Some(3600));
    assert!(out.spec.extended_sequence && !inbound.spec.extended_sequence);
    assert_eq!((inbound.spec.window, &inbound.spec.dscp), (64, &Dscp::Keep));
    let web = &config.policies[0];
    assert_eq!(
        web.selector.local,
        Addresses::Range(
            "10.1.0.0".parse().expect("an address"),
            "10.1.255.255".parse().expect("an address")
        )
    );
    assert_eq!(
        (web.selector.protocol, &web.selector.remote_port),
        (Some(6), &Ports::Range(80..=443))
    );
    assert_eq!(
        web.action,
        Action::Protect { out: vec!["out-1".into()], inbound: vec!["in-1".into()] }
    );
    assert_eq!(config.policies[1].action, Action::Discard);
    assert_eq!(config.warnings, [""; 0]);
    assert_eq!(config.ledger.ledger, Path::new("hr0.ledger"));
}

#[test]
fn the_ledger_identifies_an_sa_by_its_integrity_key() {
    let config = parse(WHOLE).expect("a configuration");
    let key_ids = config.key_ids();
    let mac = headroom_suite::Key::from_bytes(&(0x20..0x40).collect::<Vec<u8>>());
    assert_eq!(key_ids[0].0.direction, Direction::Out);
    assert_eq!(key_ids[1], (KeyId { direction: Direction::In, key: mac.fingerprint() }, "in-1"));
}

#[test]
fn reports_unknown_names_with_their_line() {
    refused_with("queues = 2", "queue = 2", "unknown field `queue`");
    refused_with("window = 64", "windows = 64", "unknown field `windows`");
    refused_with("mode = \"tunnel\"", "mode = \"tunel\"", "unknown variant `tunel`");
    refused_with("action = \"discard\"", "action = \"drop\"", "expected one of");
    refused_with("name = \"hr0\"", "name = \"hr0", "");
    refused_with("name = \"hr0\"", "name = \"a/b\"", "the tunnel's name");
    refused_with("suite = \"aes-128-gcm\"", "suite = \"aes-127-gcm\"", "is no suite");
    refused_with("mtu = 1400", "mtu = 70000", "must be 576 to 65535");
}

#[test]
fn messages_never_contain_keys() {
    let secret = "000102030405060708090a0b0c0d0e0f10111213";
    for broken in [
        format!("key = \"{secret}"),
        format!("key = \"{secret}zz\""),
        format!("key = {secret}"),
        format!("key = [\"{secret}\"]"),
        format!("keys = \"{secret}\""),
    ] {
        let text = WHOLE.replacen(&format!("key = \"{secret}\""), &broken, 1);
        let error = parse(&text).expect_err("a broken key").to_string();
        assert!(!error.contains("0102"), "{error}");
        assert!(error.starts_with("hr0.toml:15: "), "{error}");
    }
    assert!(!format!("{:?}", parse(WHOLE)).contains("0102"));
}

#[test]
fn refuses_unsafe_keys() {
    refused_with(
        "key = \"0001",
        "key = \"",
        "takes a key of 20 bytes (the last 4 are the salt), not 18",
    );
    refused_with("integrity_key = \"20", "integrity_key = \"", "takes a key of 32 bytes, not 31");
    refused(&WHOLE.replacen("integrity_key", "#", 1), 31, "needs an integrity key");
    refused_with(
        "key = \"0001",
        "key_file = \"k\"\nkey = \"0001",
        "`key` and `key_file` are both present",
    );
    // the salt does not make it another key
    let both = pair("esp", "aes-128-gcm", "").replace(
        "2222222222222222222222222222222222222222",
        "1111111111111111111111111111111122222222",
    );
    refused(&both, 21, "in the other direction, that of `out-1` (line 3)");
    let one =
        WHOLE.replacen("101112131415161718191a1b1c1d1e1f", "202122232425262728292a2b2c2d2e2f", 1);
    assert!(parse(&one).is_ok());
    let separate = "[[sa]]\nname = \"a\"\ndirection = \"out\"\nprotocol = \"esp\"\nmode = \"tunnel\"\nspi = 300\n\
                    source = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\nsuite = \"aes-256-cbc+hmac-sha256\"\n";
    let same = "11".repeat(32);
    let text = format!("name = \"hr0\"\n{separate}key = \"{same}\"\nintegrity_key = \"{same}\"\n");
    refused(&text, 12, "has the same key for encryption and integrity");
}

#[test]
fn checks_spis_and_addresses() {
    refused_with("spi = 0x1001", "spi = 255", "is reserved");
    refused_with("spi = 0x1001", "spi = 0x100000000", "more than 32 bits");
    refused_with("source = \"192.0.2.1\"", "source = \"224.0.0.1\"", "not the address of one host");
    refused_with(
        "destination = \"192.0.2.2\"",
        "destination = \"2001:db8::2\"",
        "have different IP versions",
    );
    refused_with(
        "destination = \"192.0.2.2\"",
        "destination = \"192.0.2.1\"",
        "is also the source",
    );
    let turned = WHOLE.replacen(
        "source = \"192.0.2.2\"\ndestination = \"192.0.2.1\"",
        "source = \"192.0.2.1\"\ndestination = \"192.0.2.2\"",
        1,
    );
    refused(&turned, 28, "this host's in `out-1` (line 7)");
    let twice = pair("esp", "aes-128-gcm", "")
        + &pair("esp", "aes-128-gcm", "").replace("name = \"hr0\"\n", "").replace("-1\"", "-2\"");
    refused(&twice, 27, "`out-1` (line 3) already has the SPI 0x12c for ESP to 192.0.2.2");
    refused(&twice.replace("-2\"", "-1\""), 23, "an SA named `out-1` is already in line 3");
}

#[test]
fn checks_windows_lifetimes_and_encapsulation() {
    for window in ["0", "63", "8193"] {
        refused_with("window = 64", &format!("window = {window}"), "cannot be disabled");
    }
    refused_with("soft_bytes = \"1GiB\"", "soft_bytes = \"2GiB\"", "must be below `hard_bytes`");
    refused_with("hard_seconds = 3600", "hard_seconds = 0", "lifetime of 0");
    refused_with("hard_seconds = 3600", "hard_hours = 1", "unknown field `hard_hours`");
    refused_with("udp = { source = 4500", "udp = { source = 0", "must be 1 to 65535");
    let udp = "udp = { source = 4500, destination = 4500 }\n";
    refused(&pair("ah", "hmac-sha1", udp), 12, "AH cannot be in UDP");
    refused(&pair("qesp", "aes-128-gcm", udp), 12, "Q-ESP cannot be in UDP");
    refused(&pair("esp", "aes-128-gcm", "padding = 64\n"), 12, "is for tunnel mode");
    refused(&pair("esp", "aes-128-gcm", "dummy = \"1/s\"\n"), 12, "is for tunnel mode");
    refused(&pair("esp", "aes-128-gcm", "dscp = 3\n"), 12, "keeps its DSCP");
    refused_with("dummy = \"10/s\"", "dummy = \"10\"", "is not a rate");
    refused_with("dscp = { map", "dscp = { maps", "unknown field `maps`");
    refused_with("\"46\" = 46", "\"64\" = 46", "0 to 63");
    refused_with("traffic_class = [0, 46]", "traffic_class = []", "is empty");
    refused_with("mtu = 1400", "mtu = 1279", "IPv6 needs");
    refused(&pair("esp", "aes-128-gcm", "ah_align = 8\n"), 12, "is for AH only");
}

#[test]
fn names_the_field_of_a_malformed_value() {
    for (from, to, words) in [
        ("mode = \"tunnel\"", "mode = tunnel", "`mode` needs quotes"),
        ("spi = 0x1001", "spi = \"0x1001\"", "`spi` is a number: write it without quotes"),
        ("queues = 2", "queues = -2", "`queues` is a whole number, 0 or more"),
        ("hard_seconds = 3600", "hard_seconds = -5", "`hard_seconds` must not be negative"),
    ] {
        refused_with(from, to, words);
    }
    let udp = "udp = { source = 80, destination = 4500 }\n";
    refused(&pair("esp", "aes-128-gcm", udp), 12, "CAP_NET_BIND_SERVICE");
}

#[test]
fn warns_of_settings_without_effect() {
    let warnings = |text: &str| parse(text).expect("a configuration").warnings.join("; ");
    assert!(warnings("name = \"hr0\"\n").contains("there is no [[sa]]: no packet is protected"));
    let pair = pair("esp", "aes-128-gcm", "window = 128\n");
    let alone = warnings(&pair);
    assert!(alone.contains("there is no [[policy]]"), "{alone}");
    assert!(alone.contains("`window` of `out-1` has no effect"), "{alone}");
    assert!(!alone.contains("`in-1`"), "{alone}");
    let of_out = "padding = 256\ndont_fragment = \"set\"\ntraffic_class = [46]\n";
    let alone = warnings(&self::pair("esp", "aes-128-gcm", of_out).replace("transport", "tunnel"));
    for field in ["padding", "dont_fragment", "traffic_class"] {
        assert!(alone.contains(&format!("`{field}` of `in-1` has no effect")), "{alone}");
        assert!(!alone.contains(&format!("`{field}` of `out-1`")), "{alone}");
    }
}

#[test]
fn follow_peer_needs_esp_in_udp_in_tunnel_mode() {
    let follow = "follow_peer = true\n";
    let udp = "udp = { source = 4500, destination = 4500 }\n";
    let both = pair("esp", "aes-128-gcm", udp).replace("transport", "tunnel");
    let (out, inbound) = both.split_once("[[sa]]\nname = \"in-1\"").expect("two SAs");
    let with = |out: &str, inbound: &str| format!("{out}[[sa]]\nname = \"in-1\"{inbound}{follow}");
    let config = parse(&with(out, inbound)).expect("a configuration");
    let follows = config.associations.iter().map(|association| association.spec.follow_peer);
    assert_eq!(follows.collect::<Vec<_>>(), [false, true]);
    assert!(parse(&with(out, inbound).replace("= true", "= false")).is_ok());

    refused(&pair("ah", "hmac-sha1", follow), 12, "authenticate the outer addresses");
    refused(&pair("qesp", "aes-128-gcm", follow), 12, "authenticate the outer addresses");
    refused(&pair("esp", "aes-128-gcm", follow), 12, "is for tunnel mode");
    refused(&with(out, &inbound.replace(udp, "")), 23, "is for ESP in UDP only");
    refused(&format!("{out}{follow}"), 13, "direction \"in\"");
    // nothing goes back, or not to the port that it sends from
    refused(
        &with("name = \"hr0\"\n", inbound),
        13,
        "`follow_peer` needs an SA of direction \"out\"",
    );
    let another = out.replace("destination = 4500", "destination = 4501");
    refused(&with(&another, inbound), 24, "from 192.0.2.1 to 192.0.2.2, `udp = { source = 4500,");
}

#[test]
fn insecure_suites_need_allow_insecure() {
    let text = WHOLE.replacen(
        "suite = \"aes-128-cbc+hmac-sha256\"\n",
        "suite = \"null+hmac-sha256\"\n",
        1,
    );
    let text = text.replacen("key = \"101112131415161718191a1b1c1d1e1f\"\n", "", 1);
    refused(&text, 30, "`allow_insecure = true`");
    let config = parse(&format!("allow_insecure = true\n{text}")).expect("allowed");
    assert_eq!(config.warnings, ["`in-1` uses `null+hmac-sha256`, which is not secure (RFC 8221)"]);
    // Q-ESP never, whatever is allowed
    let qesp = text.replace("protocol = \"esp\"", "protocol = \"qesp\"").replace("udp = ", "#");
    refused(&format!("allow_insecure = true\n{qesp}"), 31, "Q-ESP always encrypts");
    refused_with(
        "suite = \"aes-128-gcm\"",
        "suite = \"hmac-sha256\"",
        "does not encrypt: write `null+hmac-sha256`",
    );
    refused(&pair("ah", "aes-128-gcm", ""), 10, "AH needs an integrity algorithm without a cipher");
    let decode =
        Config::parse_with(&text, Path::new("x"), Purpose::Decode, |_, _| Err(String::new()));
    assert_eq!(decode.expect("loaded to look at packets").warnings.len(), 1);
}

#[test]
fn refuses_protocol_numbers_of_other_protocols() {
    let qesp = |number| pair("qesp", "aes-128-gcm", &format!("protocol_number = {number}\n"));
    assert_eq!(parse(&qesp("254")).expect("for experiments").qesp_number(), Some(254));
    for number in ["6", "50", "255", "300"] {
        refused(&qesp(number), 12, "may have another meaning");
    }
    let two = qesp("253").replacen("protocol_number = 253\n", "protocol_number = 254\n", 1);
    refused(&two, 16, "use the same");
    refused(&pair("esp", "aes-128-gcm", "protocol_number = 253\n"), 12, "is for Q-ESP only");
}

#[test]
fn checks_policies() {
    let protect = |out: &str, inbound: &str| {
        policy(&format!(
            "action = \"protect\"\nremote = \"any\"\nout = [{out}]\nin = [{inbound}]\n"
        ))
    };
    assert!(parse(&protect("\"out-1\"", "\"in-1\"")).expect("a policy").warnings.is_empty());
    refused(&protect("\"out-9\"", "\"in-1\""), 26, "there is no [[sa]] named `out-9`");
    refused(&protect("\"in-1\"", "\"in-1\""), 26, "`in-1` has the direction \"in\"");
    refused(&protect("\"out-1\", \"out-1\"", ""), 26, "is listed twice");
    refused(&protect("", ""), 23, "needs SAs");
    let one_way = parse(&protect("\"out-1\"", "")).expect("one way").warnings;
    assert_eq!(
        one_way,
        [
            "`p` has no SA for inbound packets, which are therefore dropped",
            "no policy uses the SA `in-1`"
        ]
    );
    refused(
        &policy("action = \"bypass\"\nout = [\"out-1\"]\n"),
        25,
        "only a policy with the action",
    );
    refused(
        &policy("action = \"protect\"\nremote = \"192.0.2.9\"\nout = [\"out-1\"]\n"),
        26,
        "`remote` does not include 192.0.2.2",
    );
    for (line, words) in [
        ("local = \"10.0.0.1/8\"", "zero bits after the prefix"),
        ("local = \"10.0.0.9-10.0.0.5\"", "is not"),
        ("local = \"10.0.0.0/33\"", "is not"),
        ("local = \"2001:db8::/129\"", "is not"),
        ("protocol = \"tpc\"", "`protocol` is"),
        ("protocol = 256", "`protocol` is"),
        ("local_port = \"9-5\"", "ports are"),
        ("local_port = -1", "must not be negative"),
        ("icmp = 8", "needs `protocol"),
    ] {
        refused(&policy(&format!("action = \"discard\"\n{line}\n")), 25, words);
    }
    refused(
        &policy("action = \"discard\"\nlocal = \"10.0.0.1\"\nremote = \"::1\"\n"),
        26,
        "have different IP versions",
    );
    refused(
        &policy("action = \"discard\"\nprotocol = \"gre\"\nlocal_port = 1\n"),
        26,
        "have no ports",
    );
    let icmp = parse(&policy("action = \"discard\"\nprotocol = \"icmp\"\nicmp = \"3/4\"\n"))
        .expect("a policy");
    assert_eq!(icmp.policies[0].selector.icmp, Some(0x304..=0x304));
}

#[test]
fn refuses_a_shadowed_policy() {
    let two = |first: &str, second: &str| {
        policy(&format!(
            "action = \"discard\"\n{first}\n[[policy]]\nname = \"q\"\naction = \"bypass\"\n{second}\n"
        ))
    };
    for (first, second) in [
        ("", "remote = \"10.0.0.0/8\""),
        ("remote = \"10.0.0.0/8\"", "remote = \"10.1.0.0/16\"\nprotocol = \"tcp\""),
        ("protocol = \"tcp\"", "protocol = \"tcp\"\nremote_port = 80"),
        ("protocol = \"icmp\"\nicmp = \"0-8\"", "protocol = \"icmp\"\nicmp = \"3/4\""),
    ] {
        let line = 27 + first.matches('\n').count();
        refused(&two(first, second), line, "`p` above matches all its packets");
    }
    for (first, second) in [
        ("remote = \"10.0.0.0/8\"", ""),
        ("remote = \"10.0.0.0/8\"", "remote = \"fd00::/8\""),
        ("protocol = \"tcp\"", "protocol = \"udp\""),
        ("local_port = \"1-5\"", "local_port = \"1-6\""),
        ("local_port = \"opaque\"", ""),
    ] {
        assert!(parse(&two(first, second)).is_ok(), "{first} | {second}");
    }
}

#[test]
fn bundles_are_listed_from_the_inside_to_the_outside() {
    let ah = pair("ah", "hmac-sha1", "")
        .replace("name = \"hr0\"\n", "")
        .replace("-1\"", "-ah\"")
        .replace("\"11", "\"33")
        .replace("\"22", "\"44");
    let with = |ah: &str, out: &str, inbound: &str| {
        let policy = format!(
            "[[policy]]\nname = \"p\"\naction = \"protect\"\nout = [{out}]\nin = [{inbound}]\n"
        );
        pair("esp", "aes-128-gcm", "") + ah + &policy
    };
    let (out, inbound) = ("\"out-1\", \"out-ah\"", "\"in-1\", \"in-ah\"");
    assert!(parse(&with(&ah, out, inbound)).is_ok());
    refused(&with(&ah, "\"out-ah\", \"out-1\"", inbound), 45, "from the inside to the outside");
    let tunnel = ah.replace("transport", "tunnel");
    refused(&with(&tunnel, out, inbound), 45, "its `mode` must be \"transport\"");
    let elsewhere = ah.replace("192.0.2.2", "192.0.2.3");
    refused(&with(&elsewhere, out, inbound), 45, "need the same source and destination");
    // two alternatives of one class of traffic
    let second = pair("esp", "aes-128-gcm", "")
        .replace("name = \"hr0\"\n", "")
        .replace("-1\"", "-2\"")
        .replace("\"11", "\"33")
        .replace("\"22", "\"44")
        .replace("= 300", "= 302")
        .replace("= 301", "= 303");
    let (out, inbound) = ("\"out-1\", \"out-2\"", "\"in-1\", \"in-2\"");
    refused(&with(&second, out, inbound), 45, "`out-2` has no effect");
    let classes = with(&second, out, inbound);
    let classes = classes.replacen(
        "mode = \"transport\"\n",
        "mode = \"transport\"\ntraffic_class = [46]\n",
        1,
    );
    assert!(parse(&classes).is_ok());
}

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
        ("[ike]\n", "[ike]\ninitate = true\n", 3, "unknown field `initate`"),
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

#[test]
fn decoding_accepts_unsafe_settings() {
    let same = pair("esp", "aes-128-gcm", "").replace("22222222", "11111111");
    refused(&same, 21, "a key must have one use only");
    let decode =
        Config::parse_with(&same, Path::new("x"), Purpose::Decode, |_, _| Err(String::new()));
    assert_eq!(decode.expect("loaded to look at packets").warnings.len(), 1);
}

#[test]
fn refuses_files_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("hr0.toml");
    let key = folder.join("out.key");
    let with_file = WHOLE.replacen(
        "key = \"000102030405060708090a0b0c0d0e0f10111213\"",
        "key_file = \"out.key\"",
        1,
    );
    std::fs::write(&path, with_file).expect("a file");
    std::fs::write(&key, "0x000102030405060708090a0b0c0d0e0f10111213\n").expect("a file");
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let read = || Config::read(&path, Purpose::Tunnel).map_err(|error| error.to_string());
    set(&path, 0o640);
    set(&key, 0o600);
    let error = read().expect_err("readable by a group");
    assert!(
        error.ends_with(&format!("(mode 0640): run `chmod 600 {}`", path.display())),
        "{error}"
    );
    set(&path, 0o600);
    set(&key, 0o604);
    let error = read().expect_err("a key that others can read");
    assert!(error.contains("hr0.toml:15: ") && error.contains("run `chmod 600"), "{error}");
    set(&key, 0o400);
    assert_eq!(read().expect("a configuration").associations[0].spec.spi, 0x1001);
    std::fs::remove_dir_all(&folder).expect("clean");
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn no_text_panics(text in "\\PC{0,300}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_damaged_file_panics(cut in 0..WHOLE.len(), at in 0..WHOLE.len(), with in "\\PC{0,8}") {
            let mut text = WHOLE.to_owned();
            text.truncate(cut.max(at + 1));
            text.replace_range(at..=at, &with);
            let _ = parse(&text);
        }
    }
}
