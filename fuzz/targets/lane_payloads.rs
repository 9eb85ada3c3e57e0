//! Any bytes as what an authenticated peer puts into a packet of a lane: data within
//! the offsets there are, and ranges that fall.
#![no_main]

use headroom_transfer_proto::lane::{DATA_HEAD, Feedback, Payload, Ranges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Payload::parse(bytes) {
        Some((Payload::Data { file, offset, bytes: data }, asks)) => {
            assert!(!data.is_empty() && offset.checked_add(data.len() as u64).is_some());
            let mut head = [0; DATA_HEAD];
            Payload::write_data_head(file, offset, asks, &mut head);
            assert_eq!([&head, data].concat(), bytes);
        }
        Some((Payload::Path(path), _)) => {
            let mut written = [0; 18];
            path.write(&mut written);
            assert_eq!(Payload::parse(&written), Some((Payload::Path(path), false)));
        }
        Some((Payload::Feedback(feedback), _)) => assert_falls(feedback.clone(), bytes.len()),
        Some((Payload::Probe | Payload::Close { .. } | Payload::Unknown, _)) | None => {}
    }
    if let Some(feedback) = Feedback::parse(bytes) {
        assert_falls(feedback, bytes.len());
    }
});

fn assert_falls(feedback: Feedback<Ranges<'_>>, most: usize) {
    let Feedback { largest, arrived_us, age_us, bytes, congested, ranges } = feedback;
    let ranges: Vec<_> = ranges.collect();
    assert!(!ranges.is_empty() && ranges.len() <= most);
    assert_eq!(*ranges[0].end(), largest.get());
    assert!(ranges.iter().all(|range| range.start() <= range.end()));
    assert!(ranges.windows(2).all(|pair| pair[1].end() + 1 < *pair[0].start()));
    // what was read is written again in no more room, as far as a packet has it
    let mut out = vec![0; most.max(64)];
    let again = ranges.iter().cloned();
    let again = Feedback { largest, arrived_us, age_us, bytes, congested, ranges: again };
    let len = again.write(&mut out);
    let read = Feedback::parse(&out[..len]).expect("it was written");
    let found: Vec<_> = read.ranges.collect();
    assert!(ranges.starts_with(&found) && (found.len() == ranges.len() || len > 2000));
}
