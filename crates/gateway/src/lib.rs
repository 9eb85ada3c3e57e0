//! Runs IPsec on a host: configuration, ledger, host setup, datapath, control socket, and decoding of
//! captures.

pub mod config;
pub mod control;
pub mod datapath;
pub mod decode;
pub mod host;
pub mod ike;
pub mod ledger;
pub mod wireshark;
