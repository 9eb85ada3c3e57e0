//! Video: a real encoder and a real decoder, ffmpeg both sides, and RTP between them. The
//! encoder is the client's; its packets arrive at this very program (`headroom load`),
//! which counts them and hands them to the player.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;
use headroom_lab_results::schema::VIDEO;

use super::{Application, ClientReport, Invocation, Site, rtp, udp};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Sending, Task, WorkloadKind};

pub(super) const FFMPEG: Program = Program::new("ffmpeg", "ffmpeg", &["-version"]);

struct Video;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: VIDEO,
    about: "video in clear, RTP to port 5004; ffmpeg encodes and decodes",
    programs: &[FFMPEG],
    make: Make::Fixed(|| Arc::new(Video)),
};

impl Application for Video {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { over_udp: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        false
    }

    fn port(&self) -> u16 {
        rtp::PORT
    }

    fn shares_its_port(&self) -> bool {
        true
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind == WorkloadKind::Realtime
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let mut spec = udp::server(site);
        spec.command.args(["--decoder".into(), Arg::from(FFMPEG)]);
        Ok(spec)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let Task::Datagrams {
            sending: Sending::Realtime { per_second, cross_traffic },
            size,
            seconds,
            content,
        } = task
        else {
            let sentence = "video is a stream at a rate: its workload is `realtime`";
            return Err(Error::Plan(sentence.to_owned()));
        };
        let headroom = site.host.headroom.display().to_string();
        let mut command = Command::new(headroom, ["load", "video", &site.server.to_string()]);
        // the rate is the encoder's, in packets of their full length
        let bits_per_second = (per_second * *size as f64 * 8.0).round() as u64;
        // whose libraries are found by the variables of the whole command
        command.args(["--encoder".into(), Arg::from(FFMPEG)]);
        let mut add = |option: &str, value: String| {
            command.args([option, &value]);
        };
        add("--bits-per-second", bits_per_second.to_string());
        add("--size", size.to_string());
        add("--seconds", seconds.to_string());
        match (content, cross_traffic) {
            // where a mark is looked for, the video itself is to show it
            (Some(file), _) => add("--content", file.display().to_string()),
            (None, Some((from, to))) => add("--cross-traffic", format!("{from}-{to}")),
            (None, None) => {}
        }
        Ok(Invocation::new(command))
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        // one that failed has said why
        if outcome.code == Some(0) { report(&outcome.stdout) } else { ClientReport::default() }
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "none"),
            (
                "stream",
                "RTP (RFC 3550, RFC 6184) from client to server, as the encoder sends it: -re -preset veryfast -tune \
                 zerolatency, one thread",
            ),
            (
                "picture",
                "testsrc2, 352 x 288, 25 a second, H.264 at a constant rate, one in twelve by itself, without sound",
            ),
            ("decoder", "decodes every frame, without display"),
        ])
    }
}

/// Reads the result of the video. Its packets do not say when they were sent, so its time is
/// that of one of them, as of packets at a rate.
fn report(stdout: &str) -> ClientReport {
    let report = rtp::report(stdout);
    let of_one = report.realtime.as_ref().and_then(|stream| {
        let others = stream.arrived.checked_sub(1).filter(|&others| others > 0)?;
        Some(stream.measured_s / others as f64)
    });
    match report.realtime.as_ref().map(|stream| stream.frames) {
        Some(None) => udp::failed("the decoder has not reported its frames".to_owned()),
        Some(Some(_)) if of_one.is_none() => {
            udp::failed("a single packet of the video arrived, which has no rate".to_owned())
        }
        _ => ClientReport { seconds: of_one, ..report },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_video_has_frames_and_the_time_of_a_packet() {
        let said = |arrived: u64, frames: &str| {
            report(&format!(
                r#"{{"measured_s":2.0,"sent":{arrived},"arrived":{arrived},"lost":0,"duplicates":0,"reordered":0,
                "mean_bps":2e5,"lowest_bps":1e5,"highest_bps":3e5,"delay":null,"jitter_s":1e-3,"cross_traffic_bps":null,
                "bin_s":0.2,"bins":[]{frames}}}"#
            ))
        };
        let video = said(101, r#","frames":50"#);
        assert_eq!((video.seconds, video.error), (Some(0.02), None));
        assert_eq!(video.realtime.and_then(|stream| stream.frames), Some(50));
        for (arrived, frames) in [(101, ""), (1, r#","frames":1"#), (0, r#","frames":0"#)] {
            let report = said(arrived, frames);
            assert!(report.error.is_some() && report.realtime.is_none(), "{arrived} {frames}");
        }
        assert!(report("").error.is_some());
    }
}
