//! The transfer without sockets, files and clocks: what a name may be, how a file
//! is hashed in spans, what is said on the control stream, how lanes carry data.
//! It compiles for a browser.

pub mod lane;
pub mod message;
pub mod path;
pub mod proof;
pub mod span;
