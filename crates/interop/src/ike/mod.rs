//! `headroom tunnel` with `[ike]` against other IKE daemons: negotiation, rekeying and deletion
//! by either side, with packets through the tunnel each time.

mod attempt;
mod example;
mod guest;
mod link;
mod ours;
pub mod scapy;
mod strongswan;
mod table;
mod trial;

use std::path::Path;

use anyhow::{Result, bail};

pub use attempt::attempt;
pub use example::try_examples;
pub use guest::{Daemons, Guest, peer};
pub use strongswan::StrongSwan;
pub use table::{Column, document, document_of_checks};
pub use trial::Trial;

use crate::pki::KeyKind;
use crate::strongswan::road_warrior::Method;
use crate::trial::Outcome;
use link::Link;

/// An implementation of IKEv2.
pub trait Peer {
    /// Returns its name and version.
    fn title(&self) -> String;

    /// Returns why it cannot do this, if it cannot.
    fn lacks(&self, trial: Trial) -> Option<&'static str>;

    /// Returns the suite that our gateway must offer for a CHILD SA, where it has none of the defaults.
    fn child_suite(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether it has ML-KEM.
    fn is_post_quantum(&self) -> bool;

    /// Makes the link between us and it.
    ///
    /// # Errors
    /// An interface cannot be made.
    fn link(&mut self, nat: Option<Side>) -> Result<Link>;

    /// Starts its daemon at the other end of the link.
    ///
    /// # Errors
    /// It does not start.
    fn start<'a>(
        &'a mut self,
        folder: &'a Path,
        link: &'a Link,
        trial: Trial,
    ) -> Result<Box<dyn Daemon + 'a>>;

    /// Has it be a client of our gateway that proves by EAP. Returns what it lacks for it.
    ///
    /// # Errors
    /// Describes the step that failed.
    fn be_client(&self, _: &Path, _: Method) -> Result<Option<&'static str>> {
        bail!("EAP is not tried with it")
    }
}

/// A running daemon. Dropping it ends it.
pub trait Daemon {
    /// Begins the IKE SA and its CHILD SA.
    ///
    /// # Errors
    /// It refuses.
    fn initiate(&mut self) -> Result<()>;

    /// Begins the IKE SA alone.
    ///
    /// # Errors
    /// It refuses.
    fn initiate_without_child(&mut self) -> Result<()> {
        bail!("it has no command for an IKE SA alone")
    }

    /// Rekeys the CHILD SA.
    ///
    /// # Errors
    /// It refuses.
    fn rekey_child(&mut self) -> Result<()>;

    /// Rekeys the IKE SA.
    ///
    /// # Errors
    /// It refuses.
    fn rekey_ike(&mut self) -> Result<()>;

    /// Deletes the IKE SA.
    ///
    /// # Errors
    /// It refuses.
    fn terminate(&mut self) -> Result<()>;

    /// Returns whether it has no IKE SA.
    ///
    /// # Errors
    /// It does not answer.
    fn is_idle(&mut self) -> Result<bool>;

    /// Returns its log so far.
    ///
    /// # Errors
    /// It cannot be read.
    fn log(&mut self) -> Result<String>;

    /// Transfers bytes through the tunnel in both directions and compares them.
    ///
    /// # Errors
    /// Bytes do not arrive, or others do.
    fn transfer(&mut self) -> Result<()>;

    /// Returns what its log says when it has answered a liveness check, and when its own has been
    /// answered.
    fn liveness(&self) -> [&'static str; 2];

    /// Returns what its log says when our signature, and its own, is of a key of this kind.
    fn proofs(&self, _: KeyKind) -> Vec<String> {
        Vec::new()
    }

    /// Returns what its log says when it has sent fragments, and when it has received one.
    fn fragments(&self) -> [&'static str; 2];
}

/// A side of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Headroom.
    Ours,
    /// The peer.
    Theirs,
}

/// Tries everything against a peer.
pub fn column(peer: &mut dyn Peer, headroom: &Path, trials: &[Trial]) -> Column {
    let outcomes = trials
        .iter()
        .map(|&trial| {
            let outcome = attempt(peer, headroom, trial);
            eprintln!("  {}: {trial}: {outcome:?}", peer.title());
            (trial, outcome)
        })
        .collect();
    Column { title: peer.title(), outcomes }
}
