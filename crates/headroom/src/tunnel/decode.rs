//! `headroom ipsec decode`: opens captured packets and reports on each.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use headroom_gateway::config::{Config, Purpose};
use headroom_gateway::control::Error;
use headroom_gateway::decode::capture::{Capture, Writer};
use headroom_gateway::decode::{Decoder, Packet, Search};
use headroom_gateway::wireshark::KeyTables;
use serde_json::json;

use super::arguments::{Decode, Ipsec};
use super::buffered::Buffered;
use super::print_warnings;

/// Wrong arguments, configuration or capture.
const UNUSABLE: u8 = 2;

pub(crate) fn run(command: Ipsec) -> anyhow::Result<ExitCode> {
    let Ipsec::Decode(arguments) = command;
    // unusable input has an exit code of its own, apart from packets that do not open
    decode(&arguments).or_else(|error| {
        eprintln!("headroom: {error:#}");
        Ok(ExitCode::from(UNUSABLE))
    })
}

fn decode(arguments: &Decode) -> anyhow::Result<ExitCode> {
    let read = |path| Config::read(path, Purpose::Decode).map_err(Error::from);
    let config = arguments.config.as_deref().map(read).transpose()?;
    print_warnings(config.as_ref().map_or(&[], |config| &config.warnings));
    let tables = arguments.keylog.as_deref().map(KeyTables::read).transpose()?;
    let tables = tables.unwrap_or_default();
    print_warnings(&tables.notes);
    let search = Search { likely: arguments.esn_high.clone(), ..Search::default() };
    let input = input(&arguments.capture)?;
    let protected = protected_files(&input, arguments, config.as_ref())?;
    let decoder = Decoder::new(config, tables, search).map_err(anyhow::Error::msg)?;
    let shown = arguments.capture.display();
    let out = arguments.out.as_deref().map(|path| output(path, &protected));
    let mut clear = out.transpose()?;
    let capture = Capture::new(BufReader::with_capacity(1 << 20, input))
        .with_context(|| format!("cannot read {shown}"))?;
    let mut out = Buffered::new();
    let mut failure = None;
    let summary = decoder.capture(capture, &mut |packet: &Packet, inside: Option<&[u8]>| {
        let printed = print_packet(arguments, packet, &mut out);
        let written = match (&mut clear, inside) {
            (Some(clear), Some(inside)) => clear.write(packet.captured, inside),
            _ => Ok(()),
        };
        // `output` reports errors of standard output; the other file is written to its end
        failure = failure.take().or(written.err());
        drop(printed);
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
        return Err(error).context("cannot write the decrypted packets");
    }
    Ok(if summary.all_opened() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_packet(arguments: &Decode, packet: &Packet, out: &mut impl Write) -> io::Result<()> {
    match (arguments.failures && !packet.outcome.is_failure(), arguments.json) {
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

/// A file that must not be overwritten, and its description.
type ProtectedFile = (Metadata, String);

/// Returns the files that are read or that the configuration names. Without its ledger, a
/// configuration's keys could not be used any more.
fn protected_files(
    capture: &File,
    arguments: &Decode,
    config: Option<&Config>,
) -> anyhow::Result<Vec<ProtectedFile>> {
    let capture = capture.metadata().context("cannot inspect the capture")?;
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let stdout =
        stdout.and_then(|file| file.metadata()).context("cannot inspect standard output")?;
    let mut files = vec![
        (stdout, "standard output, which receives the report".to_owned()),
        (capture, "the capture".to_owned()),
    ];
    if let Some(path) = &arguments.config {
        let configuration = path.metadata().context("cannot inspect the configuration")?;
        files.push((configuration, "the configuration with the keys".to_owned()));
    }
    let named = |paths: &[PathBuf], what: &str| -> Vec<ProtectedFile> {
        // a missing file cannot be overwritten
        let there = paths.iter().filter_map(|path| path.metadata().ok());
        there.map(|about| (about, what.to_owned())).collect()
    };
    if let Some(config) = config {
        files.extend(named(&config.key_files, "a key of the configuration"));
        files.extend(named(&config.ledger.files(), "a ledger of the configuration"));
    }
    if let Some(folder) = &arguments.keylog {
        files.extend(named(&KeyTables::files(folder), "a table of keys"));
    }
    Ok(files)
}

/// Opens the file for decrypted packets, readable by its owner only. Refuses to overwrite a protected
/// file, under whatever name.
fn output(path: &Path, protected: &[ProtectedFile]) -> anyhow::Result<Writer<BufWriter<File>>> {
    let cannot = || format!("cannot write {}", path.display());
    if path == Path::new("-") {
        bail!("--out needs a file: standard output receives the report");
    }
    // truncated only after it was compared
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.with_context(cannot)?;
    let about = file.metadata().with_context(cannot)?;
    if about.is_file() || about.file_type().is_fifo() {
        for (other, what) in protected {
            if (about.dev(), about.ino()) == (other.dev(), other.ino()) {
                bail!(
                    "--out {} is {what}, which it would overwrite: name another file",
                    path.display()
                );
            }
        }
    }
    if about.is_file() {
        // before the first byte, also if the file existed
        file.set_permissions(Permissions::from_mode(0o600)).with_context(cannot)?;
        file.set_len(0).with_context(cannot)?;
    }
    Writer::new(BufWriter::new(file)).with_context(cannot)
}
