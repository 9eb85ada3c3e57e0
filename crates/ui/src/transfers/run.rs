//! Runs one transfer until it is done, stopped or fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use headroom_transfer::{Client, Error, Observer, Retry, Summary, with_retries};

use super::job::{Job, prepare};
use super::observer::{Watching, look_ahead};
use super::status::{Intent, Status};
use super::transfer::Transfer;
use super::{ENDING, Transfers, now_ms};
use crate::error::ApiError;

impl Transfers {
    pub(super) async fn run(self: &Arc<Self>, transfer: &Arc<Transfer>, rate: Option<u64>) {
        {
            let mut state = transfer.state();
            state.error = None;
            if state.started == 0 {
                state.started = now_ms();
            }
        }
        transfer.begin_anew();
        let rate_bps = rate.map(|bytes| bytes.saturating_mul(8));
        let _looking = match &transfer.job {
            Job::Put { sources, .. } => Some(look_ahead(sources.clone(), transfer)),
            _ => None,
        };
        let observer: Arc<dyn Observer> = Arc::new(Watching(Arc::clone(transfer)));
        let lost = |_: &Error| {
            transfer.begin_anew();
            self.set(transfer, Status::Offline);
            self.tell();
        };
        let server = &transfer.server;
        let connect = async || {
            let client = self.servers.client(server).await?;
            Ok(client)
        };
        let moving = async |mut client: Client| {
            if transfer.state().status == Status::Offline {
                self.set(transfer, Status::Running);
                self.tell();
            }
            prepare(&mut client, server, transfer.job.is_upload(), rate_bps);
            let done = tokio::select! {
                done = transfer.job.run(&mut client, Arc::clone(&observer)) => done,
                () = transfer.stopped() => Err(Error::Interrupted("stopped".to_owned())),
            };
            match done {
                Ok(summary) => {
                    client.limit(None);
                    server.give(client);
                    Ok(summary)
                }
                Err(error) => {
                    client.close().await;
                    Err(error)
                }
            }
        };
        let outcome = tokio::select! {
            outcome = with_retries(Retry::Forever, lost, connect, moving) => Some(outcome),
            // it was connecting
            () = async { transfer.stopped().await; tokio::time::sleep(ENDING).await } => None,
        };
        self.ended(transfer, outcome);
    }

    fn ended(&self, transfer: &Transfer, outcome: Option<Result<Summary, Error>>) {
        let failed = transfer.counts.failed.load(Ordering::Relaxed);
        let stored = transfer.counts.stored.load(Ordering::Relaxed);
        let mut state = transfer.state();
        // as long as the state is locked nobody asks for another
        let intent = *transfer.intent.borrow();
        let status = match (outcome, intent) {
            (Some(Ok(summary)), _) => {
                state.cipher = summary
                    .cipher
                    .filter(|_| summary.on_lanes > 0)
                    .map(headroom_transfer::Cipher::name);
                state.unchanged = summary.unchanged;
                match failed.max(summary.failed) > 0 && stored == 0 {
                    true => {
                        let first = state.failures.first().cloned();
                        let (code, reason) = first.unwrap_or(("refused", String::new()));
                        state.error = Some(ApiError::new(code, reason));
                        Status::Failed
                    }
                    false => Status::Done,
                }
            }
            (_, Intent::Stop(status)) => status,
            (Some(Err(error)), Intent::Run) => {
                state.error = Some(error.into());
                Status::Failed
            }
            (None, Intent::Run) => Status::Failed,
        };
        self.enter(&mut state, status);
        drop(state);
        self.tell();
    }
}
