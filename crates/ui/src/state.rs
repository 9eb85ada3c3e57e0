//! What all requests share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::access::{Refusals, Token};
use crate::fleets::Fleets;
use crate::lab::Lab;
use crate::servers::Servers;
use crate::transfers::Transfers;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: SocketAddr,
    pub(crate) token: Token,
    pub(crate) refusals: Refusals,
    pub(crate) servers: Arc<Servers>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) fleets: Fleets,
    pub(crate) lab: Lab,
    pub(crate) folder: PathBuf,
    pub(crate) quit: Notify,
}
