//! What one can type after `headroom tunnel` and `headroom ipsec`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Tunnel {
    /// Bring a tunnel up, and stay until it is taken down
    #[command(
        after_help = "Runs in the foreground; Ctrl-C or SIGTERM takes the tunnel down, SIGHUP reloads it. When the\ngateway dies, what it was to protect stays blocked until `up` or `down`.\n\nExit codes: 0 taken down, 1 failed, 2 the configuration is refused, 3 a program is missing"
    )]
    Up(Up),
    /// Take a tunnel down, also one whose gateway is dead
    Down {
        /// The tunnel [default: the only one]
        name: Option<String>,
    },
    /// Say how a tunnel stands: SAs, policies, rates, drops by reason
    Status {
        /// The tunnel [default: the only one]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print metrics as Prometheus reads them
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// Show packets with what was decided about each, and why
    Trace {
        /// The tunnel [default: the only one]
        name: Option<String>,
        /// Print JSON, a record a line
        #[arg(long)]
        json: bool,
        /// End after so many
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Have a gateway read its configuration again; no packet is lost
    Reload {
        /// The tunnel [default: the only one]
        name: Option<String>,
        /// Keys that the ledger does not know have never been used
        #[arg(long)]
        new_keys: bool,
    },
    /// Write the configurations of both ends, with fresh keys
    #[command(
        after_help = "Examples:\n  headroom tunnel keygen 192.0.2.1 192.0.2.2 --local-net 10.1.0.0/16 --remote-net 10.2.0.0/16\n  headroom tunnel keygen 192.0.2.1 192.0.2.2 --protocol qesp --out keys\n\nWrites left.toml and right.toml, each with its ledger. Copy right.* to the other host, over a\nchannel you trust, and remove them here: two gateways with one ledger would repeat nonces."
    )]
    Keygen(Keygen),
    /// Look whether a tunnel can work here: addresses, ports, path, ledger, firewall, peer
    #[command(
        after_help = "Changes nothing. Each line is ok, not known (from here nobody can tell), a warning, or a FAILURE with\nwhat to do. It asks a peer of ESP in UDP with one keepalive packet whether its port is closed.\n\nExit codes: 0 no failure, 1 the tunnel cannot work so, 2 the configuration is refused"
    )]
    Check {
        /// The configuration
        file: PathBuf,
    },
    /// Print the keys of ESP and Q-ESP as Wireshark reads them (its table esp_sa)
    #[command(
        after_help = "Append the lines to the file esp_sa in Wireshark's personal configuration, and switch on \"Attempt to\ndetect/decode encrypted ESP payloads\" in the preferences of ESP. For Q-ESP also install\ncontrib/qesp.lua. The output is secret: whoever has it reads the traffic."
    )]
    Wireshark {
        /// The configuration with the keys
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The configuration
    pub(crate) file: PathBuf,
    /// Print every command that would touch the system, and do nothing
    #[arg(long, conflicts_with_all = ["new_keys", "background"])]
    pub(crate) dry_run: bool,
    /// Keys that the ledger does not know have never been used
    #[arg(long)]
    pub(crate) new_keys: bool,
    /// Return when the tunnel is up; the gateway stays
    #[arg(long)]
    pub(crate) background: bool,
    /// This is the gateway that stays (started by --background)
    #[arg(long, hide = true, conflicts_with = "background")]
    pub(crate) detached: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Outer address of this end
    pub(crate) left: IpAddr,
    /// Outer address of the other end
    pub(crate) right: IpAddr,
    /// Cipher suite of ESP and Q-ESP, such as aes-256-gcm or aes-128-cbc+hmac-sha256
    #[arg(long, default_value = "aes-128-gcm")]
    pub(crate) suite: String,
    /// Integrity algorithm of AH
    #[arg(long, value_name = "ALGORITHM", default_value = "hmac-sha256")]
    pub(crate) mac: String,
    /// What protects
    #[arg(long, value_enum, default_value = "esp")]
    pub(crate) protocol: Protocol,
    /// Tunnel mode between two networks, or transport mode between the two hosts [default: by the networks]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// ESP in UDP, on this port [default: 4500]
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "4500")]
    pub(crate) udp: Option<u16>,
    /// The network behind this end: a prefix, a range, or any
    #[arg(long, value_name = "NET", requires = "remote_net")]
    pub(crate) local_net: Option<String>,
    /// The network behind the other end
    #[arg(long, value_name = "NET", requires = "local_net")]
    pub(crate) remote_net: Option<String>,
    /// Name of tunnel and interface, at both ends
    #[arg(long, default_value = "hr0")]
    pub(crate) name: String,
    /// Folder for the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Esp,
    Ah,
    #[value(name = "ah+esp")]
    AhEsp,
    Qesp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Tunnel,
    Transport,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ipsec {
    /// Open captured ESP, AH and Q-ESP with given keys, and say why a packet fails
    #[command(
        after_help = "Exit codes: 0 every IPsec packet was opened, 1 some were not or there was none, 2 wrong arguments,\nconfiguration or capture. The configuration is that of `headroom tunnel up`; SAs of both directions are tried, and\npolicies are not needed (docs/tunnel.md)."
    )]
    Decode(Decode),
}

#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// The capture (pcap or pcapng), or - for standard input
    pub(crate) capture: PathBuf,
    /// The configuration with the keys
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Write what was protected to this pcap file, in clear
    #[arg(long, value_name = "CLEAR.pcap")]
    pub(crate) out: Option<PathBuf>,
    /// High half of the first extended sequence numbers; without it, 0 to 65535 are tried
    #[arg(long, value_name = "N", value_parser = half)]
    pub(crate) esn_high: Vec<u32>,
    /// Print JSON: a packet a line, then the summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only packets that were not opened, and the summary
    #[arg(long)]
    pub(crate) failures: bool,
}

/// Reads a number, decimal or hexadecimal with `0x`.
fn half(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number from 0 to 4294967295, or hexadecimal as in 0x1f".into())
}
