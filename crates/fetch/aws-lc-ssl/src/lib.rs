//! AWS-LC's libssl, which `curl-sys` compiles libcurl against. It has no Rust API.
//!
//! This crate stands in for the `openssl-sys` of the registry (`[patch.crates-io]` in the
//! workspace's Cargo.toml), because that one builds either all of OpenSSL, for minutes, or
//! an AWS-LC of its own, for which it needs CMake and libclang. The workspace has AWS-LC's
//! libcrypto already, by `aws-lc-rs`; libssl's sources come with it and are compiled here.

// Linked for its symbols: libssl calls libcrypto.
use aws_lc_sys as _;
