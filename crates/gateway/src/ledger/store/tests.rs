//! Copies that cannot be believed are refused, each in its own words.

use super::*;
use headroom_ipsec::spec::Direction;
use headroom_suite::Fingerprint;
use tempfile::TempDir;

const OUT: KeyId = KeyId { direction: Direction::Out, key: Fingerprint::from_bytes([1; 16]) };
const IN: KeyId = KeyId { direction: Direction::In, key: Fingerprint::from_bytes([2; 16]) };
const NEEDED: [(KeyId, &str); 2] = [(OUT, "out-1"), (IN, "in-1")];

/// A folder of its own with a ledger that was just made.
struct Ground {
    folder: TempDir,
    paths: LedgerPaths,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = LedgerPaths {
            ledger: folder.path().join("hr0.ledger"),
            copy_folder: folder.path().join("copies"),
            name: "hr0".into(),
        };
        Ledger::create(&paths.ledger, &[OUT, IN], random_id()).expect("a ledger");
        Self { folder, paths }
    }

    fn open(&self) -> Result<Ledger, Error> {
        Ledger::open(&self.paths, &NEEDED, false)
    }

    fn copy(&self) -> PathBuf {
        let mut files = RealDisk.files(&self.paths.copy_folder).expect("a folder");
        files.retain(|path| path.extension().is_some_and(|e| e == "ledger"));
        files.pop().expect("a second copy")
    }

    fn use_numbers(&self, up_to: u64) {
        let mut ledger = self.open().expect("a ledger");
        ledger.commit(&[(OUT, up_to)]).expect("a disk that works");
    }
}

fn refusal(outcome: Result<Ledger, Error>) -> String {
    outcome.map(|_| ()).expect_err("a refusal").to_string()
}

#[test]
fn numbers_survive_and_unused_ones_are_given_back() {
    let ground = Ground::new();
    ground.use_numbers(1000);
    let mut ledger = ground.open().expect("a ledger");
    assert_eq!((ledger.number(OUT), ledger.number(IN)), (Some(1000), Some(0)));
    ledger.release_unused(&[(OUT, 120), (IN, 77)]).expect("a disk that works");
    drop(ledger);
    let mut ledger = ground.open().expect("a ledger");
    assert_eq!((ledger.number(OUT), ledger.number(IN)), (Some(120), Some(77)));
    ledger.commit(&[(OUT, 5)]).expect("a disk that works");
    assert_eq!(ledger.number(OUT), Some(120), "a number is never lowered by a reservation");
}

#[test]
fn a_second_gateway_is_refused() {
    let ground = Ground::new();
    let first = ground.open().expect("a ledger");
    assert!(refusal(ground.open()).contains("in use by another gateway"));
    // a copy of the folder shares the second copy
    let copy = ground.folder.path().join("copy.ledger");
    std::fs::copy(&ground.paths.ledger, &copy).expect("a copy");
    let paths = LedgerPaths { ledger: copy, ..ground.paths.clone() };
    assert!(matches!(Ledger::open(&paths, &NEEDED, false), Err(Error::InUse { .. })));
    drop(first);
    ground.open().expect("the lock went with it");
}

#[test]
fn an_old_copy_is_refused_whichever_it_is() {
    for copy_is_old in [false, true] {
        let ground = Ground::new();
        ground.use_numbers(10);
        let path = if copy_is_old { ground.copy() } else { ground.paths.ledger.clone() };
        let backup = std::fs::read(&path).expect("a copy");
        ground.use_numbers(20);
        ground.use_numbers(30);
        std::fs::write(&path, backup).expect("restored");
        let words = refusal(ground.open());
        assert!(words.contains("outdated") && words.contains("new keys"), "{words}");
        assert!(refusal(Ledger::open(&ground.paths, &NEEDED, true)).contains("outdated"));
    }
}

#[test]
fn the_ledger_as_it_was_made_does_not_come_back() {
    let ground = Ground::new();
    let made = std::fs::read(&ground.paths.ledger).expect("a copy");
    ground.use_numbers(10);
    std::fs::write(&ground.paths.ledger, made).expect("restored");
    assert!(matches!(ground.open(), Err(Error::Diverged { main: 0, .. })));
}

#[test]
fn a_missing_copy_is_refused() {
    let ground = Ground::new();
    ground.use_numbers(10);
    let copy = ground.copy();
    let content = std::fs::read(&copy).expect("a second copy");
    std::fs::remove_file(&copy).expect("removed");
    for new_keys in [false, true] {
        let words = refusal(Ledger::open(&ground.paths, &NEEDED, new_keys));
        assert!(words.contains("second copy") && words.contains("is missing"), "{words}");
    }
    std::fs::write(&copy, content).expect("put back");
    std::fs::remove_file(&ground.paths.ledger).expect("removed");
    let words = refusal(ground.open());
    assert!(words.contains("is missing") && words.contains("`out-1`, `in-1`"), "{words}");
    // who says that the keys are new is not believed where a second copy knows better
    let words = refusal(Ledger::open(&ground.paths, &NEEDED, true));
    assert!(words.contains("`out-1` is not new"), "{words}");
}

#[test]
fn new_keys_are_added_only_where_they_are_said_to_be_new() {
    let ground = Ground::new();
    ground.use_numbers(10);
    let newcomer = KeyId { direction: Direction::Out, key: Fingerprint::from_bytes([3; 16]) };
    let needed = [NEEDED[0], (newcomer, "out-2")];
    let words = refusal(Ledger::open(&ground.paths, &needed, false));
    assert!(words.contains("does not contain the keys of `out-2`."), "{words}");
    let ledger = Ledger::open(&ground.paths, &needed, true).expect("said to be new");
    assert_eq!((ledger.number(newcomer), ledger.number(OUT)), (Some(0), Some(10)));
}

#[test]
fn a_damaged_copy_is_refused() {
    for damage_copy in [false, true] {
        let ground = Ground::new();
        ground.use_numbers(10);
        let path = if damage_copy { ground.copy() } else { ground.paths.ledger.clone() };
        let mut content = std::fs::read(&path).expect("a file");
        content[40] ^= 1;
        std::fs::write(&path, content).expect("damaged");
        let words = refusal(ground.open());
        assert!(words.contains(&path.display().to_string()), "{words}");
        assert!(words.contains("checksum") && words.contains("is damaged"), "{words}");
    }
}

#[test]
fn a_crash_between_the_two_writes_is_mended() {
    let ground = Ground::new();
    ground.use_numbers(10);
    let before = std::fs::read(&ground.paths.ledger).expect("a copy");
    ground.use_numbers(20);
    std::fs::write(&ground.paths.ledger, before).expect("as after a crash");
    let ledger = ground.open().expect("mended");
    assert_eq!(ledger.number(OUT), Some(20));
}

#[test]
fn only_the_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let ground = Ground::new();
    ground.use_numbers(10);
    for path in [ground.paths.ledger.clone(), ground.copy()] {
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
}
