//! Reads a testbed's counters: frames at the router, CPU time of both sides.

use super::{Place, Testbed, netns};
use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::namespace;
use crate::resources::cpu::{Parts, Reading, Spent};
use crate::resources::usage::{Sources, Watch};

/// Seconds by which a server's CPU time may fall short where no control group counts it: user
/// and system time of its ended processes are known in ticks of 10 ms.
const UNSEEN: f64 = 0.02;

/// Counters of an interface since it was made, both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Frames, whatever is in them.
    pub frames: u64,
    /// Ethernet headers included.
    pub bytes: u64,
}

impl Counters {
    /// Returns the difference to an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self { frames: self.frames - before.frames, bytes: self.bytes - before.bytes }
    }
}

impl Testbed {
    /// Reads the counters of the router's interface towards the client, both directions.
    pub fn router_counters(&self) -> Result<Counters> {
        let command = netns::counters_command(self.names()?);
        let said = self.executor.run(&command)?;
        let links: serde_json::Value =
            serde_json::from_str(&said).doing(|| format!("read what `{command}` printed"))?;
        let both = |of: &str| {
            let way = |way: &str| links[0]["stats64"][way][of].as_u64();
            Some(way("rx")? + way("tx")?)
        };
        both("packets")
            .zip(both("bytes"))
            .map(|(frames, bytes)| Counters { frames, bytes })
            .ok_or_else(|| Error::Failed(format!("`{command}` printed no counters")))
    }

    /// Watches both sides and the link from now on; nobody does between two real
    /// machines, and in a dry run.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn watch(&self) -> Result<Option<Watch>> {
        let Place::Here(here) = &self.place else { return Ok(None) };
        let Some(groups) = &here.groups else { return Ok(None) };
        let sources = Sources {
            client: groups.client.counter(),
            server: groups.server.counter(),
            to_client: netns::ROUTER_TO_CLIENT,
            to_server: netns::ROUTER_TO_SERVER,
        };
        let router = namespace::path(&here.names.router);
        Watch::start(sources, move || namespace::enter(&router)).map(Some)
    }

    /// CPU time so far, of both sides and of the machine; none in a dry run.
    pub fn read_cpu(&self) -> Result<Option<CpuReading>> {
        if self.executor.is_dry() {
            return Ok(None);
        }
        match &self.place {
            Place::Here(here) => {
                let Some(groups) = &here.groups else { return Ok(None) };
                let Some(router) = &here.router.processes else { return Ok(None) };
                let by_descent = groups.client.by_descent();
                let told =
                    |host: &Host| by_descent.then(|| host.agent()?.cpu_of_children()).transpose();
                let parts = Parts {
                    client: groups.client.cpu_seconds(told(&self.client)?)?,
                    server: groups.server.cpu_seconds(told(&self.server)?)?,
                    router: router.cpu_seconds(None)?,
                    unseen: if by_descent { UNSEEN } else { 0.0 },
                };
                Ok(Some(CpuReading::One(here.meter.read(parts)?)))
            }
            Place::Machines(_) => {
                let (client, server) = (self.client_agent()?.cpu()?, self.server_agent()?.cpu()?);
                Ok(Some(CpuReading::Two { client, server }))
            }
        }
    }
}

/// Counters of one machine, or of each of two.
#[derive(Debug, Clone, Copy)]
pub enum CpuReading {
    /// Of the machine that is both hosts.
    One(Reading),
    /// Of two machines.
    Two {
        /// Of the client's.
        client: Reading,
        /// Of the server's.
        server: Reading,
    },
}

impl CpuReading {
    /// Returns the CPU time spent since `earlier`, a reading of the same testbed.
    pub fn since(&self, earlier: &Self) -> Option<Spent> {
        match (self, earlier) {
            (Self::One(now), Self::One(then)) => Some(now.since(then)),
            (Self::Two { client, server }, Self::Two { client: near, server: far }) => {
                Some(Spent::of_both(&client.since(near), &server.since(far)))
            }
            _ => None,
        }
    }
}
