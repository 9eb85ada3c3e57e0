//! Whether a transfer waits, runs or has ended, and what it shall do.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Waiting,
    Running,
    /// The connection was lost and is made again.
    Offline,
    Paused,
    Failed,
    Done,
    Cancelled,
}

impl Status {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Offline => "offline",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Running | Self::Offline | Self::Paused)
    }

    pub(super) const fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Offline)
    }
}

/// What a running transfer shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Run,
    /// Stop, and become this.
    Stop(Status),
}
