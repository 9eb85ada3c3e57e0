//! Layers around an application, one file each behind one trait. To add one, write its
//! file and name it in [`ALL`].

mod definition;
mod dtls;
mod ipsec;
mod kernel;
mod macsec;
mod openvpn;
mod place;
mod random_key;
mod rekey;
mod strongswan;
mod tls;
mod wireguard;

use crate::catalogue::Catalogue;

pub(crate) use definition::Instance;
pub use definition::{Drops, KeyUpdates, Layer, LayerKind, Place};
pub(crate) use kernel::has_macsec as kernel_has_macsec;
pub(crate) use place::{inner_mtu, loopback};

/// All layers.
pub static ALL: Catalogue<dyn Layer> = Catalogue {
    sort: "layer",
    example: "esp(transport)",
    entries: &[
        tls::ENTRY,
        wireguard::ENTRY,
        strongswan::ENTRY,
        openvpn::ENTRY,
        dtls::ENTRY,
        ipsec::ESP,
        ipsec::AH,
        ipsec::AH_ESP,
        ipsec::QESP,
        macsec::ENTRY,
    ],
};
