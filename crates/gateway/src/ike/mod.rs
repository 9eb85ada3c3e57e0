//! Negotiates the associations of the datapath by IKEv2 (RFC 7296).
//!
//! One thread works for the `negotiator`, which owns the [`headroom_ike::Endpoint`]. Inbound
//! threads of the datapath pass it datagrams, and it sends through their sockets. What it negotiates
//! goes into the engine in one step for each batch of events, before the messages that announce it
//! leave. Nothing in a step looks at all peers but the engine's update.

mod children;
mod failures;
mod key_log;
mod negotiator;
mod peers;
mod report;
mod selectors;
mod service;
mod sessions;
mod trace;

pub use key_log::KeyLog;
pub use report::Report;
pub use service::IkeService;
pub use sessions::{IkeCounters, SessionStatus};
