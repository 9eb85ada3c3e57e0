//! Limits the datagrams in flight and follows the server's reports. No I/O and no clock.

use crate::datagram::Report;

/// The datagrams of one session.
#[derive(Debug, Clone)]
pub struct Window {
    session: u32,
    size: u64,
    /// The number of the next datagram.
    next: u64,
    /// All numbers below have arrived or are lost.
    settled: u64,
    newest: Option<Report>,
}

impl Window {
    /// Makes a window of `size` datagrams.
    pub fn new(session: u32, size: u64) -> Self {
        Self { session, size, next: 0, settled: 0, newest: None }
    }

    /// Returns the session's number, which every header carries.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Tells whether as many more datagrams may be sent.
    pub fn has_room(&self, datagrams: u64) -> bool {
        self.in_flight() + datagrams <= self.size
    }

    /// Returns the number of datagrams sent that neither arrived nor count as lost.
    pub fn in_flight(&self) -> u64 {
        self.next - self.settled
    }

    /// Takes the number of the next datagram.
    pub fn next_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Reads a report of this session; none: the datagram is no report, is older than the
    /// newest, contradicts it, or counts datagrams that were never sent.
    pub fn on_report(&mut self, datagram: &[u8]) -> Option<Report> {
        let report = Report::read(datagram)?;
        let is_newer = self.newest.is_none_or(|newest| {
            report.counted > newest.counted && report.highest >= newest.highest
        });
        if report.session != self.session || report.highest >= self.next || !is_newer {
            return None;
        }
        self.settled = self.settled.max(report.highest + 1);
        self.newest = Some(report);
        Some(report)
    }

    /// Counts datagrams in flight as lost.
    pub fn declare_lost(&mut self) {
        self.settled = self.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(highest: u64, counted: u64) -> Report {
        Report { session: 7, highest, counted }
    }

    #[test]
    fn reports_open_the_window() {
        let mut window = Window::new(7, 4);
        assert_eq!([0; 4].map(|_| window.next_number()), [0, 1, 2, 3]);
        assert!(!window.has_room(1));
        assert_eq!(window.on_report(&report(1, 2).octets()), Some(report(1, 2)));
        assert!(window.has_room(2) && !window.has_room(3));
        window.declare_lost();
        assert_eq!((window.in_flight(), window.has_room(4)), (0, true));
    }

    #[test]
    fn ignores_late_and_impossible_reports() {
        let mut window = Window::new(7, 8);
        assert_eq!((0..8).map(|_| window.next_number()).last(), Some(7));
        let elsewhere = Report { session: 8, ..report(5, 6) };
        assert_eq!(window.on_report(&elsewhere.octets()), None);
        for never_sent in [8, u64::MAX] {
            assert_eq!(window.on_report(&report(never_sent, 3).octets()), None);
        }
        assert!(window.on_report(&report(5, 6).octets()).is_some());
        // overtaken on the way, a second copy, and one that contradicts it
        for stale in [report(3, 4), report(5, 6), report(4, 7), report(5, 0)] {
            assert_eq!(window.on_report(&stale.octets()), None, "{stale:?}");
        }
        assert_eq!(window.in_flight(), 2);
    }
}
