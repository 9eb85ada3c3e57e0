//! `headroom ipsec`: looking at captured packets.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use headroom_gateway::config::{Config, Purpose};
use headroom_gateway::control::Error;
use headroom_gateway::decode::capture::{Capture, Writer};
use headroom_gateway::decode::{Decoder, Outcome, Packet, Search};
use serde_json::json;

use crate::output::Buffered;
use crate::tunnel::{Decode, Ipsec, known};

/// Wrong arguments, configuration or capture.
const UNUSABLE: u8 = 2;

pub(crate) fn run(command: Ipsec) -> anyhow::Result<ExitCode> {
    let Ipsec::Decode(arguments) = command;
    // what cannot be looked at is not the same as what could not be opened
    decode(&arguments).or_else(|error| {
        eprintln!("headroom: {error:#}");
        Ok(ExitCode::from(UNUSABLE))
    })
}

fn decode(arguments: &Decode) -> anyhow::Result<ExitCode> {
    let config = Config::read(&arguments.config, Purpose::Decode).map_err(Error::from)?;
    known(&config.warnings);
    let search = Search { likely: arguments.esn_high.clone(), ..Search::default() };
    let input = input(&arguments.capture)?;
    let kept = kept(&input, &arguments.config, &config)?;
    let decoder = Decoder::new(config, search).map_err(anyhow::Error::msg)?;
    let shown = arguments.capture.display();
    let out = arguments.out.as_deref().map(|path| output(path, &kept));
    let mut clear = out.transpose()?;
    let capture = Capture::new(BufReader::with_capacity(1 << 20, input))
        .with_context(|| format!("cannot read {shown}"))?;
    let mut out = Buffered::new();
    let mut failure = None;
    let summary = decoder.capture(capture, &mut |packet: &Packet, inside: Option<&[u8]>| {
        let told = tell(arguments, packet, &mut out);
        let kept = match (&mut clear, inside) {
            (Some(clear), Some(inside)) => clear.write(packet.captured, inside),
            _ => Ok(()),
        };
        // what is wrong with standard output is reported by `output`, and is no reason to stop
        // writing the other file
        failure = failure.take().or(kept.err());
        drop(told);
    });
    if let Some(clear) = clear {
        failure = failure.or(clear.finish().err());
    }
    let ended = if arguments.json {
        writeln!(out, "{}", json!({ "summary": summary }))
    } else {
        writeln!(out, "{summary}")
    };
    let _ = ended.and_then(|()| out.flush());
    if let Some(error) = failure {
        return Err(error).context("cannot write the clear packets");
    }
    Ok(if summary.all_opened() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(arguments: &Decode, packet: &Packet, out: &mut impl Write) -> io::Result<()> {
    let failed = matches!(packet.outcome, Outcome::Failed { .. } | Outcome::Truncated { .. });
    match (arguments.failures && !failed, arguments.json) {
        (true, _) => Ok(()),
        (_, true) => writeln!(out, "{}", json!(packet)),
        (_, false) => writeln!(out, "{packet}"),
    }
}

fn input(path: &Path) -> anyhow::Result<File> {
    if path == Path::new("-") {
        let input = io::stdin().as_fd().try_clone_to_owned();
        return Ok(input.context("cannot read standard input")?.into());
    }
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// A file that the clear packets must not overwrite, and what it is.
type Kept = (Metadata, String);

/// What is read, and what the configuration names: without the ledger its keys
/// could not be used any more.
fn kept(capture: &File, file: &Path, config: &Config) -> anyhow::Result<Vec<Kept>> {
    let capture = capture.metadata().context("cannot look at the capture")?;
    let configuration = file.metadata().context("cannot look at the configuration")?;
    let told = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let told = told.and_then(|told| told.metadata()).context("cannot look at standard output")?;
    let mut kept = vec![
        (told, "standard output, which has what is said of each packet".to_owned()),
        (capture, "the capture".to_owned()),
        (configuration, "the configuration with the keys".to_owned()),
    ];
    let ledgers = config.ledger.files();
    let keys = config.key_files.iter().map(|path| (path, "a key"));
    for (path, what) in keys.chain(ledgers.iter().map(|path| (path, "a ledger"))) {
        // one that is not there cannot be overwritten
        if let Ok(about) = path.metadata() {
            kept.push((about, format!("{what} of the configuration")));
        }
    }
    Ok(kept)
}

/// Opens the file for clear packets, for its owner alone. What is to be kept is
/// not overwritten, by whatever name it goes.
fn output(path: &Path, kept: &[Kept]) -> anyhow::Result<Writer<BufWriter<File>>> {
    let cannot = || format!("cannot write {}", path.display());
    if path == Path::new("-") {
        bail!("--out needs a file: standard output has what is said of each packet");
    }
    // truncated only when it is known which file it is
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.with_context(cannot)?;
    let about = file.metadata().with_context(cannot)?;
    if about.is_file() || about.file_type().is_fifo() {
        for (other, what) in kept {
            if (about.dev(), about.ino()) == (other.dev(), other.ino()) {
                bail!(
                    "--out {} is {what}, which it would overwrite: name another file",
                    path.display()
                );
            }
        }
    }
    if about.is_file() {
        // before the first clear octet, also where the file was there already
        file.set_permissions(Permissions::from_mode(0o600)).with_context(cannot)?;
        file.set_len(0).with_context(cannot)?;
    }
    Writer::new(BufWriter::new(file)).with_context(cannot)
}
