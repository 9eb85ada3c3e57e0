//! Shares of a server: their secrets, uses and file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use data_encoding::{BASE64, HEXLOWER};

use super::file::{HEADER, parse};
use super::*;
use crate::identity::Identity;
use crate::trust::{Access, AccessPolicy};

fn key() -> PublicKey {
    Identity::ephemeral().expect("a key").public()
}

fn new(by: PublicKey, uses: Option<u32>) -> NewShare {
    NewShare {
        by,
        path: RelPath::parse(b"a/b \xff").ok(),
        is_file: false,
        write: false,
        open_for: Duration::from_secs(60),
        uses,
        name: " for\nAlice ".to_owned(),
    }
}

fn open(path: &Path) -> Shares {
    Shares::open(path).expect("a file").expect("no other server")
}

fn make(shares: &Shares, new: NewShare) -> (Arc<Share>, [u8; 32]) {
    shares.make(new).expect("it is written").expect("there are few")
}

#[test]
fn a_share_is_found_by_its_secret_until_it_expires_or_is_revoked() {
    let ground = tempfile::tempdir().expect("a folder");
    let shares = open(&ground.path().join("new/shares"));
    let (maker, guest) = (key(), key());
    let (share, secret) = make(&shares, new(maker, None));
    let (other, other_secret) = make(&shares, new(maker, None));
    assert_eq!(shares.find(&secret, &guest), Ok(Arc::clone(&share)));
    assert_eq!(shares.find(&[0; 32], &guest), Err(Unusable::Ended));
    shares.expire(&share.id);
    assert_eq!(shares.find(&secret, &guest), Err(Unusable::Ended));
    assert!(!shares.is_open(&share.id) && shares.is_open(&other.id));
    assert_eq!(shares.claim(&share.id, &guest).expect("no error"), Err(Unusable::Ended));
    assert!(!shares.revoke(&other.id, Some(&guest)).expect("no error"), "of another key");
    assert!(shares.revoke(&other.id, Some(&maker)).expect("it is written"));
    assert_eq!(shares.find(&other_secret, &guest), Err(Unusable::Ended));
    assert_eq!(shares.list(None).len(), 0);
}

#[test]
fn a_use_is_a_key_and_counts_once() {
    let ground = tempfile::tempdir().expect("a folder");
    let shares = open(&ground.path().join("shares"));
    let [first, second, third] = [key(), key(), key()];
    let (share, secret) = make(&shares, new(key(), Some(2)));
    for _ in 0..3 {
        assert_eq!(shares.claim(&share.id, &first).expect("it is written"), Ok(()));
    }
    // looking at it takes no use
    assert!(shares.find(&secret, &third).is_ok());
    assert_eq!(shares.claim(&share.id, &second).expect("it is written"), Ok(()));
    assert_eq!(shares.find(&secret, &third), Err(Unusable::Used));
    assert_eq!(shares.claim(&share.id, &third).expect("no error"), Err(Unusable::Used));
    assert!(shares.find(&secret, &first).is_ok());
    assert_eq!(shares.list(None)[0].used(), 2);
}

#[test]
fn no_note_makes_the_file_unreadable() {
    let ground = tempfile::tempdir().expect("a folder");
    let path = ground.path().join("shares");
    let shares = open(&path);
    // a mark that is first after trimming becomes longer, and a cut can end in a space
    for name in [format!(" \u{301}{} bbbb", "a".repeat(56)), "\u{1}".repeat(64)] {
        make(&shares, NewShare { name, ..new(key(), None) });
    }
    let names = |shares: &Shares| -> Vec<_> {
        shares.list(None).iter().map(|share| share.name.clone()).collect()
    };
    let before = names(&shares);
    drop(shares);
    assert_eq!(names(&open(&path)), before);
}

#[test]
fn one_key_cannot_take_the_places_of_all() {
    let ground = tempfile::tempdir().expect("a folder");
    let shares = open(&ground.path().join("shares"));
    let maker = key();
    for _ in 0..MAX_OF_ONE {
        make(&shares, new(maker, None));
    }
    assert!(shares.make(new(maker, None)).expect("no error").is_none());
    make(&shares, new(key(), None));
}

#[test]
fn a_restart_keeps_shares_and_uses_and_the_file_has_no_secret() {
    let ground = tempfile::tempdir().expect("a folder");
    let path = ground.path().join("shares");
    let (maker, guest) = (key(), key());
    let (made, secret) = {
        let shares = open(&path);
        let (share, secret) = make(&shares, new(maker, Some(1)));
        assert!(Shares::open(&path).expect("no error").is_none(), "another server uses it");
        shares.claim(&share.id, &guest).expect("it is written").expect("the first use");
        (shares.list(Some(&maker)), secret)
    };
    let shares = open(&path);
    assert_eq!(shares.list(Some(&maker)), made);
    assert_eq!((made[0].name.as_str(), made[0].used()), ("for\\nAlice", 1));
    assert_eq!(shares.find(&secret, &key()), Err(Unusable::Used));
    let mode = fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&path).expect("the file");
    for encoded in [HEXLOWER.encode(&secret), BASE64.encode(&secret)] {
        assert!(!text.contains(&encoded), "{text}");
    }
}

#[test]
fn a_damaged_file_of_shares_is_refused_with_its_line() {
    let ground = tempfile::tempdir().expect("a folder");
    let path = ground.path().join("shares");
    let shares = open(&path);
    make(&shares, new(key(), Some(3)));
    make(&shares, new(key(), None));
    drop(shares);
    let right = fs::read_to_string(&path).expect("the file");
    assert!(parse(&right).is_ok());
    let lines: Vec<_> = right.lines().collect();
    for (wrong, line) in [
        (right.replace(HEADER, "headroom-shares 2"), 1),
        (right[..right.len() - 1].to_owned(), 1),
        (String::new(), 1),
        (right.replace(" get directory ", " get folder "), 2),
        (right.replace(" 3 /", " 0 /"), 2),
        (right.replace(" any /", " 101 /"), 3),
        (right.replace(" any /", " any "), 3),
        (format!("{right}{}\n", lines[1]), 4),
        (format!("{right}\n"), 4),
        (right.replace("\n", " \n"), 1),
    ] {
        let (found, cause) = parse(&wrong).expect_err(&wrong);
        assert_eq!(found, line, "{cause}: {wrong}");
    }
    fs::write(&path, right.replace(" any /", " some /")).expect("a file");
    let error = Shares::open(&path).expect_err("damaged").to_string();
    assert!(error.contains("shares:3:"), "{error}");
    fs::write(&path, &right).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("a mode");
    assert!(Shares::open(&path).is_err(), "others can write it");
}

#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let ground = tempfile::tempdir().expect("a folder");
    let (path, victim) = (ground.path().join("shares"), ground.path().join("victim"));
    fs::write(&victim, "precious").expect("a file");
    let lock = ground.path().join("shares.lock");
    std::os::unix::fs::symlink(&victim, &lock).expect("a link");
    let error = Shares::open(&path).expect_err("the lock is a link").to_string();
    assert!(error.contains("shares.lock"), "{error}");
    assert_eq!(fs::read_to_string(&victim).expect("the file"), "precious");
}

#[test]
fn a_directory_in_which_others_can_replace_files_is_refused() {
    let ground = tempfile::tempdir().expect("a folder");
    let set_mode = |mode| {
        fs::set_permissions(ground.path(), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let path = ground.path().join("shares");
    for mode in [0o777, 0o770] {
        set_mode(mode);
        let error = Shares::open(&path).expect_err("others can write").to_string();
        assert!(error.contains(&format!("mode {mode:o}")), "{error}");
        assert!(!ground.path().join("shares.lock").exists());
    }
    set_mode(0o1777);
    drop(open(&path));
    // a lock of another user
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(ground.path().join("shares.lock"), Some(1), None)
            .expect("another owner");
        assert!(Shares::open(&path).is_err());
    }
}

#[test]
fn a_share_allows_no_more_than_the_key_that_made_it() {
    let ground = tempfile::tempdir().expect("a folder");
    let shares = open(&ground.path().join("shares"));
    let root = |path: &[u8]| RelPath::parse(path).ok();
    let maker = |path: &[u8], read_only| Access { root: root(path), read_only, rate_bps: Some(7) };
    let (share, _) = make(&shares, new(key(), None));
    let access = share.access(&maker(b"a", true)).expect("it is within");
    assert_eq!(access, Access { root: root(b"a/b \xff"), read_only: true, rate_bps: Some(7) });
    assert!(share.access(&Access::default()).is_some());
    for outside in [&b"a/c"[..], b"a/b \xff/d", b"b", b"a/b"] {
        assert!(share.access(&maker(outside, false)).is_none());
    }
    let file = NewShare { is_file: true, ..new(key(), None) };
    let access = make(&shares, file).0.access(&Access::default()).expect("it is within");
    assert_eq!((access.root, access.read_only), (root(b"a"), true));
    let put = make(&shares, NewShare { write: true, ..new(key(), None) }).0;
    assert!(put.access(&Access { read_only: true, ..Access::default() }).is_none());
    assert!(!put.access(&Access::default()).expect("it may write").read_only);
    // removing the key ends it
    let mut policy = AccessPolicy::default();
    assert_eq!(put.maker(&policy, None), None);
    assert_eq!(put.maker(&policy, Some(&put.by)), Some(Access::default()));
    policy.keys.insert(put.by, maker(b"a", true));
    assert_eq!(put.maker(&policy, Some(&put.by)), Some(maker(b"a", true)));
}
