//! Names and entries that last as long as this process. Those of the catalogues are part of
//! the program, and a definition of a plan becomes one of them. Each different one is kept
//! once, however often plans are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use headroom_mutex::lock;

use crate::application::Application;
use crate::catalogue::Entry;
use crate::layer::Layer;

static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
static WORDS: Mutex<BTreeSet<&'static [&'static str]>> = Mutex::new(BTreeSet::new());
static APPLICATIONS: Kept<dyn Application> = Mutex::new(BTreeMap::new());
static LAYERS: Kept<dyn Layer> = Mutex::new(BTreeMap::new());

/// Entries by their name and the text of their definition.
type Kept<T> = Mutex<BTreeMap<(String, String), &'static Entry<T>>>;

/// Keeps a text.
pub(super) fn text(text: &str) -> &'static str {
    let mut kept = lock(&TEXTS);
    match kept.get(text) {
        Some(kept) => kept,
        None => {
            let new: &'static str = Box::leak(text.into());
            kept.insert(new);
            new
        }
    }
}

/// Keeps words.
pub(super) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> &'static [&'static str] {
    let words: Vec<&'static str> = words.into_iter().map(text).collect();
    let mut kept = lock(&WORDS);
    match kept.get(&words[..]) {
        Some(kept) => kept,
        None => {
            let new: &'static [&'static str] = Vec::leak(words);
            kept.insert(new);
            new
        }
    }
}

/// Keeps the application with this name and definition.
pub(super) fn application(
    name: &str,
    definition: &str,
    make: impl FnOnce() -> Entry<dyn Application>,
) -> &'static Entry<dyn Application> {
    entry(&APPLICATIONS, name, definition, make)
}

/// Keeps the layer with this name and definition.
pub(super) fn layer(
    name: &str,
    definition: &str,
    make: impl FnOnce() -> Entry<dyn Layer>,
) -> &'static Entry<dyn Layer> {
    entry(&LAYERS, name, definition, make)
}

fn entry<T: ?Sized + 'static>(
    kept: &Kept<T>,
    name: &str,
    definition: &str,
    make: impl FnOnce() -> Entry<T>,
) -> &'static Entry<T> {
    let key = (name.to_owned(), definition.to_owned());
    lock(kept).entry(key).or_insert_with(|| Box::leak(Box::new(make())))
}
