//! Any datagrams as the server's reports: never more than the window is in flight, and
//! counts only increase.
#![no_main]

use headroom_load::datagram::{Header, MIN_DATAGRAM, Report};
use headroom_load::window::Window;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let mut window = Window::new(7, 64);
    let mut newest: Option<Report> = None;
    let mut rest = octets;
    while let Some(([sent, len], behind)) = rest.split_first_chunk::<2>() {
        let (datagram, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        if let Some(header) = Header::read(datagram) {
            let mut again = datagram.to_vec();
            header.write(&mut again);
            assert_eq!(again, datagram);
            assert_eq!(Header::read(&again[..MIN_DATAGRAM]), Some(header));
        }
        if let Some(report) = Report::read(datagram) {
            assert!(datagram.starts_with(&report.octets()));
        }
        let train = u64::from(sent & 31);
        if window.has_room(train) {
            (0..train).for_each(|_| assert!(window.next_number() < u64::MAX));
        } else if sent & 32 != 0 {
            window.declare_lost();
        }
        if let Some(report) = window.on_report(datagram) {
            let before =
                newest.replace(report).unwrap_or(Report { counted: 0, highest: 0, ..report });
            assert!(report.counted >= before.counted && report.highest >= before.highest);
        }
        assert!(window.in_flight() <= 64);
    }
});
