//! IPsec on a host: TUN and sockets in, security associations between, counters out.

pub mod ledger;
