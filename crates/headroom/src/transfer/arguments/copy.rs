//! The arguments of `headroom put`, `get` and `sync`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use headroom_transfer::SpreadPath;

use super::exit_codes::exit_codes;
use super::moving::{Moving, OnLanes, Verifying};
use super::values::local;

const PUT_HELP: &str = concat!(
    "Examples:
  headroom put data.tar host:
  headroom put photos notes.txt host:backup/
  headroom put big.iso [2001:db8::1]:4860:images/big.iso
  headroom put --ssh photos user@host:backup/
  headroom put photos one,two:4861,three:backup/
  pg_dump db | headroom put - host:db.sql

The host runs `headroom serve`, or ssh reaches it (--ssh). After an interruption repeat the command: only \
what is missing is sent. `-` is verified as well, but not resumed: if it fails, nothing is stored. \
`headroom share` lets somebody without a key fetch files.

",
    exit_codes!()
);

/// Send files and directories to a host
#[derive(Debug, Args)]
#[command(after_help = PUT_HELP)]
pub(crate) struct Put {
    /// Files and directories; DIR/. is what is in DIR; `-` alone is standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Destination below the server's root; an IPv6 address in brackets. Over several servers of
    /// one store, separated by commas, files are spread
    // of one argument clap takes it for the last, so this says what is missing
    #[arg(value_name = "HOST[:PORT]:PATH",
        value_parser = OsStringValueParser::new().try_map(|text| SpreadPath::parse(&text)))]
    pub(crate) to: SpreadPath,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) on_lanes: OnLanes,
    #[command(flatten)]
    pub(crate) verifying: Verifying,
}

const GET_HELP: &str = concat!(
    "Examples:
  headroom get host:data.tar .
  headroom get host:photos host:notes.txt backup/
  headroom get 'host:logs/2026-*.log' .
  headroom get --ssh host:/var/log/syslog .
  headroom get host:db.sql - | psql db

The host runs `headroom serve`, or ssh reaches it (--ssh). After an interruption repeat the command: only \
what is missing is sent. `-` is verified as well, but not resumed: if the exit code is not 0, what was \
written is not the file.

",
    exit_codes!()
);

/// Fetch files and directories from a host
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub(crate) struct Get {
    /// Files and directories below the server's root; DIR/. is what is in DIR. `*`, `?`, `[a-z]`
    /// and `{a,b}` match names there, at most 1024; a backslash escapes them. Over several servers
    /// of one store, separated by commas, files are spread
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) from: Vec<OsString>,
    /// Destination; `-` is standard output, for one file
    #[arg(value_name = "DEST", value_parser = PathBufValueParser::new().try_map(local))]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) on_lanes: OnLanes,
    #[command(flatten)]
    pub(crate) verifying: Verifying,
}

const SYNC_HELP: &str = concat!(
    "Works like `rsync -a SRC/ DEST/`. Files whose size and time of change agree are not read. Of other files, \
spans of 1 MiB are compared at the same offset. Those that differ are searched for content that DEST has in \
its version of the file, also at other offsets (--delta), and the rest is sent.

--delete removes what SRC does not have, after everything else, links themselves and not what they lead \
to. If anything could not be read or stored, nothing is removed.

A pattern without a slash matches at any depth; one that begins with a slash matches at the top; one that \
ends with a slash matches directories only; ! includes again.

Examples:
  headroom sync photos host:backup/photos
  headroom sync --delete --exclude '*.o' --exclude /target/ project host:project
  headroom sync -n --delete host:project project

",
    exit_codes!()
);

/// Make the content of one directory that of another; one of the two is on a host
#[derive(Debug, Args)]
#[command(after_help = SYNC_HELP)]
pub(crate) struct Sync {
    /// The source directory: here, or `HOST[:PORT]:PATH`. Over several servers of one store,
    /// separated by commas, files are spread
    #[arg(value_name = "SRC")]
    pub(crate) from: OsString,
    /// The destination directory on the other side, made if it is missing
    #[arg(value_name = "DEST")]
    pub(crate) to: OsString,
    /// Remove what is in DEST and not in SRC, unless it is excluded
    #[arg(long)]
    pub(crate) delete: bool,
    /// Neither send nor remove what matches this pattern, as in a .gitignore; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Change nothing; print what would be sent and removed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Compare files by hash, not by size and time; reads all files on both sides
    #[arg(short, long)]
    pub(crate) checksum: bool,
    /// Send only the parts of a changed file that DEST's version lacks: auto searches files of
    /// 1 MiB and more, on those of more than 64 KiB, off none
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) delta: Delta,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delta {
    Auto,
    On,
    Off,
}

impl From<Delta> for headroom_transfer::Delta {
    fn from(delta: Delta) -> Self {
        match delta {
            Delta::Auto => Self::Auto,
            Delta::On => Self::On,
            Delta::Off => Self::Off,
        }
    }
}
