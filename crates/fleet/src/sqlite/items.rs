//! Items: taken with a lease, settled, split, set aside.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Rules, control, damaged, entries, int, receipts, small};
use crate::engine::{
    Aside, Item, Lease, MAX_LOSSES, Outcome, Phase, SILENT, Settlement, State, Step, pause_ms,
};
use crate::entry::{Entry, encode};
use crate::key::DirectoryKey;

/// The bytes at which an item of directories gets no more of them.
const MAX_ITEM_BYTES: usize = 4 << 20;

/// Whether an item can be taken, without the write lock.
pub(super) fn may_take(connection: &Connection, now_ms: u64) -> rusqlite::Result<bool> {
    if control::read(connection)?.state != State::Running {
        return Ok(false);
    }
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM items WHERE state = 'queued' AND ready_ms <= ?1) \
         OR EXISTS (SELECT 1 FROM items WHERE state = 'leased' AND lease_ms <= ?1)",
        [int(now_ms)],
        |row| row.get(0),
    )
}

/// Takes the next item.
pub(super) fn take(
    connection: &Connection,
    rules: &Rules,
    worker: &str,
    now_ms: u64,
) -> rusqlite::Result<Option<Item>> {
    if control::read(connection)?.state != State::Running {
        return Ok(None);
    }
    expire(connection, now_ms)?;
    let read = |row: &Row<'_>| -> rusqlite::Result<_> {
        let (id, bytes): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        Ok((id, bytes, row.get::<_, i64>(2)?, read_step(row, 3)?, row.get::<_, bool>(5)?))
    };
    let found = connection
        .query_row(
            // the other half of an item that was split was never taken by itself
            "SELECT id, entries, takes, step, part, takes + attempts + losses > 0 FROM items \
             WHERE state = 'queued' AND ready_ms <= ?1 ORDER BY ready_ms, id LIMIT 1",
            [int(now_ms)],
            read,
        )
        .optional()?;
    let Some((id, bytes, takes, step, was_taken)) = found else { return Ok(None) };
    connection.execute(
        "UPDATE items SET state = 'leased', attempts = attempts + 1, takes = takes + 1, \
         worker = ?2, lease_ms = ?3 WHERE id = ?1",
        params![id, worker, int(now_ms.saturating_add(rules.lease_ms))],
    )?;
    let lease = Lease { item: id, take: takes + 1 };
    Ok(Some(Item { lease, step, was_taken, entries: entries(&bytes)? }))
}

/// Records what became of an item, if the lease still holds.
pub(super) fn settle(
    connection: &Connection,
    rules: &Rules,
    lease: Lease,
    settlement: &Settlement,
    now_ms: u64,
) -> rusqlite::Result<bool> {
    let held = connection
        .query_row(
            "SELECT attempts, worker, file, entries FROM items \
             WHERE id = ?1 AND takes = ?2 AND state = 'leased'",
            [lease.item, lease.take],
            |row| {
                let file: Option<i64> = row.get(2)?;
                let bytes = file.is_some().then(|| row.get::<_, Vec<u8>>(3)).transpose()?;
                Ok((small(row, 0)?, row.get::<_, String>(1)?, bytes))
            },
        )
        .optional()?;
    let Some((attempts, worker, bytes)) = held else { return Ok(false) };
    // of a file that has ranges
    let file = bytes.map(|bytes| entries(&bytes)).transpose()?.and_then(|mut file| file.pop());
    let Settlement { copied, left, vanished, outcome, requests } = settlement;
    let ranges = file.as_ref().map_or(0, Entry::ranges);
    receipts::record(connection, copied, &worker, (attempts, ranges), now_ms)?;
    if *vanished > 0 {
        control::count_vanished(connection, *vanished)?;
    }
    control::count_requests(connection, requests)?;
    connection.execute("UPDATE items SET losses = 0 WHERE id = ?1", [lease.item])?;
    match outcome {
        _ if left.is_empty() => match file {
            Some(file) => close(connection, lease.item, &file)?,
            None => remove(connection, lease.item)?,
        },
        Outcome::Failed(reason) => {
            fail(connection, rules, lease.item, attempts, left, reason, now_ms)?;
        }
        // it was no attempt
        Outcome::Interrupted => {
            let attempts = attempts.saturating_sub(1);
            requeue(connection, lease.item, attempts, left, None, now_ms)?;
        }
    }
    Ok(true)
}

/// Ends leases: their workers ended, or are too slow.
fn expire(connection: &Connection, now_ms: u64) -> rusqlite::Result<()> {
    loop {
        let expired = connection
            .query_row(
                "SELECT id, entries, attempts, losses FROM items \
                 WHERE state = 'leased' AND lease_ms <= ?1 ORDER BY id LIMIT 1",
                [int(now_ms)],
                |row| {
                    let (id, bytes): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
                    Ok((id, bytes, small(row, 2)?, small(row, 3)?))
                },
            )
            .optional()?;
        let Some((id, bytes, attempts, losses)) = expired else { return Ok(()) };
        let left = entries(&bytes)?;
        // a worker that was killed says nothing about the item, unless that happens again and again
        let (attempts, losses) = (attempts.saturating_sub(1), losses.saturating_add(1));
        connection.execute("UPDATE items SET losses = ?2 WHERE id = ?1", params![id, losses])?;
        match left.as_slice() {
            _ if losses < MAX_LOSSES => {
                requeue(connection, id, attempts, &left, Some(SILENT), now_ms)?;
            }
            [] | [_] => give_up(connection, id, &left, SILENT)?,
            _ => split(connection, id, attempts, &left, SILENT, now_ms)?,
        }
    }
}

/// Decides about what failed: of several entries nobody knows which one is to blame, so each half
/// is an item of its own. A single one is tried again after a pause, or set aside.
fn fail(
    connection: &Connection,
    rules: &Rules,
    id: i64,
    attempts: u32,
    left: &[Entry],
    reason: &str,
    now_ms: u64,
) -> rusqlite::Result<()> {
    match left {
        [] => remove(connection, id),
        [_] if attempts >= rules.attempts => give_up(connection, id, left, reason),
        [_] => {
            let ready_ms = now_ms.saturating_add(pause_ms(attempts));
            requeue(connection, id, attempts, left, Some(reason), ready_ms)
        }
        _ => split(connection, id, attempts, left, reason, now_ms),
    }
}

/// Sets an item aside. One of a range ends instead: the file's own item copies what it has left.
fn give_up(connection: &Connection, id: i64, left: &[Entry], reason: &str) -> rusqlite::Result<()> {
    if let [file] = left
        && part(connection, id)?.is_some()
    {
        return close(connection, id, file);
    }
    connection
        .execute(
            "UPDATE items SET state = 'aside', entries = ?2, reason = ?3, worker = NULL, \
             lease_ms = NULL WHERE id = ?1",
            params![id, encode(left), reason],
        )
        .map(drop)
}

/// Ends an item of a file that has ranges. When the last range has ended, the file is an item.
fn close(connection: &Connection, id: i64, file: &Entry) -> rusqlite::Result<()> {
    let part = part(connection, id)?;
    remove(connection, id)?;
    let Some(part) = part else {
        // the file itself, which is counted with its receipt
        return control::count_ranged(connection, |bytes| bytes.saturating_sub(file.size()));
    };
    let range = file.range(part);
    control::count_ranged(connection, |bytes| bytes.saturating_add(range.end - range.start))?;
    connection
        .execute(
            "INSERT INTO items (step, state, entries, file) SELECT 'copy', 'queued', ?1, ?2 \
             WHERE NOT EXISTS (SELECT 1 FROM items WHERE step = 'range' AND file = ?2)",
            params![encode(std::slice::from_ref(file)), int(file.number)],
        )
        .map(drop)
}

/// Returns the range that an item is of, if it is one of a range.
fn part(connection: &Connection, id: i64) -> rusqlite::Result<Option<u32>> {
    connection.query_row("SELECT part FROM items WHERE id = ?1", [id], |row| row.get(0))
}

/// Makes two items of one: each has half of what is left.
fn split(
    connection: &Connection,
    id: i64,
    attempts: u32,
    left: &[Entry],
    reason: &str,
    now_ms: u64,
) -> rusqlite::Result<()> {
    let (one, other) = left.split_at(left.len() / 2);
    requeue(connection, id, attempts, one, Some(reason), now_ms)?;
    connection
        .execute(
            "INSERT INTO items (step, state, entries, attempts, losses, ready_ms, reason) \
             SELECT step, 'queued', ?2, ?3, losses, ?4, ?5 FROM items WHERE id = ?1",
            params![id, encode(other), attempts, int(now_ms), reason],
        )
        .map(drop)
}

fn requeue(
    connection: &Connection,
    id: i64,
    attempts: u32,
    left: &[Entry],
    reason: Option<&str>,
    ready_ms: u64,
) -> rusqlite::Result<()> {
    connection
        .execute(
            "UPDATE items SET state = 'queued', entries = ?2, attempts = ?3, ready_ms = ?4, \
             reason = ?5, worker = NULL, lease_ms = NULL WHERE id = ?1",
            params![id, encode(left), attempts, int(ready_ms), reason],
        )
        .map(drop)
}

fn remove(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM items WHERE id = ?1", [id]).map(drop)
}

/// Whether the present phase has nothing left to do, without the write lock.
pub(super) fn is_phase_complete(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT phase IN ('copying', 'finishing') AND is_listed \
         AND NOT EXISTS (SELECT 1 FROM items WHERE state <> 'aside') FROM job",
        [],
        |row| row.get(0),
    )
}

/// Enters the next phase, if the present one is complete.
pub(super) fn advance(connection: &Connection, rules: &Rules) -> rusqlite::Result<Phase> {
    let phase = control::read(connection)?.phase;
    if !is_phase_complete(connection)? {
        return Ok(phase);
    }
    let next = match phase {
        Phase::Copying => {
            queue_directories(connection, rules)?;
            Phase::Finishing
        }
        Phase::Finishing if rules.delete && !has_aside(connection)? => Phase::Deleting,
        _ => Phase::Done,
    };
    control::set_phase(connection, next)?;
    Ok(next)
}

/// Makes items of all directories: they get their mode and time when everything in them is there.
fn queue_directories(connection: &Connection, rules: &Rules) -> rusqlite::Result<()> {
    let mut found =
        connection.prepare("SELECT entry FROM directories WHERE key <> x'' ORDER BY key")?;
    let mut queue = connection
        .prepare("INSERT INTO items (step, state, entries) VALUES ('finish', 'queued', ?1)")?;
    let most = usize::try_from(rules.batch.files).unwrap_or(usize::MAX);
    let mut rows = found.query([])?;
    let (mut bytes, mut count) = (Vec::<u8>::new(), 0);
    while let Some(row) = rows.next()? {
        bytes.extend(row.get::<_, Vec<u8>>(0)?);
        count += 1;
        if count == most || bytes.len() >= MAX_ITEM_BYTES {
            queue.execute([std::mem::take(&mut bytes)])?;
            count = 0;
        }
    }
    if count > 0 {
        queue.execute([bytes])?;
    }
    Ok(())
}

fn has_aside(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM items WHERE state = 'aside') \
         OR EXISTS (SELECT 1 FROM directories WHERE state = 'failed')",
        [],
        |row| row.get(0),
    )
}

/// Puts what was set aside back into the queue. What cannot be copied at all stays.
pub(super) fn retry_aside(connection: &rusqlite::Transaction<'_>) -> rusqlite::Result<()> {
    let items = connection.execute(
        "UPDATE items SET state = 'queued', attempts = 0, losses = 0, ready_ms = 0 \
         WHERE state = 'aside' AND length(entries) > 0",
        [],
    )?;
    let directories = connection.execute(
        "UPDATE directories SET state = 'found', reason = NULL WHERE state = 'failed'",
        [],
    )?;
    if directories > 0 {
        connection.execute("UPDATE job SET is_listed = 0", [])?;
    }
    if items + directories > 0 {
        control::set_phase(connection, Phase::Copying)?;
    }
    Ok(())
}

/// Returns what was set aside.
pub(super) fn aside(connection: &Connection, most: usize) -> rusqlite::Result<Vec<Aside>> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    let mut failed = connection.prepare(
        "SELECT key, reason FROM directories WHERE state = 'failed' ORDER BY key LIMIT ?1",
    )?;
    let mut rows = failed.query([most])?;
    while let Some(row) = rows.next()? {
        let key = DirectoryKey::from_bytes(row.get(0)?);
        let key = key.ok_or_else(|| damaged("the key of a directory"))?;
        let reason: Option<String> = row.get(1)?;
        found.push(Aside { path: key.path(), reason: reason.unwrap_or_default() });
    }
    let mut items = connection
        .prepare("SELECT entries, reason FROM items WHERE state = 'aside' ORDER BY id LIMIT ?1")?;
    let mut rows = items.query([most - i64::try_from(found.len()).unwrap_or(most)])?;
    while let Some(row) = rows.next()? {
        let path = match entries(&row.get::<_, Vec<u8>>(0)?)?.as_slice() {
            [entry] => Some(entry.path.clone()),
            _ => None,
        };
        let reason: Option<String> = row.get(1)?;
        found.push(Aside { path, reason: reason.unwrap_or_default() });
    }
    Ok(found)
}

/// Reads the step of an item: its name, and the range that is in the next column.
fn read_step(row: &Row<'_>, column: usize) -> rusqlite::Result<Step> {
    match (row.get::<_, String>(column)?.as_str(), row.get::<_, Option<u32>>(column + 1)?) {
        ("copy", None) => Ok(Step::Copy),
        ("range", Some(part)) => Ok(Step::Range(part)),
        ("finish", None) => Ok(Step::Finish),
        _ => Err(damaged("an item's step")),
    }
}

/// Returns the entries that are left to copy, for tests.
#[cfg(test)]
pub(super) fn left(connection: &Connection) -> rusqlite::Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut items = connection
        .prepare("SELECT entries FROM items WHERE step = 'copy' AND state <> 'staged'")?;
    let mut rows = items.query([])?;
    while let Some(row) = rows.next()? {
        found.extend(entries(&row.get::<_, Vec<u8>>(0)?)?);
    }
    Ok(found)
}
