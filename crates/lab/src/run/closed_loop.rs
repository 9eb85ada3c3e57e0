//! One sample of a closed loop: clients at once, each of which starts its next session when the
//! one before has ended, without a capture.

use std::time::Duration;

use headroom_lab_host::agent::{LoopClient, LoopOutcome, Outcome};
use headroom_lab_host::error::{self, Result};
use headroom_lab_host::testbed::Clock;
use headroom_lab_results::analysis::sessions::{self, ClientSessions};

use super::bench::Bench;
use super::cell::Cell;
use super::transfer::{Prepared, Seen, failure};
use crate::application::Application;

impl Bench<'_> {
    /// Runs the clients of a prepared transfer again and again for `time`.
    pub(super) fn closed_loop(
        &self,
        cell: &Cell,
        prepared: &Prepared,
        time: Duration,
    ) -> Result<Seen> {
        error::check(&self.interrupted)?;
        let files = prepared.transfer.expected.iter().cloned();
        let clients = self.jobs(prepared)?.into_iter().zip(files);
        let clients = clients.map(|(job, (file, content))| LoopClient { job, file, content });
        let stack = self.instance(&cell.stack)?;
        // a capture's work would be a part of what is measured, and its clock is not needed
        let outside = self.testbed.clock().filter(|_| stack.is_tunnelled());
        let clocks: Vec<Clock<'_>> =
            stack.clock(&self.testbed).into_iter().chain(outside).collect();
        clocks.iter().try_for_each(|clock| clock.pause(true))?;
        let watch = || self.require_running(cell);
        let client = &self.testbed.client;
        let (timeout, patience) = (cell.timeout(), cell.patience());
        let outcomes = client.run_loop(clients.collect(), time, timeout, patience, &watch);
        clocks.iter().try_for_each(|clock| clock.pause(false))?;
        Ok(Seen::of_loop(cell, self.application(&cell.stack)?, outcomes?))
    }
}

impl Seen {
    /// Merges the sessions of all clients.
    fn of_loop(cell: &Cell, application: &dyn Application, outcomes: Vec<LoopOutcome>) -> Self {
        let objection = |outcome: &Outcome| {
            failure(cell, outcome, application.client_report(outcome).error.as_deref())
        };
        let took_s = outcomes.iter().map(|client| client.elapsed_s).fold(0.0, f64::max);
        let first = outcomes.iter().find_map(|client| client.first_failure.as_ref());
        let first = first.map(|(outcome, wrong)| {
            let why = objection(outcome).or_else(|| wrong.clone());
            why.unwrap_or_else(|| "no reason given".to_owned())
        });
        // whether a session that ended well was what the stack says: of the last of each client
        let ended_well = outcomes.iter().filter(|client| client.last.code == Some(0));
        let last = ended_well.map(|client| &client.last).find_map(objection);
        let (mut clients, mut lasts) = (Vec::new(), Vec::new());
        for LoopOutcome { session_s, elapsed_s, failed, last, .. } in outcomes {
            clients.push(ClientSessions { session_s, elapsed_s, failed });
            lasts.push(last);
        }
        let sessions = sessions::of_clients(&clients, first.clone());
        let none = || {
            let why = first.as_deref().unwrap_or("no session ended");
            format!("no session succeeded; the first: {why}")
        };
        let error = sessions.is_none().then(none).or(last);
        Self { outcomes: lasts, took_s, sessions, error, ..Self::default() }
    }
}
