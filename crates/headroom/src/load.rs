//! `headroom load`: the load of the lab as a process.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use headroom_load::{MAX_MARKER, Server, Stream, Video};

use crate::arguments::{Load, Sending};

pub(crate) fn run(command: Load) -> anyhow::Result<ExitCode> {
    match command {
        Load::Serve { address, decoder } => {
            let server =
                Server::bind(address, decoder).with_context(|| format!("listen at {address}"))?;
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
        Load::Realtime { sending, per_second, cross_traffic } => {
            let (time, fill) = read(&sending)?;
            let stream = Stream { cross_traffic, ..steady(&sending, per_second, time) };
            let seen = headroom_load::stream(sending.to, &stream, &fill)?;
            println!("{}", serde_json::to_string(&seen)?);
        }
        Load::Video { to, encoder, bits_per_second, size, seconds, content, cross_traffic } => {
            let marker = content.as_deref().map(marker).transpose()?;
            let video = Video { encoder, bits_per_second, size, seconds, cross_traffic, marker };
            println!("{}", serde_json::to_string(&headroom_load::video(to, &video)?)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn steady(sending: &Sending, per_second: f64, time: Duration) -> Stream {
    Stream { size: sending.size, per_second, seconds: time.as_secs_f64(), cross_traffic: None }
}

/// Reads the start of a file as the marker of a video.
fn marker(path: &Path) -> anyhow::Result<String> {
    let reading = || format!("cannot read {}", path.display());
    let mut marker = String::new();
    let file = std::fs::File::open(path).with_context(reading)?;
    file.take(MAX_MARKER as u64).read_to_string(&mut marker).with_context(reading)?;
    Ok(marker)
}

/// Returns the duration and the content of datagrams.
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
