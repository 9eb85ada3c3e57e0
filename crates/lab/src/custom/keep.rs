//! Names and entries that last as long as this process. Those of the catalogues are part of
//! the program, and a definition of a plan becomes one of them. Each different one is kept
//! once, however often plans are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::application::Application;
use crate::catalogue::Entry;
use crate::layer::Layer;

static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
static APPLICATIONS: Kept<dyn Application> = Mutex::new(BTreeMap::new());
static LAYERS: Kept<dyn Layer> = Mutex::new(BTreeMap::new());

/// Entries by the text of their definition.
type Kept<T> = Mutex<BTreeMap<String, &'static Entry<T>>>;

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
    Vec::leak(words.into_iter().map(text).collect())
}

/// Keeps the application with this definition.
pub(super) fn application(
    definition: &str,
    make: impl FnOnce() -> Entry<dyn Application>,
) -> &'static Entry<dyn Application> {
    entry(&APPLICATIONS, definition, make)
}

/// Keeps the layer with this definition.
pub(super) fn layer(
    definition: &str,
    make: impl FnOnce() -> Entry<dyn Layer>,
) -> &'static Entry<dyn Layer> {
    entry(&LAYERS, definition, make)
}

fn entry<T: ?Sized + 'static>(
    kept: &Kept<T>,
    definition: &str,
    make: impl FnOnce() -> Entry<T>,
) -> &'static Entry<T> {
    lock(kept).entry(definition.to_owned()).or_insert_with(|| Box::leak(Box::new(make())))
}

/// Locks a mutex, also one whose holder panicked: what is kept is whole after each statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
