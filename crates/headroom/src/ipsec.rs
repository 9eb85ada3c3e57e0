//! `headroom ipsec`: looking at captured packets.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use headroom_gateway::config::{Config, Purpose};
use headroom_gateway::control::Error;
use headroom_gateway::decode::capture::{Capture, Writer};
use headroom_gateway::decode::{Decoder, Outcome, Packet};
use serde_json::json;

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
    let decoder = Decoder::new(config).map_err(anyhow::Error::msg)?;
    let shown = arguments.capture.display();
    let capture =
        Capture::new(input(&arguments.capture)?).with_context(|| format!("cannot read {shown}"))?;
    let mut clear = arguments.out.as_deref().map(output).transpose()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut failure = None;
    let summary = decoder.capture(capture, &mut |packet: &Packet, inside: Option<&[u8]>| {
        let told = tell(arguments, packet, &mut out);
        let kept = match (&mut clear, inside) {
            (Some(clear), Some(inside)) => clear.write(packet.captured, inside),
            _ => Ok(()),
        };
        // a reader that has gone is no reason to stop writing the other file
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
    let failed = matches!(packet.outcome, Outcome::Failed { .. } | Outcome::Cut { .. });
    match (arguments.failures && !failed, arguments.json) {
        (true, _) => Ok(()),
        (_, true) => writeln!(out, "{}", json!(packet)),
        (_, false) => writeln!(out, "{packet}"),
    }
}

fn input(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// What was secret is readable by its owner alone.
fn output(path: &Path) -> anyhow::Result<Writer<BufWriter<File>>> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let writer = file.and_then(|file| Writer::new(BufWriter::new(file)));
    writer.with_context(|| format!("cannot write {}", path.display()))
}
