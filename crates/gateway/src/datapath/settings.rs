//! The settings of a datapath.

use std::time::Duration;

/// The settings of a datapath, beside its engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The mark (`SO_MARK`) of the gateway's own packets, which routes them past the TUN.
    pub mark: u32,
    /// The path MTU; none: asks the kernel.
    pub path_mtu: Option<usize>,
    /// The interval of NAT keepalives on ESP in UDP (RFC 3948, section 4); zero: none.
    pub keepalive: Duration,
    /// Dummy packets per second while an association has nothing else to send, by name.
    pub dummies_per_second: Vec<(String, u32)>,
    /// Lowers the MSS in TCP SYNs to what passes the tunnel, and to packets of this many bytes; none:
    /// leaves SYNs alone.
    pub clamp_mss: Option<usize>,
    /// Whether the threads of a queue are pinned to one CPU.
    pub pinned: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mark: DEFAULT_MARK,
            path_mtu: None,
            keepalive: Duration::from_secs(20),
            dummies_per_second: Vec::new(),
            clamp_mss: Some(usize::MAX),
            pinned: false,
        }
    }
}

/// The default mark: "qesp".
pub const DEFAULT_MARK: u32 = 0x7165_7370;
