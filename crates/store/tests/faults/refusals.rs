//! What is refused before a request is made.

use bytes::Bytes;
use headroom_store::{Condition, Error, Metadata, UploadOffer, Version};

use crate::{names, offer, open, put, runtime};

#[test]
fn names_of_its_own_are_neither_shown_nor_taken() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    for name in [".headroom/records/x", ".headroom", "a/../b", "", "a//b"] {
        assert!(matches!(put(&store, name), Err(Error::Name(_))), "{name}");
        assert!(matches!(store.look(name), Err(Error::Name(_))), "{name}");
        assert!(matches!(store.remove(name), Err(Error::Name(_))), "{name}");
    }
    assert!(matches!(store.list(".headroom").next(), Some(Err(Error::Name(_)))));
    assert!(matches!(store.below(".headroom").list("").next(), Some(Err(Error::Name(_)))));
    assert_eq!(store.requests().total(), 0);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(names(store.list("")), Vec::<String>::new());
    drop(upload);
}

#[test]
fn what_cannot_be_uploaded_is_refused() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let empty = UploadOffer { size: 0, ..offer(1) };
    assert!(matches!(store.begin_upload("a", &empty), Err(Error::Misuse(_))));
    let vast = UploadOffer { size: 1 << 60, ..offer(1) };
    assert!(matches!(store.begin_upload("a", &vast), Err(Error::TooLarge(_))));
    assert!(matches!(store.begin_upload("a/", &offer(1)), Err(Error::Misuse(_))));
    assert!(matches!(store.begin_upload("a//", &offer(1)), Err(Error::Name(_))));
    let marker = store.put("d/", Bytes::from_static(b"x"), &Metadata::new(), Condition::Any);
    assert!(matches!(marker, Err(Error::Misuse(_))));
    let unknown = Condition::Is(Version::unknown());
    let put = store.put("a", Bytes::from_static(b"x"), &Metadata::new(), unknown);
    assert!(matches!(put, Err(Error::Misuse(_))));
    assert_eq!(store.requests().total(), 0);
}
