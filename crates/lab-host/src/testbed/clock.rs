//! Reads the wire clock: from a capture of this process, or through the agent of a real
//! client's host from a capture there. Times of packets are never compared with the clock
//! of another host.

use headroom_lab_trace::{self, Expectation, Record, SetUp, Totals, Trace};

use crate::capture::RunningCapture;
use crate::error::Result;
use crate::host::Host;

/// A place where packets are seen.
#[derive(Debug, Clone, Copy)]
pub enum Clock<'a> {
    /// A capture of this process.
    Here(&'a RunningCapture),
    /// The capture of the client's agent.
    AtClient(&'a Host),
}

/// The captured packets.
#[derive(Debug)]
pub enum Taken<'a> {
    /// By this process: all packets.
    Trace(Box<Trace>),
    /// By the client's agent, which reads it there.
    AtClient(&'a Host),
}

impl<'a> Clock<'a> {
    /// Forgets what was captured so far.
    pub fn forget(self) -> Result<()> {
        match self {
            Self::Here(capture) => capture.clear(),
            Self::AtClient(host) => host.agent()?.forget()?,
        }
        Ok(())
    }

    /// Looks away, or no longer. A real client's agent goes on: it sees little else.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn pause(self, paused: bool) -> Result<()> {
        match self {
            Self::Here(capture) => capture.pause(paused),
            Self::AtClient(_) => Ok(()),
        }
    }

    /// Takes the packets captured since. An agent goes on until they are read.
    ///
    /// # Errors
    /// Frames are missing.
    pub fn take(self) -> Result<Taken<'a>> {
        match self {
            Self::Here(capture) => Ok(Taken::Trace(Box::new(capture.take()?))),
            Self::AtClient(host) => Ok(Taken::AtClient(host)),
        }
    }
}

impl Taken<'_> {
    /// All that passed; not known of a real host, which has other business too.
    pub fn totals(&self) -> Option<Totals> {
        match self {
            Self::Trace(trace) => Some(*trace.totals()),
            Self::AtClient(_) => None,
        }
    }

    /// Reads it as one transfer; none where there is no connection to the application.
    pub fn record(self, expected: &Expectation) -> Result<Option<Record>> {
        match self {
            Self::Trace(trace) => Ok(headroom_lab_trace::read(&trace, expected)),
            Self::AtClient(host) => host.agent()?.record(expected),
        }
    }

    /// Reads it as the set-up of a tunnel, or of a stream.
    pub fn set_up(self, of_tunnel: bool) -> Result<Option<SetUp>> {
        match self {
            Self::Trace(trace) if of_tunnel => Ok(SetUp::of_tunnel(&trace)),
            Self::Trace(trace) => Ok(SetUp::of_tls(&trace)),
            Self::AtClient(host) => host.agent()?.set_up(),
        }
    }
}
