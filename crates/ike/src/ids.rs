//! Numbers that are unique in an endpoint.

use std::collections::HashSet;

use crate::event::{ChildId, SessionId};

/// Numbers of sessions and CHILD SAs, and the SPIs of CHILD SAs in use.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    sessions: u64,
    children: u64,
    spis: HashSet<u32>,
}

impl Ids {
    pub(crate) fn session(&mut self) -> SessionId {
        self.sessions += 1;
        SessionId(self.sessions)
    }

    pub(crate) fn child(&mut self) -> ChildId {
        self.children += 1;
        ChildId(self.children)
    }

    /// Takes an SPI; false if it is in use.
    pub(crate) fn reserve(&mut self, spi: u32) -> bool {
        self.spis.insert(spi)
    }

    /// Returns how many SPIs are taken.
    pub(crate) fn reserved(&self) -> usize {
        self.spis.len()
    }

    pub(crate) fn release(&mut self, spi: u32) {
        self.spis.remove(&spi);
    }
}
