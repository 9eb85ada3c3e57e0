//! The line of progress that a terminal shows, rendered from what is known at one moment.

use std::time::Duration;

use console::{measure_text_width, truncate_str};
use indicatif::{HumanBytes, HumanDuration};

/// When nothing has happened for so long, that is said.
const STALL: Duration = Duration::from_secs(3);
/// Columns of the bar.
const BAR: usize = 20;
/// A name gets this many columns at least, or none.
const MIN_NAME: usize = 12;

/// What is known of a transfer at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame<'a> {
    pub(super) elapsed: Duration,
    /// Files that belong to it, as far as it is known.
    pub(super) files: u64,
    /// Bytes in them.
    pub(super) offered: u64,
    /// Bytes that are moved, or were there before.
    pub(super) done: u64,
    /// Bytes of all files, if that is known.
    pub(super) total: Option<u64>,
    pub(super) bytes_per_s: f64,
    /// How long nothing has happened.
    pub(super) quiet: Duration,
    /// The file that is being moved.
    pub(super) name: Option<&'a str>,
}

impl Frame<'_> {
    /// Renders a line of at most `width` columns.
    pub(super) fn render(&self, width: usize) -> String {
        let mut parts = vec![clock(self.elapsed)];
        match self.total {
            Some(total) if total > 0 => {
                let share = self.done as f64 / total as f64;
                parts.push(format!("{} {:>3} %", bar(share), (share * 100.0).min(100.0) as u64));
                parts.push(format!("{} of {}", HumanBytes(self.done), HumanBytes(total)));
            }
            Some(_) => parts.push("nothing to move".to_owned()),
            None if self.offered == 0 && self.files == 0 => {
                parts.push("looking for files".to_owned());
            }
            None => {
                let (done, offered) = (HumanBytes(self.done), HumanBytes(self.offered));
                parts.push(format!("{done} of {offered} so far, {} files", self.files));
            }
        }
        let is_open = self.total.is_none_or(|total| self.done < total);
        if is_open && self.quiet >= STALL {
            parts.push(format!("stalled for {} s", self.quiet.as_secs()));
        } else if self.done > 0 {
            parts.push(format!("{}/s", HumanBytes(self.bytes_per_s.max(0.0) as u64)));
            if let Some(left) = self.left() {
                parts.push(format!("{} left", HumanDuration(left)));
            }
        }
        let line = truncate_str(&parts.join("  "), width, "").into_owned();
        let room = width.saturating_sub(measure_text_width(&line) + 2);
        match self.name.filter(|_| room >= MIN_NAME) {
            Some(name) => format!("{line}  {}", end_of(name, room)),
            None => line,
        }
    }

    /// The time that is left at this rate, if that can be told.
    fn left(&self) -> Option<Duration> {
        let left = self.total?.checked_sub(self.done).filter(|left| *left > 0)?;
        let rate = Some(self.bytes_per_s).filter(|rate| *rate >= 1.0)?;
        Duration::try_from_secs_f64(left as f64 / rate).ok()
    }
}

fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

fn bar(share: f64) -> String {
    let full = ((share.clamp(0.0, 1.0) * BAR as f64) as usize).min(BAR);
    format!("[{}{}]", "#".repeat(full), " ".repeat(BAR - full))
}

/// The last columns of a name: the file's own name tells more than where it lies.
fn end_of(name: &str, width: usize) -> String {
    if measure_text_width(name) <= width {
        return name.to_owned();
    }
    let mut ends = name.char_indices().map(|(at, _)| &name[at..]);
    let end = ends.find(|end| measure_text_width(end) < width);
    format!("…{}", end.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn moving() -> Frame<'static> {
        Frame {
            elapsed: Duration::from_secs(12),
            files: 3,
            offered: 100 * MIB,
            done: 42 * MIB,
            total: Some(100 * MIB),
            bytes_per_s: 8.5 * MIB as f64,
            quiet: Duration::from_millis(200),
            name: Some("photos/2026/11/IMG_20261123_092711.jpg"),
        }
    }

    #[test]
    fn the_first_frame_claims_nothing() {
        insta::assert_snapshot!(Frame::default().render(100), @"0:00  looking for files");
    }

    #[test]
    fn the_total_is_unknown_until_all_names_arrived() {
        let frame = Frame { total: None, ..moving() };
        insta::assert_snapshot!(frame.render(120), @"0:12  42.00 MiB of 100.00 MiB so far, 3 files  8.50 MiB/s  photos/2026/11/IMG_20261123_092711.jpg");
    }

    #[test]
    fn a_transfer_shows_total_rate_time_left_and_name() {
        insta::assert_snapshot!(moving().render(120), @"0:12  [########            ]  42 %  42.00 MiB of 100.00 MiB  8.50 MiB/s  7 seconds left  …026/11/IMG_20261123_092711.jpg");
        insta::assert_snapshot!(moving().render(92), @"0:12  [########            ]  42 %  42.00 MiB of 100.00 MiB  8.50 MiB/s  7 seconds left");
    }

    #[test]
    fn a_stalled_transfer_is_reported() {
        let frame = Frame {
            quiet: Duration::from_millis(12_900),
            elapsed: Duration::from_secs(3725),
            ..moving()
        };
        insta::assert_snapshot!(frame.render(80), @"1:02:05  [########            ]  42 %  42.00 MiB of 100.00 MiB  stalled for 12 s");
    }

    #[test]
    fn all_is_moved_and_not_yet_acknowledged() {
        let frame =
            Frame { done: 100 * MIB, quiet: Duration::from_secs(9), name: None, ..moving() };
        insta::assert_snapshot!(frame.render(120), @"0:12  [####################] 100 %  100.00 MiB of 100.00 MiB  8.50 MiB/s");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 0..150 {
            for name in [None, moving().name, Some("日本語/とても長い名前のファイル.txt")]
            {
                let line = Frame { name, ..moving() }.render(width);
                assert!(measure_text_width(&line) <= width, "{width}: {line}");
            }
        }
    }
}
