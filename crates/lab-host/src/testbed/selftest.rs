//! No link is used before it was tested on the spot: rate, delay and loss in both
//! directions by UDP, and that TCP has the congestion control that was asked for.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headroom_lab_results::schema::{DirectionTest, SelfTest};
use headroom_link_spec::LinkSpec;
use headroom_units as units;

use super::Testbed;
use super::link::Backend;
use super::probes::{self, Direction, Shape};
use super::verdict;
use crate::error::{Error, Result};

/// Another program's burst of load can spoil a test, and will spoil as many of the
/// transfers: so many spoilt tests, ever farther apart, are no accident. Three in a row
/// were, on a virtual machine whose host took 5 % of its time away and more for seconds:
/// 5 ms of a fifth of a second are more than what a token bucket makes up for.
const ATTEMPTS: u32 = 6;
/// Between the first test and the second; doubled from one to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Tests the link that `backend` makes; none for one that does nothing. A trace is left out of the
/// test, as it has no single rate and no single delay: the emulator makes the same link without it,
/// which is tested if it does anything, and then begins the trace.
///
/// # Errors
/// [`Error::Link`]: it is not what was asked for, with the figures. With `allow_failure` the
/// test that failed is returned instead.
pub(super) fn run(
    testbed: &mut Testbed,
    spec: &LinkSpec,
    backend: Backend,
    allow_failure: bool,
) -> Result<Option<SelfTest>> {
    if testbed.router_capture.is_none() {
        return Ok(None);
    }
    let ends = [testbed.client.address, testbed.server.address];
    verify_congestion_control(testbed, ends, &testbed.congestion_control)?;
    let tested = spec.without_traces();
    if tested.is_unshaped() {
        return Ok(None);
    }
    if spec.traces().next().is_none() {
        return test_until_passed(testbed, spec, backend, allow_failure).map(Some);
    }
    testbed.router()?.start_emulator(&tested)?;
    let test = test_until_passed(testbed, &tested, backend, allow_failure)?;
    testbed.router()?.start_emulator(spec)?;
    Ok(Some(test))
}

fn test_until_passed(
    testbed: &mut Testbed,
    spec: &LinkSpec,
    backend: Backend,
    allow_failure: bool,
) -> Result<SelfTest> {
    let (mut attempts, mut pause) = (1, FIRST_PAUSE);
    let mut test = both_directions(testbed, spec, backend, attempts)?;
    while !test.passed && attempts < ATTEMPTS {
        std::thread::sleep(pause);
        (attempts, pause) = (attempts + 1, 2 * pause);
        test = both_directions(testbed, spec, backend, attempts)?;
    }
    if test.passed || allow_failure {
        return Ok(test);
    }
    let mut why =
        format!("the link `{spec}` failed its self-test: {}", test.complaints().join("; "));
    let too_slow =
        |test: &DirectionTest| test.rate.as_ref().is_some_and(|r| !r.passed && r.error_pct < 0.0);
    if backend == Backend::Emulator && (too_slow(&test.down) || too_slow(&test.up)) {
        let ceiling = ceiling(testbed)?;
        why += &format!(
            ". This machine emulates up to {} of {}-byte frames",
            units::rate(ceiling),
            testbed.mtu()
        );
    }
    why += ". Choose a slower link, or look for other load on this machine; --allow-failed-link-test measures all the same";
    Err(Error::Link(why))
}

fn both_directions(
    testbed: &mut Testbed,
    spec: &LinkSpec,
    backend: Backend,
    attempts: u32,
) -> Result<SelfTest> {
    let down = one_direction(testbed, spec, backend, Direction::Down)?;
    let up = one_direction(testbed, spec, backend, Direction::Up)?;
    Ok(SelfTest::new(down, up, attempts))
}

fn one_direction(
    testbed: &mut Testbed,
    spec: &LinkSpec,
    backend: Backend,
    direction: Direction,
) -> Result<DirectionTest> {
    let way = direction.of(spec);
    let is_ipv4 = testbed.client.address.is_ipv4();
    let nothing = || {
        Error::Link(format!(
            "the link `{spec}` failed its self-test: too few probes came through to tell what it does"
        ))
    };
    let rate = match way.rate_bps {
        None => None,
        Some(asked) => {
            let shape = Shape::for_rate(asked, way, testbed.mtu() as usize, is_ipv4);
            let passage = probes::pass(testbed, direction, way, shape)?;
            Some(verdict::rate(way, asked, &passage).ok_or_else(nothing)?)
        }
    };
    let spaced = probes::pass(testbed, direction, way, Shape::for_delay(way, is_ipv4))?;
    let many = Shape::for_loss(way, is_ipv4)
        .map(|shape| probes::pass(testbed, direction, way, shape))
        .transpose()?;
    let delay = verdict::delay(way, backend.serialises(), &spaced).ok_or_else(nothing)?;
    let all: Vec<_> = std::iter::once(&spaced).chain(&many).collect();
    Ok(DirectionTest { rate, delay, loss: verdict::loss(way, &all) })
}

/// Bits per second that the emulator passes when it is asked for no rate.
fn ceiling(testbed: &mut Testbed) -> Result<f64> {
    testbed.router()?.start_emulator(&LinkSpec::default())?;
    let shape = Shape::for_ceiling(testbed.mtu() as usize, testbed.client.address.is_ipv4());
    let mut slower = f64::INFINITY;
    for direction in [Direction::Down, Direction::Up] {
        let passage = probes::pass(testbed, direction, &LinkSpec::default().down, shape)?;
        slower = slower.min(verdict::rate_behind(&passage).unwrap_or(0.0));
    }
    Ok(slower)
}

/// Asks both hosts which congestion control they have towards the other, by these addresses of
/// client and server.
pub(super) fn verify_congestion_control(
    testbed: &Testbed,
    [client, server]: [IpAddr; 2],
    wanted: &str,
) -> Result<()> {
    const DISCARD: u16 = 9; // RFC 863; nobody has to listen
    let found = [
        testbed.client_agent()?.congestion_control(SocketAddr::new(server, DISCARD))?,
        testbed.server_agent()?.congestion_control(SocketAddr::new(client, DISCARD))?,
    ];
    match found.iter().find(|found| *found != wanted) {
        None => Ok(()),
        Some(found) => Err(Error::Failed(format!(
            "TCP uses the congestion control `{found}` instead of `{wanted}`, which the plan asks for"
        ))),
    }
}
