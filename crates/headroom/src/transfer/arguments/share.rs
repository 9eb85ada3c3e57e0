//! The arguments of `headroom share`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::connect::Connect;
use super::exit_codes::exit_codes;
use super::values::expiry;

const SHARE_HELP: &str = concat!(
    "Prints a link to the page of the server, which must run with --web, at an address that the other's \
browser reaches. Anyone who has the link can use it until it expires or has no use left: send it over a \
channel that others do not read. A use is one browser, from its first download or upload on; the same \
browser may resume and repeat. A link allows no more than your own key does, and ends with it.

Examples:
  headroom serve --root /srv/files --web
  headroom share /srv/files/report.pdf --once
  headroom share /srv/files/inbox --put --expires 12h --name 'photos of Alice'
  headroom share host:photos --count 5
  headroom share --list host
  headroom share --revoke k3j5q2ab host

",
    exit_codes!()
);

/// Make a link by which somebody without a key fetches or sends files in a browser
#[derive(Debug, Args)]
#[command(after_help = SHARE_HELP)]
pub(crate) struct Share {
    /// A file or directory that a `headroom serve` of yours on this machine serves, or one on a
    /// host; with --list or --revoke a host [default for these: this machine]
    #[arg(value_name = "[HOST[:PORT]:]PATH", required_unless_present_any = ["list", "revoke"])]
    pub(crate) target: Option<OsString>,
    /// How long the link is open, such as 30m, 12h or 7d; up to 366d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = expiry)]
    pub(crate) expires: Duration,
    /// Only one browser may use it
    #[arg(long)]
    pub(crate) once: bool,
    /// At most so many browsers may use it, up to 100 [default: any number]
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) count: Option<u32>,
    /// Let them send files into the directory, each browser into a folder of its own, and see
    /// nothing
    #[arg(long)]
    pub(crate) put: bool,
    /// A note, which the page shows
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// List the links that you have made and that are open
    #[arg(long, conflicts_with_all = ["revoke", "once", "count", "put", "name"])]
    pub(crate) list: bool,
    /// End a link, and the transfers that use it
    #[arg(long, value_name = "ID", conflicts_with_all = ["once", "count", "put", "name"])]
    pub(crate) revoke: Option<String>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Print the link, or each link, as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}
