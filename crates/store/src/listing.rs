//! Listings: a page at a time, the next one asked for while the last one is used.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::backend::Page;
use crate::client::Client;
use crate::error::Error;
use crate::key::{Key, RESERVED};
use crate::object::{Entry, Object};
use crate::pages::Pages;

/// What is directly in a directory, in the order of the bytes of keys, in which a directory has a
/// `/` at its end.
///
/// An [`Error::Name`] is about one entry, whose key is no path: the next call goes on. Any other
/// error ends the listing. Like every call of a [`Store`](crate::Store), [`Iterator::next`] may
/// block, and panics on a thread of a tokio runtime.
pub struct Listing {
    client: Arc<Client>,
    /// What names are relative to: empty, or with a `/` at its end.
    directory: String,
    ready: VecDeque<Result<Entry, Error>>,
    coming: Option<JoinHandle<Result<Page, Error>>>,
    /// The name of the page that is coming.
    page: Option<String>,
    /// Those before.
    pages: Pages,
}

impl Listing {
    /// Begins to list a directory, `""` or with a `/` at its end.
    pub(crate) fn new(client: &Arc<Client>, directory: Result<String, Error>) -> Self {
        let mut listing = Self {
            client: Arc::clone(client),
            directory: String::new(),
            ready: VecDeque::new(),
            coming: None,
            page: None,
            pages: Pages::default(),
        };
        match directory {
            Ok(directory) => {
                listing.directory = directory;
                listing.ask(None);
            }
            Err(error) => listing.ready.push_back(Err(error)),
        }
        listing
    }

    /// The directories that were listed and not returned yet, in order: those that a caller who
    /// walks a tree lists next.
    pub fn upcoming(&self) -> impl Iterator<Item = &str> {
        self.ready.iter().filter_map(|entry| match entry {
            Ok(Entry::Directory(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Asks for a page without waiting for it.
    fn ask(&mut self, page: Option<String>) {
        let client = Arc::clone(&self.client);
        let directory = self.directory.clone();
        let name = page.clone();
        self.page = page;
        self.coming = Some(
            self.client
                .runtime()
                .spawn(async move { client.list(&directory, name.as_deref()).await }),
        );
    }

    /// Takes a page apart.
    fn take(&mut self, page: Page) -> Result<(), Error> {
        let prefix = format!("{}{}", self.client.prefix(), self.directory);
        let mut entries = Vec::with_capacity(page.objects.len() + page.prefixes.len());
        for object in page.objects {
            let Some(name) = object.key.strip_prefix(prefix.as_str()) else {
                return Err(self.refuse(&format!("{:?} is not below it", object.key)));
            };
            // the marker of this directory
            if name.is_empty() {
                continue;
            }
            if name.contains('/') {
                return Err(self.refuse(&format!("{name:?} is not directly in it")));
            }
            let entry = self.checked(name).map(|name| {
                Entry::Object(Object {
                    name,
                    size: object.size,
                    modified: object.modified,
                    version: object.version,
                    metadata: None,
                })
            });
            entries.push((name.to_owned(), entry));
        }
        for whole in page.prefixes {
            let Some(name) = whole.strip_prefix(prefix.as_str()) else {
                return Err(self.refuse(&format!("{whole:?} is not below it")));
            };
            let bare = name.strip_suffix('/').unwrap_or(name);
            if bare.contains('/') {
                return Err(self.refuse(&format!("{name:?} is not directly in it")));
            }
            // our own
            if self.directory.is_empty() && bare == RESERVED {
                continue;
            }
            entries.push((format!("{bare}/"), self.checked(bare).map(Entry::Directory)));
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        // what is in a directory may be on two pages
        entries.retain(|(name, _)| !(name.ends_with('/') && self.pages.end_with(name)));
        let ends = entries.first().zip(entries.last());
        let names = ends.map(|((least, _), (greatest, _))| (least.as_str(), greatest.as_str()));
        self.pages.follow(names).map_err(|found| self.refuse(found))?;
        self.ready.extend(entries.into_iter().map(|(_, entry)| entry));
        match page.next {
            Some(next) if self.page.as_ref() == Some(&next) => {
                return Err(self.refuse("its next page is the same one"));
            }
            Some(next) => self.ask(Some(next)),
            None => {}
        }
        Ok(())
    }

    /// A name that a path can have.
    fn checked(&self, name: &str) -> Result<String, Error> {
        let whole = format!("{}{name}", self.directory);
        Key::parse(self.client.prefix(), &whole).map(|_| name.to_owned())
    }

    fn refuse(&self, found: &str) -> Error {
        Error::Reply(format!(
            "cannot list {:?}: the store's answer makes no sense: {found}",
            self.directory
        ))
    }
}

impl Iterator for Listing {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            let coming = self.coming.take()?;
            let page = match self.client.wait(coming) {
                Ok(page) => page,
                Err(error) => {
                    Err(Error::Unavailable(format!("cannot list {:?}: {error}", self.directory)))
                }
            };
            if let Err(error) = page.and_then(|page| self.take(page)) {
                self.ready.clear();
                return Some(Err(error));
            }
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        if let Some(coming) = &self.coming {
            coming.abort();
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// All that is below a directory, each directory before what is in it. Names are paths relative
/// to where it began. It lists level by level, so that a directory and an object of one name are
/// told apart, and holds one page of each level.
///
/// An [`Error::Name`] is about one entry, any other about one directory: the next call goes on
/// with what follows.
#[derive(Debug)]
pub struct ListAll {
    client: Arc<Client>,
    levels: Vec<(String, Listing)>,
    /// Where it began, below the prefix of the store.
    origin: String,
}

impl ListAll {
    /// Begins to list a directory, `""` or with a `/` at its end.
    pub(crate) fn new(client: &Arc<Client>, directory: Result<String, Error>) -> Self {
        let origin = directory.clone().unwrap_or_default();
        Self {
            client: Arc::clone(client),
            levels: vec![(String::new(), Listing::new(client, directory))],
            origin,
        }
    }
}

impl Iterator for ListAll {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (path, listing) = self.levels.last_mut()?;
            let Some(entry) = listing.next() else {
                self.levels.pop();
                continue;
            };
            return Some(match entry {
                Ok(Entry::Directory(name)) => {
                    let whole = format!("{path}{name}");
                    let below = format!("{whole}/");
                    let directory = format!("{}{below}", self.origin);
                    let listing = Listing::new(&self.client, Ok(directory));
                    self.levels.push((below, listing));
                    Ok(Entry::Directory(whole))
                }
                Ok(Entry::Object(object)) => {
                    Ok(Entry::Object(Object { name: format!("{path}{}", object.name), ..object }))
                }
                Err(error) => Err(error),
            });
        }
    }
}
