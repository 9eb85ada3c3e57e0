//! What steers a job: its state, its rate, its workers; and its figures.

use headroom_transfer::files::Requests;
use rusqlite::{Connection, Row, params};

use super::{Rules, damaged, int, nat};
use crate::engine::{Control, Counts, Lease, Orders, Phase, State, WorkerReport};
use crate::job::Job;
use crate::requests;
use crate::share::Division;

/// A worker that was not heard of for this long has no share of the rate.
const LIVE_MS: u64 = 5000;

/// Reads the job.
pub(super) fn job(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("SELECT job FROM job", [], |row| row.get(0))
}

/// Replaces the job, whose settings may change between runs. A rate that the user has set since
/// stays, unless the job file has another one than before.
pub(super) fn change_job(connection: &Connection, before: &Job, job: &Job) -> rusqlite::Result<()> {
    connection.execute("UPDATE job SET job = ?1", [job.to_json()])?;
    if job.rate_bps != before.rate_bps {
        set_rate(connection, job.rate_bps)?;
    }
    match (before.delete, job.delete) {
        (true, false) => replace_phase(connection, Phase::Deleting, Phase::Done),
        // the delete pass is left to do, if nothing was set aside
        (false, true) => replace_phase(connection, Phase::Done, Phase::Finishing),
        _ => Ok(()),
    }
}

fn replace_phase(connection: &Connection, phase: Phase, by: Phase) -> rusqlite::Result<()> {
    let phases = [phase_name(phase), phase_name(by)];
    connection.execute("UPDATE job SET phase = ?2 WHERE phase = ?1", phases).map(drop)
}

/// Reads what steers a job.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Control> {
    connection.query_row("SELECT state, phase, rate_bps FROM job", [], |row| {
        let (state, phase): (String, String) = (row.get(0)?, row.get(1)?);
        let rate_bps: Option<i64> = row.get(2)?;
        Ok(Control {
            state: read_state(&state)?,
            phase: read_phase(&phase)?,
            rate_bps: rate_bps.and_then(|rate_bps| u64::try_from(rate_bps).ok()),
        })
    })
}

/// Sets what the user wants, unless the job was cancelled.
pub(super) fn set_state(connection: &Connection, state: State) -> rusqlite::Result<Control> {
    connection
        .execute("UPDATE job SET state = ?1 WHERE state <> 'cancelled'", [state_name(state)])?;
    read(connection)
}

/// Sets the limit for all workers together.
pub(super) fn set_rate(connection: &Connection, rate_bps: Option<u64>) -> rusqlite::Result<()> {
    connection.execute("UPDATE job SET rate_bps = ?1", params![rate_bps.map(int)]).map(drop)
}

/// Sets the phase.
pub(super) fn set_phase(connection: &Connection, phase: Phase) -> rusqlite::Result<()> {
    connection.execute("UPDATE job SET phase = ?1", [phase_name(phase)]).map(drop)
}

/// Notes that a worker lives, extends its lease, and says what it is to do.
pub(super) fn beat(
    connection: &Connection,
    rules: &Rules,
    worker: &str,
    lease: Option<Lease>,
    in_flight: u64,
    now_ms: u64,
) -> rusqlite::Result<Orders> {
    connection.execute(
        "INSERT INTO workers (name, seen_ms, in_flight) VALUES (?1, ?2, ?3) \
         ON CONFLICT (name) DO UPDATE SET seen_ms = excluded.seen_ms, in_flight = excluded.in_flight",
        params![worker, int(now_ms), int(in_flight)],
    )?;
    let holds_lease = match lease {
        Some(Lease { item, take }) => {
            let extended = connection.execute(
                "UPDATE items SET lease_ms = ?3 WHERE id = ?1 AND takes = ?2 AND state = 'leased'",
                params![item, take, int(now_ms.saturating_add(rules.lease_ms))],
            )?;
            extended == 1
        }
        None => true,
    };
    let Control { state, phase, rate_bps } = read(connection)?;
    let division = match (rate_bps, lease) {
        (Some(rate_bps), Some(_)) => {
            let workers = 1 + others_with_items(connection, worker, now_ms)?;
            Some(Division { rate_bps, workers })
        }
        (Some(rate_bps), None) => {
            let (workers, _) = workers(connection, now_ms)?;
            Some(Division { rate_bps, workers })
        }
        (None, _) => None,
    };
    Ok(Orders {
        state,
        is_done: phase == Phase::Done || state == State::Cancelled,
        division,
        holds_lease,
    })
}

/// Notes that a worker has ended. The next worker that takes an item finds its leases ended.
pub(super) fn leave(connection: &Connection, worker: &str, now_ms: u64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM workers WHERE name = ?1", [worker])?;
    connection.execute(
        "UPDATE items SET lease_ms = ?2 WHERE state = 'leased' AND worker = ?1",
        params![worker, int(now_ms)],
    )?;
    Ok(())
}

/// Counts names that the delete pass removed.
pub(super) fn count_removed(connection: &Connection, removed: u64) -> rusqlite::Result<()> {
    let before = connection.query_row("SELECT removed FROM job", [], |row| nat(row, 0))?;
    let removed = int(before.saturating_add(removed));
    connection.execute("UPDATE job SET removed = ?1", [removed]).map(drop)
}

/// Counts names that the source has lost since they were listed.
pub(super) fn count_vanished(connection: &Connection, vanished: u64) -> rusqlite::Result<()> {
    let before = connection.query_row("SELECT vanished FROM job", [], |row| nat(row, 0))?;
    let vanished = int(before.saturating_add(vanished));
    connection.execute("UPDATE job SET vanished = ?1", [vanished]).map(drop)
}

/// Adds requests to stores.
pub(super) fn count_requests(connection: &Connection, more: &Requests) -> rusqlite::Result<()> {
    if requests::are_none(more) {
        return Ok(());
    }
    let sum = read_requests(connection)?.and(more);
    connection.execute("UPDATE job SET requests = ?1", [requests::to_json(&sum)]).map(drop)
}

fn read_requests(connection: &Connection) -> rusqlite::Result<Requests> {
    let text: Option<String> =
        connection.query_row("SELECT requests FROM job", [], |row| row.get(0))?;
    let Some(text) = text else { return Ok(Requests::default()) };
    requests::from_json(&text).ok_or_else(|| damaged("the count of requests"))
}

/// Changes the count of bytes in ranges that are done, of files without receipts.
pub(super) fn count_ranged(
    connection: &Connection,
    change: impl FnOnce(u64) -> u64,
) -> rusqlite::Result<()> {
    let bytes = int(change(ranged_bytes(connection)?));
    connection.execute("UPDATE job SET ranged_bytes = ?1", [bytes]).map(drop)
}

fn ranged_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT ranged_bytes FROM job", [], |row| nat(row, 0))
}

/// Returns the workers that have items or were heard of.
pub(super) fn holders(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut holders = connection.prepare(
        "SELECT worker FROM items WHERE state = 'leased' AND worker IS NOT NULL \
         UNION SELECT name FROM workers",
    )?;
    let names = holders.query_map([], |row| row.get(0))?;
    names.collect()
}

/// Reads the figures.
pub(super) fn counts(connection: &Connection, now_ms: u64) -> rusqlite::Result<Counts> {
    let mut counts = connection.query_row(
        "SELECT is_listed, found_files, found_bytes, copied_files, copied_bytes, unchanged_files, \
         left_out, vanished, removed FROM job",
        [],
        |row: &Row<'_>| {
            Ok(Counts {
                is_listed: row.get(0)?,
                found_files: nat(row, 1)?,
                found_bytes: nat(row, 2)?,
                copied_files: nat(row, 3)?,
                copied_bytes: nat(row, 4)?,
                unchanged_files: nat(row, 5)?,
                left_out: nat(row, 6)?,
                vanished: nat(row, 7)?,
                removed: nat(row, 8)?,
                ..Counts::default()
            })
        },
    )?;
    let mut states = connection.prepare("SELECT state, count(*) FROM items GROUP BY state")?;
    let mut rows = states.query([])?;
    while let Some(row) = rows.next()? {
        let (state, count): (String, u64) = (row.get(0)?, nat(row, 1)?);
        match state.as_str() {
            "queued" => counts.queued = count,
            "leased" => counts.leased = count,
            "aside" => counts.aside = count,
            // nobody sees these yet
            _ => {}
        }
    }
    counts.aside += connection.query_row(
        "SELECT count(*) FROM directories WHERE state = 'failed'",
        [],
        |row| nat(row, 0),
    )?;
    let (live, in_flight) = workers(connection, now_ms)?;
    counts.workers = live;
    counts.in_flight = in_flight.saturating_add(ranged_bytes(connection)?);
    counts.requests = read_requests(connection)?;
    Ok(counts)
}

/// Returns what each worker has reported last.
pub(super) fn reports(connection: &Connection) -> rusqlite::Result<Vec<WorkerReport>> {
    let mut workers = connection.prepare(
        "SELECT name, seen_ms, in_flight, EXISTS (SELECT 1 FROM items \
         WHERE items.state = 'leased' AND items.worker = workers.name) FROM workers ORDER BY name",
    )?;
    let reports = workers.query_map([], |row: &Row<'_>| {
        Ok(WorkerReport {
            name: row.get(0)?,
            heard_ms: nat(row, 1)?,
            in_flight: nat(row, 2)?,
            has_item: row.get(3)?,
        })
    })?;
    reports.collect()
}

/// Returns how many other workers live and have items.
fn others_with_items(connection: &Connection, worker: &str, now_ms: u64) -> rusqlite::Result<u64> {
    connection.query_row(
        "SELECT count(*) FROM workers WHERE seen_ms > ?1 AND name <> ?2 AND EXISTS (SELECT 1 \
         FROM items WHERE items.state = 'leased' AND items.worker = workers.name)",
        params![int(now_ms.saturating_sub(LIVE_MS)), worker],
        |row| nat(row, 0),
    )
}

/// Returns how many workers live, and what they have moved of their items.
fn workers(connection: &Connection, now_ms: u64) -> rusqlite::Result<(u64, u64)> {
    let mut live = connection.prepare("SELECT in_flight FROM workers WHERE seen_ms > ?1")?;
    let mut rows = live.query([int(now_ms.saturating_sub(LIVE_MS))])?;
    let (mut count, mut in_flight) = (0, 0_u64);
    while let Some(row) = rows.next()? {
        count += 1;
        in_flight = in_flight.saturating_add(nat(row, 0)?);
    }
    Ok((count, in_flight))
}

const fn state_name(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Paused => "paused",
        State::Cancelled => "cancelled",
    }
}

fn read_state(name: &str) -> rusqlite::Result<State> {
    let states = [State::Running, State::Paused, State::Cancelled];
    let found = states.into_iter().find(|state| state_name(*state) == name);
    found.ok_or_else(|| damaged("the job's state"))
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Copying => "copying",
        Phase::Finishing => "finishing",
        Phase::Deleting => "deleting",
        Phase::Done => "done",
    }
}

fn read_phase(name: &str) -> rusqlite::Result<Phase> {
    let phases = [Phase::Copying, Phase::Finishing, Phase::Deleting, Phase::Done];
    let found = phases.into_iter().find(|phase| phase_name(*phase) == name);
    found.ok_or_else(|| damaged("the job's phase"))
}
