//! What the thread of IKE reports.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// What the thread of IKE reports.
#[derive(Debug)]
pub enum Report {
    /// A sentence for the user.
    Message(String),
    /// The addresses that peers have assigned to this host, all of them.
    Assigned(BTreeSet<IpAddr>),
}
