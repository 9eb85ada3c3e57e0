//! `headroom ls`: names, safe for a terminal.

use std::process::ExitCode;

use headroom_transfer::path::shown;
use headroom_transfer::{Listed, ListedKind, Time, block_on};
use serde_json::json;

use super::arguments::Ls;
use super::connect::{Connector, close_after};
use super::names;
use super::remotes::remote;
use crate::output::print_line as say;

pub(crate) fn ls(arguments: &Ls) -> anyhow::Result<ExitCode> {
    let remote = remote(&arguments.remote, &arguments.over_ssh)?;
    let mut connector = Connector::new(&arguments.connect, &arguments.over_ssh)?;
    block_on(async {
        let mut client = connector.connect(&remote.host).await?;
        let show = |listed| {
            say(&match arguments.json {
                true => json(&listed),
                false => line(&listed, arguments.long),
            });
        };
        let listed = client.list(&remote.path, show).await;
        close_after(client, listed).await
    })??;
    Ok(ExitCode::SUCCESS)
}

/// The line of one entry.
fn line(listed: &Listed, long: bool) -> String {
    let end = if listed.kind == ListedKind::Directory { "/" } else { "" };
    let mut name = format!("{}{end}", listed.path);
    if !long {
        return name;
    }
    if let Some(target) = &listed.target {
        name = format!("{name} -> {}", shown(target));
    }
    format!(
        "{}{} {:>14} {} {name}",
        letter(listed.kind),
        bits(listed.mode),
        listed.size,
        utc(listed.mtime)
    )
}

/// The same as JSON.
fn json(listed: &Listed) -> String {
    let kind = match listed.kind {
        ListedKind::File => "file",
        ListedKind::Directory => "directory",
        ListedKind::Symlink => "link",
        ListedKind::Other => "other",
    };
    let Time { seconds, nanoseconds } = listed.mtime;
    let mode = format!("{:04o}", listed.mode & 0o7777);
    let mtime = jiff::Timestamp::new(seconds, nanoseconds.cast_signed());
    let mtime = mtime.map_or_else(|_| utc(listed.mtime), |mtime| mtime.to_string());
    let entry = json!({"kind": kind, "size": listed.size, "mode": mode, "mtime": mtime});
    let mut entry = names::with(entry, "path", listed.path.as_bytes());
    if let Some(target) = &listed.target {
        entry = names::with(entry, "target", target);
    }
    names::line(&entry)
}

const fn letter(kind: ListedKind) -> char {
    match kind {
        ListedKind::File => '-',
        ListedKind::Directory => 'd',
        ListedKind::Symlink => 'l',
        ListedKind::Other => '?',
    }
}

fn bits(mode: u32) -> String {
    let bit = |(n, letter): (u32, char)| if mode & (0o400 >> n) == 0 { '-' } else { letter };
    (0..9).zip("rwxrwxrwx".chars()).map(bit).collect()
}

/// As RFC 3339 has it; a time that no calendar has is in seconds.
fn utc(time: Time) -> String {
    let stamp = jiff::Timestamp::from_second(time.seconds);
    stamp.map_or_else(|_| format!("{} s", time.seconds), |stamp| stamp.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_a_calendar_or_numbers() {
        let utc = |seconds| utc(Time { seconds, nanoseconds: 5 });
        assert_eq!(utc(1_000_000_000), "2001-09-09T01:46:40Z");
        assert_eq!(utc(i64::MAX), "9223372036854775807 s");
    }

    #[test]
    fn a_link_shows_its_target_and_json_has_all_of_a_time() {
        let path = headroom_transfer::path::RelPath::parse(b"link").expect("a name");
        let mtime = Time { seconds: 1_000_000_000, nanoseconds: 5 };
        let target = Some(b"../\x1b[2J\xff".to_vec());
        let listed =
            Listed { path, kind: ListedKind::Symlink, size: 7, mode: 0o777, mtime, target };
        insta::assert_snapshot!(line(&listed, true), @r"lrwxrwxrwx              7 2001-09-09T01:46:40Z link -> ../\u{1b}[2J\xff");
        assert_eq!(line(&listed, false), "link");
        let entry: serde_json::Value = serde_json::from_str(&json(&listed)).expect("JSON");
        assert_eq!(entry["mtime"], "2001-09-09T01:46:40.000000005Z");
        assert_eq!(entry["target_base64"], "Li4vG1sySv8=");
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        let path = headroom_transfer::path::RelPath::parse(b"a\n\x1b[31m\xff").expect("a name");
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let kind = ListedKind::Directory;
        let listed = Listed { path, kind, size: 7, mode: 0o750, mtime, target: None };
        for text in [line(&listed, true), line(&listed, false), json(&listed)] {
            assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
        }
        assert!(
            line(&listed, true).starts_with("drwxr-x---              7 1970-01-01T00:00:00Z a")
        );
        assert!(line(&listed, false).ends_with('/'));
    }
}
