//! Any datagrams as the server's answers to a load: no more is on its way than
//! there is room for, and counts go up only.
#![no_main]

use headroom_load::LEAST;
use headroom_load::form::{Answer, Header};
use headroom_load::window::Window;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let mut window = Window::new(7, 64);
    let mut newest: Option<Answer> = None;
    let mut rest = octets;
    while let Some(([sent, len], behind)) = rest.split_first_chunk::<2>() {
        let (datagram, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        if let Some(header) = Header::read(datagram) {
            let mut again = datagram.to_vec();
            header.write(&mut again);
            assert_eq!(again, datagram);
            assert_eq!(Header::read(&again[..LEAST]), Some(header));
        }
        if let Some(answer) = Answer::read(datagram) {
            assert!(datagram.starts_with(&answer.octets()));
        }
        let train = u64::from(sent & 31);
        if window.has_room(train) {
            (0..train).for_each(|_| assert!(window.number() < u64::MAX));
        } else if sent & 32 != 0 {
            window.give_up();
        }
        if let Some(answer) = window.hear(datagram) {
            let before = newest.replace(answer).unwrap_or(Answer { counted: 0, highest: 0, ..answer });
            assert!(answer.counted >= before.counted && answer.highest >= before.highest);
        }
        assert!(window.on_their_way() <= 64);
    }
});
