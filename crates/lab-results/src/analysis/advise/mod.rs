//! Advice for a link that was not measured: which stack moves the files soonest, how sure that
//! is, and what it rests on.
//!
//! A [`Basis`] holds what a run measured on several links. [`model`] predicts a time from it,
//! [`lossy`] the time that random loss adds, [`calibration`] the width of the prediction
//! intervals by leaving one link out after the other, and [`back_test`] how well both do.

pub mod advice;
pub mod back_test;
pub mod basis;
pub mod calibration;
pub mod grid;
pub mod lossy;
pub mod model;

pub use advice::{Advice, Property, Question, Refusal, StackFacts, advise};
pub use basis::{Basis, LossAnswer};
pub use grid::Grid;

#[cfg(test)]
pub(crate) mod tests {
    use super::basis::{Basis, BasisLink, BasisStack, Cell, LossAnswer};
    use super::model::Task;

    pub(crate) const LINE: f64 = 1538.0 / 1428.0;

    /// A basis of two stacks on made-up links: `quick` takes 3 round trips and 2 ms, `slow` 10
    /// and 5 ms; a file more takes 1 round trip and 6.
    pub(crate) fn basis() -> Basis {
        let link = |rate: f64, rtt_ms: f64, loss: f64| BasisLink {
            name: format!("{} Mbit/s, {rtt_ms} ms, {loss}", rate / 1e6),
            rate_bps: (rate > 0.0).then_some(rate),
            rtt_s: rtt_ms / 1e3,
            loss,
            queue_packets: None,
        };
        let links = vec![
            link(0.0, 0.05, 0.0),
            link(100e6, 2.0, 0.0),
            link(100e6, 10.0, 0.0),
            link(50e6, 20.0, 0.0),
            link(10e6, 50.0, 0.0),
            link(100e6, 100.0, 0.0),
            link(50e6, 10.0, 0.01),
            link(50e6, 40.0, 0.001),
        ];
        let stack = |name: &str| BasisStack {
            name: name.to_owned(),
            round_trips: Some(2),
            line_bytes_per_byte: LINE,
            window_bytes: None,
            seconds_per_byte: None,
            fastest_bps: 2e9,
            connects_for_each_file: false,
            connections: 1,
            loss_answer: LossAnswer::Cubic,
        };
        let mut all = Basis {
            plan: "made-up".to_owned(),
            started: "2026-01-02T03:04:05Z".to_owned(),
            machine: "CPU, 2 cores, Linux 6".to_owned(),
            headroom: "1.0".to_owned(),
            programs: vec!["server 1".to_owned()],
            congestion_control: "cubic".to_owned(),
            payload_bytes: 1428.0,
            line_bytes: 1538.0,
            links,
            stacks: vec![stack("quick"), stack("slow")],
            cells: Vec::new(),
        };
        for (index, link) in all.links.clone().iter().enumerate() {
            for (stack, (trips, work, more)) in
                [(3.0, 0.002, 1.0), (10.0, 0.005, 6.0)].iter().enumerate()
            {
                for (files, bytes) in [(1, 1 << 10), (1, 1 << 20), (8, 1 << 14)] {
                    let task = Task { files, bytes: f64::from(bytes) };
                    let body = all.body(&all.stacks[stack], link, task, true).seconds();
                    let setup = trips * link.rtt_s + work;
                    let further = f64::from(files - 1) * more * link.rtt_s;
                    let lossless = setup + further + body;
                    // made-up noise of 1 %, and what loss may add
                    let spread = if link.loss > 0.0 { [1.0, 1.05, 1.1] } else { [0.99, 1.0, 1.01] };
                    all.cells.push(Cell {
                        link: index,
                        stack,
                        files,
                        bytes: bytes as u64,
                        transfers: 1,
                        session_s: spread.map(|factor| factor * lossless).to_vec(),
                    });
                }
            }
        }
        all
    }
}
