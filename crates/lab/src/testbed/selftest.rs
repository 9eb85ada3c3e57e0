//! No link is used before it was tested: its rate in both directions, and that
//! TCP has the congestion control that was asked for.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Tap, Testbed, link, netns};
use crate::error::{Error, Result};
use crate::link::{LinkSpec, Loss};
use crate::measure::wire::Framing;
use crate::plan::Offload;
use crate::units;

/// The link that was actually used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkReport {
    /// As in the plan.
    pub name: String,
    /// What made it.
    pub backend: String,
    /// `offload` or `per-packet`.
    pub offload: String,
    /// Bits per second, framing counted; null: unshaped.
    pub rate_bps: Option<u64>,
    /// One way, milliseconds.
    pub delay_ms: f64,
    /// One way, milliseconds.
    pub jitter_ms: f64,
    /// Per cent, each way.
    pub loss_pct: f64,
    /// Packets that the bottleneck queues; null: unshaped.
    pub queue_packets: Option<u32>,
    /// Median of SYN to SYN-ACK at the router, microseconds; filled by the run.
    pub rtt_us: Option<f64>,
    /// Null for an unshaped link.
    pub self_test: Option<SelfTest>,
}

/// What the rate test found: the direction that was further off.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SelfTest {
    /// What was asked for.
    pub asked_bps: u64,
    /// What passed, framing counted.
    pub measured_bps: f64,
    /// Measured over asked, less one.
    pub error_pct: f64,
    /// Whether the error is within 2 %.
    pub passed: bool,
    /// Tests that it took, three at most.
    pub attempts: u32,
}

const TOLERANCE_PCT: f64 = 2.0;
const PORT: u16 = 9999;

pub(super) fn run(testbed: &mut Testbed, spec: &LinkSpec, offload: Offload) -> Result<LinkReport> {
    // an asymmetric link is told by its way to the client, and by its name
    let way = &spec.down;
    let report = LinkReport {
        name: spec.to_string(),
        backend: link::backend(spec).to_owned(),
        offload: offload.name().to_owned(),
        rate_bps: way.rate_bps,
        delay_ms: way.delay.as_secs_f64() * 1e3,
        jitter_ms: way.jitter.as_secs_f64() * 1e3,
        loss_pct: way.loss.average_pct(),
        queue_packets: way.rate_bps.map(|_| link::queue_packets(way)),
        rtt_us: None,
        self_test: None,
    };
    if testbed.tap.is_none() {
        return Ok(report);
    }
    verify_tcp(testbed)?;
    // Loss would make TCP slower than the link; the rate is then not testable so.
    if spec.down.loss != Loss::None || spec.up.loss != Loss::None {
        return Ok(report);
    }
    let Some(asked) = spec.down.rate_bps.zip(spec.up.rate_bps) else { return Ok(report) };
    // Another program's burst of load can spoil a test, and will spoil as many
    // of the transfers: three spoilt tests in a row are no accident.
    let mut attempts = 1;
    let mut test = test_both(testbed, spec, asked, attempts)?;
    while !test.passed && attempts < 3 {
        attempts += 1;
        test = test_both(testbed, spec, asked, attempts)?;
    }
    if !test.passed {
        return Err(Error::Link(format!(
            "the link `{spec}` failed its self-test: {} passed instead of {} ({:+.1} %, allowed ±{TOLERANCE_PCT} %). \
             Choose a lower rate, or look for other load on this machine",
            units::rate(test.measured_bps),
            units::rate(test.asked_bps as f64),
            test.error_pct
        )));
    }
    Ok(LinkReport { self_test: Some(test), ..report })
}

/// Tests both directions; the result is that of the one further off.
fn test_both(
    testbed: &mut Testbed,
    spec: &LinkSpec,
    (down_bps, up_bps): (u64, u64),
    attempts: u32,
) -> Result<SelfTest> {
    let mut one = |upload: bool| -> Result<SelfTest> {
        let asked_bps = if upload { up_bps } else { down_bps };
        let measured_bps = measure(testbed, spec, asked_bps, upload)?;
        let error_pct = 100.0 * (measured_bps / asked_bps as f64 - 1.0);
        let passed = error_pct.abs() <= TOLERANCE_PCT;
        Ok(SelfTest { asked_bps, measured_bps, error_pct, passed, attempts })
    };
    let (down, up) = (one(false)?, one(true)?);
    Ok(if up.error_pct.abs() > down.error_pct.abs() { up } else { down })
}

/// Fills one direction with TCP and reads the rate off the packets behind the
/// bottleneck, from after slow start to the last.
fn measure(testbed: &mut Testbed, spec: &LinkSpec, asked_bps: u64, upload: bool) -> Result<f64> {
    // long enough for 200 full frames, and for slow start, which doubles ten
    // frames each round trip until they fill the link
    let frame_s = 1538.0 * 8.0 / asked_bps as f64;
    let rtt_s = spec.longest_round_trip().as_secs_f64();
    let doublings = (rtt_s / frame_s / 10.0).max(1.0).log2().ceil() + 2.0;
    let seconds = (200.0 * frame_s).clamp(0.25, 10.0) + 4.0 * doublings * rtt_s;
    let behind = if upload { netns::ROUTER_TO_SERVER } else { netns::ROUTER_TO_CLIENT };
    let tap = Tap::open(&testbed.names.router, behind, Framing::Ethernet, testbed.client.address)?;
    blast(testbed, PORT + u16::from(upload), upload, seconds)?;
    // what the bottleneck still queues belongs to the test
    std::thread::sleep(Duration::from_millis(60) + Duration::from_secs_f64(2.0 * rtt_s));
    tap.take()?.rate(upload, link::FRAMING, if rtt_s > 0.0 { 0.5 } else { 0.2 }, 0.98).ok_or_else(
        || {
            Error::Failed(
                "the link's self-test saw too few packets to tell a rate; is the link up?".into(),
            )
        },
    )
}

/// Opens a connection each way and asks the kernel what governs it.
fn verify_tcp(testbed: &mut Testbed) -> Result<()> {
    let wanted = testbed.congestion_control.clone();
    for upload in [false, true] {
        let found = blast(testbed, PORT + 2 + u16::from(upload), upload, 0.001)?;
        if found != wanted {
            return Err(Error::Failed(format!(
                "TCP uses the congestion control `{found}` instead of `{wanted}`, which the plan asks for"
            )));
        }
    }
    Ok(())
}

/// Sends in one direction for `seconds`.
fn blast(testbed: &mut Testbed, port: u16, upload: bool, seconds: f64) -> Result<String> {
    if upload {
        let address = SocketAddr::new(testbed.server.address, port);
        testbed.server_agent()?.sink(address)?;
        testbed.client_agent()?.blast(address, seconds)
    } else {
        let address = SocketAddr::new(testbed.client.address, port);
        testbed.client_agent()?.sink(address)?;
        testbed.server_agent()?.blast(address, seconds)
    }
}
