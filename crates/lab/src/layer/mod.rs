//! What can be wrapped around an application, one file each behind one trait. To
//! add one, write its file and name it in [`ALL`].

mod kernel;
mod openvpn;
mod place;
mod strongswan;
mod tls;
mod wireguard;

use crate::error::Result;
use crate::parts::Program;
use crate::plan::Family;
use crate::service::Service;

pub use place::Place;
pub(crate) use place::{Ends, Instance, loopback};

/// What a layer carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One TCP connection: the client connects to a port on its own loopback
    /// interface, the server's application listens on that of its host.
    Stream,
    /// IP packets, between new addresses on an interface of its own.
    Network,
}

/// Something that is wrapped around an application: its two ends, and how they
/// find each other.
pub trait Layer: Sync {
    /// The name in stacks.
    fn name(&self) -> &'static str;

    /// One line for `headroom lab list`.
    fn about(&self) -> &'static str;

    /// What it carries.
    fn kind(&self) -> Kind;

    /// Whether this machine's kernel does its work, without a daemon for packets.
    fn in_kernel(&self) -> bool {
        false
    }

    /// Whether a daemon runs on either host.
    fn has_daemon(&self) -> bool {
        true
    }

    /// The programs it may need, on any machine.
    fn programs(&self) -> &'static [Program];

    /// Those that it needs on this one.
    fn needs(&self) -> &'static [Program] {
        self.programs()
    }

    /// Largest packet on the inner interface whose outer packet still fits
    /// `outer` octets; of no meaning for a stream.
    fn inner_mtu(&self, outer: u32, family: Family) -> u32;

    /// The inner interface, of the `nth` instance of this layer in a run and the
    /// `number`th of all layers; both count from 1 and from 0.
    fn interface(&self, number: u16, nth: u16) -> String {
        let _ = nth;
        format!("{}{number}", self.name())
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

    /// Before a measurement: the layer is up and its keys outlast a transfer.
    ///
    /// # Errors
    /// As [`Layer::establish`].
    fn wake(&self, _place: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// After a measurement: nothing is sent until [`Layer::wake`].
    ///
    /// # Errors
    /// A command failed.
    fn rest(&self, _place: &Place<'_>) -> Result<()> {
        Ok(())
    }

    /// What was pinned, for the record.
    fn facts(&self) -> Vec<(&'static str, &'static str)>;
}

/// All layers.
pub const ALL: &[&dyn Layer] =
    &[&tls::Tls, &wireguard::WireGuard, &strongswan::StrongSwan, &openvpn::OpenVpn];

/// The layer of this name.
pub fn find(name: &str) -> Option<&'static dyn Layer> {
    ALL.iter().copied().find(|layer| layer.name() == name)
}

/// Why these layers, innermost first, make no sense around this application.
pub(crate) fn objection(service: &dyn Service, layers: &[&'static dyn Layer]) -> Option<String> {
    const DEEPEST: usize = 8;
    if layers.len() > DEEPEST {
        return Some(format!("more than {DEEPEST} layers"));
    }
    let stream = layers.iter().rposition(|layer| layer.kind() == Kind::Stream)?;
    let (name, application) = (layers[stream].name(), service.name());
    if service.data_connections() {
        return Some(format!(
            "{application} opens data connections of its own, which `{name}` cannot carry: it carries \
             the one connection that it is put around; use a network layer, as {application}/wireguard"
        ));
    }
    let network = layers[..stream].iter().find(|layer| layer.kind() == Kind::Network)?;
    Some(format!(
        "`{0}` sends UDP packets and `{name}` carries a TCP connection; the other way round, \
         {application}/{name}/{0}, would do",
        network.name()
    ))
}
