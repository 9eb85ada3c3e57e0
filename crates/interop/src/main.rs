//! Runs headroom's IPsec against other implementations and writes `docs/interop.md`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use headroom_interop::case::Case;
use headroom_interop::ike::{self, Column, Daemons, Guest, StrongSwan, Trial};
use headroom_interop::kernel::{Emulators, EndToEnd, KernelPeer, end_to_end_cases};
use headroom_interop::matrix::{self, Other, Section};
use headroom_interop::peer::{Peers, required};
use headroom_interop::rekey_loss;
use headroom_interop::scapy::{self, Scapy};
use headroom_interop::strongswan::{self, Proposal, SWANCTL};
use headroom_interop::transfer;
use headroom_interop::trial::Outcome;
use headroom_netio::esp_in_udp;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn6, bind, setsockopt, socket, sockopt,
};

/// Test our IPsec against scapy, a real Linux kernel and strongSwan, in every combination
#[derive(Parser)]
struct Arguments {
    /// File for the report [default: standard output]
    #[arg(long)]
    write: Option<PathBuf>,
    /// Test a selection of the combinations, as `cargo test` does
    #[arg(long)]
    selection: bool,
    /// Test only combinations whose description contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// Boot user-mode-linux even if qemu exists
    #[arg(long)]
    user_mode_linux: bool,
    /// Test only this peer; repeatable
    #[arg(long, value_parser = ["scapy", "kernel", "kernel-gateway", "strongswan", "ike"])]
    peer: Vec<String>,
    /// With `--peer ike`: only daemons whose name contains this text
    #[arg(long, default_value = "")]
    daemon: String,
    /// Instead: count the packets lost while the keys of two of our gateways change this often
    #[arg(long, value_name = "REKEYS")]
    rekey_loss: Option<u64>,
    /// Inside the virtual machine: hold a UDP port on which the kernel receives ESP
    #[arg(long, hide = true)]
    hold_esp_in_udp: Option<u16>,
    /// Inside the virtual machine: receive one connection and print its hash
    #[arg(long, hide = true)]
    receive_at: Option<SocketAddr>,
    /// Inside the virtual machine: send to this address and print the hash
    #[arg(long, hide = true, requires = "source")]
    send_to: Option<SocketAddr>,
    #[arg(long, hide = true)]
    source: Option<IpAddr>,
    #[arg(long, hide = true, default_value_t = 0)]
    octets: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(port) = arguments.hold_esp_in_udp {
        hold_esp_in_udp(port)?;
    }
    if let Some(address) = arguments.receive_at {
        println!("{}", transfer::receive(address, &std::sync::mpsc::channel().0)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(to), Some(source)) = (arguments.send_to, arguments.source) {
        println!("{}", transfer::send(source, to, 2, arguments.octets)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(rekeys) = arguments.rekey_loss {
        return count_rekey_losses(rekeys);
    }
    let peers = Peers::from_environment();
    let mut cases = if arguments.selection { Case::selection() } else { Case::all() };
    cases.retain(|case| case.to_string().contains(&arguments.only));
    let run = Run {
        emulators: if arguments.user_mode_linux {
            Emulators::UserModeLinux
        } else {
            Emulators::Any
        },
        helper: std::env::current_exe()?,
        peers,
        cases,
    };
    let known: [(&str, Against); 4] = [
        ("scapy", against_scapy),
        ("kernel", against_kernel),
        ("kernel-gateway", gateway_against_kernel),
        ("strongswan", gateway_against_strongswan),
    ];
    let wanted =
        |name: &str| arguments.peer.is_empty() || arguments.peer.iter().any(|peer| peer == name);
    let (mut sections, mut missing) = (Vec::new(), false);
    for (name, against) in known.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} …");
        sections.push(against(&run).unwrap_or_else(|why| {
            eprintln!("{name} was not tried: {why:#}");
            missing = true;
            Section::missing(name, &format!("{why:#}"))
        }));
    }
    let mut text = matrix::document(&about()?, &sections);
    let mut failures: Vec<String> = sections.iter().flat_map(Section::failures).collect();
    if wanted("ike") {
        eprintln!("ike …");
        let (columns, untried) = against_ike_daemons(&run, &arguments.only, &arguments.daemon)?;
        missing |= !untried.is_empty();
        failures.extend(columns.iter().flat_map(Column::failures));
        text += &ike::document(&about_ike(), &columns, &untried);
        if "scapy".contains(&*arguments.daemon) && arguments.only.is_empty() {
            match ike::scapy::try_exchanges(&run.peers, &run.headroom()?) {
                Ok(checks) => {
                    failures.extend(checks.iter().filter_map(|check| match &check.outcome {
                        Outcome::Failed(why) => Some(format!("scapy: {}: {why}", check.what)),
                        _ => None,
                    }));
                    text += &ike::document_of_checks(&about_scapy_exchanges(), &checks);
                }
                Err(why) => {
                    eprintln!("IKE with scapy was not tried: {why:#}");
                    text += &format!("\nNot tried: scapy: {why:#}.\n");
                    missing = true;
                }
            }
        }
    }
    match &arguments.write {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        None => print!("{text}"),
    }
    for failure in &failures {
        eprintln!("{failure}");
    }
    let passed = failures.is_empty() && !(missing && required());
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts on a link without delay, and on one with delay and loss.
fn count_rekey_losses(rekeys: u64) -> Result<ExitCode> {
    let headroom = std::env::current_exe()?.with_file_name("headroom");
    let mut none = true;
    for link in ["", "10gbit,delay=50ms,loss=1%"] {
        let losses = rekey_loss::count(&headroom, link, rekeys)?;
        println!("{losses}");
        none &= losses.none_by_rekeying();
    }
    Ok(if none { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tests one peer.
type Against = fn(&Run) -> Result<Section>;

/// Parameters of all tests.
struct Run {
    peers: Peers,
    emulators: Emulators,
    cases: Vec<Case>,
    /// This program, which is also the machine's helper.
    helper: PathBuf,
}

impl Run {
    /// Returns our own program, built beside this one.
    fn headroom(&self) -> Result<PathBuf> {
        let path = self.helper.with_file_name("headroom");
        ensure!(path.is_file(), "there is no {}: build it", path.display());
        Ok(path)
    }
}

fn about() -> Result<Vec<String>> {
    let kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").context("the kernel's release")?;
    let today = jiff::Zoned::now().date();
    Ok(vec![
        format!(
            "Headroom's ESP and AH against other implementations, in every combination of suite, mode, address families, extended sequence numbers (ESN) and encapsulation. Written by `make interop` on {today}, on Linux {}; the peers are fetched by `scripts/fetch-parts --with-peers`. `make test` runs all combinations against scapy and a selection against the kernel.",
            kernel.trim()
        ),
        "A cell gives the number of directions that passed: outbound (headroom protects, the peer opens) and inbound, each without and with ESN.".to_owned(),
    ])
}

fn against_scapy(run: &Run) -> Result<Section> {
    let mut scapy = Scapy::start(&run.peers)?;
    let versions = scapy.versions.clone();
    let trials = run.cases.iter().map(|&case| scapy::try_case(&mut scapy, case)).collect();
    Ok(Section {
        title: format!("scapy {}", versions.scapy),
        about: vec![
            format!("scapy {} with cryptography {}, one Python process (`crates/interop/src/scapy/driver.py`). A check sends five packets of different lengths, which must arrive unchanged (in UDP in transport mode: payload and addresses, because the socket removes the header), and three copies of each with a flipped bit, which must be rejected. Inbound, each packet is sent a second time, which must be reported as a replay. With ESN the upper half of the sequence number is 7.", versions.scapy, versions.cryptography),
            "Workarounds for scapy: `AuthAlgo.sign` looks for ESP before AH and so signs the wrong packet for AH over ESP; the driver hides the ESP. scapy has no anti-replay window and takes sequence numbers from the caller, so the driver passes it the upper half. It always advances the addresses of an IPv6 routing header, even when none is left to visit; that case is not tested.".to_owned(),
        ],
        trials,
        others: Vec::new(),
    })
}

fn against_kernel(run: &Run) -> Result<Section> {
    let mut kernel = KernelPeer::boot(&run.peers, run.emulators, &run.helper)?;
    let (release, emulator) = (kernel.machine().release.clone(), kernel.machine().emulator.clone());
    let short = release.split_whitespace().next().unwrap_or_default().to_owned();
    let trials = run.cases.iter().map(|&case| kernel.try_case(case)).collect();
    let hidden = "ESP aes-128-gcm, tunnel, IPv4 in IPv4: echoes padded to 256 bytes (RFC 4303, section 2.7) are answered, dummy packets between them dropped";
    let padded = Outcome::of(kernel.try_hidden_lengths());
    Ok(Section {
        title: format!("Linux {short}"),
        about: vec![
            format!("Linux {release}, booted in {emulator}, over a link that the test reads and writes itself. `ip xfrm` configures its IPsec; headroom's engine protects and opens packets, without a gateway. A check sends three echo requests that the kernel must answer, and two with a flipped bit and a repeated one that it must not answer, for the right reason (`XfrmInStateProtoError` and `XfrmInStateSeqError` count them, and no other counter does). The engine must reject a copy of each reply with a flipped bit, and report a repeated reply as a replay. With ESN the lower half of the sequence numbers overflows among the echoes, in both directions."),
            "Linux pads AH over IPv4 to 8 bytes unless the association has `flag align4`; both are tested. If the address families differ, associations have `flag af-unspec`.".to_owned(),
        ],
        trials,
        others: vec![Other { what: hidden.to_owned(), directions: 1, outcome: padded }],
    })
}

fn gateway_against_kernel(run: &Run) -> Result<Section> {
    let headroom = run.headroom()?;
    let mut kernel = EndToEnd::boot(&run.peers, run.emulators, &run.helper)?;
    let transfers = end_to_end_cases()
        .iter()
        .map(|case| both_ways(case.to_string(), kernel.try_case(&headroom, case)))
        .collect();
    Ok(Section {
        title: format!("Linux {}, whole gateway", kernel.release().split(' ').next().unwrap_or_default()),
        about: vec!["The same kernel behind a tap interface, and `headroom tunnel up` in a namespace at the other end. A check moves 4 MiB by TCP to the other end and 4 MiB back, and compares hashes. The kernel's policies require protection, and its error counters must stay 0.".to_owned()],
        trials: Vec::new(),
        others: transfers,
    })
}

fn gateway_against_strongswan(run: &Run) -> Result<Section> {
    let headroom = run.headroom()?;
    let version = run.peers.version(SWANCTL);
    let transfers = Proposal::ALL
        .into_iter()
        .map(|proposal| {
            let what = format!("ESP {}, tunnel, IPv4 in IPv4, in UDP", proposal.suite());
            both_ways(what, strongswan::join(&run.peers, &headroom, proposal))
        })
        .collect();
    Ok(Section {
        title: "strongSwan".to_owned(),
        about: vec![
            format!(
                "{version}, kernel-libipsec. Two strongSwan daemons negotiate by IKEv2; one is killed, and `headroom tunnel up` replaces it with its addresses, ports, SPIs and keys. A check moves 32 MiB by TCP in each direction at the same time and compares hashes; strongSwan must have counted the bytes on that association."
            ),
            "kernel-libipsec supports only tunnel mode and ESP in UDP, no AH and no ESN."
                .to_owned(),
        ],
        trials: Vec::new(),
        others: transfers,
    })
}

/// Tries IKE with each daemon; returns also why some were not tried.
fn against_ike_daemons(run: &Run, only: &str, daemon: &str) -> Result<(Vec<Column>, Vec<String>)> {
    let headroom = run.headroom()?;
    let trials: Vec<Trial> =
        Trial::ALL.into_iter().filter(|trial| trial.to_string().contains(only)).collect();
    let peers = &run.peers;
    type Found = Result<Box<dyn ike::Peer>>;
    let mut found: Vec<(&str, Found)> = vec![
        ("strongSwan", StrongSwan::of_programs(peers).map(|peer| Box::new(peer) as _)),
        ("strongSwan 6", StrongSwan::of_tree(peers).map(|peer| Box::new(peer) as _)),
    ];
    let in_guest = [("libreswan", Daemons::Libreswan), ("OpenIKED", Daemons::OpenIked)];
    if in_guest.iter().any(|(name, _)| name.contains(daemon)) {
        match Guest::boot(peers, &run.helper) {
            Ok(guest) => {
                found.extend(in_guest.map(|(name, daemon)| (name, ike::peer(&guest, daemon))));
            }
            Err(why) => found.push(("libreswan and OpenIKED", Err(why))),
        }
    }
    found.retain(|(name, _)| name.contains(daemon));
    let (mut columns, mut untried) = (Vec::new(), Vec::new());
    for (name, found) in found {
        match found {
            Ok(mut peer) => columns.push(ike::column(&mut *peer, &headroom, &trials)),
            Err(why) => untried.push(format!("{name}: {why:#}")),
        }
    }
    Ok((columns, untried))
}

fn about_ike() -> Vec<String> {
    vec![
        "`headroom tunnel up` with `[ike]` and `[[child]]` against other daemons, with a pre-shared key where a row has nothing else. A trial starts both anew, negotiates, and moves 1 MiB by TCP in each direction at the same time through the tunnel, hashed at both ends, after the set-up and after each rekey. The other daemons are fetched by `scripts/fetch-parts --with-peers` and `--with-ike-peers`.".to_owned(),
        "Where the peer has ML-KEM, the IKE SA and its rekeys have X25519 and ML-KEM-768 (RFC 9370), except in the first two rows and in those with EAP; our policy is then `post_quantum = \"required\"`.".to_owned(),
        "In rows with certificates each side has a certificate of the kind, from an authority of the trial, and strongSwan's log must name the algorithm of both signatures; libreswan and OpenIKED have no pre-shared key then, and the tunnel must stand. With EAP our gateway proves by a certificate; the client gets an address, rekeys the CHILD SA, gives the address back and gets it again. One with EAP-MSCHAPv2 is asked for EAP-TLS first, and refuses.".to_owned(),
        "strongSwan has kernel-libipsec, in a namespace. libreswan and OpenIKED run in a guest with Linux 6.12, whose kernel does ESP in UDP; there 256 KiB go each way, one after the other.".to_owned(),
        "OpenIKED configures the kernel by PF_KEY, which has no AEAD on Linux and truncates HMAC-SHA-256 to 96 bits; CHILD SAs with OpenIKED have AES-256-CBC with HMAC-SHA2-384 (`suites` in `[[child]]`). It has no command to rekey: lifetimes of 8 s do it.".to_owned(),
        "No row: ryke 0.3.0, an implementation in Rust. It depends on rsa 0.9, whose private-key operations leak by timing (RUSTSEC-2023-0071).".to_owned(),
    ]
}

fn about_scapy_exchanges() -> Vec<String> {
    vec![
        "A Python program (`crates/interop/src/ike/scapy/`) initiates to `headroom tunnel up`: scapy's layers write and read the messages, the package `cryptography` derives the keys (AES-256-GCM, HMAC-SHA2-384, X25519), and scapy's `SecurityAssociation` is the ESP of echo requests to a host behind the gateway. A message that must not be answered is followed by one that must: the next answer has to be that one's.".to_owned(),
    ]
}

fn both_ways(what: String, result: Result<()>) -> Other {
    Other { what, directions: 2, outcome: Outcome::of(result) }
}

/// Two sockets: the kernel takes ESP from a socket of both families over IPv6 only.
fn hold_esp_in_udp(port: u16) -> Result<()> {
    let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let v6 = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::empty(), None)?;
    setsockopt(&v6, sockopt::Ipv6V6Only, &true)?;
    let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(v6.as_raw_fd(), &SockaddrIn6::from(any))?;
    let v6 = UdpSocket::from(v6);
    for socket in [&v4, &v6] {
        esp_in_udp::give_to_kernel(socket)?;
    }
    loop {
        std::thread::park();
    }
}
