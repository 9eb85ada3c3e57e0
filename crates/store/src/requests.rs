//! How many requests were made of which kind.

use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A page of a listing.
    List,
    /// The size, version and metadata of an object.
    Head,
    /// A range of an object.
    Get,
    /// An object.
    Put,
    /// The beginning of an upload.
    Create,
    /// A part of an upload.
    Part,
    /// The end of an upload.
    Complete,
    /// A copy within the store.
    Copy,
    /// A deletion.
    Delete,
    /// An upload that is given up.
    Abort,
}

/// Requests by kind, with those that were repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Pages of listings.
    pub list: u64,
    /// Questions for an object's size, version and metadata.
    pub head: u64,
    /// Ranges of objects read.
    pub get: u64,
    /// Objects stored in one request.
    pub put: u64,
    /// Uploads in parts that were begun.
    pub create: u64,
    /// Parts stored.
    pub part: u64,
    /// Uploads in parts that were completed.
    pub complete: u64,
    /// Copies within the store.
    pub copy: u64,
    /// Deletions.
    pub delete: u64,
    /// Uploads in parts that were given up.
    pub abort: u64,
    /// How many of those above repeated one that failed.
    pub retried: u64,
    /// How often the store asked for fewer requests.
    pub slowed: u64,
}

impl Requests {
    /// All requests.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, count)| count).sum()
    }

    /// The kinds of requests by name, without `retried` and `slowed`.
    pub fn kinds(&self) -> [(&'static str, u64); 10] {
        [
            ("list", self.list),
            ("head", self.head),
            ("get", self.get),
            ("put", self.put),
            ("create", self.create),
            ("part", self.part),
            ("complete", self.complete),
            ("copy", self.copy),
            ("delete", self.delete),
            ("abort", self.abort),
        ]
    }

    /// These and others.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            list: self.list.saturating_add(other.list),
            head: self.head.saturating_add(other.head),
            get: self.get.saturating_add(other.get),
            put: self.put.saturating_add(other.put),
            create: self.create.saturating_add(other.create),
            part: self.part.saturating_add(other.part),
            complete: self.complete.saturating_add(other.complete),
            copy: self.copy.saturating_add(other.copy),
            delete: self.delete.saturating_add(other.delete),
            abort: self.abort.saturating_add(other.abort),
            retried: self.retried.saturating_add(other.retried),
            slowed: self.slowed.saturating_add(other.slowed),
        }
    }

    /// Those since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            list: self.list.saturating_sub(earlier.list),
            head: self.head.saturating_sub(earlier.head),
            get: self.get.saturating_sub(earlier.get),
            put: self.put.saturating_sub(earlier.put),
            create: self.create.saturating_sub(earlier.create),
            part: self.part.saturating_sub(earlier.part),
            complete: self.complete.saturating_sub(earlier.complete),
            copy: self.copy.saturating_sub(earlier.copy),
            delete: self.delete.saturating_sub(earlier.delete),
            abort: self.abort.saturating_sub(earlier.abort),
            retried: self.retried.saturating_sub(earlier.retried),
            slowed: self.slowed.saturating_sub(earlier.slowed),
        }
    }
}

/// Counts requests of all threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    kinds: [AtomicU64; 10],
    retried: AtomicU64,
    slowed: AtomicU64,
}

impl Counts {
    /// Counts a request.
    pub(crate) fn add(&self, kind: Kind) {
        self.kinds[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that the next request repeats one.
    pub(crate) fn add_retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that the store asked for fewer.
    pub(crate) fn add_slowed(&self) {
        self.slowed.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted up to now.
    pub(crate) fn read(&self) -> Requests {
        let of = |kind: Kind| self.kinds[kind as usize].load(Ordering::Relaxed);
        Requests {
            list: of(Kind::List),
            head: of(Kind::Head),
            get: of(Kind::Get),
            put: of(Kind::Put),
            create: of(Kind::Create),
            part: of(Kind::Part),
            complete: of(Kind::Complete),
            copy: of(Kind::Copy),
            delete: of(Kind::Delete),
            abort: of(Kind::Abort),
            retried: self.retried.load(Ordering::Relaxed),
            slowed: self.slowed.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_kind_for_itself() {
        let counts = Counts::default();
        counts.add(Kind::List);
        counts.add(Kind::Abort);
        let earlier = counts.read();
        counts.add(Kind::Abort);
        counts.add_retried();
        let since = counts.read().since(&earlier);
        assert_eq!((earlier.list, earlier.abort, earlier.total()), (1, 1, 2));
        assert_eq!((since.list, since.abort, since.retried, since.total()), (0, 1, 1, 1));
        assert_eq!(earlier.and(&since), counts.read());
    }
}
