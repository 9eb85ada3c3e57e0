//! One sample: the clients of a cell run, once or in a batch, under all clocks,
//! and what they transferred is verified when the clocks have stopped.

use std::collections::BTreeMap;
use std::slice::from_ref;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::resources::cpu::Spent;
use headroom_lab_results::analysis::stats;
use headroom_lab_results::schema::{Cpu, Phases, Sample, Tcp, UNSHAPED_S, Usage};
use headroom_lab_trace::{Record, SetUp};

use super::bench::Bench;
use super::cell::Cell;
use super::transfer::{Prepared, Seen};
use crate::application::SessionCount;
use crate::layer::{Drops, KeyUpdates};
use crate::workload::{STREAM_UNIT, TimeOf};

/// A sample, and what of it the results do not keep.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) sample: Sample,
    pub(super) rtts_s: Vec<f64>,
    /// The fewest that any transfer took.
    pub(super) round_trips: Option<u32>,
    /// The last transfer's record.
    pub(super) last: Option<Record>,
}

impl Bench<'_> {
    /// Runs a cell before it counts, and finds out how long it takes.
    pub(super) fn warm_up(&mut self, cell: &mut Cell, times: u32) -> Result<()> {
        if cell.workload.kind.time() == TimeOf::LayerSetup {
            let seconds = self.warm_up_set_up(cell, times)?;
            cell.expect(seconds);
            return Ok(());
        }
        let mut shortest = f64::INFINITY;
        let (brief, whole_s) = cell.brief();
        if brief.size != cell.size {
            // its file is made, and where files are read from
            self.prepare(cell)?;
        }
        self.resume(cell)?;
        for _ in 0..times.max(1) {
            let counted = self.session_count(cell)?;
            let (prepared, seen) = self.transfer_before_it_counts(&brief)?;
            let transfers = seen.transfers();
            let wrong = seen.error.map_or_else(|| self.verify(&prepared), |e| Ok(Some(e)))?;
            let wrong = wrong.map_or_else(
                || self.objection_to_sessions(cell, counted, transfers),
                |error| Ok(Some(error)),
            )?;
            if let Some(error) = wrong {
                self.remove(&prepared)?;
                let sentence = format!("{cell} does not work on this testbed: {error}");
                return Err(self.attribute_failure(Error::Failed(sentence)));
            }
            self.remove(&prepared)?;
            shortest = seen.took_s.min(shortest);
        }
        self.quiesce(cell)?;
        cell.set_time(whole_s(shortest));
        Ok(())
    }

    /// Transfers, and once more where frames were lost: the machine may be busy for a moment.
    fn transfer_before_it_counts(&mut self, cell: &Cell) -> Result<(Prepared, Seen)> {
        let mut prepared = self.prepare(cell)?;
        self.prepare_clients(cell, from_ref(&prepared))?;
        let mut seen = self.transfer(cell, &prepared);
        if matches!(seen, Err(Error::FramesLost(_))) {
            self.remove(&prepared)?;
            prepared = self.prepare(cell)?;
            self.prepare_clients(cell, from_ref(&prepared))?;
            seen = self.transfer(cell, &prepared);
        }
        Ok((prepared, seen?))
    }

    /// Measures one sample of a cell.
    ///
    /// # Errors
    /// Only what ends the run; a failed transfer is a sample with its error.
    pub(super) fn measure(&mut self, cell: &Cell, block: u32) -> Result<Measured> {
        if cell.workload.kind.time() == TimeOf::LayerSetup {
            return self.measure_set_up(cell, block);
        }
        let prepared = (0..cell.batch()).map(|_| self.prepare(cell)).collect::<Result<Vec<_>>>()?;
        self.resume(cell)?;
        // after its layers are up: sshd restarts for it, and binds to an address inside them
        self.reseed_login_delay(cell)?;
        self.prepare_clients(cell, &prepared)?;
        let counted = self.session_count(cell)?;
        let (before, watch) = (self.testbed.read_cpu()?, self.testbed.watch()?);
        let seen = match self.transfers(cell, &prepared) {
            Err(error @ Error::FramesLost(_)) => {
                // what was transferred is complete: only the clock is not
                self.quiesce(cell)?;
                prepared.iter().try_for_each(|one| self.remove(one))?;
                return Err(error);
            }
            seen => seen?,
        };
        // the bottleneck of the direction that is measured
        let up = cell.workload.kind.goes_up();
        let way = if up { &cell.link.up } else { &cell.link.down };
        let transfers = seen.iter().map(Seen::transfers).sum();
        let usage = watch.map(|watch| watch.usage(transfers, way.rate_bps, up)).transpose()?;
        let after = self.testbed.read_cpu()?;
        let drops = self.instance(&cell.stack)?.drops(&self.testbed)?;
        let key_updates = self.instance(&cell.stack)?.key_updates(&self.testbed)?;
        self.quiesce(cell)?;
        let spent = after.zip(before).and_then(|(after, before)| after.since(&before));

        let mut errors: Vec<String> = seen.iter().filter_map(|s| s.error.clone()).collect();
        for one in &prepared {
            errors.extend(self.verify(one)?);
            self.remove(one)?;
        }
        if errors.is_empty() {
            errors.extend(self.objection_to_sessions(cell, counted, transfers)?);
        }
        if cell.workload.kind.moves_files() && errors.is_empty() {
            let bytes = cell.bytes() * seen.len() as u64;
            errors.extend(key_updates.iter().filter_map(|updates| updates.objection(bytes)));
        }
        let failed = |one: &Seen| one.sessions.as_ref().is_some_and(|loops| loops.failed > 0);
        if !errors.is_empty() || seen.iter().any(failed) {
            self.require_servers()?;
        }
        let took = Took {
            spent,
            usage,
            drops,
            key_updates,
            errors,
            over_datagrams: self.application(&cell.stack)?.over_datagrams(),
            token_bucket: way.rate_bps.is_some() && !self.testbed.serialises(),
        };
        Ok(Measured::of(cell, block, seen, took))
    }

    /// What the server's kernel has counted of a cell's sessions; none: it counts none.
    fn session_count(&self, cell: &Cell) -> Result<Option<SessionCount>> {
        self.application(&cell.stack)?.session_count(&self.testbed.server)
    }

    /// What is wrong with the sessions of so many transfers, by what was counted before them.
    fn objection_to_sessions(
        &self,
        cell: &Cell,
        before: Option<SessionCount>,
        transfers: usize,
    ) -> Result<Option<String>> {
        let Some(before) = before else { return Ok(None) };
        let after = self.session_count(cell)?;
        Ok(after.and_then(|after| after.objection(before, transfers)))
    }

    /// The transfers of a sample, up to the first that fails.
    fn transfers(&mut self, cell: &Cell, prepared: &[Prepared]) -> Result<Vec<Seen>> {
        let mut seen = Vec::with_capacity(prepared.len());
        for one in prepared {
            seen.push(self.transfer(cell, one)?);
            if seen.iter().any(|one| one.error.is_some()) {
                break;
            }
        }
        Ok(seen)
    }
}

/// Observations of a sample, other than its transfers.
struct Took {
    spent: Option<Spent>,
    usage: Option<Usage>,
    drops: Option<Drops>,
    key_updates: Vec<KeyUpdates>,
    errors: Vec<String>,
    /// Whether TCP says nothing of the transfers.
    over_datagrams: bool,
    /// Whether the link lets the first packets pass unshaped.
    token_bucket: bool,
}

impl Measured {
    /// The means of transfers that were one sample.
    fn of(cell: &Cell, block: u32, mut seen: Vec<Seen>, took: Took) -> Self {
        let n = seen.iter().map(Seen::transfers).sum::<usize>() as f64;
        let records: Vec<&Record> = seen.iter().filter_map(|s| s.record.as_ref()).collect();
        let mean = |value: fn(&Record) -> f64| {
            (!records.is_empty())
                .then(|| records.iter().map(|r| value(r)).sum::<f64>() / records.len() as f64)
        };
        let mean_of = |handshake: fn(&Record) -> Option<SetUp>| {
            let seconds: Vec<f64> =
                records.iter().filter_map(|r| Some(handshake(r)?.seconds)).collect();
            (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
        };
        let kind = cell.workload.kind;
        let load = seen.first().and_then(|one| one.load);
        let in_loop = seen.first().and_then(|one| one.sessions.clone());
        let seconds = match kind.time() {
            TimeOf::Client => seen.first().and_then(|one| one.client_s),
            TimeOf::Process => in_loop.as_ref().map(|sessions| sessions.p50_s),
            TimeOf::Flow => load
                .and_then(|load| Some(load.measured_s? * STREAM_UNIT as f64 / load.bytes? as f64)),
            TimeOf::Session | TimeOf::LayerSetup => mean(|r| r.transfer_s),
        };
        // what goes on for a time has no session that takes one
        let sessions: &[&Record] = if kind.is_timed() { &[] } else { &records };
        let process_seconds = match &in_loop {
            Some(sessions) => sessions.mean_s,
            None => seen.iter().map(|s| s.took_s).sum::<f64>() / n,
        };
        let client_clocks: Option<Vec<f64>> = seen.iter().map(|s| s.client_s).collect();
        let sample = Sample {
            link: cell.link.to_string(),
            stack: cell.stack.clone(),
            workload: cell.workload.name(),
            size_bytes: cell.size,
            files: match kind.is_closed_loop() {
                true => 1,
                false => cell.workload.files * cell.workload.clients,
            },
            block,
            ok: took.errors.is_empty(),
            seconds,
            session_seconds: mean(|r| r.session_s).filter(|_| !sessions.is_empty()),
            client_seconds: client_clocks.map(|all| all.iter().sum::<f64>() / n),
            process_seconds: Some(process_seconds),
            transfers: in_loop.as_ref().map_or(cell.batch(), |sessions| sessions.count),
            phases: (!sessions.is_empty())
                .then(|| Phases::mean(sessions.iter().map(|r| &r.phases))),
            first_handshake_seconds: mean_of(|r| r.handshake),
            data_handshake_seconds: mean_of(|r| r.data_handshake),
            set_up_server_cpu_seconds: None,
            cpu_seconds: took.spent.map(|s| Cpu {
                client: s.client / n,
                server: s.server / n,
                router: s.router / n,
                kernel: s.kernel / n,
                machine: s.machine / n,
                background: s.background / n,
            }),
            cpu_idle_pct: took.spent.map(|s| s.idle_pct),
            steal_pct: took.spent.map(|s| s.steal_pct),
            background_pct: took.spent.map(|s| s.background_pct),
            wire: None,
            tcp: (!records.is_empty() && !took.over_datagrams)
                .then(|| Tcp::mean(&records.iter().map(|r| r.tcp).collect::<Vec<_>>())),
            load,
            fairness: stats::mean(&seen.iter().filter_map(|s| s.fairness).collect::<Vec<_>>())
                .map(|mean| mean.mean),
            sessions: in_loop,
            usage: took.usage,
            realtime: seen.first().and_then(|one| one.realtime.clone()),
            drops: took.drops,
            key_updates: (!took.key_updates.is_empty()).then(|| {
                took.key_updates.iter().map(|updates| updates.count as f64).sum::<f64>() / n
            }),
            outlier: false,
            peak_memory_bytes: seen
                .iter()
                .flat_map(|s| &s.outcomes)
                .map(|o| o.peak_memory_bytes)
                .max(),
            disturbed: None,
            disturbed_by: BTreeMap::new(),
            not_shaped: took.token_bucket
                && !kind.is_timed()
                && seconds.is_some_and(|s| s < UNSHAPED_S),
            error: took.errors.into_iter().next(),
        };
        let round_trips = records.iter().filter_map(|r| r.round_trips).min();
        let rtts_s = records.iter().filter_map(|r| r.rtt_s).collect();
        let last = seen.pop().and_then(|s| s.record);
        Self { sample, rtts_s, round_trips, last }
    }
}
