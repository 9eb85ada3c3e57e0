//! What can be wrapped around an application, one file each behind one trait. To
//! add one, write its file and name it in [`ALL`].

mod definition;
mod dtls;
mod ipsec;
mod kernel;
mod openvpn;
mod place;
mod strongswan;
mod tls;
mod wireguard;

use std::sync::Arc;

use crate::suggest::suggestion;

pub(crate) use definition::Instance;
pub use definition::{Drops, Kind, Layer, Place};
pub(crate) use place::{inner_mtu, loopback};

/// All layers, each as it is by default.
pub const ALL: &[&dyn Layer] = &[
    &tls::Tls,
    &wireguard::WireGuard,
    &strongswan::StrongSwan::PSK,
    &openvpn::OpenVpn,
    &dtls::Dtls,
    &ipsec::Ipsec::ESP,
    &ipsec::Ipsec::AH,
    &ipsec::Ipsec::AH_ESP,
    &ipsec::Ipsec::QESP,
];

/// The layer of this name.
pub fn find(name: &str) -> Option<&'static dyn Layer> {
    ALL.iter().copied().find(|layer| layer.name() == name)
}

/// Reads a layer as a stack names it: `tls`, `esp(transport,udp)`.
///
/// # Errors
/// A sentence that names what is unknown and lists what is known.
pub(crate) fn parse(written: &str) -> std::result::Result<Arc<dyn Layer>, String> {
    let (name, words) = match written.split_once('(') {
        None => (written, Vec::new()),
        Some((name, rest)) => {
            let words = rest.strip_suffix(')').ok_or_else(|| {
                format!(
                    "`{written}`: the words of a layer stand in brackets, as in `esp(transport)`"
                )
            })?;
            (name, words.split(',').map(str::trim).collect())
        }
    };
    let layer = find(name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|layer| layer.name()).collect();
        let meant = suggestion(name, known.iter().copied());
        format!("there is no layer `{name}`{meant}; there are {}", known.join(", "))
    })?;
    layer.with(&words)
}
