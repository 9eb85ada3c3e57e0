//! Both formats, both orders of bytes, and what is damaged.

use super::*;

/// Time, link, what is there, original length.
type Read = (Duration, u32, Vec<u8>, usize);

fn read_all(file: &[u8]) -> (Vec<Read>, Option<String>) {
    let mut frames = Vec::new();
    let mut capture = match Capture::new(file) {
        Ok(capture) => capture,
        Err(error) => return (frames, Some(error.to_string())),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                assert_eq!(frame.number, frames.len() as u64 + 1);
                frames.push((frame.time, frame.link, frame.data.to_vec(), frame.original_len));
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error.to_string())),
        }
    }
}

/// Words of a file in one of the two orders.
fn words(big_endian: bool, words: &[u32]) -> Vec<u8> {
    let octets = |word: &u32| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
    words.iter().flat_map(octets).collect()
}

fn pcap(big_endian: bool, magic: u32) -> Vec<u8> {
    let head = words(big_endian, &[magic, 0, 0, 0, 96, 0xf000_0001, 1000, 500, 3, 90]);
    [&head[..], b"abc", &words(big_endian, &[1001, 7, 0, 0])].concat()
}

fn block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let len = body.len() as u32 + 12;
    [&words(big_endian, &[kind, len])[..], body, &words(big_endian, &[len])].concat()
}

fn ng(big_endian: bool) -> Vec<u8> {
    let link = if big_endian { 101 << 16 } else { 101 };
    let section = words(big_endian, &[BYTE_ORDER, 1, u32::MAX, u32::MAX]);
    let option = if big_endian { 9 << 16 | 1 } else { 9 | 1 << 16 };
    let nanoseconds = words(big_endian, &[link, 0, option]);
    let nanoseconds = [&nanoseconds[..], &[9, 0, 0, 0]].concat();
    // 5 s in nanoseconds
    let packet = words(big_endian, &[1, 1, 705_032_704, 3, 60]);
    let packet = [&packet[..], b"abc\0"].concat();
    let microseconds = words(big_endian, &[0, 0, 2_000_001, 4, 4]);
    let microseconds = [&microseconds[..], b"wxyz"].concat();
    let simple = [&words(big_endian, &[2])[..], b"hi\0\0"].concat();
    [
        block(big_endian, SECTION, &section),
        block(big_endian, INTERFACE, &words(big_endian, &[link, 0])),
        block(big_endian, INTERFACE, &nanoseconds),
        block(big_endian, 0x0bad, b"something"[..8].as_ref()),
        block(big_endian, ENHANCED_PACKET, &packet),
        block(big_endian, ENHANCED_PACKET, &microseconds),
        block(big_endian, SIMPLE_PACKET, &simple),
        block(big_endian, SECTION, &section),
        block(big_endian, INTERFACE, &words(big_endian, &[link, 0])),
        block(big_endian, ENHANCED_PACKET, &microseconds),
    ]
    .concat()
}

#[test]
fn reads_pcap() {
    for big_endian in [false, true] {
        for (magic, nanoseconds) in [(0xa1b2_c3d4, 500_000), (0xa1b2_3c4d, 500)] {
            let (frames, error) = read_all(&pcap(big_endian, magic));
            assert_eq!(error, None);
            assert_eq!(frames[0], (Duration::new(1000, nanoseconds), 1, b"abc".to_vec(), 90));
            assert_eq!(frames[1].2, b"");
            assert_eq!(frames.len(), 2);
        }
    }
}

#[test]
fn reads_pcapng() {
    for big_endian in [false, true] {
        let (frames, error) = read_all(&ng(big_endian));
        assert_eq!(error, None);
        let times: Vec<_> = frames.iter().map(|frame| frame.0).collect();
        let [five, two] = [Duration::from_secs(5), Duration::from_micros(2_000_001)];
        assert_eq!(times, [five, two, Duration::ZERO, two]);
        assert!(frames.iter().all(|frame| frame.1 == 101));
        let data: Vec<_> = frames.iter().map(|frame| frame.2.as_slice()).collect();
        assert_eq!(data, [&b"abc"[..], b"wxyz", b"hi", b"wxyz"]);
        assert_eq!(frames[0].3, 60);
    }
}

#[test]
fn reports_truncation_at_every_byte_and_keeps_whole_frames() {
    for file in [pcap(true, 0xa1b2_c3d4), ng(false)] {
        let whole = read_all(&file).0.len();
        for end in 0..file.len() {
            let (frames, error) = read_all(&file[..end]);
            assert!(frames.len() <= whole);
            if let Some(error) = error {
                assert!(error.contains("truncated") || error.contains("not a pcap"), "{error}");
            }
        }
    }
}

#[test]
fn damage_is_an_error_and_allocates_no_memory() {
    for file in [pcap(false, 0xa1b2_c3d4), ng(true)] {
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut file = file.clone();
                file[at] = value;
                read_all(&file);
            }
        }
    }
    let mut long = pcap(false, 0xa1b2_c3d4);
    long[32..36].copy_from_slice(&(MAX_FRAME as u32 + 1).to_le_bytes());
    assert_eq!(
        read_all(&long).1.as_deref(),
        Some("the capture is damaged at frame 1: a frame of more than 1 MiB")
    );
    let huge = [&ng(true)[..], &words(true, &[ENHANCED_PACKET, 0xffff_fff0])].concat();
    assert!(read_all(&huge).1.is_some_and(|error| error.contains("more than 1 MiB")));
    assert_eq!(read_all(b"GIF89a").1.as_deref(), Some("this is not a pcap or pcapng file"));
}

#[test]
fn reads_what_it_writes() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).expect("memory");
    writer.write(Duration::new(12, 345), b"packet").expect("memory");
    writer.finish().expect("memory");
    let (frames, error) = read_all(&file);
    assert_eq!((frames, error), (vec![(Duration::new(12, 345), 101, b"packet".to_vec(), 6)], None));
}
