//! Files between hosts: `headroom serve`, `put`, `get`, `sync`, `ls`, `mkdir`, `mv`, `rm`,
//! `identity` and `trust`.

mod arguments;
mod connect;
mod copy;
mod exit;
mod frame;
mod hosts;
mod identity;
mod ls;
mod names;
mod progress;
mod remote;
mod remotes;
mod request_log;
mod serve;
mod settings;

pub(crate) use arguments::{Get, Identity, Ls, Mkdir, Mv, Put, Rm, Serve, ServeOnce, Sync, Trust};
pub(crate) use copy::{get, put, sync};
pub(crate) use exit::{Usage, exit_code};
pub(crate) use identity::{identity, trust};
pub(crate) use ls::ls;
pub(crate) use remote::{mkdir, mv, rm};
pub(crate) use serve::{serve, serve_once};
