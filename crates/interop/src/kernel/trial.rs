//! Tests a case against a real kernel: echoes that it must answer, altered and repeated
//! packets that it must drop, and its counters of the reasons.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use headroom_ipsec::Reason;
use headroom_ipsec::spec::Padding;

use super::xfrm::{self, Traffic};
use super::{Emulators, Frames, Machine};
use crate::case::{Case, Side, UDP_PORT};
use crate::ours::Ours;
use crate::peer::Peers;
use crate::ping;
use crate::trial::{Outcome, Trial, flip, request};

/// Timeout of a reply.
const ANSWER: Duration = Duration::from_secs(10);
/// Number of echoes of a case.
const ECHOES: u16 = 3;
/// The kernel's counter of wrong ICVs.
const PROTOCOL_ERROR: &str = "XfrmInStateProtoError";
/// Offsets from a packet's end at which a bit is flipped: in the ICV or, under
/// AH, the data; and in the middle.
const ALTERED: [usize; 2] = [0, 40];
/// Data of an echo.
const DATA: [u8; 56] = [0x42; 56];

/// Configures addresses of the link and inside tunnels.
const SETUP: &[&str] = &[
    "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done",
    "echo 0 > /proc/sys/net/ipv6/conf/eth0/router_solicitations",
    "/ip addr add 10.77.0.2/24 dev eth0",
    "/ip addr add 10.77.2.2/32 dev lo",
    "/ip -6 addr add fd77::2/64 dev eth0 nodad",
    "/ip -6 addr add fd77:2::2/128 dev lo nodad",
    "/ip neigh add 10.77.0.1 lladdr 02:00:00:00:00:01 nud permanent dev eth0",
    "/ip -6 neigh add fd77::1 lladdr 02:00:00:00:00:01 nud permanent dev eth0",
    "/ip route add 10.77.1.0/24 via 10.77.0.1 src 10.77.2.2",
    "/ip -6 route add fd77:1::/64 via fd77::1 src fd77:2::2",
];

/// Configures a machine's addresses, and a UDP port on which its kernel receives ESP.
pub(super) fn set_up(machine: &mut Machine) -> Result<()> {
    SETUP.iter().try_for_each(|line| machine.run(line).map(drop))?;
    let hold = format!("/helper --hold-esp-in-udp {UDP_PORT} >/dev/null 2>&1 </dev/null &");
    machine.run(&hold)?;
    // it is ready when both sockets are
    let wait = format!(
        "until grep -q :{UDP_PORT:04X} /proc/net/udp && grep -q :{UDP_PORT:04X} /proc/net/udp6; \
         do usleep 10000; done"
    );
    machine.run(&wait).map(drop)
}

/// A booted kernel for testing one case after another.
#[derive(Debug)]
pub struct KernelPeer {
    machine: Machine,
    frames: Frames,
    /// Identifies the echoes of a case.
    id: u16,
}

impl KernelPeer {
    /// Boots the machine. `helper` is this crate's own program.
    ///
    /// # Errors
    /// Something is missing, which the error names.
    pub fn boot(peers: &Peers, emulators: Emulators, helper: &Path) -> Result<Self> {
        let (mut machine, frames) = Machine::boot(peers, emulators, helper)?;
        set_up(&mut machine)?;
        Ok(Self { machine, frames, id: 0 })
    }

    /// Returns the machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Tests a case in both directions.
    pub fn try_case(&mut self, case: Case) -> Trial {
        // an echo goes both ways, so both fail together
        let outcome = Outcome::of(self.echo(&case));
        Trial { case, outbound: outcome.clone(), inbound: outcome }
    }

    fn echo(&mut self, case: &Case) -> Result<()> {
        // with ESN the lower half overflows among the echoes
        let first = if case.extended { 0xffff_fffe } else { 1 };
        self.machine.run(&xfrm::line(case, first, Traffic::Echoes))?;
        let mut ours = Ours::new(case, first)?;
        self.id += 1;
        let before = self.counters()?;
        let answered = self.exchange(case, &mut ours);
        let raised: BTreeMap<String, u64> = self
            .counters()?
            .into_iter()
            .map(|(name, count)| (count - before.get(&name).unwrap_or(&0), name))
            .filter_map(|(more, name)| (more > 0).then_some((name, more)))
            .collect();
        answered.with_context(|| format!("the kernel counted {raised:?}"))?;
        let expected = [(PROTOCOL_ERROR, ALTERED.len() as u64), ("XfrmInStateSeqError", 1)];
        if raised != expected.map(|(name, count)| (name.to_owned(), count)).into() {
            bail!("the kernel counted {raised:?}, not {expected:?}");
        }
        Ok(())
    }

    /// Padding against traffic analysis and dummy packets (RFC 4303, sections 2.7
    /// and 2.6): the kernel answers the padded echo, and drops the dummy.
    ///
    /// # Errors
    /// Describes what went wrong.
    pub fn try_hidden_lengths(&mut self) -> Result<()> {
        let tunnel = |case: &Case| case.to_string() == "ESP aes-128-gcm, tunnel, IPv4 in IPv4";
        let case = Case::esp().into_iter().find(tunnel).context("no such case")?;
        self.machine.run(&xfrm::line(&case, 1, Traffic::Echoes))?;
        let mut ours = Ours::padded(&case, 1, Padding::Multiple(256))?;
        self.id += 1;
        let before = self.counters()?;
        for sequence in 1..=ECHOES {
            let echo = request(&case, Side::Ours, self.id, sequence, &DATA);
            let sealed = ours.seal(&echo)?;
            ensure!(sealed.len() > 256, "the echo was not padded: {} bytes", sealed.len());
            self.frames.send(&ours.dummy(100)?)?;
            self.frames.send(&sealed)?;
            self.answer(&ours, sequence).with_context(|| format!("padded echo {sequence}"))?;
        }
        // Linux takes a dummy for a protocol error, not for a forgery
        let raised = self.counters()?[PROTOCOL_ERROR] - before[PROTOCOL_ERROR];
        let states = self.machine.run("/ip -s xfrm state list src 10.77.0.1")?;
        ensure!(
            raised == u64::from(ECHOES) && states.contains("failed 0"),
            "the kernel counted {raised} dummies, of {ECHOES}: {states}"
        );
        Ok(())
    }

    fn exchange(&self, case: &Case, ours: &mut Ours) -> Result<()> {
        let sealed = |ours: &mut Ours, sequence| {
            ours.seal(&request(case, Side::Ours, self.id, sequence, &DATA))
        };
        let mut last = Vec::new();
        for sequence in 1..=ECHOES {
            last = sealed(ours, sequence)?;
            self.frames.send(&last)?;
            self.answer(ours, sequence).with_context(|| format!("echo {sequence}"))?;
        }
        for (sequence, from_end) in (100..).zip(ALTERED) {
            self.frames.send(&flip(&sealed(ours, sequence)?, from_end))?;
        }
        self.frames.send(&last)?;
        // packets are taken in order: when this one is answered, those were not
        let sequence = ECHOES + 1;
        self.frames.send(&sealed(ours, sequence)?)?;
        self.answer(ours, sequence).context("the echo after those that were altered")
    }

    /// Waits for the reply to one echo and checks it.
    fn answer(&self, ours: &Ours, sequence: u16) -> Result<()> {
        loop {
            let Some(packet) = self.frames.receive(ANSWER)? else {
                bail!("no answer");
            };
            if ping::read_reply(&packet).is_some() {
                bail!("it was answered in clear");
            }
            match ours.open(&flip_in_packet(&packet)) {
                Err(Reason::Forged) => {}
                other => bail!("the kernel's packet with a bit flipped gave {other:?}"),
            }
            let opened = ours.open(&packet).context("opening the kernel's packet")?;
            if ours.open(&packet) != Err(Reason::Replay) {
                bail!("the kernel's packet once more was not a replay");
            }
            match ping::read_reply(&opened) {
                Some(found) if found == (self.id, sequence) => return Ok(()),
                Some((id, other)) if id == self.id => bail!("echo {other} was answered"),
                _ => {} // an answer to an earlier case
            }
        }
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>> {
        let text = self.machine.run("cat /proc/net/xfrm_stat")?;
        Ok(text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
            })
            .collect())
    }
}

/// Flips a bit as [`flip`] does, in a frame that may be longer than its packet.
fn flip_in_packet(frame: &[u8]) -> Vec<u8> {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let length = if frame[0] >> 4 == 4 { word(2) } else { 40 + word(4) };
    flip(&frame[..length.min(frame.len())], 0)
}
