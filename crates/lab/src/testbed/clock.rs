//! Where the wire clock is read: from a capture of this process, or by the agent
//! of a real client's host from its own. A packet's time never meets a clock of
//! another host.

use crate::capture::Tap;
use crate::error::Result;
use crate::host::Host;
use crate::measure::wire::{self, Expectation, Record, SetUp, Totals, Trace};

/// A place where packets are seen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock<'a> {
    /// A capture of this process.
    Here(&'a Tap),
    /// The capture of the client's agent.
    AtClient(&'a Host),
}

/// What was captured.
#[derive(Debug)]
pub(crate) enum Taken<'a> {
    Trace(Box<Trace>),
    AtClient(&'a Host),
}

impl<'a> Clock<'a> {
    /// Forgets what was captured so far.
    pub(crate) fn forget(self) -> Result<()> {
        match self {
            Self::Here(tap) => tap.clear(),
            Self::AtClient(host) => host.agent()?.forget()?,
        }
        Ok(())
    }

    /// Looks away, or no longer. A real client's agent goes on: it sees little else.
    ///
    /// # Errors
    /// What the kernel answered.
    pub(crate) fn pause(self, paused: bool) -> Result<()> {
        match self {
            Self::Here(tap) => tap.pause(paused),
            Self::AtClient(_) => Ok(()),
        }
    }

    /// What was captured since. An agent goes on until it is read.
    ///
    /// # Errors
    /// Frames are missing.
    pub(crate) fn take(self) -> Result<Taken<'a>> {
        match self {
            Self::Here(tap) => Ok(Taken::Trace(Box::new(tap.take()?))),
            Self::AtClient(host) => Ok(Taken::AtClient(host)),
        }
    }
}

impl Taken<'_> {
    /// All that passed; not known of a real host, which has other business too.
    pub(crate) fn totals(&self) -> Option<Totals> {
        match self {
            Self::Trace(trace) => Some(*trace.totals()),
            Self::AtClient(_) => None,
        }
    }

    /// Reads it as one transfer; none where there is no connection to the service.
    pub(crate) fn record(self, expected: &Expectation) -> Result<Option<Record>> {
        match self {
            Self::Trace(trace) => Ok(wire::read(&trace, expected)),
            Self::AtClient(host) => host.agent()?.record(expected),
        }
    }

    /// Reads it as the set-up of a tunnel, or of a stream.
    pub(crate) fn set_up(self, of_tunnel: bool) -> Result<Option<SetUp>> {
        match self {
            Self::Trace(trace) if of_tunnel => Ok(SetUp::of_tunnel(&trace)),
            Self::Trace(trace) => Ok(SetUp::of_tls(&trace)),
            Self::AtClient(host) => host.agent()?.set_up(),
        }
    }
}
