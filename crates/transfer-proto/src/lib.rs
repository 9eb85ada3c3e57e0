//! The transfer protocol without sockets, files and clocks: names of files, hashing in spans,
//! messages of the control stream, lanes, and the rate control of lanes and QUIC streams. It
//! compiles for a browser.

mod crc;
pub mod lane;
pub mod message;
pub mod mux;
pub mod path;
pub mod proof;
pub mod rate;
pub mod span;
