//! The arguments of `headroom tunnel` and `headroom ipsec`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// The commands of IPsec.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run IPsec between this host and another: ESP, AH, Q-ESP
    #[command(subcommand)]
    Tunnel(Tunnel),
    /// Look at captured IPsec packets
    #[command(subcommand)]
    Ipsec(Ipsec),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tunnel {
    /// Bring a tunnel up and run until it is taken down
    #[command(
        after_help = "Runs in the foreground. Ctrl-C or SIGTERM takes the tunnel down, SIGHUP reloads it. If the gateway\ndies, the traffic that it protects stays blocked until `up` or `down`.\n\nExit codes: 0 taken down, 1 failed, 2 the configuration was refused, 3 a program is missing"
    )]
    Up(Up),
    /// Take a tunnel down, even if its gateway has died
    Down {
        /// The tunnel [default: the only one]
        name: Option<String>,
    },
    /// Show SAs, rates, lifetimes, policies and drops by reason
    Status {
        /// The tunnel [default: the only one]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print metrics in the text format of Prometheus
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// Show the decision about each packet, with its reason
    Trace {
        /// The tunnel [default: the only one]
        name: Option<String>,
        /// Print JSON, one record per line
        #[arg(long)]
        json: bool,
        /// Stop after N records
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Make a gateway read its configuration again, without losing packets
    Reload {
        /// The tunnel [default: the only one]
        name: Option<String>,
        /// Accept keys that are missing from the ledger. Only if you are sure that no host has ever used
        /// them: using a key again breaks its encryption
        #[arg(long)]
        new_keys: bool,
    },
    /// Write the configurations of both ends, with new keys
    #[command(
        after_help = "Examples:\n  headroom tunnel keygen 192.0.2.1 192.0.2.2 --local-net 10.1.0.0/16 --remote-net 10.2.0.0/16\n  headroom tunnel keygen 192.0.2.1 192.0.2.2 --protocol qesp --out keys\n  headroom tunnel keygen 192.0.2.1 192.0.2.2 --local-net 10.1.0.0/16 --remote-net 10.2.0.0/16 --ike\n  headroom tunnel keygen 192.0.2.1 192.0.2.2 --local-net 10.1.0.0/16 --remote-net 10.2.0.0/16 \\\n    --ike=certificates --out keys\n  headroom tunnel keygen 192.0.2.1 any --local-net 10.1.0.0/16 --pool 10.9.0.0/24 \\\n    --ike=certificates --client alice --client bob\n  headroom tunnel keygen 192.0.2.1 any --local-net 0.0.0.0/0 --pool 10.9.0.0/24 \\\n    --ike=eap --user alice --gateway-name vpn.example.org\n\nWrites left.toml and right.toml, each with its ledger; with --ike without ledgers, and with one\npre-shared key NAME.psk for both; with --ike=certificates with a certificate and a key for each, and\nan authority NAME-ca. Copy right.* and what both need (NAME.psk or NAME-ca.pem) to the other host\nover a channel that you trust, and delete right.* here: two gateways with one ledger would repeat\nnonces. Delete NAME-ca.key as well: nothing needs it any more. Then run `headroom tunnel check FILE`\nand `headroom tunnel up FILE` on both, as root. Gateways between networks must forward packets\n(sysctl net.ipv4.ip_forward=1).\n\nFor many clients (RIGHT is any) writes gateway.toml with a certificate, the authority NAME-ca, and\nfor each --client a configuration, a certificate and a key, or for each --user a password. Give a\nclient its three files and NAME-ca.pem, a user the password and NAME-ca.pem, and delete them here,\nwith NAME-ca.key."
    )]
    Keygen(Box<Keygen>),
    /// Check whether a tunnel can work here: addresses, ports, path, ledger, firewall, peer
    #[command(
        after_help = "Changes nothing. Each line is ok, not known (it cannot be checked from here), a warning, or a\nFAILURE with its remedy. Sends one keepalive packet to each peer of ESP in UDP, to find out whether\nits port is closed.\n\nExit codes: 0 no failure, 1 the tunnel cannot work, 2 the configuration was refused"
    )]
    Check {
        /// The configuration
        file: PathBuf,
    },
    /// Print the keys of ESP and Q-ESP for Wireshark (its table esp_sa)
    #[command(
        after_help = "Append the lines to the file esp_sa in Wireshark's personal configuration, and enable \"Attempt to\ndetect/decode encrypted ESP payloads\" in the preferences of ESP. For Q-ESP also install\ncontrib/qesp.lua. Keep the output secret: it decrypts the traffic."
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
    /// Print every command that would change the host, and do nothing
    #[arg(long, conflicts_with_all = ["new_keys", "background"])]
    pub(crate) dry_run: bool,
    /// Accept keys that are missing from the ledger. Only if you are sure that no host has ever used
    /// them: using a key again breaks its encryption
    #[arg(long)]
    pub(crate) new_keys: bool,
    /// Write the keys that IKE negotiates to DIR, as Wireshark's tables ikev2_decryption_table and esp_sa
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    pub(crate) keylog: Option<PathBuf>,
    /// Return when packets pass, and leave the gateway running
    #[arg(long)]
    pub(crate) background: bool,
    /// Run as the gateway that --background starts
    #[arg(long, hide = true, conflicts_with = "background")]
    pub(crate) detached: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Outer address of this end
    pub(crate) left: IpAddr,
    /// Outer address of the other end; "any" for many clients, with --ike, --pool and --client or --user
    pub(crate) right: OtherEnd,
    /// Cipher suite of ESP and Q-ESP, such as aes-256-gcm or aes-128-cbc+hmac-sha256
    #[arg(long, default_value = "aes-128-gcm")]
    pub(crate) suite: String,
    /// Integrity algorithm of AH
    #[arg(long, value_name = "ALGORITHM", default_value = "hmac-sha256")]
    pub(crate) mac: String,
    /// Protocol that protects the packets
    #[arg(long, value_enum, default_value = "esp")]
    pub(crate) protocol: Protocol,
    /// Tunnel mode between two networks, or transport mode between the two hosts [default: tunnel with networks, else transport]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Negotiate keys by IKEv2: write a few lines for each end, and what both prove themselves by,
    /// written with `=`
    #[arg(long, value_enum, value_name = "PROOF", num_args = 0..=1, require_equals = true, default_missing_value = "psk", conflicts_with_all = ["suite", "mac", "protocol", "udp"])]
    pub(crate) ike: Option<Proof>,
    /// Encapsulate ESP in UDP, on this port [default: 4500]
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "4500")]
    pub(crate) udp: Option<u16>,
    /// The network behind this end: a prefix, a range, or any
    #[arg(long, value_name = "NET")]
    pub(crate) local_net: Option<String>,
    /// The network behind the other end
    #[arg(long, value_name = "NET", requires = "local_net")]
    pub(crate) remote_net: Option<String>,
    /// The network of the addresses of many clients
    #[arg(long, value_name = "NET", requires = "ike")]
    pub(crate) pool: Option<String>,
    /// Name of a client, with --ike=certificates; repeat it for more
    #[arg(long = "client", value_name = "NAME", requires = "pool", conflicts_with = "users")]
    pub(crate) clients: Vec<String>,
    /// Name of a user, with --ike=eap; repeat it for more
    #[arg(long = "user", value_name = "NAME", requires = "pool")]
    pub(crate) users: Vec<String>,
    /// DNS name of this end, in its certificate beside its address
    #[arg(long, value_name = "NAME", requires = "pool")]
    pub(crate) gateway_name: Option<String>,
    /// Name of the tunnel and its interface, at both ends
    #[arg(long, default_value = "hr0")]
    pub(crate) name: String,
    /// Folder for the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}

/// The other end of a new tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherEnd {
    At(IpAddr),
    Any,
}

impl std::str::FromStr for OtherEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            address => address.parse().map(Self::At).map_err(|_| "write an address, or any".into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proof {
    Psk,
    Certificates,
    Eap,
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
    /// Decrypt and verify captured ESP, AH, Q-ESP and IKE, and explain failures
    #[command(
        after_help = "Takes the configuration of `headroom tunnel up` (docs/tunnel.md), the folder of its --keylog, or\nboth. Tries SAs of both directions; policies are not needed. Of IKE it shows exchanges, payloads and\nproposals, never keys, nonces or proofs; without --keylog, only what is not encrypted.\n\nExit codes: 0 every packet was opened, 1 some were not or there was none, 2 the arguments, the\nconfiguration, the log or the capture is unusable"
    )]
    Decode(Decode),
}

#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// The capture (pcap or pcapng), or - for standard input
    pub(crate) capture: PathBuf,
    /// The configuration with the keys
    #[arg(long, value_name = "FILE", required_unless_present = "keylog")]
    pub(crate) config: Option<PathBuf>,
    /// The folder of `tunnel up --keylog`, with the keys that IKE negotiated
    #[arg(long, value_name = "DIR")]
    pub(crate) keylog: Option<PathBuf>,
    /// Write the decrypted packets to this pcap file
    #[arg(long, value_name = "CLEAR.pcap")]
    pub(crate) out: Option<PathBuf>,
    /// High half of the first extended sequence numbers; without it, decode tries 0 to 65535
    #[arg(long, value_name = "N", value_parser = half)]
    pub(crate) esn_high: Vec<u32>,
    /// Print JSON: one packet per line, then the summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only packets that were not opened, and the summary
    #[arg(long)]
    pub(crate) failures: bool,
}

/// Parses a number, decimal or hexadecimal with `0x`.
fn half(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number from 0 to 4294967295, or hexadecimal as in 0x1f".into())
}
