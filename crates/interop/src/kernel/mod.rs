//! A real Linux kernel's IPsec (XFRM) as a peer, on a host whose own kernel may
//! have none.

mod initramfs;
pub mod machine;
mod trial;
mod xfrm;

pub use machine::{Emulators, Machine};
pub use trial::{KernelPeer, lacks};
