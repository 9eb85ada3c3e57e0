//! IPsec on a host: TUN and sockets in, security associations between, counters out.

pub mod config;
pub mod control;
pub mod datapath;
pub mod decode;
pub mod host;
pub mod ledger;
pub mod wireshark;
