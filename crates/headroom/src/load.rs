//! `headroom load`: the lab's datagrams as a process.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use headroom_load::{Film, Server, Stream};

use crate::arguments::{Load, Sending};

pub(crate) fn run(command: Load) -> anyhow::Result<ExitCode> {
    match command {
        Load::Serve { address, player } => {
            let server =
                Server::bind(address, player).with_context(|| format!("listen at {address}"))?;
            server.run()?;
        }
        Load::Packets { sending, per_second } => {
            let (time, fill) = read(&sending)?;
            let seen = match per_second {
                None => headroom_load::packets(sending.to, sending.size, time, &fill)?,
                Some(per_second) => {
                    let steady = steady(&sending, per_second, time);
                    headroom_load::paced(sending.to, &steady, &fill)?
                }
            };
            println!("{}", serde_json::to_string(&seen)?);
        }
        Load::Echo(sending) => {
            let (time, fill) = read(&sending)?;
            let seen = headroom_load::echo(sending.to, sending.size, time, &fill)?;
            println!("{}", serde_json::to_string(&seen)?);
        }
        Load::Realtime { sending, per_second, beside } => {
            let (time, fill) = read(&sending)?;
            let stream = Stream { beside, ..steady(&sending, per_second, time) };
            let seen = headroom_load::stream(sending.to, &stream, &fill)?;
            println!("{}", serde_json::to_string(&seen)?);
        }
        Load::Film { to, encoder, bits_per_second, size, seconds, content, beside } => {
            let mark = content.as_deref().map(mark).transpose()?;
            let film = Film { encoder, bits_per_second, size, seconds, beside, mark };
            println!("{}", serde_json::to_string(&headroom_load::film(to, &film)?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn steady(sending: &Sending, per_second: f64, time: Duration) -> Stream {
    Stream { size: sending.size, per_second, seconds: time.as_secs_f64(), beside: None }
}

/// As much of a file as stands in a film.
fn mark(path: &Path) -> anyhow::Result<String> {
    let told = || format!("cannot read {}", path.display());
    let mut mark = String::new();
    let file = std::fs::File::open(path).with_context(told)?;
    file.take(headroom_load::LONGEST_MARK as u64).read_to_string(&mut mark).with_context(told)?;
    Ok(mark)
}

/// For how long, and with what content.
fn read(sending: &Sending) -> anyhow::Result<(Duration, Vec<u8>)> {
    let time = Duration::try_from_secs_f64(sending.seconds).context("read --seconds")?;
    let fill = match &sending.content {
        None => (0..=u8::MAX).collect(),
        Some(path) => {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
        }
    };
    Ok((time, fill))
}
