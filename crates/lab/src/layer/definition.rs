//! The trait of a layer, and its parameters.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::programs::Program;
use headroom_lab_host::testbed::{Ends, Family};

use crate::catalogue::{Chosen, Fact};
use crate::properties::Properties;

/// The kind of traffic that a layer carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// One TCP connection: the client connects to a port on its own loopback
    /// interface, the server's application listens on that of its host.
    Stream,
    /// IP packets, between new addresses on an interface of its own.
    Network,
    /// IP packets, between the addresses that both ends have already (IPsec's transport
    /// mode); an interface shows them in clear.
    InPlace,
}

impl LayerKind {
    /// Whether it carries packets.
    pub fn is_network(self) -> bool {
        self != Self::Stream
    }
}

/// Packets that were not passed on, by the name of the reason.
pub type Drops = BTreeMap<String, u64>;

/// Updates of a layer's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUpdates {
    /// How many there were.
    pub(crate) count: u64,
    /// The bytes after which each is due.
    pub(crate) interval: u64,
}

impl KeyUpdates {
    /// Says that keys were updated less often than every fourth time that they should have
    /// been while so many bytes passed. Updates are due a little earlier or later: an
    /// interval is shortened at random, and data passes while new keys are agreed on.
    pub(crate) fn objection(self, bytes: u64) -> Option<String> {
        let Self { count, interval } = self;
        let asked = bytes / interval;
        (count < asked.div_ceil(4)).then(|| {
            format!("keys were updated {count} times, and {asked} times were asked for (`rekey`)")
        })
    }
}

/// Something that is wrapped around an application: its two ends, and how they
/// find each other.
pub trait Layer: Send + Sync {
    /// Returns the kind of traffic that it carries.
    fn kind(&self) -> LayerKind;

    /// Whether what it carries cannot be read on the wire.
    fn encrypts(&self) -> bool {
        true
    }

    /// Properties that a user may need; none: nobody stated them.
    fn properties(&self) -> Option<Properties> {
        None
    }

    /// Whether its two ends agree on keys by themselves, which takes packets and time.
    fn negotiates(&self) -> bool {
        true
    }

    /// Whether it protects the Ethernet frames of the link itself, so that nothing can be around
    /// it; its interface shows such frames in clear.
    fn is_of_the_link(&self) -> bool {
        false
    }

    /// Whether its ends need outer addresses that nobody else uses.
    fn wants_own_addresses(&self) -> bool {
        self.kind() == LayerKind::InPlace
    }

    /// Whether [`Layer::quiesce`] ends its daemons, with their interfaces.
    fn ends_when_quiesced(&self) -> bool {
        false
    }

    /// Refuses what this machine cannot do, whatever programs it has.
    ///
    /// # Errors
    /// [`crate::Error::Missing`]: what it lacks.
    fn require(&self) -> Result<()> {
        Ok(())
    }

    /// Names the command of this program that it runs, where a build may lack it.
    fn own_command(&self) -> Option<&'static str> {
        None
    }

    /// Refuses what this machine's kernel cannot do.
    ///
    /// # Errors
    /// [`crate::Error::Missing`]: what it lacks.
    fn require_kernel(&self) -> Result<()> {
        Ok(())
    }

    /// Whether this machine's kernel does its work, without a daemon for packets.
    fn in_kernel(&self) -> bool {
        false
    }

    /// Whether a daemon runs on either host.
    fn has_daemon(&self) -> bool {
        true
    }

    /// Those of `all` its programs that it needs on this machine.
    fn needs(&self, all: &'static [Program]) -> &'static [Program] {
        all
    }

    /// Largest packet on the inner interface whose outer packet still fits
    /// `outer` bytes; of no meaning for a stream.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32;

    /// The inner interface, none for a stream, of the `nth` instance of this layer in a run and the
    /// `number`th of all layers; both count from 1 and from 0.
    fn interface(&self, _number: u16, _nth: u16) -> String {
        String::new()
    }

    /// Writes configuration and starts both ends. A tunnel is up afterwards, and its
    /// inner interfaces have their addresses.
    ///
    /// # Errors
    /// A program is missing, ends at once or does not get ready.
    fn start(&self, place: &Place<'_>) -> Result<()>;

    /// Makes both ends forget what they agreed on, where that takes packets.
    ///
    /// # Errors
    /// A command failed.
    fn tear_down(&self, _place: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// Sets the layer up from nothing. Returns when data can pass.
    ///
    /// # Errors
    /// The two ends do not come together.
    fn establish(&self, place: &Place<'_>) -> Result<()>;

    /// Resumes the layer before a measurement: it is up and its keys outlast a transfer.
    ///
    /// # Errors
    /// As [`Layer::establish`].
    fn resume(&self, _place: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// Quiesces the layer after a measurement: it sends nothing until [`Layer::resume`].
    ///
    /// # Errors
    /// A command failed.
    fn quiesce(&self, _place: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// Packets that its two ends did not pass on since [`Layer::resume`], by reason; none
    /// where it does not say.
    ///
    /// # Errors
    /// It cannot be asked.
    fn drops(&self, _place: &Place<'_>) -> Result<Option<Drops>> {
        Ok(None)
    }

    /// Updates of keys since [`Layer::resume`]; none where the layer is not asked for any.
    ///
    /// # Errors
    /// It cannot be asked.
    fn key_updates(&self, _place: &Place<'_>) -> Result<Option<KeyUpdates>> {
        Ok(None)
    }

    /// Lists pinned settings for the record.
    fn facts(&self) -> Vec<Fact>;
}

/// One instance of a layer. Each stack has its own of each of its layers.
pub(crate) struct Instance {
    pub(crate) layer: Chosen<dyn Layer>,
    /// The stack's name.
    pub(crate) stack: String,
    /// Of all instances of the run, from 1: no two share ports or addresses.
    pub(crate) number: u16,
    /// Name of the inner interface on both hosts.
    pub(crate) interface: String,
    /// The addresses of its own packets.
    pub(crate) outer: Ends,
    /// Its inner addresses; loopback addresses for a stream.
    pub(crate) inner: Ends,
    /// The address on which the server's application listens; unused by a network.
    pub(crate) application: SocketAddr,
    /// The stream around this one, at the client.
    pub(super) around: Option<SocketAddr>,
    /// Number of equal layers around it in its stack.
    pub(super) alike: usize,
    pub(crate) congestion_control: String,
}

/// An instance and the hosts that it joins.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub(crate) client: &'a Host,
    pub(crate) server: &'a Host,
    pub(crate) at: &'a Instance,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_updates_of_keys_are_an_error_of_the_sample() {
        let objection = |count, bytes| KeyUpdates { count, interval: 50_000_000 }.objection(bytes);
        for (count, megabytes) in [(8, 400), (9, 400), (2, 400), (1, 50), (0, 49)] {
            assert_eq!(objection(count, megabytes * 1_000_000), None, "{count}");
        }
        assert_eq!(
            objection(1, 400_000_000).as_deref(),
            Some("keys were updated 1 times, and 8 times were asked for (`rekey`)")
        );
        assert!(objection(0, 50_000_000).is_some());
    }
}
