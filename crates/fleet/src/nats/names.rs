//! What the streams, buckets and subjects of a job are called.

/// The queue's one consumer: whatever takes items does so through it.
pub(super) const CONSUMER: &str = "workers";

/// The names of a job's parts. All begin with `headroom`, which tells them from others of the
/// account.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The job's name without dots, which separate the words of a subject.
    job: String,
}

impl Names {
    /// Makes the names for a job. No two jobs have the same.
    pub(super) fn of(job: &str) -> Self {
        // a job's name is letters, digits, dots, hyphens and underscores
        Self { job: job.replace('_', "_u").replace('.', "_d") }
    }

    /// The stream of items that wait or are worked on.
    pub(super) fn work(&self) -> String {
        format!("headroom-{}-work", self.job)
    }

    pub(super) fn work_subject(&self) -> String {
        format!("headroom.{}.work", self.job)
    }

    /// The stream of transitions: what was decided about each item, in order.
    pub(super) fn log(&self) -> String {
        format!("headroom-{}-log", self.job)
    }

    /// The subject of an item's transitions, or of those of the delete pass.
    pub(super) fn log_subject(&self, id: &str) -> String {
        format!("headroom.{}.log.{id}", self.job)
    }

    /// The stream of what settlements copied and left: receipts, among others.
    pub(super) fn receipts(&self) -> String {
        format!("headroom-{}-receipts", self.job)
    }

    pub(super) fn receipts_subject(&self) -> String {
        format!("headroom.{}.receipts", self.job)
    }

    /// The stream of directories that were found.
    pub(super) fn directories(&self) -> String {
        format!("headroom-{}-directories", self.job)
    }

    pub(super) fn directories_subject(&self) -> String {
        format!("headroom.{}.directories", self.job)
    }

    /// The bucket of what steers a job, and of how far it is.
    pub(super) fn state(&self) -> String {
        format!("headroom-{}-state", self.job)
    }

    /// The bucket of what was set aside.
    pub(super) fn aside(&self) -> String {
        format!("headroom-{}-aside", self.job)
    }

    /// The bucket of workers that live: what they do not renew ends by itself.
    pub(super) fn workers(&self) -> String {
        format!("headroom-{}-workers", self.job)
    }
}

/// The stream behind a bucket.
pub(super) fn stream_of(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// The subject of a key of a bucket, or of several with a wildcard.
pub(super) fn subject_of(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_jobs_share_a_stream_and_no_name_has_a_dot() {
        let jobs = ["a.b", "a_b", "a_db", "a-b", "ab", "a_d", "a."];
        let names = jobs.map(|job| Names::of(job).work());
        let once: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(once.len(), names.len());
        assert!(names.iter().all(|name| !name.contains('.')), "{names:?}");
    }
}
