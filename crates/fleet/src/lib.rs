//! Copies or syncs large trees by several workers.
//!
//! A [`Job`] says what goes where, between any two of folders, object stores and servers.
//! [`run::run`] lists the source, writes what it finds into a queue, an [`Engine`], and starts
//! workers; [`worker::work`] takes items from the queue, copies them by the transfer's own client,
//! and acknowledges what was verified. Everything that has to outlive a process is in the engine:
//! [`Sqlite`] is one, for a single machine, and [`Nats`] one for many. What a crash repeats changes
//! nothing: an item that is copied twice has one receipt for each file. Everything above an
//! [`Engine`] is generic.
//!
//! A large file is several items first, its ranges, which any workers copy into one partial file or
//! upload; then it is an item as any other file, whose transfer finds what the ranges have brought.
//! So nothing depends on them. Between two servers it is one item.

mod clock;
mod copy;
mod ends;
mod engine;
mod entry;
mod error;
mod job;
mod key;
mod ledger;
mod listing;
mod mirror;
mod nats;
mod process;
mod ranges;
mod requests;
pub mod run;
mod share;
mod sqlite;
mod state_folder;
mod stop;
mod watch;
pub mod worker;

pub use clock::now_ms;
pub use engine::{
    Aside, Checkpoint, Control, CopiedFile, Counts, Engine, Item, Lease, MAX_LOSSES, Orders,
    Outcome, Phase, Receipt, Settlement, State, Step, WorkerReport,
};
pub use entry::{Entry, Kind};
pub use error::Error;
pub use job::{Batch, Connect, Direction, Job, Mode, NatsServers, Tree};
pub use key::DirectoryKey;
pub use nats::{Nats, NatsJob, NatsLock};
pub use share::Division;
pub use sqlite::Sqlite;
pub use state_folder::{Lock, StateFolder};
pub use stop::Stop;
pub use watch::{JobPlace, Look, Watch};
