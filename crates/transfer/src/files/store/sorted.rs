//! The names in a directory of a store, in the order of a walk.
//!
//! A store lists `a-b` before the directory `a`, whose keys begin with `a/`; in a walk `a` comes
//! first. So a name waits until what is listed has passed the keys of every directory that could
//! come before it. Where too many names wait, the store is asked for the one directory.

use std::collections::BTreeMap;

use headroom_store::{Entry, Error, Listing, Object, Store};

use super::root::{is_marker, joined, marker};
use crate::files::error::ErrorKind;

/// The most names that wait.
const MAX_WAITING: usize = 4096;
/// The most answers that are remembered before those are forgotten that are of no use any more.
const MAX_ASKED: usize = 4096;

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) object: Option<Object>,
    /// Whether keys begin with the name and a slash; then it may be that of an object as well.
    pub(super) is_directory: bool,
}

/// The names in a directory, in byte order.
#[derive(Debug)]
pub(super) struct Sorted {
    store: Store,
    /// The directory's key.
    directory: String,
    /// `None` when it has ended.
    listing: Option<Listing>,
    /// The last key that was listed, without the directory's; that of a directory ends with `/`.
    reached: String,
    waiting: BTreeMap<String, Named>,
    /// Names that were asked for before the listing reached them, and whether they are
    /// directories.
    asked: BTreeMap<String, bool>,
}

impl Sorted {
    pub(super) fn new(store: &Store, directory: String) -> Self {
        let listing = Some(store.list(&directory));
        let (waiting, asked) = (BTreeMap::new(), BTreeMap::new());
        Self { store: store.clone(), directory, listing, reached: String::new(), waiting, asked }
    }

    /// Returns how many names are in memory, without the page that is being read.
    pub(super) fn held(&self) -> usize {
        self.waiting.len() + self.asked.len()
    }

    /// Returns the directories that come next, as far as they are known, at most so many.
    pub(super) fn upcoming(&self, most: usize) -> Vec<String> {
        let waiting = self.waiting.values().filter(|named| named.is_directory);
        let waiting = waiting.map(|named| named.name.as_str());
        let listed = self.listing.iter().flat_map(Listing::upcoming);
        waiting.chain(listed).take(most).map(str::to_owned).collect()
    }

    /// Returns the next name; an error, which ends the listing unless it is about one name.
    pub(super) fn next(&mut self) -> Option<Result<Named, ErrorKind>> {
        loop {
            let unsettled = match self.waiting.first_key_value() {
                Some((name, _)) => self.unsettled(name).map(str::to_owned),
                None if self.listing.is_none() => return None,
                None => {
                    if let Err(kind) = self.read() {
                        return Some(Err(kind));
                    }
                    continue;
                }
            };
            let done = match unsettled {
                None => return self.waiting.pop_first().map(|(_, named)| Ok(named)),
                Some(name) if self.waiting.len() >= MAX_WAITING => self.ask(name),
                Some(_) => self.read(),
            };
            if let Err(kind) = done {
                return Some(Err(kind));
            }
        }
    }

    /// Returns the name of a directory that comes before `name`, or is it, and may still be listed.
    fn unsettled<'a>(&self, name: &'a str) -> Option<&'a str> {
        self.listing.as_ref()?;
        let ends = |at: &usize| name.as_bytes().get(*at).is_none_or(|byte| *byte < b'/');
        let directories = (1..=name.len()).filter(ends).map(|at| &name[..at]);
        // the shorter the name, the later its keys
        directories
            .take_while(|directory| !self.has_passed(directory))
            .find(|directory| !self.asked.contains_key(*directory))
    }

    /// Whether the listing has passed the keys of a directory.
    fn has_passed(&self, directory: &str) -> bool {
        let key = directory.bytes().chain(std::iter::once(b'/'));
        key.le(self.reached.bytes())
    }

    /// Reads the next entry of the listing.
    fn read(&mut self) -> Result<(), ErrorKind> {
        let entry = self.listing.as_mut().and_then(Iterator::next);
        match entry {
            None => self.listing = None,
            Some(Ok(Entry::Object(object))) => {
                let name = object.name.clone();
                self.reached.clone_from(&name);
                self.wait(name).object = Some(object);
            }
            Some(Ok(Entry::Directory(name))) => {
                self.reached = format!("{name}/");
                // if it was asked for, it has been returned, or was made since
                if self.asked.remove(&name).is_none() {
                    self.wait(name).is_directory = true;
                }
            }
            // the listing goes on
            Some(Err(error @ Error::Name(_))) => return Err(error.into()),
            Some(Err(error)) => {
                self.listing = None;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Asks whether a name is that of a directory.
    fn ask(&mut self, name: String) -> Result<(), ErrorKind> {
        let key = joined(&self.directory, &name);
        let is_directory = match self.store.list(&key).next() {
            Some(Ok(_) | Err(Error::Name(_))) => true,
            Some(Err(error)) => return Err(error.into()),
            None => self.store.look(&marker(&key))?.as_ref().is_some_and(is_marker),
        };
        if is_directory {
            self.wait(name.clone()).is_directory = true;
        }
        if self.asked.len() >= MAX_ASKED {
            let mut asked = std::mem::take(&mut self.asked);
            asked.retain(|name, _| !self.has_passed(name));
            self.asked = asked;
        }
        self.asked.insert(name, is_directory);
        Ok(())
    }

    fn wait(&mut self, name: String) -> &mut Named {
        let named = Named { name: name.clone(), object: None, is_directory: false };
        self.waiting.entry(name).or_insert(named)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{put, run, store};
    use super::*;

    fn names(store: &Store, directory: &str) -> Vec<String> {
        let mut sorted = Sorted::new(store, directory.to_owned());
        std::iter::from_fn(|| sorted.next())
            .map(|named| {
                let Named { name, object, is_directory } = named.expect("a name");
                match (object.is_some(), is_directory) {
                    (true, true) => format!("{name} twice"),
                    (false, true) => format!("{name}/"),
                    _ => name,
                }
            })
            .collect()
    }

    #[test]
    fn directories_come_where_their_names_belong() {
        run(|runtime| {
            let store = store(runtime);
            for key in ["d/a", "d/a-b", "d/a.b/c", "d/a/x", "d/a0", "d/b!", "d/b/", "d/z.z", "e"] {
                put(&store, key, b"");
            }
            assert_eq!(names(&store, ""), ["d/", "e"]);
            let expected = ["a twice", "a-b", "a.b/", "a0", "b/", "b!", "z.z"];
            assert_eq!(names(&store, "d"), expected);
        });
    }

    #[test]
    fn a_directory_behind_more_names_than_may_wait_is_asked_for() {
        run(|runtime| {
            let store = store(runtime);
            let count = MAX_WAITING + 1000;
            for n in 0..count {
                put(&store, &format!("img.{n:05}"), b"");
            }
            put(&store, "img/inner", b"");
            put(&store, "img0", b"");
            let names = names(&store, "");
            assert_eq!(names.len(), count + 2);
            assert_eq!(names[0], "img/");
            assert_eq!(names[1], "img.00000");
            assert_eq!(names[count + 1], "img0");
        });
    }
}
