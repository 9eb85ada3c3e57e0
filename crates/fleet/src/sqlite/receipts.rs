//! Receipts: one for each file.

use headroom_transfer::path::RelPath;
use rusqlite::{Connection, Row, params};

use super::{damaged, int, nat, small};
use crate::engine::{CopiedFile, Receipt};

/// Adds receipts of files, with the number of their attempts and ranges. A file that has a receipt
/// keeps it: the first is as true.
pub(super) fn record(
    connection: &Connection,
    copied: &[CopiedFile],
    worker: &str,
    (attempts, ranges): (u32, u32),
    now_ms: u64,
) -> rusqlite::Result<()> {
    if copied.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare(
        "INSERT INTO receipts (number, path, size, blake3, worker, time_ms, attempts, ranges) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
    )?;
    let (mut files, mut bytes, mut unchanged) = (0_u64, 0_u64, 0_u64);
    for CopiedFile { number, path, size, hash } in copied {
        let added = insert.execute(params![
            int(*number),
            path.as_bytes(),
            int(*size),
            hash.as_ref().map(<[u8; 32]>::as_slice),
            worker,
            int(now_ms),
            attempts,
            ranges,
        ])?;
        if added == 1 {
            files += 1;
            bytes = bytes.saturating_add(*size);
            unchanged += u64::from(hash.is_none());
        }
    }
    let before = connection.query_row(
        "SELECT copied_files, copied_bytes, unchanged_files FROM job",
        [],
        |row| Ok((nat(row, 0)?, nat(row, 1)?, nat(row, 2)?)),
    )?;
    connection.execute(
        "UPDATE job SET copied_files = ?1, copied_bytes = ?2, unchanged_files = ?3",
        [
            int(before.0.saturating_add(files)),
            int(before.1.saturating_add(bytes)),
            int(before.2.saturating_add(unchanged)),
        ],
    )?;
    Ok(())
}

/// Records what the delete pass copied, because it had changed since it was listed: a new receipt
/// replaces the file's former one. Numbers of these files are not used; new ones get the next.
pub(super) fn correct(
    connection: &Connection,
    copied: &[CopiedFile],
    worker: &str,
    now_ms: u64,
) -> rusqlite::Result<()> {
    if copied.is_empty() {
        return Ok(());
    }
    connection
        .execute_batch("CREATE UNIQUE INDEX IF NOT EXISTS receipts_path ON receipts (path)")?;
    let next = connection.query_row("SELECT next_number FROM job", [], |row| nat(row, 0))?;
    let mut added = Vec::new();
    for file in copied {
        let replaced = connection.execute(
            "UPDATE receipts SET size = ?2, blake3 = ?3, worker = ?4, time_ms = ?5, ranges = 0 \
             WHERE path = ?1",
            params![
                file.path.as_bytes(),
                int(file.size),
                file.hash.as_ref().map(<[u8; 32]>::as_slice),
                worker,
                int(now_ms),
            ],
        )?;
        if replaced == 0 {
            let number = next + added.len() as u64;
            added.push(CopiedFile { number, ..file.clone() });
        }
    }
    record(connection, &added, worker, (1, 0), now_ms)?;
    let next = int(next.saturating_add(added.len() as u64));
    connection.execute("UPDATE job SET next_number = ?1", [next]).map(drop)
}

/// Passes every receipt to `each`, until that returns `false`.
pub(super) fn each(
    connection: &Connection,
    each: &mut dyn FnMut(Receipt) -> bool,
) -> rusqlite::Result<()> {
    let mut receipts = connection.prepare(
        "SELECT number, path, size, blake3, worker, time_ms, attempts, ranges FROM receipts \
         ORDER BY number",
    )?;
    let mut rows = receipts.query([])?;
    while let Some(row) = rows.next()? {
        if !each(read(row)?) {
            break;
        }
    }
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Receipt> {
    let path = RelPath::parse(&row.get::<_, Vec<u8>>(1)?).map_err(|_| damaged("a receipt"))?;
    let hash: Option<[u8; 32]> = row.get(3)?;
    let file = CopiedFile { number: nat(row, 0)?, path, size: nat(row, 2)?, hash };
    let (time_ms, attempts, ranges) = (nat(row, 5)?, small(row, 6)?, small(row, 7)?);
    Ok(Receipt { file, worker: row.get(4)?, time_ms, attempts, ranges })
}
