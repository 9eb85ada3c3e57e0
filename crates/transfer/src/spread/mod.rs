//! One transfer over several servers of one store, or over several sessions with one of them, each
//! with a lane of its own.
//!
//! A walk here, or listings of the servers' directories, fill a queue with batches of files, which
//! a connection to each server takes and copies. When a server is lost, what it has not stored
//! returns to the queue: as all servers have one store, another one resumes the file there. Of a
//! large file all sessions fetch ranges at once, or send ranges if the servers have an object store,
//! or there is one server. At last one server alone does an ordinary request for what is left:
//! directories with their modes and times, links, files that failed, and in a sync what is to be
//! removed. This request reports failures, each once.

mod batch;
mod copying;
mod directory;
mod divided;
mod down;
mod large;
mod listing;
mod losses;
mod queue;
mod record;
mod sending;
mod servers;
mod session;
mod up;

pub use servers::{Connecting, RANGE_BYTES, Returned, Servers, SpreadObserver};
