//! Credentials, and what a store says that may not be opened, or is not there.

use headroom_store::{Error, Store};

use crate::servers::{KEYS, SECRET, run};
use crate::{names, runtime};

#[test]
fn a_refusal_names_no_secret() {
    let [key, secret] = KEYS;
    run("access::inside_refusal", &[("AWS_ACCESS_KEY_ID", "other"), secret]);
    run("access::inside_refusal", &[key, ("AWS_SECRET_ACCESS_KEY", "hush-wrong")]);
}

#[test]
#[ignore = "run by a_refusal_names_no_secret"]
fn inside_refusal() {
    let runtime = runtime();
    let error = Store::open("s3://bucket", runtime.handle().clone()).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("hush"), "{text}");
        assert!(text.contains("403"), "{text}");
    }
}

#[test]
fn a_profile_gives_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("credentials");
    let text = format!("[work]\naws_access_key_id = key\naws_secret_access_key = {SECRET}\n");
    std::fs::write(&file, text).expect("a folder");
    let file = file.to_str().expect("UTF-8");
    run(
        "access::inside_profile",
        &[("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "work")],
    );
}

#[test]
#[ignore = "run by a_profile_gives_credentials"]
fn inside_profile() {
    let runtime = runtime();
    let store = Store::open("s3://bucket", runtime.handle().clone()).expect("the store does it");
    assert_eq!(names(store.list("")), Vec::<String>::new());
    assert!(!format!("{store:?}").contains(SECRET));
}

#[test]
fn a_bucket_that_is_not_there_is_said_so() {
    run("access::inside_nowhere", &KEYS);
}

#[test]
#[ignore = "run by a_bucket_that_is_not_there_is_said_so"]
fn inside_nowhere() {
    let runtime = runtime();
    let error = Store::open("s3://nowhere/x", runtime.handle().clone()).expect_err("it is refused");
    assert!(matches!(error, Error::NotFound(_)), "{error}");
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
}

#[test]
fn clear_text_has_to_be_allowed() {
    let [key, secret] = KEYS;
    run("access::inside_clear_text", &[key, secret, ("AWS_ALLOW_HTTP", "false")]);
}

#[test]
#[ignore = "run by clear_text_has_to_be_allowed"]
fn inside_clear_text() {
    let runtime = runtime();
    let error = Store::open("s3://bucket", runtime.handle().clone()).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("AWS_ALLOW_HTTP"), "{error}");
}
