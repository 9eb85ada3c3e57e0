//! IPsec by this program, by the kernel and by strongSwan, and the keys that IKE agrees on.

use std::time::SystemTime;

use headroom_testing::privileged;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

use super::{LONG, WORKLOADS, measure_plan, seen_in_clear};
use crate::common::{Ground, array, number, parts, text};

const DOWNLOAD: &str =
    "[[workload]]\nkind = \"download\"\nsizes = [\"256KiB\"]\ntransfers-per-sample = 1\n";

/// What the kernel is told at the client, for ESP and for AH over ESP.
const BY_KERNEL: &str = "\
ip link add hr1 type xfrm if_id 1
ip xfrm state add src 10.77.1.1 dst 10.77.2.1 proto esp spi 0x804 mode tunnel if_id 1 replay-window 4096 flag esn aead 'rfc4106(gcm(aes))' 0x0000000000000000000000000000000000000000 128
ip xfrm state add src 10.77.2.1 dst 10.77.1.1 proto esp spi 0x805 mode tunnel if_id 1 replay-window 4096 flag esn aead 'rfc4106(gcm(aes))' 0x0000000000000000000000000000000000000000 128
ip xfrm policy add src 10.78.1.1/32 dst 10.78.1.2/32 dir out if_id 1 tmpl src 10.77.1.1 dst 10.77.2.1 proto esp mode tunnel
ip xfrm policy add src 10.78.1.2/32 dst 10.78.1.1/32 dir in if_id 1 tmpl src 10.77.2.1 dst 10.77.1.1 proto esp mode tunnel
ip link set hr1 multicast off
ip link set hr1 mtu 1446 up
ip addr add 10.78.1.1/32 dev hr1
ip route replace 10.78.1.2/32 dev hr1 src 10.78.1.1 congctl cubic
ip link add hr2 type xfrm if_id 2
ip xfrm state add src 10.77.1.1 dst 10.77.2.1 proto esp spi 0x808 mode tunnel if_id 2 replay-window 4096 flag esn enc 'cbc(aes)' 0x00000000000000000000000000000000 auth-trunc 'hmac(sha1)' 0x0000000000000000000000000000000000000000 96
ip xfrm state add src 10.77.2.1 dst 10.77.1.1 proto esp spi 0x809 mode tunnel if_id 2 replay-window 4096 flag esn enc 'cbc(aes)' 0x00000000000000000000000000000000 auth-trunc 'hmac(sha1)' 0x0000000000000000000000000000000000000000 96
ip xfrm state add src 10.77.1.1 dst 10.77.2.1 proto ah spi 0x80a mode transport if_id 2 replay-window 4096 flag esn auth-trunc 'hmac(sha1)' 0x0000000000000000000000000000000000000000 96
ip xfrm state add src 10.77.2.1 dst 10.77.1.1 proto ah spi 0x80b mode transport if_id 2 replay-window 4096 flag esn auth-trunc 'hmac(sha1)' 0x0000000000000000000000000000000000000000 96
ip xfrm policy add src 10.78.2.1/32 dst 10.78.2.2/32 dir out if_id 2 tmpl src 10.77.1.1 dst 10.77.2.1 proto esp mode tunnel tmpl src 10.77.1.1 dst 10.77.2.1 proto ah mode transport
ip xfrm policy add src 10.78.2.2/32 dst 10.78.2.1/32 dir in if_id 2 tmpl src 10.77.2.1 dst 10.77.1.1 proto esp mode tunnel tmpl src 10.77.2.1 dst 10.77.1.1 proto ah mode transport
";

#[test]
fn a_dry_run_prints_what_the_kernel_is_told() {
    let ground = Ground::new("xfrm");
    let stacks = ["http/esp(backend=kernel)", "http/ah+esp(backend=kernel,hmac-sha1,aes-128-cbc)"];
    ground.write("p.toml", &format!("stacks = {stacks:?}\nfamily = \"ipv4\"\n{WORKLOADS}"));
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
    assert_eq!(ended.code, Some(0), "{ended}");
    // with the program's whole path, and between them what the server's host is told
    let lines = ended.stdout.lines().filter_map(|line| Some(&line[line.find("ip ")?..]));
    let mut lines = lines.collect::<Vec<_>>().into_iter();
    for expected in BY_KERNEL.lines() {
        assert!(lines.any(|line| line == expected), "`{expected}` does not follow in: {ended}");
    }
    ended.assert_nothing_started();
}

#[test]
fn what_the_kernel_lacks_is_refused_with_the_reason() {
    if !privileged() {
        return;
    }
    let probe = ["--net", "ip", "link", "add", "probe", "type", "xfrm", "if_id", "1"];
    let probe = std::process::Command::new("unshare").args(probe).output();
    if probe.expect("unshare runs").status.success() {
        return; // this kernel may well do it
    }
    let ground = Ground::new("refused");
    ground.write("p.toml", &format!("stacks = [\"http/esp(backend=kernel)\"]\n{WORKLOADS}"));
    let ended = ground.end_of(ground.headroom("lab run p.toml"));
    ended.assert_says(3, &["kernel cannot do `esp(backend=kernel)`", "it lacks aes-128-gcm"]);
    ended.assert_nothing_started();
}

/// sshd restarts before each sample, and binds again to an address of an interface that is gone
/// between two samples.
#[test]
fn sshd_restarts_inside_a_tunnel_that_ends_between_samples() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("sshd-inside");
    let stacks = ["sftp/esp(udp)", "ssh/esp(ike)"];
    let plan = format!(
        "stacks = {stacks:?}\nrepetitions = 2\ncount-packets = false\n\
         [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n\
         stacks = [\"{}\"]\n\
         [[workload]]\nkind = \"commands\"\ncommands = [\"pwd\"]\nstacks = [\"{}\"]\n",
        stacks[0], stacks[1]
    );
    ground.write("p.toml", &plan);
    let results = ground.measure("p.toml");
    for stack in stacks {
        let samples = array(&results, "samples").iter().filter(|sample| sample["stack"] == stack);
        let samples: Vec<&Value> = samples.collect();
        assert!(samples.len() >= 2, "{stack}: {samples:?}");
        assert!(samples.iter().all(|sample| sample["ok"] == true), "{samples:?}");
    }
}

#[test]
fn setting_a_layer_up_is_a_workload() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("setup");
    let of = [
        "http/strongswan",
        "http/strongswan(cert)",
        "http/strongswan(cert-rsa)",
        "http/tls",
        "http/esp(ike)",
        "http/esp(ike,pq=off)",
    ];
    let setup = format!(
        "repetitions = 2\n[[workload]]\nkind = \"setup\"\n[[workload]]\nkind = \"download\"\n\
         sizes = [\"64KiB\"]\ntransfers-per-sample = 1\nstacks = [\"{}\", \"{}\"]\n",
        of[1], of[2]
    );
    let of_strongswan_6 = has_strongswan_6().then_some("http/strongswan(pq)");
    let stacks: Vec<&str> = of.into_iter().chain(of_strongswan_6).collect();
    let results = measure_plan(&ground, &format!("stacks = {stacks:?}\n{setup}"));
    let set_up = |stack: &str| {
        let samples: Vec<&Value> = array(&results, "samples")
            .iter()
            .filter(|s| s["stack"] == stack && s["workload"] == "setup")
            .collect();
        assert!(samples.len() >= 2, "{stack}");
        let wire = &samples[0]["wire"];
        let both = number(wire, "file_direction_bytes") + number(wire, "ack_direction_bytes");
        assert_eq!(both, number(wire, "bytes"), "{wire}");
        for sample in &samples {
            assert!(number(sample, "set_up_server_cpu_seconds") > 0.0, "{sample}");
        }
        (number(wire, "packets"), number(wire, "bytes"), number(wire, "round_trips"))
    };
    let [psk, ecdsa, rsa, tls, hybrid, classic] = of.map(set_up);
    // IKE_SA_INIT and IKE_AUTH, however one shows who one is
    for one in [psk, ecdsa, classic] {
        assert_eq!((one.0, one.2), (4.0, 2.0), "{one:?}");
    }
    // RSA's certificate and signature make IKE_AUTH longer than a packet (RFC 7383)
    assert!(rsa.0 >= 6.0 && rsa.2 == 2.0, "{rsa:?}");
    // two certificates with their signatures
    assert!(ecdsa.1 > psk.1 + 700.0 && rsa.1 > ecdsa.1 + 700.0, "{psk:?} {ecdsa:?} {rsa:?}");
    assert!(tls.2 >= 1.0 && tls.1 > 700.0, "{tls:?}");
    // a key of 1184 bytes, a ciphertext of 1088 (FIPS 203), in an exchange of their own
    assert!(hybrid.2 == 3.0 && hybrid.1 > classic.1 + 2272.0, "{hybrid:?} {classic:?}");
    if let Some(stack) = of_strongswan_6 {
        let theirs = set_up(stack);
        assert!(theirs.2 == 3.0 && theirs.1 > psk.1 + 2272.0, "{theirs:?} {psk:?}");
    }
    let facts = &results["environment"]["stacks"]["http/esp(ike)"];
    assert!(text(facts, "esp: key exchange").contains("ML-KEM-768"), "{facts}");
    let facts = &results["environment"]["stacks"]["http/strongswan(cert)"];
    assert!(text(facts, "strongswan: key exchange").contains("ECDSA"), "{facts}");

    ground.write("q.toml", &format!("stacks = [\"http\"]\n{}", "[[workload]]\nkind = \"setup\"\n"));
    let refused = ground.end_of(ground.headroom("lab run q.toml"));
    refused.assert_says(2, &["the workload `setup` cannot run on `http`"]);
    refused.assert_nothing_started();
}

#[test]
fn keys_are_updated_after_as_many_bytes_as_asked_for() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("rekey");
    let results = measure_plan(
        &ground,
        "stacks = [\"http/esp(ike,rekey=1MB)\", \"http/strongswan(rekey=1MB)\", \"http\"]\n\
         repetitions = 2\nlink = \"100mbit\"\n\
         [[workload]]\nkind = \"download\"\nsizes = [\"8MB\"]\n",
    );
    for sample in array(&results, "samples") {
        match text(sample, "stack") {
            "http" => assert!(sample["key_updates"].is_null(), "{sample}"),
            // data passes while keys are agreed on, more of it on a busy machine
            _ => assert!(number(sample, "key_updates") >= 2.0, "{sample}"),
        }
    }
}

/// Whether `scripts/fetch-parts --with-ike-peers` has fetched strongSwan 6, with ML-KEM.
fn has_strongswan_6() -> bool {
    parts().join("ike-peers/usr/lib/ipsec/plugins/libstrongswan-ml.so").is_file()
}

#[test]
fn strongswan_without_ml_kem_is_refused_with_the_remedy_or_left_out() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("no-ml-kem");
    let cache = ground.path("parts");
    std::fs::create_dir(&cache).expect("a folder");
    std::os::unix::fs::symlink(parts().join("root"), cache.join("root")).expect("a link");
    let stacks = ["http", "http/strongswan(pq)"];
    ground.write("p.toml", &format!("stacks = {stacks:?}\n{DOWNLOAD}"));
    for (line, code, says) in [
        ("lab run p.toml", 3, "run scripts/fetch-parts --with-ike-peers"),
        (
            "lab run p.toml --skip-missing --dry-run",
            0,
            "http/strongswan(pq) is left out: there is no",
        ),
    ] {
        let mut command = ground.headroom(line);
        command.env("HEADROOM_PARTS", &cache);
        let ended = ground.end_of(command);
        ended.assert_says(code, &[says]);
        ended.assert_nothing_started();
    }
}

#[test]
fn ipsec_over_ipv4_in_both_modes() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ipsec4");
    let cbc = "ftp/ah+esp(transport,aes-128-cbc,hmac-sha1)";
    let stacks = ["ftp/esp", "ftp/esp(transport,udp)", "ftp/qesp", cbc];
    let plan = format!("stacks = {stacks:?}\nfamily = \"ipv4\"\nrepetitions = 2\n{DOWNLOAD}");
    let begun = SystemTime::now();
    let results = measure_plan(&ground, &plan);
    assert_eq!(ledgers_since(begun), [""; 0], "ledgers of a run are in its own folder");
    assert!(seen_in_clear(&results).values().all(|seen| !seen), "{results}");
    let facts = &results["environment"]["stacks"];
    // eight bytes more in each packet; how many packets acknowledge the file differs by more
    assert_eq!(text(&facts["ftp/esp"], "esp: inner MTU"), "1446");
    assert_eq!(text(&facts["ftp/qesp"], "qesp: inner MTU"), "1438");
    assert_eq!(text(&facts[cbc], "ah+esp: protocol"), "ah+esp, transport mode");
    // there is nothing to set up
    assert!(array(&results, "layer_setups").is_empty(), "{results}");
}

/// Names of ledgers that the lab's tunnels, whose interfaces are `hr…`, have left on this machine.
fn ledgers_since(begun: SystemTime) -> Vec<String> {
    let kept = std::fs::read_dir("/var/lib/headroom").into_iter().flatten().flatten();
    kept.filter(|entry| entry.metadata().and_then(|it| it.modified()).is_ok_and(|at| at > begun))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("hr"))
        .collect()
}

#[test]
fn ipsec_over_ipv6_in_both_modes_and_around_other_layers() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ipsec6");
    let stacks = [
        "http",
        "http/esp(transport)",
        "http/qesp(transport)",
        "http/ah",
        "http/ah+esp",
        "http/tls/esp(udp)/wireguard",
    ];
    let plan = format!("stacks = {stacks:?}\nrepetitions = 2\n{DOWNLOAD}");
    let results = measure_plan(&ground, &plan);
    // AH hides nothing
    let clear: Vec<&str> = seen_in_clear(&results)
        .into_iter()
        .filter(|(_, seen)| *seen)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(clear, ["http", "http/ah"]);
}

#[test]
fn a_gateway_that_dies_is_named() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("gateway");
    ground.write("p.toml", &format!("stacks = [\"http/esp\"]\n{LONG}"));
    let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
    run.until_download(2);
    let gateway = run.until("a gateway", |run| {
        // the agent is the same program
        run.processes("server", "headroom").into_iter().find(|pid| {
            let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            words.is_ok_and(|words| words.contains("tunnel\0up"))
        })
    });
    kill(gateway, Signal::SIGKILL).expect("the gateway runs");
    let ended = run.end();
    ended.assert_says(1, &["esp of http/esp on the server ended"]);
    ended.assert_nothing_left();
}
