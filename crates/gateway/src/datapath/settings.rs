//! What a datapath is told beside the engine.

use std::time::Duration;

/// What a datapath is told beside the engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The mark of what the gateway itself sends, which routes it past the TUN.
    pub mark: u32,
    /// Octets of the longest outer packet; none: the kernel is asked.
    pub path_mtu: Option<usize>,
    /// How often a keepalive goes out on each ESP in UDP (RFC 3948, section 4);
    /// zero: never.
    pub keepalive: Duration,
    /// Dummy packets a second on each association while it has nothing else to
    /// send, by name; those that are not named have none.
    pub dummies_per_second: Vec<(String, u32)>,
    /// TCP announces no larger segments through a tunnel than fit what passes, nor
    /// than fit packets of so many bytes; none: its SYNs are left alone.
    pub clamp_mss: Option<usize>,
    /// Whether each queue's threads are kept on one CPU.
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

/// The mark of the gateway's own packets where none is configured: "qesp".
pub const DEFAULT_MARK: u32 = 0x7165_7370;
