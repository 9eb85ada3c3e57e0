//! How far the listing is.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{damaged, int, nat};
use crate::engine::Checkpoint;
use crate::entry::{Entry, encode};
use crate::key::DirectoryKey;

/// Begins or continues the listing from its last checkpoint.
pub(super) fn begin(connection: &Transaction<'_>) -> rusqlite::Result<u64> {
    connection.execute("DELETE FROM items WHERE state = 'staged'", [])?;
    connection.execute("DELETE FROM directories WHERE state = 'staged'", [])?;
    // the source itself, which has no entry
    connection.execute(
        "INSERT INTO directories (key, entry, state) VALUES (x'', x'', 'found') \
         ON CONFLICT (key) DO NOTHING",
        [],
    )?;
    connection.query_row("SELECT next_number FROM job", [], |row| nat(row, 0))
}

/// Returns the next directory to list.
pub(super) fn next_directory(
    connection: &Connection,
    after: Option<&DirectoryKey>,
) -> rusqlite::Result<Option<DirectoryKey>> {
    let found: Option<Vec<u8>> = match after {
        Some(after) => connection
            .query_row(
                "SELECT key FROM directories WHERE state = 'found' AND key > ?1 \
                 ORDER BY key LIMIT 1",
                [after.as_bytes()],
                |row| row.get(0),
            )
            .optional()?,
        None => connection
            .query_row(
                "SELECT key FROM directories WHERE state = 'found' ORDER BY key LIMIT 1",
                [],
                |row| row.get(0),
            )
            .optional()?,
    };
    let read = |key| DirectoryKey::from_bytes(key).ok_or_else(|| damaged("the key of a directory"));
    found.map(read).transpose()
}

/// Adds an item that nobody sees yet, or those of a file's ranges.
pub(super) fn stage(connection: &Connection, entries: &[Entry]) -> rusqlite::Result<()> {
    if let [file] = entries
        && file.ranges() > 0
    {
        let mut insert = connection.prepare(
            "INSERT INTO items (step, state, entries, file, part) \
             VALUES ('range', 'staged', ?1, ?2, ?3)",
        )?;
        for range in 0..file.ranges() {
            insert.execute(params![encode(entries), int(file.number), range])?;
        }
        return Ok(());
    }
    connection
        .execute(
            "INSERT INTO items (step, state, entries) VALUES ('copy', 'staged', ?1)",
            [encode(entries)],
        )
        .map(drop)
}

/// Adds directories that nobody sees yet. Those that are known stay as they are.
pub(super) fn stage_directories(
    connection: &Connection,
    found: &[(DirectoryKey, Entry)],
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare(
        "INSERT INTO directories (key, entry, state) VALUES (?1, ?2, 'staged') \
         ON CONFLICT (key) DO NOTHING",
    )?;
    for (key, entry) in found {
        insert.execute(params![key.as_bytes(), encode(std::slice::from_ref(entry))])?;
    }
    Ok(())
}

/// Notes how far the listing is: what was staged is seen from now on.
pub(super) fn checkpoint(
    connection: &Connection,
    checkpoint: &Checkpoint<'_>,
) -> rusqlite::Result<()> {
    stage_directories(connection, checkpoint.found)?;
    connection.execute("UPDATE directories SET state = 'found' WHERE state = 'staged'", [])?;
    let mut listed = connection
        .prepare("UPDATE directories SET state = 'listed', reason = NULL WHERE key = ?1")?;
    for key in checkpoint.listed {
        listed.execute([key.as_bytes()])?;
    }
    if let Some((key, reason)) = checkpoint.failed {
        connection.execute(
            "UPDATE directories SET state = 'failed', reason = ?2 WHERE key = ?1",
            params![key.as_bytes(), reason],
        )?;
    }
    for problem in checkpoint.problems {
        connection.execute(
            "INSERT INTO items (step, state, entries, reason) VALUES ('copy', 'aside', x'', ?1)",
            [problem],
        )?;
    }
    connection.execute("UPDATE items SET state = 'queued' WHERE state = 'staged'", [])?;
    let (files, bytes, left_out) =
        connection.query_row("SELECT found_files, found_bytes, left_out FROM job", [], |row| {
            Ok((nat(row, 0)?, nat(row, 1)?, nat(row, 2)?))
        })?;
    connection.execute(
        "UPDATE job SET found_files = ?1, found_bytes = ?2, left_out = ?3, next_number = ?4, \
         is_listed = is_listed OR ?5",
        params![
            int(files.saturating_add(checkpoint.files)),
            int(bytes.saturating_add(checkpoint.bytes)),
            int(left_out.saturating_add(checkpoint.left_out)),
            int(checkpoint.next_number),
            checkpoint.is_complete,
        ],
    )?;
    Ok(())
}
