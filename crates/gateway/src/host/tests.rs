//! Setups as they are printed, and their rules as nft reads them.

use std::path::Path;
use std::time::Duration;

use headroom_ipsec::Engine;

use super::*;

const HOST: Host = Host { mark: 0x7165_7370, has_v6: true, marks_are_valid: false };

/// The setup of a configuration of one SA each direction and some policies.
fn planned(mode: &str, extra: &str, policies: &str) -> (Setup, Config) {
    let sa = |name: &str, direction: &str, spi: u32, from: &str, to: &str, octet: &str| {
        let key = octet.repeat(20);
        format!(
            "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nprotocol = \"esp\"\n\
             mode = \"{mode}\"\nspi = {spi}\nsource = \"{from}\"\ndestination = \"{to}\"\n\
             suite = \"aes-128-gcm\"\nkey = \"{key}\"\n"
        )
    };
    let (here, there) = ("192.0.2.1", "192.0.2.2");
    let out = sa("out", "out", 0x1000, here, there, "11");
    let inbound = sa("in", "in", 0x1001, there, here, "22");
    let text = format!("name = \"hr0\"\n{extra}\n{out}{inbound}{policies}");
    let config = Config::parse(&text, Path::new("hr0.toml")).expect("a configuration");
    let again = Config::parse(&text, Path::new("hr0.toml")).expect("a configuration");
    let specs = again.associations.into_iter().map(|association| association.spec).collect();
    let engine = Engine::new(specs, again.policies, None, Duration::ZERO).expect("an engine");
    (Setup::plan(&config, &engine, HOST, |_| 1500), config)
}

const SITES: &str = "[[policy]]\nname = \"sites\"\naction = \"protect\"\nlocal = \"10.1.0.0/16\"\n\
                     remote = \"10.2.0.0/16\"\nout = [\"out\"]\nin = [\"in\"]\n";
const HOSTS: &str = "[[policy]]\nname = \"ssh\"\naction = \"bypass\"\nlocal = \"192.0.2.1\"\n\
                     remote = \"192.0.2.2\"\nprotocol = \"tcp\"\nlocal_port = 22\n\
                     [[policy]]\nname = \"hosts\"\naction = \"protect\"\nlocal = \"192.0.2.1\"\n\
                     remote = \"192.0.2.2\"\nout = [\"out\"]\nin = [\"in\"]\n";

#[test]
fn ike_passes_the_rules_of_its_own_policy() {
    let text = "name = \"hr0\"\n[ike]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n\
                psk = \"a key of twenty bytes\"\n[[child]]\nremote = \"192.0.2.2\"\n\
                mode = \"transport\"\n";
    let config = Config::parse(text, Path::new("hr0.toml")).expect("a configuration");
    let engine = Engine::new(Vec::new(), Vec::new(), None, Duration::ZERO).expect("an engine");
    let printed = Setup::plan(&config, &engine, HOST, |_| 1500).printed("hr0", 1);
    let position =
        |line: &str| printed.find(line).unwrap_or_else(|| panic!("`{line}` is not in:\n{printed}"));
    let passes = ["500", "4500"].map(|port| {
        position(&format!("ip daddr 192.0.2.1 udp dport {port} meta mark set 0x71657370 return"))
    });
    let dropped = position("ip saddr 192.0.2.2 ip daddr 192.0.2.1 counter name clear_arrived drop");
    assert!(passes.iter().all(|passes| *passes < dropped), "{printed}");
}

#[test]
fn changes_that_were_not_made_need_no_undoing() {
    let shell = |line: &str| Command {
        argv: ["sh", "-c", line].map(str::to_owned).to_vec(),
        input: String::new(),
    };
    let undone_by = |line: &str| {
        let undo = Some(shell(line));
        let step = Step { make: shell("exit 0"), undo, optional: false };
        Setup { before: vec![step], after: Vec::new() }
    };
    let former = Setup { before: Vec::new(), after: Vec::new() };
    for (said, is_undone) in [("No such process", true), ("Operation not permitted", false)] {
        let failed = undone_by(&format!("echo 'RTNETLINK answers: {said}' >&2; exit 2"));
        assert_eq!(former.replace(&failed).is_ok(), is_undone, "{said}");
    }
}

#[test]
fn a_tunnel_between_sites() {
    let (setup, _) = planned("tunnel", "address = [\"10.1.0.1/16\"]", SITES);
    let printed = setup.printed("hr0", 1);
    let position =
        |line: &str| printed.find(line).unwrap_or_else(|| panic!("`{line}` is not in:\n{printed}"));
    // nothing can leave in clear between two of these
    let order = [
        "ip -4 rule add pref 2",
        "nft -f - <<'END'",
        "ip -4 route replace prohibit 10.2.0.0/16 metric 4294967294 table ",
        "to 10.2.0.0/16 lookup",
        "ip tuntap add dev hr0 mode tun vnet_hdr\n",
        "ip link set dev hr0 mtu 1446\n",
        "ip addr add 10.1.0.1/16 dev hr0\n",
        "ip link set dev hr0 up\n",
        "ip -4 route replace 10.2.0.0/16 dev hr0 metric 1 table ",
    ];
    assert!(order.map(position).is_sorted(), "{printed}");
    assert!(printed.contains("ip saddr 10.2.0.0-10.2.255.255 ip daddr 10.1.0.0-10.1.255.255 counter name clear_arrived drop"));
    let undo: Vec<String> = setup.undo().iter().map(Command::to_string).collect();
    assert!(undo[0].starts_with("ip -4 rule del pref"), "{undo:?}");
    assert!(undo.contains(&"nft delete table inet headroom_hr0".to_owned()));
    assert_eq!(undo.len(), setup.before.len());
}

#[test]
fn a_tunnel_to_any_excludes_local_networks() {
    let lookup = |remote: &str| {
        let (setup, _) = planned("tunnel", "", &SITES.replace("10.2.0.0/16", remote));
        setup.printed("hr0", 1)
    };
    for wider in ["any", "10.0.0.0/8"] {
        let printed = lookup(wider);
        assert!(printed.contains("ip -4 route replace throw 10.1.0.0/16 table "), "{printed}");
        let among = "ip saddr 10.1.0.0-10.1.255.255 ip daddr 10.1.0.0-10.1.255.255 return";
        let [before, after] = [among, "counter name clear_arrived drop"]
            .map(|line| printed.find(line).unwrap_or_else(|| panic!("`{line}`:\n{printed}")));
        assert!(before < after, "{printed}");
        assert_eq!(printed.matches(among).count(), 2, "arriving and leaving");
    }
    // the same on both sides, and sides that do not contain each other
    for other in ["10.1.0.0/16", "10.1.7.0/24", "10.2.0.0/16"] {
        assert!(!lookup(other).contains("throw"), "{other}");
    }
    // what another policy protects by name stays in
    let both = format!(
        "{}{}",
        SITES.replace("10.1.0.0/16", "10.9.0.0/16").replace("10.2", "10.1"),
        SITES.replace("10.2.0.0/16", "any").replace("\"sites\"", "\"all\"")
    );
    let (setup, _) = planned("tunnel", "", &both);
    assert!(!setup.printed("hr0", 1).contains("throw"));
}

#[test]
fn reports_addresses_that_the_host_lacks() {
    let (_, config) = planned("tunnel", "", SITES);
    let specs = || config.associations.iter().map(|association| &association.spec);
    let warnings = missing_addresses(specs());
    assert!(warnings.len() == 1 && warnings[0].contains("192.0.2.1"), "{warnings:?}");
    assert!(is_local("127.0.0.1".parse().expect("an address")));
}

#[test]
fn transport_mode_captures_the_peer_and_accepts_whole_datagrams() {
    let (setup, _) = planned("transport", "", HOSTS);
    let printed = setup.printed("hr0", 2);
    for line in [
        "multi_queue",
        "fwmark 0x71657370 lookup main",
        "to 192.0.2.2/32 lookup",
        "mtu 65280",
        "src 192.0.2.1 advmss 1426",
        "ip saddr 192.0.2.2 ip daddr 192.0.2.1 meta l4proto 6 th dport 22 return",
        "ip saddr 192.0.2.2 ip daddr 192.0.2.1 meta l4proto 50 meta mark set 0x71657370 return",
    ] {
        assert!(printed.contains(line), "`{line}` is not in:\n{printed}");
    }
}

#[test]
fn a_reload_adds_new_changes_before_it_undoes_old_ones() {
    let (present, _) = planned("tunnel", "", SITES);
    let (next, _) = planned("tunnel", "", &SITES.replace("10.2.0.0/16", "10.3.0.0/16"));
    let common = present.before.iter().filter(|step| next.before.contains(step)).count();
    // the rules for marks and the sysctl; not the firewall, the route, the rule
    assert_eq!((common, present.before.len()), (3, 6));
    let kept: Vec<_> = next.before.iter().filter_map(|step| step.undo.clone()).collect();
    let removed = present.undo().into_iter().filter(|undo| !kept.contains(undo));
    assert_eq!(removed.count(), 2, "the old route and rule; the table is replaced");
}

#[test]
fn the_kernel_accepts_every_rule() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: this test makes a network namespace, which needs root");
        return;
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
    Command::words("ip addr add 192.0.2.1/32 dev lo").run().expect("this host's address");
    let odd = "[[policy]]\nname = \"a\"\naction = \"discard\"\nprotocol = \"udp\"\nremote_port = \"1000-2000\"\n\
               [[policy]]\nname = \"b\"\naction = \"bypass\"\nprotocol = \"icmp\"\nicmp = 8\n\
               [[policy]]\nname = \"c\"\naction = \"discard\"\nlocal = \"2001:db8::1-2001:db8::9\"\nprotocol = \"sctp\"\nlocal_port = 7\n";
    let all = SITES.replace("10.2.0.0/16", "any");
    for (mode, policies) in
        [("tunnel", SITES), ("transport", HOSTS), ("tunnel", odd), ("tunnel", &all)]
    {
        let policies = match policies == odd {
            true => format!("{odd}{}", SITES.replace("10.2.0.0/16", "10.2.0.3-10.2.0.77")),
            false => policies.to_owned(),
        };
        let (setup, config) = planned(mode, "address = [\"10.1.0.1/16\"]", &policies);
        for _ in 0..2 {
            // also when an earlier gateway has left everything
            apply(&setup.before).expect("rules, routes and a table");
            let tuns = headroom_netio::Tun::create(&config.name, 1).expect("a TUN");
            apply(&setup.after).expect("the interface");
            drop(tuns);
        }
        let told = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let output = std::process::Command::new(words[0]).args(&words[1..]).output();
            String::from_utf8(output.expect("it runs").stdout).expect("text")
        };
        let table = TABLES + tunnel_number("hr0");
        let left = told(&format!("ip route show table {table}"));
        assert!(
            left.lines().all(|line| line.starts_with("prohibit") || line.starts_with("throw"))
                && !left.is_empty(),
            "{left}"
        );
        for undo in setup.undo() {
            undo.run().expect("undone");
        }
        assert_eq!(told(&format!("ip route show table {table}")), "");
        assert_eq!(told("ip rule show").lines().count(), 3, "local, main, default");
    }
}
