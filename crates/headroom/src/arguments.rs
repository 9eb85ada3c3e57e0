//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use headroom_lab::workload::{WORKLOAD_KINDS, WorkloadKind};
use headroom_lab_results::analysis::advise::Property;

use crate::file_set::Files;

/// Measure what securing a transfer costs, move files, and run IPsec tunnels.
#[derive(Debug, Parser)]
#[command(
    name = "headroom",
    version,
    max_term_width = 100,
    after_help = "If the reader of standard output exits (`| head`), the command completes and exits as usual.\nIf output cannot be written for another reason (a full disk), it reports the error and exits with 1."
)]
pub(crate) struct Arguments {
    /// Print every command that it runs
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what securing a transfer costs on this machine or between two
    #[command(subcommand)]
    Lab(Lab),
    /// Emulate a link between two interfaces: rate, delay, jitter, loss
    #[command(
        after_help = "Examples:\n  headroom link --a eth1 --b eth2 --rate 100mbit --delay 25ms --loss 1%\n  headroom link --a eth1 --b eth2 --spec 100mbit,delay=25ms,up-rate=10mbit --seed 7\n\nForwards frames in both directions until interrupted or until standard input, if\nit is a pipe, closes. Needs root. Turn off everything else on this host that\nforwards between the two interfaces (a bridge, routing): it would duplicate\nframes. With --json, a line `stats` on standard input prints the counters."
    )]
    Link(Link),
    #[cfg(feature = "tunnel")]
    #[command(flatten)]
    Tunnel(crate::tunnel::Command),
    #[cfg(feature = "transfer")]
    #[command(flatten)]
    Transfer(crate::transfer::Command),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages to a folder (troff)
    #[command(
        after_help = "Examples:\n  headroom man | man -l -\n  headroom man ~/.local/share/man/man1"
    )]
    Man {
        /// Write the pages of all commands to this folder, made if it is missing, instead of
        /// printing that of headroom
        folder: Option<PathBuf>,
    },
    /// Move a file by FTP or HTTP and report the clocks (the lab's client)
    #[command(hide = true)]
    Fetch(Fetch),
    /// Move a file by a page in a browser and report the clocks (the lab's client)
    #[command(hide = true)]
    Browse(Browse),
    /// Serve files to pages in browsers by data channels of WebRTC (the lab's peer)
    #[command(hide = true)]
    BrowsePeer(BrowsePeer),
    /// Send datagrams, as many as arrive or there and back (the lab's load)
    #[command(hide = true, subcommand)]
    Load(Load),
    /// Run the lab's agent on a host of the testbed
    #[command(hide = true)]
    LabAgent,
    /// Run this program as root of a user namespace, without arguments only try that
    #[command(hide = true)]
    LabUserNamespace {
        /// The arguments of this program
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Run a server of the lab that has a single user id: setgroups(2) succeeds without effect
    #[command(hide = true)]
    LabWithoutGroups {
        /// The server's command
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Set up a real host for a run (started by the lab over ssh)
    #[command(hide = true)]
    LabHost {
        /// Bytes that the files of the run will take
        bytes: u64,
    },
}

impl Command {
    /// Tells whether the command serves others until it is stopped.
    pub(crate) fn is_server(&self) -> bool {
        match self {
            #[cfg(feature = "transfer")]
            Self::Transfer(
                crate::transfer::Command::Serve(_) | crate::transfer::Command::Ui(_),
            ) => true,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Check what this machine has, and what missing parts prevent
    Doctor {
        /// Check what this plan or study needs, on the machines that it names
        #[arg(value_name = "PLAN")]
        plan: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Folder for temporary files
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
    },
    /// List stacks, layers, workloads, and plans in ./plans
    List {
        /// List what this plan, study or file of definitions defines instead
        file: Option<PathBuf>,
        /// Explain how a plan defines applications and layers of its own: keys, placeholders and an
        /// example
        #[arg(long, conflicts_with = "file")]
        own_stacks: bool,
    },
    /// Run a plan or a study, or compare stacks without one
    #[command(
        after_help = "Examples:\n  headroom lab run plans/demo.toml\n  headroom lab run plans/demo.toml --minutes 10\n  headroom lab run ftp ftps https --link 100mbit --sizes 1KiB,1MiB\n  headroom lab run sftp scp --workload many --family ipv4 --offload off\n  headroom lab run plans/demo.toml --only 'ftp*' --dry-run\n  headroom lab run --resume results/demo-1790000000\n  headroom lab run plans/studies/qesp.toml --scale quick\n\nExit codes:\n  0    measured\n  1    something failed; what was measured is kept\n  2    wrong arguments or plan\n  3    something is missing on this machine\n  4    --strict was given, and background load disturbed most blocks\n  130  interrupted"
    )]
    Run(Box<Run>),
    /// Run plans between pairs of hosts at given times
    #[command(
        after_help = "Examples:\n  headroom lab campaign net.toml --dry-run\n  headroom lab campaign net.toml\n  headroom lab campaign net.toml --status\n  headroom lab history results/net --since monday\n\nThe same command continues an interrupted campaign. Its folder has the results of each run, as\n`lab run` writes them, in runs/ROUND/PLAN@PAIR, what the runs printed in logs, and all samples\nin samples.parquet. A run that cannot start is noted as missed, with the reason, and does not\nstop the others. docs/lab.md explains the file.\n\nExit codes:\n  0    all runs were measured\n  1    some were missed, or measured in part, or have failed samples; the others are kept\n  2    wrong arguments, campaign or plan\n  130  interrupted"
    )]
    Campaign(Campaign),
    /// Rebuild the report of a folder, also of an interrupted or unfinished run
    Report {
        /// Folder of an earlier run or study, or one with several studies in it, for an index
        dir: PathBuf,
        /// Print all sentences, tables and notes
        #[arg(long)]
        full: bool,
    },
    /// Compare runs cell by cell with the first
    #[command(
        after_help = "Examples:\n  headroom lab compare results/demo-1790000000 results/demo-1790086400\n  headroom lab compare results/demo-1790000000 results/demo-1790086400 --fail-above 5%\n\nExit codes:\n  0  the runs were read; nothing is too slow\n  1  --fail-above P was given, and a cell is too slow (the whole 95 % interval of its time\n     over that in A lies above P percent) or was not measured\n  2  wrong arguments, or a run that cannot be read\n\nBlocks of two runs are not paired: intervals are Welch's, on logarithms of session times."
    )]
    Compare(Compare),
    /// Show runs of a plan over time, and find what became slower or faster, and when
    #[command(
        after_help = "Examples:\n  headroom lab history results\n  headroom lab history results/net --since monday\n\nRuns are told apart by the names of their plans, those without a plan by their stacks, and by\ntheir pairs of hosts; a study counts part by part. Runs that background load disturbed are left\nout. A change needs at least four runs of a cell; which changes would be seen is in the table.\n--since compares the runs of a cell on both sides of a time. docs/methodology.md explains both\ntests."
    )]
    History(HistoryOf),
    /// Write the samples of many runs into one table
    #[cfg(feature = "export")]
    #[command(
        after_help = "Example:\n  headroom lab export results --parquet samples.parquet\n  duckdb -c \"SELECT run, stack, workload, size_bytes, median(session_seconds) FROM 'samples.parquet' GROUP BY ALL\"\n\nA row for each sample: columns of its run, then those of results.csv, which the folder of a run has\nbeside results.json and report.html: for one run nothing needs to be exported."
    )]
    Export(Export),
    /// Predict which stacks move files soonest over a link
    #[command(
        after_help = "Examples:\n  headroom lab advise --rate 200mbit --rtt 30ms --files 2000x1MiB\n  headroom lab advise --rate 50mbit --rtt 80ms --loss 0.1% --files 1MiB --need mutual-auth,no-udp\n  headroom lab advise --rate 20mbit --rtt 20ms --files 64KiB --arithmetic\n  headroom lab advise --back-test --from results/back-test-1790000000\n\nA stack must have all of --need:\n  mutual-auth: both sides prove who they are\n  forward-secrecy: keys that last do not decrypt earlier sessions\n  post-quantum: its key exchange resists quantum computers\n  qos-visible: routers see the application's ports\n  no-udp: nothing travels over UDP\n  verified: the receiver compares a hash of each whole file\nWithout --need, stacks in clear (ftp, http) are ranked and marked; forward-secrecy leaves them out.\n\nThe prediction is of downloads by one client. Without --from it rests on a run of eleven stacks\nthat comes with this program; the answer names its machine and date.\n\nExit codes:\n  0  answered\n  2  wrong arguments, or a run that cannot be read\n  5  no answer: the question lies outside what was measured, or no stack has what it needs\nWith --measure those of `lab run`."
    )]
    Advise(Advise),
    /// Fetch the servers and clients of one Debian release, the same on every Linux, for `lab run`
    #[command(
        after_help = "They are unpacked into the private cache ($HEADROOM_PARTS, else\n~/.cache/headroom/parts), without root; nothing is installed. `lab run` then measures\nthem instead of this machine's own, unless --host-programs is given or a plan needs a\nprogram that they do not have."
    )]
    Parts {
        /// Archive of Debian packages, with debian and debian-security below it [default: that of
        /// this machine's own packages, on Debian]
        #[arg(long, value_name = "URL")]
        archive: Option<String>,
    },
    /// Remove what a killed run left behind
    Clean {
        /// Folder for temporary files that the run was given
        #[arg(long, value_name = "DIR")]
        scratch: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A plan or a study (a TOML file), or the names of stacks
    #[arg(required_unless_present = "resume", value_name = "PLAN|STACK")]
    pub(crate) what: Vec<String>,
    /// Folder for results and report [default: results/NAME-TIME; without a plan, NAME is made of
    /// the stacks]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Resume the interrupted run in this folder; completed blocks are kept
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "dry_run"])]
    pub(crate) resume: Option<PathBuf>,
    /// Resume even if the machine or its programs have changed
    #[arg(long, requires = "resume")]
    pub(crate) allow_changed_environment: bool,
    /// Paired blocks per workload and size of a plan, not of a study (the minimum, if the plan has
    /// `until`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) repetitions: Option<u32>,
    /// Spend N minutes on a plan, not on a study: as many repetitions as probably fit, at least
    /// five, more while time is left, and without the largest sizes where even five take longer.
    /// On a machine slower than expected it takes longer
    #[arg(long, value_name = "N", conflicts_with = "repetitions", value_parser = minutes)]
    pub(crate) minutes: Option<u32>,
    /// Run all of the plan or study, or the smaller version that it defines (`[quick]`, `[smoke]`;
    /// all of it where it defines none)
    #[arg(long, value_name = "SCALE", value_parser = ["full", "quick", "smoke"])]
    pub(crate) scale: Option<String>,
    /// Run a plan on the testbed of this file (a table `[testbed]`, as in a plan), not on its own
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) testbed: Option<PathBuf>,
    /// Measure only matching stacks of a plan, not of a study, and their baselines (* matches any
    /// text)
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Option<String>,
    /// Skip stacks whose programs are missing, and list them
    #[arg(long)]
    pub(crate) skip_missing: bool,
    /// Measure this machine's programs, not the pinned ones of `lab parts`
    #[arg(long)]
    pub(crate) host_programs: bool,
    /// File that defines applications and layers, without a plan (`lab list --own-stacks`
    /// explains how)
    #[arg(long, value_name = "FILE")]
    pub(crate) include: Vec<String>,
    /// Link, without a plan: unshaped, 100mbit, 100mbit,delay=25ms,loss=1% (each way: a round-trip
    /// time of 50ms), trace=lte.trace [default: unshaped]
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
    /// Link backend, overrides the plan [default: the best available]
    #[arg(long, value_name = "BACKEND", value_parser = ["netem", "emulator", "shaper"])]
    pub(crate) link_backend: Option<String>,
    /// File sizes up to 1GiB, without a plan [default: 1KiB,1MiB,64MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub(crate) sizes: Vec<String>,
    /// Workloads, without a plan: download, upload, many, …; `lab list` lists all
    /// [default: download,upload]
    #[arg(long, value_name = "WORKLOADS", value_delimiter = ',', hide_possible_values = true,
        value_parser = WORKLOAD_KINDS.map(WorkloadKind::name))]
    pub(crate) workload: Vec<String>,
    /// Address family, without a plan [default: ipv6]
    #[arg(long, value_name = "FAMILY", value_parser = ["ipv4", "ipv6"])]
    pub(crate) family: Option<String>,
    /// Segmentation and checksum offload of the interfaces (TSO, GSO, GRO), without a plan
    /// [default: on]
    #[arg(long, value_name = "ON|OFF", value_parser = ["on", "off"])]
    pub(crate) offload: Option<String>,
    /// Keep the counted packets, one pcap file per stack, workload and size
    #[arg(long)]
    pub(crate) keep_captures: bool,
    /// Measure over a link that fails its self-test as well; the report says so
    #[arg(long)]
    pub(crate) allow_failed_link_test: bool,
    /// Print how long it will probably take, and every command that would change the system,
    /// without running it; name missing programs on standard error
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print results.json instead of the answer
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all sentences, tables and notes
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Exit with 4 if background load disturbed most blocks
    #[arg(long)]
    pub(crate) strict: bool,
    /// Folder for temporary files [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Campaign {
    /// The campaign (a TOML file); with --status also its folder
    pub(crate) file: PathBuf,
    /// Folder for results; a campaign in it is continued [default: results/NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Say how far the campaign is, without running anything
    #[arg(long)]
    pub(crate) status: bool,
    /// Print JSON
    #[arg(long, requires = "status")]
    pub(crate) json: bool,
    /// Print when rounds are due and the commands of the first, without running them
    #[arg(long, conflicts_with = "status")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Link {
    /// The interface on the client's side
    #[arg(long, value_name = "IF")]
    pub(crate) a: String,
    /// The interface on the server's side
    #[arg(long, value_name = "IF")]
    pub(crate) b: String,
    /// Bits per second on the wire, including Ethernet framing: 100mbit [default: unlimited]
    #[arg(long)]
    pub(crate) rate: Option<String>,
    /// Recorded trace in place of a rate, as mahimahi's mm-link reads it: lte.trace
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pub(crate) trace: Option<String>,
    /// One-way delay: 25ms
    #[arg(long)]
    pub(crate) delay: Option<String>,
    /// Greatest deviation from the delay, without reordering: 1ms
    #[arg(long)]
    pub(crate) jitter: Option<String>,
    /// Share of frames lost: 1%
    #[arg(long)]
    pub(crate) loss: Option<String>,
    /// Mean length of a burst of losses, in frames: 8
    #[arg(long)]
    pub(crate) burst: Option<String>,
    /// Length of the bottleneck's queue: 200 (packets) or 64KiB [default: 50 ms at the link's
    /// rate, at least 100 packets]
    #[arg(long)]
    pub(crate) queue: Option<String>,
    /// Management of that queue: codel or fq-codel, which keep it short [default: it drops
    /// what arrives when it is full]
    #[arg(long)]
    pub(crate) aqm: Option<String>,
    /// Share of frames that arrive twice: 0.1%
    #[arg(long)]
    pub(crate) duplicate: Option<String>,
    /// Share of frames held back until three later ones have passed, or for 10 ms: 1%
    #[arg(long)]
    pub(crate) reorder: Option<String>,
    /// Share of frames with one flipped bit: 0.01%
    #[arg(long)]
    pub(crate) corrupt: Option<String>,
    /// Whole link in one argument, as in a plan; keys up-… apply from A to B: 100mbit,delay=25ms,up-rate=10mbit
    #[arg(long, conflicts_with_all = ["rate", "trace", "delay", "jitter", "loss", "burst", "queue", "aqm", "duplicate", "reorder", "corrupt"])]
    pub(crate) spec: Option<String>,
    /// Folder of the link's traces [default: the working folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) trace_folder: Option<PathBuf>,
    /// Seed of the random processes; the same seed loses the same frames [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Print JSON: one line when forwarding starts, one for each direction at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The earlier run: its folder or its results.json
    pub(crate) a: PathBuf,
    /// Later runs, each of which is compared with the first
    #[arg(required = true, num_args = 1..=25)]
    pub(crate) b: Vec<PathBuf>,
    /// Fail if the whole 95 % interval of a cell's slowdown lies above this, such as 5%
    #[arg(long, value_name = "P%", value_parser = headroom_lab::units::parse_percent)]
    pub(crate) fail_above: Option<f64>,
    /// Write a test for each cell to this file, as JUnit's XML
    #[arg(long, value_name = "FILE", requires = "fail_above")]
    pub(crate) junit: Option<PathBuf>,
    /// Print JSON: an object for each later run
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryOf {
    /// Folders of runs, or folders with such folders in them
    #[arg(required = true, value_name = "FOLDER")]
    pub(crate) folders: Vec<PathBuf>,
    /// Compare the runs since this time with those before, over all plans and pairs of hosts: a
    /// weekday (the last one), a date, or a moment such as 2026-11-23T08:00:00Z; in UTC
    #[arg(long, value_name = "TIME", value_parser = crate::since::parse)]
    pub(crate) since: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "export")]
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Folders of runs, or folders with such folders in them
    #[arg(required = true, value_name = "FOLDER")]
    pub(crate) folders: Vec<PathBuf>,
    /// Write the table to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// The link's rate, such as 200mbit
    #[arg(long, required_unless_present_any = ["back_test", "basis"], value_parser = headroom_lab::units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Its round-trip time without load, such as 30ms
    #[arg(long, required_unless_present_any = ["back_test", "basis"], value_parser = round_trip_time)]
    pub(crate) rtt: Option<std::time::Duration>,
    /// Share of packets that it loses at random, each way [default: 0%]
    #[arg(long, value_name = "P%", default_value = "0%", hide_default_value = true,
        value_parser = headroom_lab::units::parse_percent)]
    pub(crate) loss: f64,
    /// Number of files in one session and the size of each, such as 2000x1MiB; one file is its size
    /// alone, such as 10GB
    #[arg(long, value_name = "NxSIZE", required_unless_present_any = ["back_test", "basis"])]
    pub(crate) files: Option<Files>,
    /// What a stack must have, separated by commas (below)
    #[arg(long, value_name = "PROPERTIES", value_delimiter = ',',
        value_parser = Property::ALL.map(Property::name))]
    pub(crate) need: Vec<String>,
    /// Rest on this run: its folder or its results.json [default: the run that comes with this
    /// program]
    #[arg(long, value_name = "RUN")]
    pub(crate) from: Option<PathBuf>,
    /// Also print what each time is the sum of
    #[arg(long, conflicts_with = "json")]
    pub(crate) arithmetic: bool,
    /// Measure the stacks on such a link instead, on this machine, as `lab run` does
    #[arg(long, conflicts_with = "arithmetic")]
    pub(crate) measure: bool,
    /// With --measure, measure this machine's programs, not the pinned ones of `lab parts`
    #[arg(long, requires = "measure")]
    pub(crate) host_programs: bool,
    /// Predict each link of the run from its other links instead, and print the errors
    #[arg(long, conflicts_with_all = ["rate", "rtt", "files", "need", "arithmetic", "measure"])]
    pub(crate) back_test: bool,
    /// Print what the answer needs of the run as JSON, for --from
    #[arg(long, hide = true, conflicts_with = "back_test")]
    pub(crate) basis: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number of minutes, without a unit.
fn minutes(text: &str) -> Result<u32, String> {
    let count = text.parse::<u32>().ok().filter(|count| (1..=10_000).contains(count));
    count.ok_or_else(|| {
        format!("`{text}` is not a whole number of minutes from 1 to 10000, such as 10")
    })
}

/// A round-trip time, which no link is without.
fn round_trip_time(text: &str) -> Result<std::time::Duration, String> {
    let time = headroom_lab::units::parse_duration(text)?;
    if time.is_zero() {
        return Err(format!(
            "`{text}` is no round-trip time, since packets always take some: write what ping prints, such as 0.2ms \
             for two hosts in one building, or 30ms"
        ));
    }
    Ok(time)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// Run the server: count datagrams, return echoes, receive streams
    Serve {
        /// Address to listen on
        address: SocketAddr,
        /// ffmpeg that decodes videos [default: reject videos]
        #[arg(long)]
        decoder: Option<PathBuf>,
    },
    /// Send datagrams as fast as they arrive, or at a steady rate
    Packets {
        #[command(flatten)]
        sending: Sending,
        /// Datagrams per second [default: as fast as they arrive]
        #[arg(long)]
        per_second: Option<f64>,
    },
    /// Measure round trips, one datagram at a time
    Echo(Sending),
    /// Send a real-time stream (RTP) and measure its rate, loss, delay and jitter over time
    Realtime {
        #[command(flatten)]
        sending: Sending,
        /// Datagrams per second
        #[arg(long)]
        per_second: f64,
        /// Start and end of TCP cross traffic, in seconds: 0-10
        #[arg(long, value_name = "FROM-TO", value_parser = time)]
        cross_traffic: Option<std::ops::Range<f64>>,
    },
    /// Send a video from a real encoder to the server's decoder, and measure its packets and
    /// the decoded frames
    Video {
        /// Address of the server
        to: SocketAddr,
        /// ffmpeg that encodes the video
        #[arg(long)]
        encoder: PathBuf,
        /// Constant bit rate of the video
        #[arg(long)]
        bits_per_second: u64,
        /// Bytes of the longest packet
        #[arg(long)]
        size: usize,
        /// Duration
        #[arg(long)]
        seconds: u32,
        /// File of letters and digits whose start the video carries as user data
        #[arg(long)]
        content: Option<PathBuf>,
        /// Start and end of TCP cross traffic, in seconds: 0-10
        #[arg(long, value_name = "FROM-TO", value_parser = time)]
        cross_traffic: Option<std::ops::Range<f64>>,
    },
}

/// `FROM-TO`, in seconds.
fn time(text: &str) -> Result<std::ops::Range<f64>, String> {
    let seconds = |text: &str| text.parse().ok().filter(|s| (0.0..=1e6).contains(s));
    text.split_once('-')
        .and_then(|(from, to)| Some(seconds(from)?..seconds(to)?))
        .filter(|time| time.start < time.end)
        .ok_or_else(|| format!("`{text}` is not a start and a later end in seconds, such as 5-10"))
}

#[derive(Debug, Args)]
pub(crate) struct Sending {
    /// Address of the server
    pub(crate) to: SocketAddr,
    /// Bytes of each datagram
    #[arg(long)]
    pub(crate) size: usize,
    /// Duration
    #[arg(long)]
    pub(crate) seconds: f64,
    /// File whose content the datagrams repeat
    #[arg(long)]
    pub(crate) content: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// The file's URL
    pub(crate) url: Option<String>,
    /// Where a download goes; a folder with --list
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// What is uploaded
    #[arg(long)]
    pub(crate) upload: Option<PathBuf>,
    /// A file of URLs, one a line, to download one after the other
    #[arg(long)]
    pub(crate) list: Option<PathBuf>,
    /// name:password
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Certificate that signs the server's; demands TLS
    #[arg(long)]
    pub(crate) ca: Option<PathBuf>,
    /// TLS 1.3 cipher suite
    #[arg(long)]
    pub(crate) tls13_cipher: Option<String>,
    /// TLS 1.2 cipher suite, in place of TLS 1.3
    #[arg(long, conflicts_with = "tls13_cipher")]
    pub(crate) tls12_cipher: Option<String>,
    /// TLS key exchange groups, the first of which a ClientHello brings a share of
    #[arg(long)]
    pub(crate) tls_groups: Option<String>,
    /// HTTP/2 over TLS, in place of HTTP/1.1
    #[arg(long)]
    pub(crate) http2: bool,
    /// TLS handshakes that resume an earlier session; none: each is a full one
    #[arg(long)]
    pub(crate) tls_resumption: Option<TlsResumption>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum TlsResumption {
    /// Those of FTP's data connections, by the session of the control connection
    DataConnections,
    /// All, by a session that is set up first; then prints `ready` and waits for a line
    Session,
}

#[derive(Debug, Args)]
pub(crate) struct Browse {
    /// The page's address, with a slash at the end, or the address and port of a peer
    pub(crate) url: String,
    /// What the page is
    #[arg(long)]
    pub(crate) site: BrowsedSite,
    /// The client's private key, for the page of headroom
    #[arg(long)]
    pub(crate) identity: Option<PathBuf>,
    /// The file's path below the page
    #[arg(long)]
    pub(crate) remote: String,
    /// Where a download goes
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// What is uploaded
    #[arg(long)]
    pub(crate) upload: Option<PathBuf>,
    /// The executable of Chromium
    #[arg(long)]
    pub(crate) chromium: PathBuf,
    /// Where the browser's profile is made
    #[arg(long)]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum BrowsedSite {
    /// The page of `headroom serve --web`
    Headroom,
    /// Any HTTPS server
    Https,
    /// A peer: a data channel of WebRTC
    Webrtc,
}

#[derive(Debug, Args)]
pub(crate) struct BrowsePeer {
    /// Where clients say what they want
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    /// The folder with the files
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// The executable of Chromium
    #[arg(long)]
    pub(crate) chromium: PathBuf,
    /// Where the browser's profile is made
    #[arg(long)]
    pub(crate) folder: PathBuf,
}
