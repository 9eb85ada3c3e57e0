//! Policies, and bundles of associations in them.

use super::{pair, parse, refused};

fn policy(lines: &str) -> String {
    pair("esp", "aes-128-gcm", "") + "[[policy]]\nname = \"p\"\n" + lines
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
