//! A real Linux kernel's IPsec (XFRM) as a peer, on a host whose own kernel may
//! have none.

pub(crate) mod archive;
pub(crate) mod console;
pub(crate) mod emulator;
mod end_to_end;
mod frames;
pub(crate) mod initramfs;
mod machine;
pub(crate) mod modules;
mod trial;
mod xfrm;

pub use end_to_end::{EndToEnd, end_to_end_cases, ping_cases};
pub use frames::Frames;
pub use machine::{Emulators, Machine};
pub use trial::KernelPeer;
