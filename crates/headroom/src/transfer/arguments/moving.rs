//! The options of `headroom put`, `get` and `sync`.

use clap::{Args, ValueEnum};
use headroom_transfer::{Chunk, Cipher, Keep, Retry, TreeOptions};

use super::connect::{Connect, OverSsh};
use super::values::{chunk, retry};

/// The options of `put`, `get` and `sync`.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    #[command(flatten)]
    pub(crate) trees: Trees,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Limit the rate, such as 100mbit
    #[arg(long, value_name = "RATE", value_parser = headroom_units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// The share of the network beside other traffic: scavenger takes what others leave, high up
    /// to as much as two TCP connections
    #[arg(long, value_enum, value_name = "SHARE", default_value = "normal")]
    pub(crate) priority: Priority,
    /// Compress with zstd: auto skips what does not get shorter. Use it when the network is slower
    /// than the processor and the files are text
    #[arg(long, value_enum, value_name = "WHEN", default_value = "never")]
    pub(crate) compress: Compress,
    /// Count a file as stored only when it is on the disk
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Move big files on QUIC streams, not on lanes (UDP packets of our own)
    #[arg(long)]
    pub(crate) streams: bool,
    /// Use all addresses of a host at once, as servers of one store: files are spread over them, as
    /// over servers that are separated by commas
    #[arg(long, conflicts_with = "ssh")]
    pub(crate) spread: bool,
    /// How long to reconnect after the connection was lost: never, forever, or a time such as 90s,
    /// 10m or 2h. Refusals are final, and `-` is not resumed [default: forever if standard error is
    /// a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = retry)]
    pub(crate) retry: Option<Retry>,
    /// Print events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Priority {
    Scavenger,
    Normal,
    High,
}

impl From<Priority> for headroom_transfer::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Scavenger => Self::Scavenger,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    Auto,
    Never,
    Always,
}

impl From<Compress> for headroom_transfer::Compress {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Auto => Self::Auto,
            Compress::Never => Self::Never,
            Compress::Always => Self::Always,
        }
    }
}

/// What is sent and kept of trees; docs/files.md has a table.
#[derive(Debug, Args)]
pub(crate) struct Trees {
    /// What to do with symbolic links [default: keep for uploads with --ssh, else inside]
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) links: Option<Links>,
    /// Keep hard links
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,
    /// Keep extended attributes (user.*)
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,
    /// Keep POSIX access control lists
    #[arg(short = 'A', long)]
    pub(crate) acls: bool,
    /// Keep owners, if the receiver is root and allows it
    #[arg(long)]
    pub(crate) owner: bool,
    /// Keep groups, if the receiver may set them and allows it
    #[arg(long)]
    pub(crate) group: bool,
    /// Keep owners and groups by number instead of name
    #[arg(long)]
    pub(crate) numeric_ids: bool,
    /// Send a file that changes while it is read, with a warning, instead of failing; big files
    /// are then sent over QUIC streams, not lanes
    #[arg(long)]
    pub(crate) allow_changing: bool,
}

/// What to do with symbolic links in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    /// Keep links that stay within the tree, leave out others
    Inside,
    /// Keep all links
    Keep,
    /// Leave out all links
    Skip,
    /// Keep links that stay within the tree, fail for others
    Refuse,
    /// Send what links lead to
    Follow,
}

impl Trees {
    /// Returns how trees are sent. `to_own_account`: they are uploaded through ssh.
    pub(crate) fn options(&self, to_own_account: bool) -> TreeOptions {
        let kept = [
            (self.hard_links, Keep::HARD_LINKS),
            (self.xattrs, Keep::XATTRS),
            (self.acls, Keep::ACLS),
            (self.owner, Keep::OWNER),
            (self.group, Keep::GROUP),
            (self.numeric_ids, Keep::NUMERIC_IDS),
        ];
        let kept = kept.into_iter().filter(|(is_kept, _)| *is_kept);
        let keep = kept.fold(Keep::NONE, |all, (_, kept)| all.or(kept));
        let links = match self.links {
            None if to_own_account => headroom_transfer::Links::Keep,
            None | Some(Links::Inside) => headroom_transfer::Links::Inside,
            Some(Links::Keep) => headroom_transfer::Links::Keep,
            Some(Links::Skip) => headroom_transfer::Links::Skip,
            Some(Links::Refuse) => headroom_transfer::Links::Refuse,
            Some(Links::Follow) => headroom_transfer::Links::Follow,
        };
        TreeOptions { keep, links, changing: self.allow_changing, verification: None }
    }
}

/// How big files travel on lanes.
#[derive(Debug, Args)]
pub(crate) struct OnLanes {
    /// Use up to N lanes to a server at once (1 to 8), each with a session of its own. Files of
    /// 128 MiB and more are sent in ranges over all of them, other files whole over one. This is
    /// for networks that are faster than one processor core (10 Gbit/s and more). Beside other
    /// traffic N lanes take the shares of N flows
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with_all = ["streams", "ssh"])]
    pub(crate) lanes: u8,
    /// The cipher for big files: aes-128-gcm, aes-256-gcm or chacha20-poly1305 [default: the
    /// fastest that both sides have]. For measurement also none and simplecrypt, which are NO
    /// ENCRYPTION
    #[arg(long, value_name = "CIPHER", conflicts_with = "streams")]
    pub(crate) cipher: Option<Cipher>,
    /// For measurement: bytes of a big file in each packet, 200 to 4000. Packets that are too long
    /// for the path travel as IP fragments
    #[arg(long, value_name = "BYTES", value_parser = chunk, conflicts_with = "streams")]
    pub(crate) chunk: Option<Chunk>,
    /// INSECURE, for measurement: allow --cipher none and simplecrypt, and --chunk, if the server
    /// does, too
    #[arg(long, conflicts_with = "ssh")]
    pub(crate) insecure_measurement: bool,
}

impl From<&OnLanes> for headroom_transfer::LaneOptions {
    fn from(on_lanes: &OnLanes) -> Self {
        let OnLanes { cipher, chunk, insecure_measurement, .. } = *on_lanes;
        Self { cipher, chunk, insecure_measurement }
    }
}

/// How big files are verified.
#[derive(Debug, Args)]
pub(crate) struct Verifying {
    /// How to verify files of more than 64 KiB from the sender's reading to the receiver's writing.
    /// Files of which the receiver has a part or an older version, streams (`-`) and files over
    /// several servers or lanes, to stores and from them are always verified by BLAKE3
    #[arg(long, value_enum, value_name = "HOW", default_value = "full")]
    pub(crate) verify: Verify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    /// By BLAKE3, a cryptographic hash
    Full,
    /// By CRC-64/NVME: less CPU time; finds faults, not forgeries
    Fast,
}
