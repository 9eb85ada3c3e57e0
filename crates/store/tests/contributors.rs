//! Uploads whose parts several servers store: contributors, and who takes their parts over.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Error, Memory, Metadata, SPAN, Store, Upload, UploadOffer, Version,
};
use tokio::runtime::Runtime;

const MIB: u64 = 1 << 20;
const PART: u64 = 8 * MIB;
/// Five parts, the last of one span and a byte.
const SIZE: u64 = 4 * PART + MIB + 1;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads")
}

/// A store, and what a second server sees of it.
fn open(runtime: &Runtime) -> (Arc<Memory>, [Store; 2]) {
    let memory = Arc::new(Memory::new());
    let store = || {
        let backend = Arc::clone(&memory) as Arc<dyn Backend>;
        Store::of(backend, "memory://", runtime.handle().clone())
    };
    let stores = [store(), store()];
    (memory, stores)
}

fn offer() -> UploadOffer {
    UploadOffer { size: SIZE, tag: [1; 16], metadata: Metadata::new() }
}

fn part(number: u32) -> (Bytes, Vec<[u8; 32]>) {
    let bytes = PART.min(SIZE - u64::from(number) * PART);
    let fill = number as u8 + 1;
    let values = vec![[fill; 32]; bytes.div_ceil(SPAN) as usize];
    (Bytes::from(vec![fill; bytes as usize]), values)
}

fn put_part(upload: &Upload, number: u32) -> Result<(), Error> {
    let (content, values) = part(number);
    upload.put_part(number, content, values)
}

fn put_parts(upload: &Upload, numbers: &[u32]) {
    numbers.iter().for_each(|number| put_part(upload, *number).expect("it is stored"));
}

/// Begins an upload and leaves it to contributors; returns its nonce.
fn share(store: &Store) -> [u8; 16] {
    let upload = store.begin_upload("a", &offer()).expect("it is begun");
    let nonce = upload.nonce();
    upload.release().expect("it is released");
    nonce
}

fn join(store: &Store, nonce: [u8; 16]) -> Upload {
    store.join_upload("a", &offer(), nonce).expect("it takes part")
}

/// Why a server may not take part.
fn refused(store: &Store, key: &str, offer: &UploadOffer, nonce: [u8; 16]) -> Error {
    match store.join_upload(key, offer, nonce) {
        Ok(upload) => panic!("it takes part: {upload:?}"),
        Err(error) => error,
    }
}

/// The parts that an upload has.
fn stored(upload: &Upload) -> Vec<u32> {
    (0..upload.parts()).filter(|part| upload.values(*part).is_some()).collect()
}

fn assert_whole(memory: &Memory, store: &Store) {
    let whole: Vec<Bytes> = (0..5).map(|number| part(number).0).collect();
    assert!(store.read("a", 0..SIZE, None).expect("it is there") == whole.concat());
    let keys = memory.keys();
    assert_eq!(keys.len(), 2, "the object and its record: {keys:?}");
    assert_eq!(memory.uploads(), 0);
}

fn journals(memory: &Memory) -> Vec<String> {
    memory.keys().into_iter().filter(|key| key.starts_with(".headroom/uploads/")).collect()
}

/// Makes all journals as old as if their writers had been silent for a long time.
fn age(memory: &Memory) {
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    journals(memory).iter().for_each(|name| memory.set_modified(name, long_ago));
}

#[test]
fn an_upload_is_found_by_its_offer_as_long_as_others_may_take_part() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let found = || second.find_released_upload("a", &offer()).expect("an answer");
    assert_eq!(found(), None, "there is none");
    let owned = first.begin_upload("a", &offer()).expect("it is begun");
    assert_eq!(found(), None, "somebody has it");
    let nonce = owned.nonce();
    owned.release().expect("it is released");
    assert_eq!(found(), Some(nonce));
    let one = join(&first, nonce);
    assert_eq!(found(), Some(nonce), "beside others");
    let other = UploadOffer { tag: [2; 16], ..offer() };
    assert_eq!(second.find_released_upload("a", &other).expect("an answer"), None);
    put_parts(&one, &[0, 1, 2, 3, 4]);
    one.release().expect("it is released");
    // who knows no nonce takes it over when nobody takes part any more
    let whole = second.begin_upload("a", &offer()).expect("it is taken over");
    assert_eq!((whole.nonce(), stored(&whole)), (nonce, vec![0, 1, 2, 3, 4]));
    assert_eq!(found(), None);
    whole.complete([9; 32], Condition::Any).expect("it is completed");
    assert_eq!(found(), None);
    drop((whole, owned, one));
    assert_whole(&memory, &second);
}

#[test]
fn parts_of_two_servers_become_one_object() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let (one, other) = (join(&first, nonce), join(&second, nonce));
    std::thread::scope(|scope| {
        scope.spawn(|| put_parts(&one, &[4, 0]));
        scope.spawn(|| put_parts(&other, &[3, 1, 2]));
    });
    assert_eq!(stored(&one), [0, 4], "others' parts are not its own");
    one.release().expect("it is released");
    other.release().expect("it is released");
    assert_eq!(journals(&memory).len(), 3);
    // by either of them, or a third one
    let whole = second.take_over_upload("a", &offer(), nonce).expect("it is taken over");
    assert_eq!(stored(&whole), [0, 1, 2, 3, 4]);
    assert_eq!(journals(&memory).len(), 1, "the journals of the contributors are merged");
    whole.complete([9; 32], Condition::New).expect("it is complete");
    drop(whole);
    assert_whole(&memory, &first);
    let version = first.look("a").expect("an answer").expect("it is there").version;
    let record = first.record("a", &version).expect("an answer").expect("a record");
    let values: Vec<_> = (0..5).flat_map(|number| part(number).1).collect();
    assert_eq!((record.root, record.values), ([9; 32], values));
}

#[test]
fn what_a_dropped_contributor_has_stored_counts_and_any_later_upload_continues_it() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let (one, other) = (join(&first, nonce), join(&second, nonce));
    put_parts(&one, &[0, 1]);
    put_part(&other, 3).expect("it is stored");
    // a drop outside of the runtime waits for the journal
    drop((one, other));
    // without the nonce, as another client or a later command does
    let again = share(&second);
    assert_eq!(again, nonce, "it is the same upload");
    let one = join(&second, nonce);
    assert_eq!(stored(&one), [0, 1, 3], "the journal of the upload has them now");
    put_parts(&one, &[2, 4]);
    drop(one);
    let whole = first.begin_upload("a", &offer()).expect("it is taken over");
    whole.complete_over([9; 32]).expect("it is complete");
    drop(whole);
    assert_whole(&memory, &first);
}

#[test]
fn an_active_contributor_keeps_others_out_unless_they_name_the_upload() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let one = join(&first, nonce);
    put_part(&one, 0).expect("it is stored");
    assert!(matches!(second.begin_upload("a", &offer()), Err(Error::Busy(_))));
    assert!(matches!(second.take_over_upload("a", &offer(), [7; 16]), Err(Error::Busy(_))));
    assert_eq!(second.abort_uploads(Duration::ZERO).expect("an answer"), 0);
    put_part(&one, 1).expect("it still may");
    let whole = second.take_over_upload("a", &offer(), nonce).expect("it is taken over");
    // the contributor notices with its next journal, and stops
    let lost = one.release().expect_err("it was stopped");
    assert!(matches!(lost, Error::Busy(_)), "{lost}");
    assert!(matches!(put_part(&one, 2), Err(Error::Busy(_))));
    drop(one);
    // whatever its journal had in time, the rest is stored again
    for number in 0..5 {
        if whole.values(number).is_none() {
            put_part(&whole, number).expect("it is stored");
        }
    }
    whole.complete_over([9; 32]).expect("it is complete");
    drop(whole);
    assert_whole(&memory, &first);
}

#[test]
fn who_names_an_upload_does_not_wait_for_the_server_that_was_completing_it() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let one = join(&first, nonce);
    put_parts(&one, &[0, 1]);
    one.release().expect("it is released");
    drop(one);
    // this one has perhaps been killed
    let former = first.take_over_upload("a", &offer(), nonce).expect("it is taken over");
    assert!(matches!(second.begin_upload("a", &offer()), Err(Error::Busy(_))));
    let whole = second.take_over_upload("a", &offer(), nonce).expect("it is taken over again");
    assert_eq!(stored(&whole), [0, 1]);
    // or it is still there
    for stopped in [former.abandon(), former.release(), put_part(&former, 2)] {
        assert!(matches!(stopped, Err(Error::Busy(_))), "{stopped:?}");
    }
    drop(former);
    put_parts(&whole, &[2, 3, 4]);
    whole.complete_over([9; 32]).expect("it is complete");
    drop(whole);
    assert_whole(&memory, &first);
}

#[test]
fn a_part_that_two_have_stored_is_stored_again() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let (one, other) = (join(&first, nonce), join(&second, nonce));
    put_parts(&one, &[0, 1, 2]);
    put_parts(&other, &[2, 3, 4]);
    drop((one, other));
    let whole = first.begin_upload("a", &offer()).expect("it is taken over");
    assert_eq!(stored(&whole), [0, 1, 3, 4]);
    let error = whole.complete_over([9; 32]).expect_err("one is missing");
    assert!(matches!(error, Error::Misuse(_)), "{error}");
    put_part(&whole, 2).expect("it is stored");
    whole.complete_over([9; 32]).expect("it is complete");
    drop(whole);
    assert_whole(&memory, &first);
}

#[test]
fn who_may_not_take_part_is_refused_and_nothing_is_lost() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    // before there is one
    assert!(matches!(refused(&first, "a", &offer(), [1; 16]), Error::Gone(_)));
    let held = first.begin_upload("a", &offer()).expect("it is begun");
    let nonce = held.nonce();
    assert!(matches!(refused(&second, "a", &offer(), nonce), Error::Busy(_)), "it is not shared");
    put_part(&held, 0).expect("it is stored");
    held.release().expect("it is released");
    assert!(matches!(put_part(&held, 1), Err(Error::Misuse(_))), "it was left to others");
    drop(held);
    let mut other = nonce;
    other[0] ^= 1;
    assert!(matches!(refused(&second, "a", &offer(), other), Error::Gone(_)));
    assert!(matches!(refused(&second, "b", &offer(), nonce), Error::Gone(_)));
    assert!(matches!(refused(&second, "a/", &offer(), nonce), Error::Misuse(_)));
    let longer = UploadOffer { size: SIZE + 1, ..offer() };
    assert!(matches!(refused(&second, "a", &longer, nonce), Error::Gone(_)));
    let tagged = UploadOffer { tag: [2; 16], ..offer() };
    assert!(matches!(refused(&second, "a", &tagged, nonce), Error::Gone(_)));

    let one = join(&second, nonce);
    let (content, values) = part(1);
    assert!(matches!(one.put_part(4, content, values), Err(Error::Misuse(_))), "its length");
    for error in [
        one.complete([9; 32], Condition::New).expect_err("it is no contributor's"),
        one.complete_over([9; 32]).expect_err("it is no contributor's"),
    ] {
        assert!(matches!(error, Error::Misuse(_)), "{error}");
    }
    // it gives up its own part alone
    put_part(&one, 1).expect("it is stored");
    one.abandon().expect("it is given up");
    drop(one);
    assert_eq!(memory.uploads(), 1);
    let whole = first.begin_upload("a", &offer()).expect("it is taken over");
    assert_eq!(stored(&whole), [0]);
    (1..5).for_each(|number| put_part(&whole, number).expect("it is stored"));
    let _: Version = whole.complete_over([9; 32]).expect("it is complete");
    drop(whole);
    assert_whole(&memory, &first);
    assert!(matches!(refused(&second, "a", &offer(), nonce), Error::Gone(_)), "it is complete");
}

#[test]
fn no_more_than_some_take_part() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    // each range of a large file of a fleet, and one of them again
    (0..257).for_each(|_| drop(join(&first, nonce)));
    let main = journals(&memory).into_iter().find(|name| !name.contains(".parts/"));
    let main = main.expect("a journal");
    let beside = |n: u32| format!("{main}.parts/{n:04}");
    let fill = |n: u32| {
        let (key, content, none) = (beside(n), Bytes::from_static(b"x"), Metadata::new());
        runtime.block_on(memory.put(&key, content, &none, &Condition::Any)).expect("it is stored");
    };
    (257..2047).for_each(fill);
    drop(join(&second, nonce));
    let Err(error) = second.join_upload("a", &offer(), nonce) else { panic!("it takes part") };
    assert!(matches!(&error, Error::Refused(_)) && error.to_string().contains("2048"), "{error}");
    // who takes it over makes room
    assert_eq!(share(&second), nonce);
    assert_eq!(journals(&memory).len(), 1);
    drop(join(&second, nonce));
}

#[test]
fn damaged_and_forged_journals_of_contributors_are_removed_and_too_many_are_an_error() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let one = join(&first, nonce);
    put_part(&one, 0).expect("it is stored");
    drop(one);
    let main = journals(&memory).into_iter().find(|name| !name.contains(".parts/"));
    let main = main.expect("a journal");
    let beside = |name: &str| format!("{main}.parts/{name}");
    let forge = |name: &str, content: Bytes| {
        let (key, none) = (beside(name), Metadata::new());
        runtime.block_on(memory.put(&key, content, &none, &Condition::Any)).expect("it is stored");
    };
    forge("damaged", Bytes::from_static(b"\xa1\x08\x9a\xff\xff\xff\xff"));
    forge("empty", Bytes::new());
    // the journal of another upload
    let before = journals(&memory);
    let other = second.begin_upload("b", &offer()).expect("it is begun");
    other.release().expect("it is released");
    let of_b = journals(&memory).into_iter().find(|name| !before.contains(name));
    let of_b = of_b.expect("a journal");
    let (_, content) = runtime.block_on(memory.get(&of_b, 0..MIB, None)).expect("a journal");
    runtime.block_on(memory.delete(&of_b)).expect("it is removed");
    forge("other", content);
    let whole = second.take_over_upload("a", &offer(), nonce).expect("it is taken over");
    assert_eq!(stored(&whole), [0]);
    assert!(journals(&memory).iter().all(|name| !name.contains(".parts/")));
    drop(whole);

    // one that is too large for a journal of this upload, and more than there can be
    forge("vast", Bytes::from(vec![0; 1 << 20]));
    let Err(error) = second.begin_upload("a", &offer()) else { panic!("it is begun") };
    assert!(matches!(&error, Error::Reply(_)) && error.to_string().contains("remove"), "{error}");
    runtime.block_on(memory.delete(&beside("vast"))).expect("it is removed");
    (0..4097).for_each(|n| forge(&format!("{n:04}"), Bytes::from_static(b"x")));
    let Err(error) = second.begin_upload("a", &offer()) else { panic!("it is begun") };
    assert!(matches!(&error, Error::Reply(_)) && error.to_string().contains("4096"), "{error}");
    assert_eq!(memory.uploads(), 2, "nothing is given up");
}

#[test]
fn an_empty_journal_is_a_damaged_one() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let main = journals(&memory).remove(0);
    let (empty, none) = (Bytes::new(), Metadata::new());
    runtime.block_on(memory.put(&main, empty, &none, &Condition::Any)).expect("it is stored");
    assert!(matches!(refused(&second, "a", &offer(), nonce), Error::Gone(_)));
    let again = second.begin_upload("a", &offer()).expect("it begins anew");
    put_parts(&again, &[0, 1, 2, 3, 4]);
    again.complete_over([9; 32]).expect("it is complete");
    drop(again);
    assert!(journals(&memory).is_empty());
}

#[test]
fn old_uploads_are_given_up_with_their_contributors() {
    let runtime = runtime();
    let (memory, [first, second]) = open(&runtime);
    let nonce = share(&first);
    let one = join(&second, nonce);
    put_part(&one, 0).expect("it is stored");
    drop(one);
    let hour = Duration::from_secs(3600);
    age(&memory);
    // a part was stored more recently
    let one = join(&second, nonce);
    put_part(&one, 1).expect("it is stored");
    drop(one);
    assert_eq!(first.abort_uploads(hour).expect("an answer"), 0);
    assert_eq!(memory.uploads(), 1);
    age(&memory);
    assert_eq!(first.abort_uploads(hour).expect("an answer"), 1);
    assert_eq!((memory.uploads(), memory.keys()), (0, Vec::new()));
}

#[test]
fn journals_without_their_upload_are_removed() {
    let runtime = runtime();
    let (memory, [first, _]) = open(&runtime);
    let nonce = share(&first);
    drop(join(&first, nonce));
    let main = journals(&memory).into_iter().find(|name| !name.contains(".parts/"));
    runtime.block_on(memory.delete(&main.expect("a journal"))).expect("it is removed");
    assert_eq!(first.abort_uploads(Duration::ZERO).expect("an answer"), 0);
    assert_eq!(memory.keys(), Vec::<String>::new());
}
