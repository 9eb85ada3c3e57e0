//! The tables, and whose they are.

use rusqlite::{Connection, params};

use super::int;
use crate::job::Job;

/// Marks the database as one of this program: `HrFl`.
const APPLICATION: i64 = 0x4872_466c;
/// The version of the tables.
const VERSION: i64 = 3;

/// Files are counted in `job`, so that nobody counts rows. An item has what is left of it, and an
/// ID that no later one gets: leases name it. An item of a file that has ranges names the file, and
/// one of a range also that, as its part. Names are bytes. Receipts have the numbers of entries,
/// which no two entries share.
const TABLES: &str = "
CREATE TABLE job (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    job TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'paused', 'cancelled')),
    phase TEXT NOT NULL CHECK (phase IN ('copying', 'finishing', 'deleting', 'done')),
    rate_bps INTEGER,
    is_listed INTEGER NOT NULL DEFAULT 0,
    next_number INTEGER NOT NULL DEFAULT 0,
    found_files INTEGER NOT NULL DEFAULT 0,
    found_bytes INTEGER NOT NULL DEFAULT 0,
    copied_files INTEGER NOT NULL DEFAULT 0,
    copied_bytes INTEGER NOT NULL DEFAULT 0,
    unchanged_files INTEGER NOT NULL DEFAULT 0,
    left_out INTEGER NOT NULL DEFAULT 0,
    vanished INTEGER NOT NULL DEFAULT 0,
    removed INTEGER NOT NULL DEFAULT 0,
    ranged_bytes INTEGER NOT NULL DEFAULT 0,
    requests TEXT
);
CREATE TABLE directories (
    key BLOB PRIMARY KEY,
    entry BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('staged', 'found', 'listed', 'failed')),
    reason TEXT
) WITHOUT ROWID;
CREATE INDEX directories_staged ON directories (key) WHERE state = 'staged';
CREATE INDEX directories_found ON directories (key) WHERE state = 'found';
CREATE INDEX directories_failed ON directories (key) WHERE state = 'failed';
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    step TEXT NOT NULL CHECK (step IN ('copy', 'range', 'finish')),
    state TEXT NOT NULL CHECK (state IN ('staged', 'queued', 'leased', 'aside')),
    entries BLOB NOT NULL,
    file INTEGER,
    part INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    takes INTEGER NOT NULL DEFAULT 0,
    ready_ms INTEGER NOT NULL DEFAULT 0,
    lease_ms INTEGER,
    worker TEXT,
    reason TEXT
);
CREATE INDEX items_ready ON items (state, ready_ms);
CREATE INDEX items_ranges ON items (file) WHERE step = 'range';
CREATE INDEX items_leased ON items (worker) WHERE state = 'leased';
CREATE TABLE workers (
    name TEXT PRIMARY KEY,
    seen_ms INTEGER NOT NULL,
    in_flight INTEGER NOT NULL
);
CREATE TABLE receipts (
    number INTEGER PRIMARY KEY,
    path BLOB NOT NULL,
    size INTEGER NOT NULL,
    blake3 BLOB,
    worker TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    ranges INTEGER NOT NULL
);
";

/// Whether a database is new.
pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    Ok(tables == 0 && header(connection)? == (0, 0))
}

/// Makes the tables of a job.
pub(super) fn create(connection: &Connection, json: &str, job: &Job) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    ))?;
    connection.execute(
        "INSERT INTO job (id, job, state, phase, rate_bps) VALUES (1, ?1, 'running', 'copying', ?2)",
        params![json, job.rate_bps.map(int)],
    )?;
    Ok(())
}

/// Returns what is wrong with a database, if anything is.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<Option<String>> {
    Ok(match header(connection)? {
        (APPLICATION, VERSION) => None,
        (APPLICATION, version) => {
            Some(format!("it is of version {version}, and this program has version {VERSION}"))
        }
        _ => Some("it is the database of another program".to_owned()),
    })
}

fn header(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let application = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((application, version))
}
