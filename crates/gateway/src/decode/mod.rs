//! Opens captured packets with given keys and says what each is, or why it
//! fails.

pub mod capture;
mod link;
