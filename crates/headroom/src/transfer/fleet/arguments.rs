//! The arguments of `headroom fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const FLEET_HELP: &str = "A job file says what goes where, in TOML (docs/fleet.md has all settings):
  name = \"archive\"
  from = \"/data/photos\"        # a directory here, HOST[:PORT]:PATH of a `headroom serve`,
  to = \"nas:backup/photos\"     # or s3://BUCKET/PREFIX (gs://, az://) of an object store
  mode = \"sync\"                # or copy
  workers = 4

Examples:
  headroom fleet run archive.toml
  headroom fleet status --watch archive.toml
  headroom fleet rate 100mbit archive.toml
  headroom fleet receipts archive.toml > receipts.ndjson
  headroom fleet run --hosts hosts.txt archive.toml    # on many machines, with NATS

The content of one directory goes into the other, as with `headroom sync`. A state folder, or NATS, \
keeps what is listed, queued and done; after any interruption repeat `run`, which resumes without listing again.

Exit codes:
    0  everything was done
    1  something was set aside or cannot be read or written; each is named
    2  wrong arguments or job file, or the state is another job's
    3  the host cannot be reached
    4  the host is not trusted
    5  the server refuses: it does not know this key, or the key may not do this
  130  interrupted or cancelled";

/// Copy or sync a large tree by several workers, from a queue that outlives them
#[derive(Debug, Args)]
#[command(after_help = FLEET_HELP)]
pub(crate) struct Fleet {
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Run a job, or resume it after an interruption
    Run(Run),
    /// Work for a job that was begun, beside the workers of its run, until it is done
    Worker(Worker),
    /// Show how far a job is, and what was set aside
    Status(Status),
    /// Let all workers of a job return their items and wait
    Pause(Which),
    /// Let a paused job continue
    Resume(Which),
    /// End a job for good
    Cancel(Which),
    /// Limit all workers of a job together
    Rate(Rate),
    /// Print a receipt for each file that was copied, as JSON, one per line
    Receipts(Which),
}

/// Which job: its file, or the folder with its state.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The job file
    #[arg(value_name = "JOB.toml")]
    pub(crate) job: Option<PathBuf>,
    /// The folder with the job's state
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The job file
    #[arg(value_name = "JOB.toml")]
    pub(crate) job: PathBuf,
    /// Keep the job's state in this folder, on a local disk [default:
    /// ~/.local/state/headroom/fleet/NAME]
    #[arg(long, value_name = "DIR", conflicts_with = "hosts")]
    pub(crate) state: Option<PathBuf>,
    /// Start workers on these hosts by ssh, and none here: in each line a host as ssh knows it, and
    /// how many workers, if not as many as the job says. For jobs whose queue is at NATS; on each
    /// host are `headroom` and the job file, under the same path
    #[arg(long, value_name = "FILE")]
    pub(crate) hosts: Option<PathBuf>,
    /// The ssh command with its options [default: `$HEADROOM_SSH`, else ssh]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub(crate) ssh_command: Option<String>,
    /// Forget the state, receipts included, and start the job again
    #[arg(long)]
    pub(crate) restart: bool,
    /// Print events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[command(flatten)]
    pub(crate) which: Which,
    /// End when standard input does: a run starts its workers so
    #[arg(long, hide = true)]
    pub(crate) until_eof: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Show its progress until the job is done or cancelled, or until Ctrl-C
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Print JSON; with --watch a line of progress every second, and finally the status
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rate {
    /// The limit, such as 100mbit, or none
    #[arg(value_name = "RATE", value_parser = limit)]
    pub(crate) limit: Limit,
    #[command(flatten)]
    pub(crate) which: Which,
}

/// A limit in bits per second, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => headroom_units::parse_rate(text).map(|rate_bps| Limit(Some(rate_bps))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_rate_or_none() {
        assert_eq!(limit("none"), Ok(Limit(None)));
        assert_eq!(limit("100mbit"), Ok(Limit(Some(100_000_000))));
        assert!(limit("fast").is_err());
    }
}
