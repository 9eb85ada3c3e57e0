//! Messages of older and later versions.

use crate::message::{Keep, MAX_VALUES, Message, PartsRequest, TreeOptions, UPLOAD_BYTES};
use crate::span::ChainingValue;

#[test]
fn unknown_fields_are_ignored() {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    // Stored { id: 5 } of a later version, which also says something else
    let map = e.array(2).and_then(|e| e.u32(11)).and_then(|e| e.map(2)).expect("a vector");
    let map = map.u32(0).and_then(|e| e.u64(5)).expect("a vector");
    map.u32(77).and_then(|e| e.array(1)).and_then(|e| e.str("more")).expect("a vector");
    assert_eq!(Message::parse(&bytes), Ok(Message::Stored { id: 5 }));
}

#[test]
fn an_older_version_has_no_verification() {
    let mut bytes = Vec::new();
    let mut e = minicbor::Encoder::new(&mut bytes);
    // the tree options of a version that knew three fields
    let map = e.map(3).and_then(|e| e.u32(0)).and_then(|e| e.u32(5)).expect("a vector");
    let map = map.u32(1).and_then(|e| e.u32(0)).and_then(|e| e.u32(2)).expect("a vector");
    map.bool(true).expect("a vector");
    let options: TreeOptions = minicbor::decode(&bytes).expect("it is read");
    let known = TreeOptions { keep: Keep(5), changing: true, ..TreeOptions::default() };
    assert_eq!(options, known);
    // and what says nothing new is written as that version does
    assert_eq!(minicbor::to_vec(options).expect("a vector"), bytes);
}

/// A peer of before knows nothing of the old file's size, and a later one ignores it.
#[test]
fn values_of_spans_are_those_of_an_older_version() {
    let mut body = Vec::new();
    let mut e = minicbor::Encoder::new(&mut body);
    let map = e.array(2).and_then(|e| e.u32(8)).and_then(|e| e.map(4)).expect("a vector");
    let map = map.u32(0).and_then(|e| e.u64(5)).and_then(|e| e.u32(1)).expect("a vector");
    let map = map.u64(0).and_then(|e| e.u32(2)).and_then(|e| e.bytes(&[])).expect("a vector");
    map.u32(3).and_then(|e| e.bool(true)).expect("a vector");
    let have = |old| Message::Have { id: 5, first_span: 0, values: Vec::new(), last: true, old };
    assert_eq!(Message::parse(&body), Ok(have(None)));
    let mut framed = Vec::new();
    have(None).frame(&mut framed).expect("a short message");
    assert_eq!(framed[4..], body, "an older receiver's bytes");
}

/// A peer of before knows nothing of ranges, and a later one ignores them.
#[test]
fn requests_and_answers_without_ranges_are_those_of_an_older_version() {
    let bytes = |message: Message| {
        let mut framed = Vec::new();
        message.frame(&mut framed).expect("a short message");
        framed.split_off(4)
    };
    let get =
        |ranges| Message::Get { from: Vec::new(), compress: None, lanes: None, tree: None, ranges };
    let accepted = |ranges| Message::Accepted {
        lanes: None,
        keep: None,
        ticket: None,
        verification: None,
        ranges,
        parts: None,
    };
    // [2, {0: []}], [2, {0: [], 10: true}], [4, {}], [4, {4: true}]
    assert_eq!(bytes(get(None)), [0x82, 0x02, 0xa1, 0x00, 0x80]);
    assert_eq!(bytes(get(Some(true))), [0x82, 0x02, 0xa2, 0x00, 0x80, 0x0a, 0xf5]);
    assert_eq!(bytes(accepted(None)), [0x82, 0x04, 0xa0]);
    assert_eq!(bytes(accepted(Some(true))), [0x82, 0x04, 0xa1, 0x04, 0xf5]);
    assert_eq!(Message::parse(&bytes(get(Some(true)))), Ok(get(Some(true))));
    let sent = |count| Message::RangeSent {
        id: 1,
        first_span: 2,
        values: vec![ChainingValue([7; 32]); count],
    };
    assert!(Message::parse(&bytes(sent(MAX_VALUES))).is_ok());
    assert!(Message::parse(&bytes(sent(MAX_VALUES + 1))).is_err());
}

/// A server of before ignores that a client divides a file, and accepts without.
#[test]
fn uploads_without_parts_are_those_of_an_older_version() {
    let bytes = |message: Message| {
        let mut framed = Vec::new();
        message.frame(&mut framed).expect("a short message");
        framed.split_off(4)
    };
    let put = |parts| Message::Put {
        to: None,
        rename: false,
        fsync: false,
        lanes: None,
        tree: None,
        parts,
    };
    // [1, {1: false, 2: false}], and 10: {1: true}
    assert_eq!(bytes(put(None)), [0x82, 0x01, 0xa2, 0x01, 0xf4, 0x02, 0xf4]);
    let completes = PartsRequest { completes: Some(true), ..PartsRequest::default() };
    assert_eq!(
        bytes(put(Some(completes))),
        [0x82, 0x01, 0xa3, 0x01, 0xf4, 0x02, 0xf4, 0x0a, 0xa1, 0x01, 0xf5]
    );
    // the name of an upload has 16 bytes
    let upload = Some([7; UPLOAD_BYTES]);
    let named = bytes(put(Some(PartsRequest { upload, ..PartsRequest::default() })));
    assert!(Message::parse(&named).is_ok());
    let at = named.iter().position(|byte| *byte == 0x50).expect("a string of 16 bytes");
    let mut short = named;
    short[at] = 0x4f;
    short.pop();
    assert!(Message::parse(&short).is_err());
}
