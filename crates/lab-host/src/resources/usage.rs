//! Samples the load of both sides and of the link during a measurement, in equal bins of
//! time. A thread of its own in the router's namespace reads the counters four times a
//! second.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use headroom_lab_results::schema::Usage;

use super::Counter;
use crate::error::{Doing, Error, Result};

/// Length of a bin.
const BIN: Duration = Duration::from_millis(250);
/// A bin that a busy machine made longer than this is none.
const LONGEST: Duration = Duration::from_millis(500);
/// After an hour only the last reading is kept.
const MAX_BINS: usize = 4 * 3600;
/// Bytes of a frame that interfaces do not count: preamble, checksum and gap.
const UNCOUNTED: u64 = 24;

/// The counters at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    at: Instant,
    /// CPU seconds.
    client_s: f64,
    server_s: f64,
    to_client: Passed,
    to_server: Passed,
}

/// Counters of an interface: sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Passed {
    bytes: u64,
    frames: u64,
}

/// The sources of the counters.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    /// The processes of both sides.
    pub(crate) client: Counter,
    pub(crate) server: Counter,
    /// Interfaces of the thread's namespace.
    pub(crate) to_client: &'static str,
    pub(crate) to_server: &'static str,
}

/// A thread that reads until it is stopped.
#[derive(Debug)]
pub struct Watch {
    stop: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Result<Vec<Reading>>>,
}

impl Watch {
    /// Begins; `enter` takes the thread to where the interfaces are. Returns when the
    /// first reading is there.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub(crate) fn start(
        sources: Sources,
        enter: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let ((stop, stopped), (begun, began)) = (mpsc::channel(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            enter()?;
            let mut readings = vec![sources.read()?];
            let _ = begun.send(());
            loop {
                let over = stopped.recv_timeout(BIN) != Err(RecvTimeoutError::Timeout);
                if over || readings.len() <= MAX_BINS {
                    readings.push(sources.read()?);
                }
                if over {
                    return Ok(readings);
                }
            }
        });
        let watch = Self { stop, thread };
        match began.recv() {
            Ok(()) => Ok(watch),
            // it ended, and says why
            Err(_) => watch.end().and(Err(Error::Failed("the link's watch ended early".into()))),
        }
    }

    /// Returns the usage during `transfers` transfers; `rate_bps` is the link's in the file's
    /// direction, which is towards the server if `upload`.
    ///
    /// # Errors
    /// The counters could not be read.
    pub fn usage(self, transfers: usize, rate_bps: Option<u64>, upload: bool) -> Result<Usage> {
        Ok(usage(&self.end()?, transfers, rate_bps, upload))
    }

    fn end(self) -> Result<Vec<Reading>> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| Error::Failed("the link's watch panicked".into()))?
    }
}

impl Sources {
    fn read(&self) -> Result<Reading> {
        let file = Path::new("/proc/thread-self/net/dev");
        let text = std::fs::read_to_string(file).doing(|| format!("read {}", file.display()))?;
        let sent = |interface: &str| {
            sent(&text, interface)
                .ok_or_else(|| Error::Failed(format!("{} has no {interface}", file.display())))
        };
        Ok(Reading {
            at: Instant::now(),
            client_s: self.client.read(None)?,
            server_s: self.server.read(None)?,
            to_client: sent(self.to_client)?,
            to_server: sent(self.to_server)?,
        })
    }
}

/// Parses the counters of an interface in `/proc/net/dev` (proc_pid_net(5)): after its name
/// eight counters of received traffic, then bytes and frames sent.
fn sent(text: &str, interface: &str) -> Option<Passed> {
    let counters = text.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == interface).then_some(counters)
    })?;
    let mut counters = counters.split_whitespace().skip(8).map_while(|word| word.parse().ok());
    Some(Passed { bytes: counters.next()?, frames: counters.next()? })
}

fn usage(readings: &[Reading], transfers: usize, rate_bps: Option<u64>, upload: bool) -> Usage {
    let whole = readings.windows(2).filter_map(|pair| {
        let long = pair[1].at.duration_since(pair[0].at);
        (long >= BIN && long < LONGEST).then_some((&pair[0], &pair[1], long.as_secs_f64()))
    });
    let whole: Vec<(&Reading, &Reading, f64)> = whole.collect();
    // of a counter, by what it may grow in a second
    let range = |counter: &dyn Fn(&Reading) -> f64, full: f64| {
        let shares = whole.iter().map(|(a, b, s)| 100.0 * (counter(b) - counter(a)) / s / full);
        shares.fold(None, |range: Option<[f64; 2]>, share| {
            let [lo, hi] = range.unwrap_or([share, share]);
            Some([lo.min(share), hi.max(share)])
        })
    };
    let line_bits = |reading: &Reading| {
        let passed = if upload { reading.to_server } else { reading.to_client };
        (passed.bytes + passed.frames * UNCOUNTED) as f64 * 8.0
    };
    let per_transfer = |bytes: fn(&Reading) -> u64| {
        let ends = readings.first().zip(readings.last());
        let passed = ends.map_or(0, |(first, last)| bytes(last).saturating_sub(bytes(first)));
        passed as f64 / transfers.max(1) as f64
    };
    Usage {
        to_client_bytes: per_transfer(|reading| reading.to_client.bytes),
        to_server_bytes: per_transfer(|reading| reading.to_server.bytes),
        bins: whole.len(),
        client_pct: range(&|reading| reading.client_s, 1.0),
        server_pct: range(&|reading| reading.server_s, 1.0),
        link_pct: rate_bps.and_then(|rate| range(&line_bits, rate as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                    |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
        lo:       0       0    0    0    0     0          0         0        0       0    0\n\
        to-client: 9000      90    0    0    0     0          0         0   152000     100    0\n";

    #[test]
    fn what_an_interface_sent_is_found() {
        let passed = Passed { bytes: 152_000, frames: 100 };
        assert_eq!(sent(DEV, "to-client"), Some(passed));
        assert_eq!(sent(DEV, "lo"), Some(Passed::default()));
        assert_eq!((sent(DEV, "client"), sent("", "lo")), (None, None));
    }

    /// A reading after so many milliseconds.
    fn reading(from: Instant, ms: u64, client_s: f64, frames: u64) -> Reading {
        Reading {
            at: from + Duration::from_millis(ms),
            client_s,
            server_s: 2.0 * client_s,
            to_client: Passed { bytes: frames * 1514, frames },
            to_server: Passed { bytes: frames * 66, frames },
        }
    }

    #[test]
    fn lowest_and_highest_are_of_whole_bins_and_bytes_of_all() {
        let now = Instant::now();
        let readings = [
            reading(now, 0, 0.0, 0),
            reading(now, 250, 0.025, 1000),
            reading(now, 500, 0.125, 1500),
            // a bin that was cut, and full of work
            reading(now, 510, 0.135, 2000),
        ];
        let seen = usage(&readings, 2, Some(100_000_000), false);
        let near = |range: Option<[f64; 2]>, expected: [f64; 2]| {
            let range = range.expect("two bins");
            (range[0] - expected[0]).abs() < 1e-6 && (range[1] - expected[1]).abs() < 1e-6
        };
        assert!(near(seen.client_pct, [10.0, 40.0]), "{seen:?}");
        assert!(near(seen.server_pct, [20.0, 80.0]), "{seen:?}");
        // 500 and 1000 frames of 1538 bytes, framing counted, in a quarter of a second
        assert!(near(seen.link_pct, [24.608, 49.216]), "{seen:?}");
        assert_eq!((seen.to_client_bytes, seen.to_server_bytes), (1_514_000.0, 66_000.0));
        let one = usage(&readings[..1], 1, None, true);
        assert_eq!((one.bins, one.client_pct, one.link_pct), (0, None, None));
    }
}
