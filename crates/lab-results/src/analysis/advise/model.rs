//! Predicts the time of a task on a link.
//!
//! time = round trips × RTT + work + body + what losses add. How many round trips a session
//! takes, and how long it works, is fitted to its times on the links without loss, size by
//! size: what is left of a time without its body is a line over the round-trip time. Between
//! measured sizes both are interpolated over the logarithm of the size; below and above they
//! stay. Each further file of a folder takes round trips and work of its own, fitted alike; a
//! stack that does not wait for each takes those of the largest measured folder once.
//! Where fewer than three links tell, or all have one round-trip time, the round trips that a
//! capture shows stand in.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::slow_start::Path;
use super::basis::{Basis, BasisLink, BasisStack, Cell, LossAnswer};
use super::lossy::{self, Chance, LossyPath};

/// Files to move in one session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// Number of files.
    pub files: u32,
    /// Bytes of each.
    pub bytes: f64,
}

/// The time in which bytes of files pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Body {
    /// At the narrowest rate.
    pub sending_s: f64,
    /// In which the sender waits because its window is still small.
    pub slow_start_s: f64,
    /// The narrowest rate, bytes of file a second; none: unlimited.
    pub bytes_per_s: Option<f64>,
}

impl Body {
    /// All of it.
    pub fn seconds(&self) -> f64 {
        self.sending_s + self.slow_start_s
    }
}

/// A predicted time and the sum that it is, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Arithmetic {
    /// Round trips of the whole session.
    pub round_trips: f64,
    /// Times the round-trip time.
    pub round_trips_s: f64,
    /// Work of both ends that neither distance nor rate changes.
    pub work_s: f64,
    /// Bytes on the link, in the files' direction.
    pub line_bytes: f64,
    /// At the narrowest rate.
    pub sending_s: f64,
    /// Waits of slow start.
    pub slow_start_s: f64,
    /// Median of what random losses add.
    pub losses_s: f64,
    /// The sum.
    pub total_s: f64,
}

/// A prediction: the logarithms of its middle and of the ends of 95 % of all sessions, as far
/// as random losses decide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// The sum.
    pub arithmetic: Arithmetic,
    /// Logarithm of the time, seconds.
    pub log_s: f64,
    /// How far below it 2.5 % lie.
    pub below: f64,
    /// How far above it 2.5 % lie.
    pub above: f64,
    /// The time of its bytes on the link at the link's rate, seconds: no session takes less.
    pub on_link_s: f64,
}

/// A line over the round-trip time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Line {
    round_trips: f64,
    work_s: f64,
}

impl Line {
    fn between(self, other: Self, share: f64) -> Self {
        let mix = |a: f64, b: f64| a + (b - a) * share;
        Self {
            round_trips: mix(self.round_trips, other.round_trips),
            work_s: mix(self.work_s, other.work_s),
        }
    }
}

/// Costs of one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct StackModel {
    /// Whether its window is small at first, as TCP's.
    starts_slowly: bool,
    /// By the bytes of the file.
    sessions: Vec<(f64, Line)>,
    /// Of each further file, by its bytes.
    further: Vec<(f64, Line)>,
    /// The most further files of a measured folder.
    measured_further: f64,
}

/// A point of a fit: round-trip time, what is left of the time, and the time, seconds.
type Point = (f64, f64, f64);

impl Basis {
    /// The time in which the bytes of a task pass without loss, if the sender starts with TCP's
    /// small window or at the rate at once.
    pub fn body(
        &self,
        stack: &BasisStack,
        link: &BasisLink,
        task: Task,
        starts_slowly: bool,
    ) -> Body {
        let on_link = link.rate_bps.map(|bps| bps / 8.0 / stack.line_bytes_per_byte);
        let worked = stack.seconds_per_byte.map(|seconds| 1.0 / seconds);
        let windowed = stack.window_bytes.filter(|_| link.rtt_s > 0.0).map(|w| w / link.rtt_s);
        let bytes_per_s = [on_link, worked, windowed].into_iter().flatten().reduce(f64::min);
        let path = Path { bytes_per_s, rtt_s: link.rtt_s, segment_bytes: self.payload_bytes };
        let files = f64::from(task.files);
        let slow_start_s = match (starts_slowly, stack.connects_for_each_file) {
            (false, _) => 0.0,
            (true, true) => files * path.waits_s(task.bytes),
            (true, false) => path.waits_s(files * task.bytes),
        };
        let sending_s = bytes_per_s.map_or(0.0, |rate| files * task.bytes / rate);
        Body { sending_s, slow_start_s, bytes_per_s }
    }

    /// Fits a stack's costs; none: no download of a single file was measured. A stack starts
    /// slowly, as TCP does, unless its times are far nearer to those of one that does not.
    pub fn fit(&self, stack: usize) -> Option<StackModel> {
        /// At most this share of the squared errors.
        const FAR_NEARER: f64 = 0.5;
        /// One error of 1 %: where a line meets all points, rounding must not decide.
        const NOISE: f64 = 1e-4;
        let [slowly, at_once] = [true, false].map(|slowly| self.fit_starting(stack, slowly));
        let (slowly, at_once) = (slowly?, at_once?);
        let squares = |model: &StackModel| self.squared_errors(stack, model);
        let is_nearer = squares(&at_once) + NOISE < FAR_NEARER * squares(&slowly);
        Some(if is_nearer { at_once } else { slowly })
    }

    /// Sum of the squared relative errors of a model's sessions with one file, where there is no
    /// loss.
    fn squared_errors(&self, stack: usize, model: &StackModel) -> f64 {
        let clear = |cell: &&Cell| cell.files == 1 && self.links[cell.link].loss <= 0.0;
        let error = |cell: &Cell| {
            let link = &self.links[cell.link];
            let Line { round_trips, work_s } = model.session(cell.bytes as f64);
            let body_s = self.body_of(cell, model.starts_slowly);
            (round_trips * link.rtt_s + work_s + body_s) / cell.median_s() - 1.0
        };
        self.cells_of(stack).filter(clear).map(|cell| error(cell).powi(2)).sum()
    }

    fn fit_starting(&self, stack: usize, starts_slowly: bool) -> Option<StackModel> {
        let clear = |cell: &&Cell| self.links[cell.link].loss <= 0.0;
        let cells: Vec<&Cell> = self.cells_of(stack).filter(clear).collect();
        let counted = self.stacks[stack].round_trips.map(f64::from);
        let mut by_size: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.files == 1) {
            let time = cell.median_s();
            let body_s = self.body_of(cell, starts_slowly);
            let point = (self.links[cell.link].rtt_s, time - body_s, time);
            by_size.entry(cell.bytes).or_default().push(point);
        }
        let sessions: Vec<(f64, Line)> =
            by_size.iter().map(|(&bytes, points)| (bytes as f64, line(points, counted))).collect();
        if sessions.is_empty() {
            return None;
        }
        let mut model =
            StackModel { starts_slowly, sessions, further: Vec::new(), measured_further: 0.0 };
        let mut by_size: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.files > 1) {
            let rtt_s = self.links[cell.link].rtt_s;
            let first = model.session(cell.bytes as f64);
            let first_s = first.round_trips * rtt_s + first.work_s;
            let further = f64::from(cell.files - 1);
            let time = cell.median_s();
            model.measured_further = further.max(model.measured_further);
            let left = (time - first_s - self.body_of(cell, starts_slowly)) / further;
            by_size.entry(cell.bytes).or_default().push((rtt_s, left, time / further));
        }
        model.further =
            by_size.iter().map(|(&bytes, points)| (bytes as f64, line(points, None))).collect();
        Some(model)
    }

    fn body_of(&self, cell: &Cell, starts_slowly: bool) -> f64 {
        let task = Task { files: cell.files, bytes: cell.bytes as f64 };
        self.body(&self.stacks[cell.stack], &self.links[cell.link], task, starts_slowly).seconds()
    }

    /// Predicts the mean of `transfers` sessions with a task on a link.
    pub fn predict(
        &self,
        model: &StackModel,
        stack: &BasisStack,
        link: &BasisLink,
        task: Task,
        transfers: u32,
    ) -> Predicted {
        let line = model.task(task);
        let connections = model.connections(stack, task);
        // in a session for each file, each file's window is small again
        let anew = BasisStack { connects_for_each_file: true, ..stack.clone() };
        let stack = if model.knows_folders() { stack } else { &anew };
        let body = self.body(stack, link, task, model.starts_slowly);
        let mut arithmetic = Arithmetic {
            round_trips: line.round_trips,
            round_trips_s: line.round_trips * link.rtt_s,
            work_s: line.work_s,
            line_bytes: f64::from(task.files) * task.bytes * stack.line_bytes_per_byte,
            sending_s: body.sending_s,
            slow_start_s: body.slow_start_s,
            losses_s: 0.0,
            total_s: 0.0,
        };
        let clear_s = arithmetic.round_trips_s + line.work_s + body.seconds();
        let on_link_s = link.rate_bps.map_or(0.0, |bps| 8.0 * arithmetic.line_bytes / bps);
        if link.loss <= 0.0 {
            arithmetic.total_s = clear_s;
            let log_s = clear_s.ln();
            return Predicted { arithmetic, log_s, below: 0.0, above: 0.0, on_link_s };
        }
        let dialogue_s = arithmetic.round_trips_s + line.work_s;
        let dialogue = (dialogue_s, connections);
        let mut logs = self.simulate(stack, link, (task, line, body), dialogue, transfers);
        logs.sort_by(f64::total_cmp);
        let at = |share: f64| logs[((logs.len() - 1) as f64 * share).round() as usize];
        let middle = at(0.5);
        arithmetic.total_s = middle.exp();
        // a simulated body takes no less than one without loss; its logarithm rounds
        arithmetic.losses_s = (middle.exp() - clear_s).max(0.0);
        Predicted {
            arithmetic,
            log_s: middle,
            below: middle - at(0.025),
            above: at(0.975) - middle,
            on_link_s,
        }
    }

    /// Logarithms of simulated times.
    fn simulate(
        &self,
        stack: &BasisStack,
        link: &BasisLink,
        (task, line, body): (Task, Line, Body),
        (dialogue_s, connections): (f64, f64),
        transfers: u32,
    ) -> Vec<f64> {
        const RUNS: u64 = 200;
        /// The time of more connections is taken from so many.
        const MAX_SIMULATED: u32 = 50;
        /// A link's queue, where nobody says: 50 ms at its rate, at least 100 packets.
        const QUEUE_S: f64 = 0.05;
        let segment_s = body.bytes_per_s.map_or(0.0, |rate| self.payload_bytes / rate);
        let queue = link.queue_packets.map(f64::from);
        let holds = |segment_s: f64| {
            link.rtt_s / segment_s + queue.unwrap_or((QUEUE_S / segment_s).max(100.0))
        };
        let on_link = link.rate_bps.map_or(f64::INFINITY, |bps| holds(8.0 * self.line_bytes / bps));
        let window = stack.window_bytes.map_or(f64::INFINITY, |bytes| bytes / self.payload_bytes);
        let path = LossyPath {
            rtt_s: link.rtt_s,
            segment_s,
            loss: link.loss,
            most_in_flight: on_link.min(window),
        };
        let (bodies, bytes) = if stack.connects_for_each_file {
            (task.files, task.bytes)
        } else {
            (1, f64::from(task.files) * task.bytes)
        };
        let segments = (bytes / self.payload_bytes).ceil();
        let keeps_rate = stack.loss_answer == LossAnswer::KeepsRate;
        let timeout_s = match keeps_rate {
            true => lossy::quic_timeout_s(link.rtt_s),
            false => lossy::tcp_timeout_s(link.rtt_s),
        };
        let one = |chance: &mut Chance| {
            let bodies_s = if keeps_rate {
                let all = (f64::from(task.files) * task.bytes / self.payload_bytes).ceil();
                lossy::steady_body_s(&path, chance, all, body.seconds())
            } else {
                let simulated = bodies.min(MAX_SIMULATED);
                let sum: f64 = (0..simulated).map(|_| lossy::body_s(&path, chance, segments)).sum();
                sum * f64::from(bodies) / f64::from(simulated)
            };
            let waits = lossy::dialogue_s(chance, line.round_trips, connections, timeout_s);
            dialogue_s + waits + bodies_s
        };
        let transfers = transfers.clamp(1, 100);
        (0..RUNS)
            .map(|seed| {
                let mut chance = Chance::new(link.loss, seed);
                let sum: f64 = (0..transfers).map(|_| one(&mut chance)).sum();
                (sum / f64::from(transfers)).ln()
            })
            .collect()
    }
}

impl StackModel {
    /// Costs of a session with one file, its body not counted.
    fn session(&self, bytes: f64) -> Line {
        at(&self.sessions, bytes)
    }

    /// Costs of a session, its body not counted.
    fn task(&self, task: Task) -> Line {
        let first = self.session(task.bytes);
        if task.files <= 1 {
            return first;
        }
        let further = f64::from(task.files - 1);
        if self.further.is_empty() {
            // a session for each file
            let files = f64::from(task.files);
            return Line { round_trips: files * first.round_trips, work_s: files * first.work_s };
        }
        let each = at(&self.further, task.bytes);
        let further =
            if waits_for_each(each) { further } else { further.min(self.measured_further) };
        Line {
            round_trips: first.round_trips + further * each.round_trips,
            work_s: first.work_s + further * each.work_s,
        }
    }

    /// Connections of all files.
    fn connections(&self, stack: &BasisStack, task: Task) -> f64 {
        let first = f64::from(stack.connections);
        let each = match (self.knows_folders(), stack.connects_for_each_file) {
            (false, _) => first,
            (true, true) => 1.0,
            (true, false) => 0.0,
        };
        first + f64::from(task.files.saturating_sub(1)) * each
    }

    /// Whether folders were measured; else each file of one is taken for a session.
    pub fn knows_folders(&self) -> bool {
        !self.further.is_empty()
    }
}

/// Whether a sender waits for each further file before it sends the next. One that waits for less
/// than half a round trip does not: what a measured folder took, a larger one takes once. Without
/// round trips nothing tells, and each is taken to cost as much.
fn waits_for_each(further: Line) -> bool {
    further.round_trips <= 0.0 || further.round_trips >= 0.5
}

/// Interpolates over the logarithm of the size.
fn at(lines: &[(f64, Line)], bytes: f64) -> Line {
    let after = lines.partition_point(|(size, _)| *size < bytes);
    match (after.checked_sub(1).map(|before| lines[before]), lines.get(after)) {
        (Some((small, low)), Some(&(large, high))) => {
            low.between(high, (bytes / small).ln() / (large / small).ln())
        }
        (Some((_, line)), None) | (None, Some(&(_, line))) => line,
        (None, None) => Line::default(),
    }
}

/// Fits a line with weights 1/t²; neither coefficient is below 0. Of fewer than three points,
/// or of one round-trip time, nothing can be told apart: then `counted` says the round trips.
fn line(points: &[Point], counted: Option<f64>) -> Line {
    let weight = |time: f64| 1.0 / (time * time);
    let sum =
        |of: fn(Point) -> f64| points.iter().map(|&point| weight(point.2) * of(point)).sum::<f64>();
    let all = sum(|_| 1.0);
    let work_with = |round_trips: f64| {
        let work = |&(rtt, left, time): &Point| weight(time) * (left - round_trips * rtt);
        (points.iter().map(work).sum::<f64>() / all).max(0.0)
    };
    let (rtts, lefts) = (sum(|(rtt, ..)| rtt) / all, sum(|(_, left, _)| left) / all);
    let squares = sum(|(rtt, ..)| rtt * rtt) / all - rtts * rtts;
    let products = sum(|(rtt, left, _)| rtt * left) / all - rtts * lefts;
    // not by `squares`: of one round-trip time, rounding can leave a little
    let differs = |point: &Point| point.0.total_cmp(&points[0].0).is_ne();
    let tells = points.len() >= 3 && points.iter().any(differs) && squares > 0.0;
    let fitted = tells.then(|| products / squares);
    let round_trips = fitted.or(counted).unwrap_or(0.0).max(0.0);
    if fitted.is_some() && lefts < round_trips * rtts {
        let through_origin = sum(|(rtt, left, _)| rtt * left) / sum(|(rtt, ..)| rtt * rtt);
        return Line { round_trips: through_origin.max(0.0), work_s: 0.0 };
    }
    Line { round_trips, work_s: work_with(round_trips) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::basis;
    use super::*;

    #[test]
    fn a_line_is_found_from_three_points_and_counted_from_fewer() {
        let point = |rtt: f64| (rtt, 3.0 * rtt + 0.002, 0.1 + rtt);
        let found = line(&[point(0.01), point(0.02), point(0.2)], Some(2.0));
        assert!((found.round_trips - 3.0).abs() < 1e-9 && (found.work_s - 0.002).abs() < 1e-9);
        let counted = line(&[point(0.01)], Some(2.0));
        assert!((counted.round_trips - 2.0).abs() < 1e-9 && (counted.work_s - 0.012).abs() < 1e-9);
        // work is never negative
        let falling = line(&[(0.01, 0.0, 1.0), (0.02, 0.05, 1.0), (0.03, 0.1, 1.0)], None);
        assert!(falling.work_s == 0.0 && falling.round_trips > 0.0, "{falling:?}");
    }

    #[test]
    fn links_of_one_round_trip_time_tell_no_round_trips() {
        for nth in 1..100 {
            // three rates at 20.05 ms
            let times = [0.1, 0.15 + 0.001 * f64::from(nth), 0.2];
            let found = line(&times.map(|time| (0.02005, 0.062, time)), Some(3.0));
            assert_eq!(found.round_trips, 3.0, "{times:?}: {found:?}");
        }
    }

    #[test]
    fn without_measured_folders_each_file_has_a_session_of_its_own() {
        let mut basis = basis();
        basis.cells.retain(|cell| cell.files == 1);
        let model = basis.fit(0).expect("downloads");
        let of = |link: &BasisLink, files| {
            let task = Task { files, bytes: 1e6 };
            basis.predict(&model, &basis.stacks[0], link, task, 1).arithmetic
        };
        // 10 Mbit/s and 50 ms
        let (one, ten) = (of(&basis.links[4], 1), of(&basis.links[4], 10));
        assert!(one.slow_start_s > 0.04, "{one:?}");
        assert!((ten.total_s - 10.0 * one.total_s).abs() < 1e-9, "{ten:?} {one:?}");
        let ftp = BasisStack { connections: 2, ..basis.stacks[0].clone() };
        let connections = |files| model.connections(&ftp, Task { files, bytes: 1e6 });
        assert_eq!((connections(1), connections(10)), (2.0, 20.0));
    }

    #[test]
    fn a_prediction_is_its_sum_by_hand() {
        let basis = basis();
        let model = basis.fit(0).expect("downloads");
        let link = BasisLink {
            name: "asked".to_owned(),
            rate_bps: Some(80e6),
            rtt_s: 0.03,
            loss: 0.0,
            queue_packets: None,
        };
        let task = Task { files: 1, bytes: 1024.0 };
        let found = basis.predict(&model, &basis.stacks[0], &link, task, 1);
        // 3 round trips of 30 ms, 2 ms of work, 1024 bytes with headers at 10 MB/s
        let by_hand = 3.0 * 0.03 + 0.002 + 1024.0 * (1538.0 / 1428.0) / 10e6;
        assert!((found.arithmetic.total_s - by_hand).abs() < 1e-4, "{found:?} {by_hand}");
        assert!((found.arithmetic.round_trips - 3.0).abs() < 0.01, "{found:?}");
        let folder = Task { files: 101, bytes: 16384.0 };
        let found = basis.predict(&model, &basis.stacks[0], &link, folder, 1);
        assert!((found.arithmetic.round_trips - 103.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn losses_add_time_and_spread() {
        let basis = basis();
        let model = basis.fit(1).expect("downloads");
        let link = |loss| BasisLink { loss, ..basis.links[3].clone() };
        let task = Task { files: 1, bytes: 1e6 };
        let of = |loss| basis.predict(&model, &basis.stacks[1], &link(loss), task, 1);
        let (clear, lossy) = (of(0.0), of(0.01));
        assert!(lossy.arithmetic.losses_s > 0.0 && clear.arithmetic.losses_s == 0.0);
        assert!(lossy.above > 0.0 && lossy.below > 0.0 && clear.above == 0.0);
        assert_eq!(of(0.01), lossy, "the same seeds");
    }

    #[test]
    fn a_stack_that_keeps_its_rate_loses_less() {
        let basis = basis();
        let model = basis.fit(0).expect("downloads");
        let of = |loss_answer| {
            let stack = BasisStack { loss_answer, ..basis.stacks[0].clone() };
            let task = Task { files: 1, bytes: 1e8 };
            let link = BasisLink { loss: 0.01, ..basis.links[3].clone() };
            basis.predict(&model, &stack, &link, task, 1).arithmetic
        };
        let (cubic, steady) = (of(LossAnswer::Cubic), of(LossAnswer::KeepsRate));
        assert!(cubic.losses_s > cubic.sending_s, "{cubic:?}");
        assert!((0.0..0.05).contains(&(steady.losses_s / steady.sending_s)), "{steady:?}");
    }

    #[test]
    fn losses_never_take_time_away() {
        let basis = basis();
        let model = basis.fit(0).expect("downloads");
        let link = BasisLink { loss: 1e-9, ..basis.links[3].clone() };
        for segments in 1..=50 {
            let task = Task { files: 1, bytes: f64::from(segments) * basis.payload_bytes };
            let found = basis.predict(&model, &basis.stacks[0], &link, task, 1).arithmetic;
            assert!((0.0..1e-3).contains(&found.losses_s), "{segments}: {found:?}");
        }
    }

    #[test]
    fn without_folders_each_file_is_a_session() {
        let mut basis = basis();
        basis.cells.retain(|cell| cell.files == 1);
        let model = basis.fit(0).expect("downloads");
        assert!(!model.knows_folders());
        let task = Task { files: 10, bytes: 1024.0 };
        assert!((model.task(task).round_trips - 30.0).abs() < 0.1);
    }

    #[test]
    fn a_stack_that_starts_at_once_is_told_by_its_times() {
        let mut basis = basis();
        assert!(basis.fit(0).expect("downloads").starts_slowly);
        let (stack, links) = (basis.stacks[0].clone(), basis.links.clone());
        for nth in 0..basis.cells.len() {
            let Cell { link, files, bytes, .. } = basis.cells[nth];
            let task = Task { files, bytes: bytes as f64 };
            let body = basis.body(&stack, &links[link], task, false).seconds();
            basis.cells[nth].session_s = vec![4.0 * links[link].rtt_s + 0.002 + body];
        }
        let model = basis.fit(0).expect("downloads");
        assert!(!model.starts_slowly);
        let task = Task { files: 1, bytes: 1e6 };
        let of = basis.predict(&model, &stack, &links[4], task, 1).arithmetic;
        assert!(of.slow_start_s == 0.0 && (of.round_trips - 4.0).abs() < 0.01, "{of:?}");
    }

    #[test]
    fn links_that_tell_nothing_leave_a_stack_its_slow_start() {
        for nth in 0..100 {
            let mut basis = basis();
            basis.cells.retain(|cell| cell.link == 4);
            for cell in &mut basis.cells {
                cell.session_s =
                    vec![2.0 + f64::from(nth).sqrt() + 1e-3 * (cell.bytes as f64).ln()];
            }
            assert!(basis.fit(0).expect("downloads").starts_slowly, "{nth}");
        }
    }

    #[test]
    fn a_stack_that_waits_for_no_file_takes_a_folder_s_costs_once() {
        let each = |round_trips| StackModel {
            starts_slowly: true,
            sessions: vec![(1024.0, Line { round_trips: 2.0, work_s: 0.01 })],
            further: vec![(1024.0, Line { round_trips, work_s: 0.001 })],
            measured_further: 3.0,
        };
        let of = |round_trips, files| each(round_trips).task(Task { files, bytes: 1024.0 });
        assert_eq!(of(1.0, 1001).round_trips, 1002.0);
        assert_eq!(of(0.25, 1001), of(0.25, 4));
        assert_eq!(of(0.25, 4).round_trips, 2.75);
        assert!((of(0.0, 1001).work_s - 1.01).abs() < 1e-9, "nothing tells");
    }
}
