//! Derives one transfer's clocks, phases and totals from packets captured at the router.
//! No I/O.

mod client_report;
mod datagrams;
mod events;
mod expectation;
mod flow;
mod marker;
mod phases;
mod read;
mod record;
mod setup;
mod stream_stats;
mod tcp;
mod time;
mod totals;
mod trace;

pub use client_report::{BrowserReport, CopyEvent, FetchReport, READY};
pub use expectation::{Expectation, Login, TimeHints};
pub use flow::Flow;
pub use marker::{Marker, MarkerSearch};
pub use phases::{Phase, PhaseInterval, Phases};
pub use read::read;
pub use record::Record;
pub use setup::SetUp;
pub use stream_stats::{DelayStats, StreamBin, StreamStats};
pub use tcp::Tcp;
pub use totals::{ClientSide, DirectionTotals, Totals};
pub use trace::{Framing, Trace};
