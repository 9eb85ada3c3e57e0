//! What can be loaded, and each refusal with its line.

mod ike;
mod policies;

use std::path::Path;

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
    refused_with(
        "queues = 2",
        "queue = 2",
        "unknown field `queue` (did you mean `queues`?), expected one of",
    );
    refused_with(
        "window = 64",
        "windows = 64",
        "unknown field `windows` (did you mean `window`?), expected",
    );
    refused_with(
        "mode = \"tunnel\"",
        "mode = \"tunel\"",
        "unknown variant `tunel` (did you mean `tunnel`?)",
    );
    refused_with("[[policy]]", "[[polcy]]", "unknown field `polcy` (did you mean `policy`?)");
    refused_with("window = 64", "secret = 64", "unknown field `secret`, expected one of");
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
    refused_with("hard_seconds = 3600", "hard_hours = 1", "unknown field `hard_hours`, expected");
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
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hr0.toml");
    let key = folder.path().join("out.key");
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
    let file = path.display();
    assert_eq!(
        error,
        format!(
            "{file} is a tunnel's configuration, which may contain keys, but other users can access it \
             (mode 0640): run `chmod 600 {file}`"
        )
    );
    set(&path, 0o600);
    set(&key, 0o604);
    let error = read().expect_err("a key that others can read");
    let file = key.display();
    let expected = format!(
        "hr0.toml:15: {file} contains a secret, but other users can access it (mode 0604): run `chmod 600 {file}`"
    );
    assert!(error.ends_with(&expected), "{error}");
    set(&key, 0o400);
    assert_eq!(read().expect("a configuration").associations[0].spec.spi, 0x1001);
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
