//! Sends and receives packets in batches. Besides `fetch::option`, only this crate may use
//! `unsafe`; each use explains why it is sound.
#![allow(unsafe_code)]

pub mod affinity;
pub mod capabilities;
pub mod capture;
mod control;
pub mod errors;
pub mod esp_in_udp;
#[doc(hidden)]
pub mod fuzzing;
pub mod inbox;
pub mod link_sender;
pub mod link_socket;
mod packet_socket;
pub mod raw;
pub mod realtime;
pub mod route;
pub mod seccomp;
pub mod signal;
mod socket;
#[cfg(test)]
mod testing;
pub mod tun;
pub mod udp;

pub use capture::{Capture, Frame};
pub use inbox::{Inbox, Received};
pub use link_sender::LinkSender;
pub use link_socket::LinkSocket;
pub use raw::{RawReceiver, RawSender, SendPackets};
pub use signal::{Stop, Wake};
pub use socket::{MAX_WAIT, retried, wait_readable};
pub use tun::Tun;
pub use udp::UdpSocket;
