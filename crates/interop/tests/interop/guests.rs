//! The program itself on kernels that people have: its lab, its transfer and its tunnel run
//! in a guest with Linux 6.1 and in one with 6.12, each with an `eth0` where it is called.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use headroom_interop::guest::Guest;
use headroom_interop::peer::{Peers, kernel_required};

const HELPER: &str = env!("CARGO_BIN_EXE_headroom-interop");

/// Two stacks on a link that nothing shapes, and a link that the kernel shapes.
const SMALL: &str = "stacks = [\"ftp\", \"http\"]\nrepetitions = 2\ncount-packets = false\n\
                     validation-links = [\"5mbit,delay=5ms\"]\nvalidation-size = \"64KiB\"\n\
                     [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n";

/// Stacks that the kernel encrypts, which the kernels of test machines may not have.
const ENCRYPTING: &str = "stacks = [\"https\", \"https(ktls)\", \"http\", \"http/macsec\", \"http/macsec(gcm-aes-256)\"]\n\
                          repetitions = 2\n\
                          [[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\ntransfers-per-sample = 1\n\
                          [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\ntransfers-per-sample = 1\n";

/// Something that is tried in a guest, by name.
type Trial = (&'static str, fn(&mut Guest) -> Result<()>);

// Every trial runs on one of the two kernels at least, and what a new user meets first on both:
// one by one on an emulated processor, all trials take two minutes.
const ON_6_1: &[Trial] = &[
    ("doctor", doctor),
    ("a run of an ordinary user", run_without_root),
    ("the demo's plan", demo),
    ("put and get", put_and_get),
    ("a tunnel", tunnel),
    ("stacks that the kernel encrypts", kernel_encrypts),
    ("a run beside cgroup v1", run_beside_cgroup_v1),
];

const ON_6_12_AS_ROOT: &[Trial] = &[
    ("doctor", doctor),
    ("a run of two stacks, and a link that the kernel shapes", unshaped_run),
    ("stacks that the kernel encrypts", kernel_encrypts),
    ("the demo's plan", demo),
];

const ON_6_12_BESIDES: &[Trial] = &[
    ("a run of an ordinary user", run_without_root),
    ("put and get", put_and_get),
    ("a tunnel", tunnel),
];

const WITH_LESS: &[Trial] = &[
    ("a run without IPv6", run_without_ipv6),
    ("put and get without IPv6", put_and_get),
    ("a tunnel without IPv6", tunnel),
    ("missing modules", missing_modules),
];

#[test]
fn lab_transfer_and_tunnel_work_on_linux_6_1() {
    on_linux("6.1", "", ON_6_1);
}

#[test]
fn the_lab_works_on_linux_6_12_as_root() {
    on_linux("6.12", "", ON_6_12_AS_ROOT);
}

#[test]
fn the_lab_without_root_transfer_and_tunnel_work_on_linux_6_12() {
    on_linux("6.12", "", ON_6_12_BESIDES);
}

#[test]
fn a_kernel_without_ipv6_or_a_module_is_used_or_refused_with_its_name() {
    on_linux("6.1", "ipv6.disable=1", WITH_LESS);
}

fn on_linux(version: &str, words: &str, trials: &[Trial]) {
    let headroom = Path::new(HELPER).with_file_name("headroom");
    assert!(headroom.is_file(), "there is no {}: cargo build -p headroom", headroom.display());
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/demo.toml");
    let demo = std::fs::read(demo).expect("the demo's plan");
    let files = [
        ("demo.toml", demo.as_slice()),
        ("small.toml", SMALL.as_bytes()),
        ("encrypting.toml", ENCRYPTING.as_bytes()),
    ];
    let guest = Guest::boot(&Peers::from_environment(), version, &headroom, &files, words);
    let mut guest = match guest {
        Ok(guest) => guest,
        Err(why) => {
            assert!(!kernel_required(), "{why:#}");
            eprintln!("skipped: {why:#}");
            return;
        }
    };
    let release = guest.release.clone();
    assert!(release.starts_with(&format!("{version}.")), "{release}");
    for (what, trial) in trials {
        let begun = Instant::now();
        trial(&mut guest).unwrap_or_else(|why| panic!("{what} on {release}: {why:#}"));
        eprintln!("Linux {release}: {what}: done in {:.0?}", begun.elapsed());
    }
}

/// The doctor finds nothing vital missing, and its own transfers work.
fn doctor(guest: &mut Guest) -> Result<()> {
    guest.run("ip link show eth0 && ip link set eth0 up")?;
    let said = guest.run("headroom lab doctor")?;
    for line in [
        "ok       kernel: htb",
        "ok       kernel: netem",
        "ok       kernel: tls",
        "ok       kernel: macsec",
    ] {
        ensure!(said.contains(line), "`{line}` is not in:\n{said}");
    }
    // it may be slow here, but it must have been tried
    ensure!(said.contains("idle gap"), "{said}");
    Ok(())
}

/// An unshaped run of two stacks, which ends well. The kernel shapes a further link; where
/// emulation is too slow for it, the run says so.
fn unshaped_run(guest: &mut Guest) -> Result<()> {
    let said = guest.run("headroom lab run /files/small.toml --out /tmp/out")?;
    ensure!(said.contains("Report: /tmp/out/report.html"), "{said}");
    nothing_left(guest)
}

/// The server's kernel encrypts TLS records, which every sample verifies, and both kernels encrypt
/// the frames of the link, in which nothing of a file is read.
fn kernel_encrypts(guest: &mut Guest) -> Result<()> {
    let said = guest.run("headroom lab run /files/encrypting.toml --out /tmp/encrypting")?;
    ensure!(said.contains("Report: /tmp/encrypting/report.html"), "{said}");
    guest.run("grep -q '\"macsec: inner MTU\": *\"1468\"' /tmp/encrypting/results.json")?;
    nothing_left(guest)
}

/// The same without root, in a user namespace: what is made there needs other permissions of
/// each kernel.
fn run_without_root(guest: &mut Guest) -> Result<()> {
    guest.run(
        "mkdir -p /tmp/user/tmp && grep -v validation- /files/small.toml >/tmp/user/small.toml && \
         chown -R 1000:1000 /tmp/user",
    )?;
    let said = guest.run(
        "setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/tmp/user TMPDIR=/tmp/user/tmp \
         headroom lab run /tmp/user/small.toml --out /tmp/user/out",
    )?;
    ensure!(said.contains("Report: /tmp/user/out/report.html"), "{said}");
    ensure!(said.contains("in a user namespace of user 1000"), "{said}");
    guest.run("test -z \"$(ls -A /tmp/user/tmp)\"")?;
    nothing_left(guest)
}

/// The demo's servers start, and what they move is looked at on the wire; then it is
/// interrupted, as its large files take emulation too long.
fn demo(guest: &mut Guest) -> Result<()> {
    guest.run(
        "headroom lab run /files/demo.toml --out /tmp/demo >/tmp/demo.said 2>&1 & \
         demo=$!; until grep -q clear_text /tmp/demo/journal.jsonl 2>/dev/null; do \
         kill -0 $demo 2>/dev/null || break; sleep 0.2; done; \
         kill -INT $demo; wait $demo; echo $? >/tmp/demo.code; true",
    )?;
    let said = guest.run("cat /tmp/demo.code /tmp/demo.said")?;
    ensure!(said.starts_with("130") && said.contains("interrupted"), "{said}");
    nothing_left(guest)
}

fn put_and_get(guest: &mut Guest) -> Result<()> {
    guest.run(
        "mkdir -p /tmp/served /root/.config/headroom && head -c 3000000 /dev/urandom >/tmp/file && \
         headroom identity | head -n 1 >/root/.config/headroom/authorized_keys",
    )?;
    guest.run(
        "headroom serve --root /tmp/served --listen 127.0.0.1:4860 --json >/tmp/serve.said 2>&1 & \
         echo $! >/tmp/serve.pid; \
         until grep -q 4860 /tmp/serve.said; do kill -0 $! || exit 1; sleep 0.1; done",
    )?;
    // the server's key is the client's, as both are root here
    let key = "$(headroom identity | tail -n 1)";
    let moved = guest.try_run(&format!(
        "headroom put /tmp/file 127.0.0.1:there --fingerprint {key} && \
         headroom get 127.0.0.1:there /tmp/back --fingerprint {key} && \
         cmp /tmp/file /tmp/back && cmp /tmp/file /tmp/served/there"
    ))?;
    let served = guest.run("kill $(cat /tmp/serve.pid); cat /tmp/serve.said")?;
    ensure!(moved.code == "0", "{}\nthe server: {served}", moved.text);
    Ok(())
}

fn tunnel(guest: &mut Guest) -> Result<()> {
    guest.run(
        "set -e; for n in a b; do ip netns add $n; ip -n $n link set lo up; done; \
         ip -n a link add eth0 type veth peer name eth0 netns b; \
         for n in a b; do ip -n $n link set eth0 up; done; \
         ip -n a addr add 192.0.2.1/24 dev eth0; ip -n b addr add 192.0.2.2/24 dev eth0; \
         ip -n a addr add 10.1.0.1/32 dev lo; ip -n b addr add 10.2.0.1/32 dev lo",
    )?;
    guest.run(
        "headroom tunnel keygen 192.0.2.1 192.0.2.2 --local-net 10.1.0.0/16 --remote-net 10.2.0.0/16 --out /tmp/keys",
    )?;
    let (a, b) =
        ("HEADROOM_RUN_DIR=/tmp/a ip netns exec a", "HEADROOM_RUN_DIR=/tmp/b ip netns exec b");
    let said = guest.run(&format!(
        "set -e; {a} headroom tunnel up /tmp/keys/left.toml --background; \
         {b} headroom tunnel up /tmp/keys/right.toml --background; \
         ip netns exec a ping -c 3 -W 10 -I 10.1.0.1 10.2.0.1; {a} headroom tunnel status; \
         {a} headroom tunnel down; {b} headroom tunnel down",
    ))?;
    ensure!(said.contains("3 packets received") && said.contains("ESP"), "{said}");
    // The kernel's own ESP sees a copy, and has no association for it (docs/tunnel.md).
    guest.run("ip netns exec b grep -q 'XfrmInNoStates.*[1-9]' /proc/net/xfrm_stat")?;
    guest.run("ip netns del a && ip netns del b").map(drop)
}

/// The CPU's controllers are those of cgroup v1, as older distributions mount them.
fn run_beside_cgroup_v1(guest: &mut Guest) -> Result<()> {
    guest.run(
        "set -e; v1=/sys/fs/cgroup/cpu,cpuacct; mount -t tmpfs cgroup /sys/fs/cgroup; mkdir $v1; \
         mount -t cgroup -o cpu,cpuacct cgroup $v1; test -e $v1/cpuacct.usage",
    )?;
    guest.run("grep -v validation- /files/small.toml >/tmp/v1.toml")?;
    let said = guest.run("headroom lab run /tmp/v1.toml --out /tmp/v1")?;
    ensure!(said.contains("Report: /tmp/v1/report.html"), "{said}");
    // CPU times are there all the same
    guest.run("grep -q '\"cpu_seconds\": *{' /tmp/v1/results.json")?;
    guest.run("! find /sys/fs/cgroup -name 'headroom-*' | grep .")?;
    nothing_left(guest)
}

/// A plan that names no family runs over IPv4; one that names IPv6 is refused.
fn run_without_ipv6(guest: &mut Guest) -> Result<()> {
    guest.run("test ! -e /proc/net/if_inet6")?;
    guest.run("grep -v validation- /files/small.toml >/tmp/small.toml")?;
    let said = guest.run("headroom lab run /tmp/small.toml --out /tmp/out")?;
    ensure!(said.contains("Report: /tmp/out/report.html"), "{said}");
    guest.run("grep -q '\"family\": *\"ipv4\"' /tmp/out/results.json")?;
    guest.run("(echo 'family = \"ipv6\"'; cat /tmp/small.toml) >/tmp/v6.toml")?;
    refused(guest, "lab run /tmp/v6.toml", 3, &["IPv6 switched off", "family = \"ipv4\""])?;
    nothing_left(guest)
}

/// What the kernel lacks is named.
fn missing_modules(guest: &mut Guest) -> Result<()> {
    guest.run(
        "headroom tunnel keygen 192.0.2.1 192.0.2.2 --out /tmp/less && rmmod tun nft_objref",
    )?;
    let up = "tunnel up /tmp/less/left.toml --background";
    refused(guest, up, 1, &["nf_tables with named counters", "nft_objref"])?;
    guest.run("insmod /m/nft_objref.ko && headroom tunnel down")?;
    refused(guest, up, 1, &["/dev/net/tun"])?;
    guest.run("headroom tunnel down && rmmod macsec tls")?;
    refused(guest, "lab run 'https(ktls)'", 3, &["module tls", "CONFIG_TLS"])?;
    refused(guest, "lab run http/macsec", 3, &["module macsec"])?;
    guest.run("rmmod sch_htb sch_netem veth")?;
    refused(guest, "lab run /files/small.toml", 3, &["the module veth"])?;
    let doctor = guest.try_run("headroom lab doctor")?;
    ensure!(doctor.code == "3", "{}: {}", doctor.code, doctor.text);
    for name in ["veth", "htb", "netem", "tls", "macsec"] {
        let words = format!("MISSING  kernel: {name}");
        ensure!(doctor.text.contains(&words), "`{words}` is not in {}", doctor.text);
    }
    nothing_left(guest)
}

fn refused(guest: &mut Guest, command: &str, code: u8, words: &[&str]) -> Result<()> {
    let said = guest.try_run(&format!("headroom {command}"))?;
    ensure!(said.code == code.to_string(), "`{command}` ended with {}: {}", said.code, said.text);
    for words in words {
        ensure!(said.text.contains(words), "`{words}` is not in {}", said.text);
    }
    Ok(())
}

/// No namespace, folder, control group or process of a run is left.
fn nothing_left(guest: &mut Guest) -> Result<()> {
    let left = guest.run(
        "ip netns list; ls -d /tmp/headroom-* 2>/dev/null; grep -l -E '^(nginx|pure-ftpd|sshd|headroom)' /proc/[0-9]*/comm; true",
    )?;
    ensure!(left.trim().is_empty(), "a run left {left}");
    Ok(())
}
