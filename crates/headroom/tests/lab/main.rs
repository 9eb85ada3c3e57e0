//! `headroom lab` as a command: real servers, links and layers, between namespaces of this
//! machine. One program, so that its tests, most of which wait most of the time, run beside
//! each other; `tests/traces.rs`, which looks at the whole machine, is another.

#[path = "../common/mod.rs"]
mod common;

mod campaign;
mod compare;
mod curl_and_iperf3;
mod emulator;
mod faults;
mod image;
mod lab_transfer;
mod layers;
mod measures;
mod over_ssh;
mod own_stacks;
mod pinned;
mod post_quantum;
mod report;
mod report_charts;
mod report_sections;
mod resume;
mod rootless;
mod sessions;
mod static_program;
mod studies;
mod study;
mod tls_resumption;
mod two_machines;
mod video;
mod webrtc;
