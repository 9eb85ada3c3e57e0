//! The plug is pulled at every step of the disk, with everything that was not
//! yet durable lost or kept in any combination: no number is ever handed out
//! twice, and no honest crash is refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{Disk, Error, KeyId, Ledger, LedgerPaths};
use headroom_ipsec::spec::Direction;
use headroom_suite::Fingerprint;

/// Files by number, so that a rename moves a name and not a content.
#[derive(Debug, Default, Clone)]
struct Content {
    durable: Vec<u8>,
    volatile: Vec<u8>,
}

#[derive(Debug, Default)]
struct FakeDisk {
    files: RefCell<Vec<Content>>,
    /// Names as a running system sees them.
    names: RefCell<BTreeMap<PathBuf, usize>>,
    /// Names as they are after a crash.
    durable_names: RefCell<BTreeMap<PathBuf, usize>>,
    /// Steps until every one of them fails.
    steps_left: Cell<usize>,
    /// Steps until one fails and the next works again.
    fault_in: Cell<Option<usize>>,
}

impl FakeDisk {
    fn new() -> Self {
        let disk = Self::default();
        disk.steps_left.set(usize::MAX);
        disk
    }

    fn step(&self) -> io::Result<()> {
        if let Some(steps) = self.fault_in.get() {
            self.fault_in.set(steps.checked_sub(1));
            if steps == 0 {
                return Err(io::Error::other("the disk is full"));
            }
        }
        match self.steps_left.get() {
            0 => Err(io::Error::other("the plug was pulled")),
            n => {
                self.steps_left.set(n - 1);
                Ok(())
            }
        }
    }

    /// What is found after the plug was pulled. Each bit of `fate` decides for
    /// one thing that was not durable yet whether it survived.
    fn reboot(&self, mut fate: u32) {
        let mut survives = || {
            let bit = fate & 1 == 1;
            fate >>= 1;
            bit
        };
        for content in self.files.borrow_mut().iter_mut() {
            if content.durable != content.volatile {
                // half of a file is the worst of both
                if survives() {
                    let half = content.volatile.len() / 2;
                    content.durable = content.volatile[..half].to_vec();
                }
                content.volatile = content.durable.clone();
            }
        }
        let mut durable = self.durable_names.borrow_mut();
        let names = self.names.borrow().clone();
        for (name, file) in &names {
            if durable.get(name) != Some(file) && survives() {
                durable.insert(name.clone(), *file);
            }
        }
        *self.names.borrow_mut() = durable.clone();
        self.steps_left.set(usize::MAX);
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        self.names.borrow().get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for &FakeDisk {
    fn read(&self, path: &Path, _: u64) -> io::Result<Option<Vec<u8>>> {
        let file = self.names.borrow().get(path).copied();
        Ok(file.map(|file| self.files.borrow()[file].volatile.clone()))
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let outcome = self.step();
        // a write that fails leaves a part
        let content = if outcome.is_ok() { content } else { &content[..content.len() / 3] };
        let file = *self.names.borrow_mut().entry(path.to_owned()).or_insert_with(|| {
            self.files.borrow_mut().push(Content::default());
            self.files.borrow().len() - 1
        });
        self.files.borrow_mut()[file].volatile = content.to_vec();
        outcome
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        let file = self.file(path)?;
        let content = &mut self.files.borrow_mut()[file];
        content.durable = content.volatile.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let file = self.file(from)?;
        let mut names = self.names.borrow_mut();
        names.remove(from);
        names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.step()?;
        let mut durable = self.durable_names.borrow_mut();
        durable.retain(|name, _| name.parent() != Some(folder));
        let names = self.names.borrow();
        let inside = names.iter().filter(|(name, _)| name.parent() == Some(folder));
        durable.extend(inside.map(|(name, file)| (name.clone(), *file)));
        Ok(())
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        self.step()
    }

    fn files(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let names = self.names.borrow();
        Ok(names.keys().filter(|name| name.parent() == Some(folder)).cloned().collect())
    }
}

const OUT: KeyId = KeyId { direction: Direction::Out, key: Fingerprint::from_bytes([1; 16]) };
const IN: KeyId = KeyId { direction: Direction::In, key: Fingerprint::from_bytes([2; 16]) };
const NEEDED: [(KeyId, &str); 2] = [(OUT, "out-1"), (IN, "in-1")];

fn place() -> LedgerPaths {
    LedgerPaths { ledger: "/etc/hr0.ledger".into(), copy_folder: "/var".into(), name: "hr0".into() }
}

fn open(disk: &FakeDisk) -> Result<Ledger<&FakeDisk>, Error> {
    let mut ledger = Ledger::read(disk, &place(), &NEEDED, false, |_| Ok(()))?;
    ledger.add_keys(&NEEDED, false)?;
    Ok(ledger)
}

fn new_disk() -> FakeDisk {
    let disk = FakeDisk::new();
    let numbers = [(OUT, 0), (IN, 0)].into();
    let state = super::LedgerState { id: 9 << 100, generation: 0, numbers };
    super::write_durably(&&disk, &place().ledger, &state).expect("a disk that works");
    disk
}

/// What the world has seen: the highest number sent, the highest accepted.
#[derive(Debug, Default)]
struct World {
    sent: u64,
    accepted: u64,
}

/// A gateway from start to the plug's being pulled, or to a clean end.
fn live(disk: &FakeDisk, world: &mut World, blocks: usize) -> Result<(), Error> {
    let mut ledger = open(disk)?;
    let mut next = ledger.number(OUT).expect("a key") + 1;
    assert!(next > world.sent, "{next} is handed out again; {} was sent", world.sent);
    let mark = ledger.number(IN).expect("a key");
    assert!(mark >= world.accepted, "a packet above {mark} would be accepted again");
    for _ in 0..blocks {
        ledger.commit(&[(OUT, next + 9), (IN, mark + next)])?;
        // what a mark is behind by is what a crash gives back to an attacker: the
        // test holds the gateway to what it was told is durable
        world.accepted = mark + next;
        world.sent = next + 9;
        next += 10;
    }
    world.sent = next - 4;
    ledger.release_unused(&[(OUT, next - 4), (IN, world.accepted)])
}

#[test]
fn no_number_is_used_twice_whenever_the_plug_is_pulled() {
    let mut crashes = 0;
    for first in 0.. {
        let mut ended_well = false;
        for second in 0..24 {
            for fate in 0..64 {
                let disk = new_disk();
                let mut world = World::default();
                disk.steps_left.set(first);
                ended_well = live(&disk, &mut world, 3).is_ok();
                disk.reboot(fate & 7);
                disk.steps_left.set(second);
                crashes += usize::from(live(&disk, &mut world, 2).is_err());
                disk.reboot(fate >> 3);
                live(&disk, &mut world, 1).expect("an honest crash is not refused");
            }
        }
        if ended_well {
            break;
        }
    }
    assert!(crashes > 10_000, "the plug was pulled {crashes} times");
}

#[test]
fn after_a_full_disk_the_ledger_goes_on() {
    for fault in 0..40 {
        let disk = new_disk();
        let mut ledger = open(&disk).expect("a ledger");
        let mut sent = 0;
        disk.fault_in.set(Some(fault));
        let mut refused = 0;
        for block in 1..=5 {
            match ledger.commit(&[(OUT, block * 10)]) {
                Ok(()) => sent = block * 10,
                Err(Error::Disk { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            for fate in 0..8 {
                let copy = FakeDisk {
                    files: disk.files.clone(),
                    names: disk.names.clone(),
                    durable_names: disk.durable_names.clone(),
                    ..FakeDisk::default()
                };
                copy.reboot(fate);
                let after = open(&copy).expect("an honest crash is not refused");
                assert!(after.number(OUT) >= Some(sent));
            }
        }
        assert_eq!(refused, u32::from(fault < 40));
    }
}
