//! By what the endpoint finds a session.

use std::time::Instant;

use super::Session;
use crate::config::Config;
use crate::event::ChildId;
use crate::sa::IkeSa;

/// By what the endpoint finds a session.
#[derive(Debug, Default)]
pub(crate) struct FoundBy {
    /// The SPIs that its messages have.
    pub(crate) spis: Vec<u64>,
    pub(crate) children: Vec<ChildId>,
    /// When something is due.
    pub(crate) deadline: Option<Instant>,
}

impl FoundBy {
    pub(crate) fn of(session: &Session, config: &Config) -> Self {
        Self {
            spis: session.sas.iter().map(IkeSa::local_spi).collect(),
            children: session.children.iter().map(|child| child.id).collect(),
            deadline: session.next_deadline(config),
        }
    }
}
