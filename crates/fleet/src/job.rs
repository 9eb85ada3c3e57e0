//! A job: what goes where, and by which rules.

mod ends;
mod nats;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_transfer::Fingerprint;
use headroom_transfer::client::TIMEOUT;
use serde::{Deserialize, Serialize};
use toml::Spanned;

pub use self::ends::{Direction, Tree};
use self::ends::{direction, resolved};
use self::nats::NatsFile;
pub use self::nats::NatsServers;
use crate::error::Error;

/// The longest name of a job, in bytes: it names a folder.
const MAX_NAME: usize = 64;
/// The bounds of settings.
const WORKERS: RangeInclusive<u32> = 1..=256;
const ATTEMPTS: RangeInclusive<u32> = 1..=100;
const BATCH_FILES: RangeInclusive<u32> = 1..=100_000;
/// The least bytes of a range: the length of the spans that a transfer verifies.
const MIN_RANGE: u64 = 1 << 20;
/// The bytes of a range, unless the job says something else.
const RANGE_BYTES: u64 = 1 << 30;
const LEASE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);
/// QUIC gives up after 30 s in any case.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30);

/// A job, as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name, which can name a folder.
    pub name: String,
    /// The source as it is written; a local one is absolute.
    pub from: String,
    /// The destination, as the source is written.
    pub to: String,
    /// Both, as they are used.
    pub direction: Direction,
    /// Whether files that are at the destination are compared first.
    pub mode: Mode,
    /// Whether to remove at the destination what the source does not have, in the end.
    pub delete: bool,
    /// Workers that a run starts.
    pub workers: u32,
    /// The limit for all workers together, in bits per second.
    pub rate_bps: Option<u64>,
    /// How many times something is tried before it is set aside.
    pub attempts: u32,
    /// How long an item of a worker that is silent is kept for it.
    pub lease: Duration,
    /// The bounds of an item.
    pub batch: Batch,
    /// How to connect to a server.
    pub connect: Connect,
    /// Whether files count as stored only when they are on the disk.
    pub fsync: bool,
    /// Whether the delete pass may empty the destination, because the source is empty.
    pub allow_empty_source: bool,
    /// The NATS servers that keep the queue; without any it is in a folder of this machine.
    pub nats: Option<NatsServers>,
}

/// What becomes of files that are at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They are replaced.
    Copy,
    /// They stay, if their size and time of change agree with the source's.
    Sync,
}

/// The bounds of an item. A file that is larger is an item of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The most files, directories and links.
    pub files: u32,
    /// The most bytes of files.
    pub bytes: u64,
    /// About how many bytes a range of a large file has. A file of less than two ranges is copied
    /// by one worker.
    pub range: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self { files: 1000, bytes: 64 << 20, range: RANGE_BYTES }
    }
}

/// How to connect to a server, as `put` and `get` do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// The private key, if it is not the user's own.
    pub identity: Option<PathBuf>,
    /// The key that an unknown server must have.
    pub fingerprint: Option<Fingerprint>,
    /// Authorities whose servers are trusted as well.
    pub ca: Option<PathBuf>,
    /// How long to wait for an answer, at each address.
    pub timeout: Duration,
}

/// A job file, as TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFile {
    name: Spanned<String>,
    from: Spanned<String>,
    to: Spanned<String>,
    mode: Option<Mode>,
    delete: Option<Spanned<bool>>,
    workers: Option<Spanned<u32>>,
    rate: Option<Spanned<String>>,
    attempts: Option<Spanned<u32>>,
    lease: Option<Spanned<String>>,
    #[serde(default)]
    batch: BatchFile,
    identity: Option<Spanned<String>>,
    fingerprint: Option<Spanned<String>>,
    ca: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
    #[serde(default)]
    fsync: bool,
    #[serde(default)]
    allow_empty_source: bool,
    nats: Option<NatsFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchFile {
    files: Option<Spanned<u32>>,
    bytes: Option<Spanned<String>>,
    range: Option<Spanned<String>>,
}

/// A job as an engine keeps it: paths are resolved, and values checked.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    name: String,
    from: String,
    to: String,
    mode: Mode,
    delete: bool,
    workers: u32,
    rate_bps: Option<u64>,
    attempts: u32,
    lease: Duration,
    batch: Batch,
    identity: Option<String>,
    fingerprint: Option<String>,
    ca: Option<String>,
    timeout: Duration,
    fsync: bool,
    #[serde(default)]
    allow_empty_source: bool,
    #[serde(default)]
    nats: Option<NatsServers>,
}

/// What is wrong with a job file, and where.
#[derive(Debug)]
struct Wrong {
    at: usize,
    reason: String,
}

fn wrong<T>(value: &Spanned<T>, reason: impl Into<String>) -> Wrong {
    Wrong { at: value.span().start, reason: reason.into() }
}

impl Job {
    /// Reads a job file. Relative paths in it begin at its folder, and `~/` at the home.
    ///
    /// # Errors
    /// The file cannot be read, or says something that cannot be done ([`Error::Job`], with the
    /// line).
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::system("read", path))?;
        let absolute = std::path::absolute(path).map_err(Error::system("find", path))?;
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, folder).map_err(|(line, reason)| Error::Job {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    /// Parses the text of a job file that is in this folder. An error is a line and a sentence.
    fn parse(text: &str, folder: &Path) -> Result<Self, (usize, String)> {
        let file: JobFile = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (line_of(text, at), error.message().trim().replace('\n', "; "))
        })?;
        let stored =
            file.checked(folder).map_err(|wrong| (line_of(text, wrong.at), wrong.reason))?;
        Self::of(stored).map_err(|reason| (1, reason))
    }

    /// Reads a job as an engine has kept it. An error is what was found.
    pub(crate) fn from_json(json: &str) -> Result<Self, String> {
        let stored = serde_json::from_str(json);
        Self::of(stored.map_err(|error| format!("its job is not readable ({error})"))?)
    }

    /// Writes the job for an engine.
    pub(crate) fn to_json(&self) -> String {
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let Connect { identity, fingerprint, ca, timeout } = &self.connect;
        let stored = Stored {
            name: self.name.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            mode: self.mode,
            delete: self.delete,
            workers: self.workers,
            rate_bps: self.rate_bps,
            attempts: self.attempts,
            lease: self.lease,
            batch: self.batch,
            identity: text(identity),
            fingerprint: fingerprint.map(|fingerprint| fingerprint.to_string()),
            ca: text(ca),
            timeout: *timeout,
            fsync: self.fsync,
            allow_empty_source: self.allow_empty_source,
            nats: self.nats.clone(),
        };
        // texts and numbers alone, which are always written
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Returns the first setting in which another job differs so that its state is of no use, with
    /// that job's value and this one's.
    pub(crate) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let mode = |job: &Self| match job.mode {
            Mode::Copy => "copy".to_owned(),
            Mode::Sync => "sync".to_owned(),
        };
        let settings = [
            ("from", other.from.clone(), self.from.clone()),
            ("to", other.to.clone(), self.to.clone()),
            ("mode", mode(other), mode(self)),
        ];
        settings.into_iter().find(|(_, there, here)| there != here)
    }

    /// Returns the first setting in which another machine's job differs so that both cannot work
    /// on one queue. A local folder may be mounted elsewhere there, unless the other end is one as
    /// well: nothing else tells such jobs apart.
    pub(crate) fn difference_elsewhere(
        &self,
        other: &Self,
    ) -> Option<(&'static str, String, String)> {
        let mut other = other.clone();
        let are_folders = |here: Option<&Tree>, there: Option<&Tree>| {
            matches!((here, there), (Some(Tree::Folder(_)), Some(Tree::Folder(_))))
        };
        let (here, there) = (self.direction.trees(), other.direction.trees());
        match (are_folders(here.0, there.0), are_folders(here.1, there.1)) {
            (true, false) => other.from.clone_from(&self.from),
            (false, true) => other.to.clone_from(&self.to),
            (true, true) | (false, false) => {}
        }
        self.difference(&other)
    }

    fn of(stored: Stored) -> Result<Self, String> {
        let direction = direction(&stored.from, &stored.to)?;
        let fingerprint = stored.fingerprint.map(|text| text.parse::<Fingerprint>()).transpose();
        let connect = Connect {
            identity: stored.identity.map(PathBuf::from),
            fingerprint: fingerprint.map_err(|error| error.to_string())?,
            ca: stored.ca.map(PathBuf::from),
            timeout: stored.timeout,
        };
        Ok(Self {
            name: stored.name,
            from: stored.from,
            to: stored.to,
            direction,
            mode: stored.mode,
            delete: stored.delete,
            workers: stored.workers,
            rate_bps: stored.rate_bps,
            attempts: stored.attempts,
            lease: stored.lease,
            batch: stored.batch,
            connect,
            fsync: stored.fsync,
            allow_empty_source: stored.allow_empty_source,
            nats: stored.nats,
        })
    }
}

impl JobFile {
    fn checked(self, folder: &Path) -> Result<Stored, Wrong> {
        let mode = self.mode.unwrap_or(Mode::Copy);
        check_name(self.name.get_ref()).map_err(|reason| wrong(&self.name, reason))?;
        if let Some(delete) = &self.delete
            && *delete.get_ref()
            && mode == Mode::Copy
        {
            return Err(wrong(delete, "`delete = true` is for mode = \"sync\""));
        }
        let end = |text: &Spanned<String>| {
            resolved(text.get_ref(), folder).map_err(|reason| wrong(text, reason))
        };
        let (from, to) = (end(&self.from)?, end(&self.to)?);
        let direction = direction(&from, &to).map_err(|reason| wrong(&self.to, reason))?;
        self.check_trust(direction.servers().len())?;
        let path = |text: &Option<Spanned<String>>| {
            let text = text.as_ref();
            text.map(|text| local(text.get_ref(), folder).map_err(|reason| wrong(text, reason)))
                .transpose()
        };
        let fingerprint = self.fingerprint.as_ref().map(|text| {
            let read: Result<Fingerprint, _> = text.get_ref().parse();
            read.map(|fingerprint| fingerprint.to_string())
                .map_err(|error| wrong(text, error.to_string()))
        });
        let rate = self.rate.as_ref().map(|text| {
            headroom_units::parse_rate(text.get_ref()).map_err(|reason| wrong(text, reason))
        });
        let default = Batch::default();
        let batch = Batch {
            files: number("files", self.batch.files.as_ref(), &BATCH_FILES, default.files)?,
            bytes: size(self.batch.bytes.as_ref(), default.bytes, 1, "an item", "one byte")?,
            range: size(self.batch.range.as_ref(), default.range, MIN_RANGE, "a range", "1 MiB")?,
        };
        let lease = Duration::from_secs(30);
        Ok(Stored {
            mode,
            delete: self.delete.as_ref().is_some_and(|delete| *delete.get_ref()),
            workers: number("workers", self.workers.as_ref(), &WORKERS, 4)?,
            rate_bps: rate.transpose()?,
            attempts: number("attempts", self.attempts.as_ref(), &ATTEMPTS, 5)?,
            lease: duration("lease", self.lease.as_ref(), &LEASE, lease)?,
            batch,
            identity: path(&self.identity)?,
            fingerprint: fingerprint.transpose()?,
            ca: path(&self.ca)?,
            timeout: duration("timeout", self.timeout.as_ref(), &TIMEOUTS, TIMEOUT)?,
            fsync: self.fsync,
            allow_empty_source: self.allow_empty_source,
            nats: self.nats.map(|nats| nats.checked(folder)).transpose()?,
            name: self.name.into_inner(),
            from,
            to,
        })
    }

    /// Checks that what is about servers fits to their number.
    fn check_trust(&self, servers: usize) -> Result<(), Wrong> {
        for (name, text) in
            [("identity", &self.identity), ("fingerprint", &self.fingerprint), ("ca", &self.ca)]
        {
            if let Some(text) = text.as_ref().filter(|_| servers == 0) {
                let reason = format!("`{name}` is for a server, and this job has none");
                return Err(wrong(text, reason));
            }
        }
        match &self.fingerprint {
            Some(text) if servers > 1 => Err(wrong(
                text,
                "`fingerprint` is of one server, and this job has two: run `headroom trust` for each of them, or name their authority with `ca`",
            )),
            _ => Ok(()),
        }
    }
}

/// Checks that a name can be that of a folder.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match begins && name.len() <= MAX_NAME && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "`name` is 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores, and begins with a letter or digit: it names the folder of the job's state"
        )),
    }
}

/// Resolves a local path: relative ones begin at `folder`.
fn local(text: &str, folder: &Path) -> Result<String, String> {
    if text.is_empty() {
        return Err("a path is empty".to_owned());
    }
    let path = match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => folder.join(text),
    };
    let path = path.into_os_string().into_string();
    path.map_err(|path| {
        format!(
            "`{}` is not UTF-8, as the folder of the job file or the home is not: put the job file elsewhere",
            path.display()
        )
    })
}

fn number(
    name: &str,
    written: Option<&Spanned<u32>>,
    bounds: &RangeInclusive<u32>,
    default: u32,
) -> Result<u32, Wrong> {
    let Some(written) = written else { return Ok(default) };
    let value = *written.get_ref();
    match bounds.contains(&value) {
        true => Ok(value),
        false => Err(wrong(
            written,
            format!("`{name}` is {} to {}, not {value}", bounds.start(), bounds.end()),
        )),
    }
}

/// Reads a size of at least `least` bytes, which `least_text` writes.
fn size(
    written: Option<&Spanned<String>>,
    default: u64,
    least: u64,
    what: &str,
    least_text: &str,
) -> Result<u64, Wrong> {
    let Some(written) = written else { return Ok(default) };
    let read = headroom_units::parse_size(written.get_ref());
    match read.map_err(|reason| wrong(written, reason))? {
        bytes if bytes >= least => Ok(bytes),
        _ => Err(wrong(written, format!("{what} has at least {least_text}"))),
    }
}

fn duration(
    name: &str,
    written: Option<&Spanned<String>>,
    bounds: &RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, Wrong> {
    let Some(written) = written else { return Ok(default) };
    let read = headroom_units::parse_duration(written.get_ref());
    let value = read.map_err(|reason| wrong(written, reason))?;
    match bounds.contains(&value) {
        true => Ok(value),
        false => Err(wrong(
            written,
            format!("`{name}` is {:?} to {:?}, not {value:?}", bounds.start(), bounds.end()),
        )),
    }
}

/// Returns the line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: &str = "name = \"archive\"\nfrom = \"photos\"\nto = \"nas:backup/photos\"\n";

    fn parse(text: &str) -> Result<Job, (usize, String)> {
        Job::parse(text, Path::new("/jobs"))
    }

    #[test]
    fn a_job_has_defaults_and_paths_begin_at_its_folder() {
        let job = parse(MIN).expect("a job");
        assert_eq!((job.from.as_str(), job.to.as_str()), ("/jobs/photos", "nas:backup/photos"));
        let Direction::Up { from, to } = &job.direction else { panic!("{job:?}") };
        assert_eq!(*from, Tree::Folder("/jobs/photos".into()));
        assert_eq!((to.host.name(), to.path.as_slice()), ("nas", &b"backup/photos"[..]));
        assert_eq!((job.mode, job.delete, job.fsync), (Mode::Copy, false, false));
        assert_eq!((job.workers, job.attempts, job.rate_bps), (4, 5, None));
        assert_eq!(job.batch, Batch { files: 1000, bytes: 64 << 20, range: 1 << 30 });
        assert_eq!(job.lease, Duration::from_secs(30));
        assert!(!job.allow_empty_source);
    }

    #[test]
    fn all_settings_are_read_and_kept() {
        let text = "name = \"a-1.b_2\"\nfrom = \"[2001:db8::1]:4999:x\"\nto = \"/data\"\n\
            mode = \"sync\"\ndelete = true\nworkers = 8\nrate = \"100mbit\"\nattempts = 2\n\
            lease = \"5s\"\nidentity = \"key\"\nca = \"/ca.pem\"\ntimeout = \"3s\"\nfsync = true\n\
            allow_empty_source = true\n\
            fingerprint = \"SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA\"\n\
            [batch]\nfiles = 10\nbytes = \"1MiB\"\nrange = \"4GiB\"\n";
        let job = parse(text).expect("a job");
        let Direction::Down { from, to } = &job.direction else { panic!("{job:?}") };
        assert_eq!((from.host.port(), to), (4999, &Tree::Folder("/data".into())));
        assert_eq!((job.mode, job.delete, job.workers), (Mode::Sync, true, 8));
        assert_eq!((job.rate_bps, job.attempts), (Some(100_000_000), 2));
        let seconds = [job.lease, job.connect.timeout].map(|time| time.as_secs());
        assert_eq!(seconds, [5, 3]);
        assert_eq!(job.connect.identity.as_deref(), Some(Path::new("/jobs/key")));
        assert_eq!(job.batch, Batch { files: 10, bytes: 1 << 20, range: 4 << 30 });
        assert!(job.fsync && job.allow_empty_source);
        assert_eq!(Job::from_json(&job.to_json()), Ok(job));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let with = |line: &str| format!("{MIN}{line}\n");
        let cases = [
            ("name = \"a\"\nfrom = \"x\"\n".to_owned(), 1, "missing field `to`"),
            (MIN.replace("archive", "../up"), 1, "`name` is 1 to 64"),
            (MIN.replace("archive", ""), 1, "`name` is 1 to 64"),
            (MIN.replace("nas:backup/photos", "photos/backup"), 3, "one is in the other"),
            (MIN.replace("\"photos\"", "\"nas:backup\""), 3, "one is in the other"),
            (MIN.replace("\"photos\"", "\"http://b/x\""), 2, "another scheme"),
            (MIN.replace("nas:backup", "s3://"), 3, "its bucket"),
            (with("identity = \"key\"").replace("nas:", "s3://"), 4, "this job has none"),
            (with("ca = \"c\"").replace("nas:backup/photos", "other"), 4, "this job has none"),
            (
                with("fingerprint = \"SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA\"")
                    .replace("\"photos\"", "\"one:photos\""),
                4,
                "this job has two",
            ),
            (MIN.replace("nas:", "user@nas:"), 3, "`user@` is for ssh"),
            (MIN.replace("nas:backup", "nas:../backup"), 3, "../backup"),
            (MIN.replace("nas:backup/", "nas:abc:"), 3, "`abc`"),
            (with("mode = \"move\""), 4, "`move`"),
            (with("delete = true"), 4, "mode = \"sync\""),
            (with("wrokers = 3"), 4, "wrokers"),
            (with("workers = 0"), 4, "`workers` is 1 to 256, not 0"),
            (with("workers = \"3\""), 4, "u32"),
            (with("attempts = 1000"), 4, "`attempts` is 1 to 100"),
            (with("rate = \"fast\""), 4, "fast"),
            (with("lease = \"1s\""), 4, "`lease` is 2s to 3600s, not 1s"),
            (with("timeout = \"31s\""), 4, "`timeout` is"),
            (with("fingerprint = \"SHA256:x\""), 4, "fingerprint"),
            (with("identity = \"\""), 4, "empty"),
            (with("\n[batch]\nbytes = \"0\""), 6, "at least one byte"),
            (with("[batch]\nrange = \"1000000\""), 5, "at least 1 MiB"),
            (with("[batch]\nfiles = 0"), 5, "`files` is 1 to 100000"),
            (with("x = ["), 4, ""),
        ];
        for (text, line, words) in cases {
            let (found, reason) = parse(&text).expect_err(&text);
            assert!(reason.contains(words), "{text}: {reason}");
            // of an open bracket the parser may name the end
            assert!(found == line || words.is_empty(), "{text}: line {found}: {reason}");
        }
    }

    #[test]
    fn another_job_is_told_apart_and_other_limits_are_not() {
        let job = parse(MIN).expect("a job");
        let slower = parse(&format!("{MIN}rate = \"1mbit\"\nworkers = 1\n")).expect("a job");
        assert_eq!(slower.difference(&job), None);
        let elsewhere = parse(&MIN.replace("backup", "other")).expect("a job");
        let (setting, there, here) = elsewhere.difference(&job).expect("it differs");
        assert_eq!((setting, there.as_str()), ("to", "nas:backup/photos"));
        assert_eq!(here, "nas:other/photos");
    }

    #[test]
    fn stores_are_kept_as_their_urls_and_jobs_without_a_server_are_jobs() {
        let text = MIN.replace("nas:backup/photos", "s3://bucket/photos/");
        let job = parse(&text).expect("a job");
        assert_eq!((job.from.as_str(), job.to.as_str()), ("/jobs/photos", "s3://bucket/photos"));
        assert_eq!(Job::from_json(&job.to_json()), Ok(job.clone()));
        let elsewhere = parse(&text.replace("/photos/", "/others")).expect("a job");
        let (setting, ..) = elsewhere.difference(&job).expect("it differs");
        assert_eq!(setting, "to");
    }

    #[test]
    fn machines_may_have_one_folder_elsewhere_and_nothing_else() {
        let job = |from: &str, to: &str| {
            let text = MIN.replace("\"photos\"", &format!("\"{from}\""));
            parse(&text.replace("nas:backup/photos", to)).expect("a job")
        };
        let differs =
            |one: &Job, other: &Job| one.difference_elsewhere(other).map(|(setting, ..)| setting);
        let one = job("/a", "s3://b/x");
        assert_eq!(differs(&one, &job("/mnt/a", "s3://b/x")), None);
        assert_eq!(differs(&one, &job("/a", "s3://b/y")), Some("to"));
        assert_eq!(differs(&one, &job("s3://c", "s3://b/x")), Some("from"));
        assert_eq!(differs(&job("/a", "/b"), &job("/a", "/b")), None);
        assert_eq!(differs(&job("/a", "/b"), &job("/a", "/d")), Some("to"));
        assert_eq!(differs(&job("/a", "s3://b/x"), &job("/a", "/b")), Some("to"));
        assert_eq!(differs(&job("one:x", "two:x"), &job("three:x", "two:x")), Some("from"));
    }
}
