//! Packets in and out of the kernel, in batches. The one room, beside the four
//! lines of `fetch::option`, where `unsafe` is allowed; each use has its proof.
#![allow(unsafe_code)]

pub mod capture;
pub mod link_socket;
mod packet_socket;
pub mod realtime;

pub use capture::{Capture, Frame};
pub use link_socket::LinkSocket;
