//! Moves files between hosts: encrypted always, verified always, resumable always.

pub mod files;
