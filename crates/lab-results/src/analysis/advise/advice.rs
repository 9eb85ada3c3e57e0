//! The question, the refusal and the ranked answer.

use std::collections::{BTreeMap, BTreeSet};

use headroom_units as units;
use serde::Serialize;

use super::basis::{Basis, BasisLink, BasisStack, LossAnswer};
use super::calibration::Calibration;
use super::model::{Arithmetic, StackModel, Task};

/// A property of a stack that a user may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// Both sides prove who they are, and bind that to the connection.
    MutualAuth,
    /// Keys of a session cannot be found later from keys that last.
    ForwardSecrecy,
    /// The key exchange resists quantum computers.
    PostQuantum,
    /// Routers see the application's ports.
    QosVisible,
    /// Nothing travels over UDP.
    NoUdp,
    /// The receiver compares a hash of each whole file.
    Verified,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::MutualAuth,
        Self::ForwardSecrecy,
        Self::PostQuantum,
        Self::QosVisible,
        Self::NoUdp,
        Self::Verified,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::MutualAuth => "mutual-auth",
            Self::ForwardSecrecy => "forward-secrecy",
            Self::PostQuantum => "post-quantum",
            Self::QosVisible => "qos-visible",
            Self::NoUdp => "no-udp",
            Self::Verified => "verified",
        }
    }

    /// The property of that name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|property| property.name() == name)
    }
}

/// Facts about a stack that no run measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackFacts {
    /// Its properties; none: it is defined by a plan, and nobody stated them.
    pub properties: Option<BTreeSet<Property>>,
    /// Whether nothing encrypts its files; none: it is defined by a plan, and is not known here.
    pub in_clear: Option<bool>,
}

/// A link and files to move over it, from server to client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Question {
    /// Bits per second, framing counted.
    pub rate_bps: f64,
    /// Round-trip time without load, seconds.
    pub rtt_s: f64,
    /// Share of packets lost at random, each way.
    pub loss: f64,
    /// Number of files.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Properties that a stack must have.
    pub needs: Vec<Property>,
}

/// Why there is no answer: sentences, one for each reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What lies outside what was measured, or that no stack has what is needed.
    pub reasons: Vec<String>,
    /// Whether a measurement would answer the question.
    pub measurable: bool,
}

/// A stack in the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    /// From 1; stacks that tie with the first of their group share its rank.
    pub rank: usize,
    /// Whether another stack has this rank.
    pub tied: bool,
    /// Its name.
    pub stack: String,
    /// Whether nothing encrypts its files; none: unknown.
    pub in_clear: Option<bool>,
    /// Seconds.
    pub predicted_s: f64,
    /// 95 % of all sessions take so long.
    pub interval_s: [f64; 2],
    /// Whether folders of this stack were not measured, and each file counts as a session.
    pub session_for_each_file: bool,
    /// The sum.
    pub arithmetic: Arithmetic,
}

/// A stack that is not in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutStack {
    /// Its name.
    pub stack: String,
    /// Why.
    pub why: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The question.
    pub question: Question,
    /// Stacks, fastest first.
    pub stacks: Vec<Ranked>,
    /// Stacks that were measured but cannot be advised.
    pub left_out: Vec<LeftOutStack>,
    /// Name of the run's plan.
    pub plan: String,
    /// When the run began.
    pub started: String,
    /// Its machine.
    pub machine: String,
    /// Version of Headroom that measured it.
    pub headroom: String,
    /// Servers and clients with their versions.
    pub programs: Vec<String>,
    /// Whether the intervals are from the shipped run, because this one has too few links.
    pub foreign_intervals: bool,
    /// Bytes of the largest measured file, if the files are more than ten times as large.
    pub largest_measured: Option<u64>,
    /// Files of the largest measured folder, if there are more than ten times as many.
    pub largest_folder: Option<u32>,
}

/// How far beyond the measured rates, round-trip times and losses an answer may reach.
const BEYOND_LINKS: f64 = 2.0;
/// And beyond the largest measured file on a link with loss. Without loss what a longer file
/// takes more are its bytes at the rate.
const BEYOND_SIZES: f64 = 10.0;

/// Ranks the stacks of a basis for a link and files. `facts` says what is known of a stack by
/// its name.
///
/// # Errors
/// The question lies outside what was measured.
pub fn advise(
    basis: &Basis,
    question: &Question,
    facts: impl Fn(&str) -> StackFacts,
) -> Result<Advice, Refusal> {
    Adviser::new(basis, question.loss > 0.0).advise(question, facts)
}

/// Answers questions about links of one kind, with loss or without.
#[derive(Debug)]
pub(super) struct Adviser<'a> {
    basis: &'a Basis,
    /// By the index of the stack; none: it was not measured without loss.
    models: Vec<Option<StackModel>>,
    calibration: Calibration,
    /// Half of the interval of the ratio of two stacks' times, by their indices.
    half_widths: BTreeMap<[usize; 2], f64>,
    pub(super) foreign_intervals: bool,
}

impl<'a> Adviser<'a> {
    pub(super) fn new(basis: &'a Basis, lossy: bool) -> Self {
        let of = if lossy { Calibration::of } else { Calibration::without_loss };
        let own = of(basis);
        let foreign_intervals = !own.knows(lossy);
        let calibration = if foreign_intervals { of(&Basis::shipped()) } else { own };
        let stacks = 0..basis.stacks.len();
        let pairs = stacks.clone().flat_map(|a| stacks.clone().map(move |b| [a, b]));
        let half_width = |pair: [usize; 2]| {
            let names = pair.map(|index| basis.stacks[index].name.as_str());
            (pair, calibration.half_width_of_ratio(names, lossy).unwrap_or(f64::INFINITY))
        };
        let half_widths = pairs.map(half_width).collect();
        let models = stacks.map(|index| basis.fit(index)).collect();
        Self { basis, models, calibration, half_widths, foreign_intervals }
    }

    pub(super) fn advise(
        &self,
        question: &Question,
        facts: impl Fn(&str) -> StackFacts,
    ) -> Result<Advice, Refusal> {
        let Self { basis, models, calibration, half_widths, foreign_intervals } = self;
        let lacking: Vec<LeftOutStack> = basis
            .stacks
            .iter()
            .filter_map(|stack| {
                let why = facts(&stack.name).lacks(&question.needs)?;
                Some(LeftOutStack { stack: stack.name.clone(), why })
            })
            .collect();
        let measurable = lacking.len() < basis.stacks.len();
        let mut reasons = outside(basis, question);
        if !reasons.is_empty() {
            if !measurable {
                reasons.push(none_left(&lacking));
            }
            return Err(Refusal { reasons, measurable });
        }
        let lossy = question.loss > 0.0;
        let link = BasisLink {
            name: String::new(),
            rate_bps: Some(question.rate_bps),
            rtt_s: question.rtt_s,
            loss: question.loss,
            queue_packets: None,
        };
        let task = Task { files: question.files, bytes: question.bytes as f64 };
        let (mut stacks, mut left_out) = (Vec::new(), Vec::new());
        for (index, stack) in basis.stacks.iter().enumerate() {
            let name = &stack.name;
            let mut leave_out =
                |why: String| left_out.push(LeftOutStack { stack: name.clone(), why });
            let facts = facts(name);
            if let Some(why) = objection(stack, &facts, question) {
                leave_out(why);
                continue;
            }
            if question.rate_bps > stack.fastest_bps {
                leave_out(format!(
                    "this machine passed its files at {} at most",
                    units::rate(stack.fastest_bps)
                ));
                continue;
            }
            let Some(model) = &models[index] else {
                leave_out("the run has no download of a single file without loss".to_owned());
                continue;
            };
            let predicted = basis.predict(model, stack, &link, task, 1);
            let Some(interval_s) = calibration.interval_s(basis, index, &predicted, lossy, 1)
            else {
                leave_out("no interval is known".to_owned());
                continue;
            };
            stacks.push(Ranked {
                rank: 0,
                tied: false,
                stack: name.clone(),
                in_clear: facts.in_clear,
                predicted_s: predicted.arithmetic.total_s,
                interval_s,
                session_for_each_file: question.files > 1 && !model.knows_folders(),
                arithmetic: predicted.arithmetic,
            });
        }
        if stacks.is_empty() {
            return Err(Refusal { reasons: vec![none_left(&left_out)], measurable });
        }
        let index = |name: &str| basis.stacks.iter().position(|stack| stack.name == name);
        rank(&mut stacks, |pair| {
            let [a, b] = pair.map(index);
            a.zip(b).and_then(|(a, b)| half_widths.get(&[a, b]).copied()).unwrap_or(f64::INFINITY)
        });
        Ok(Advice {
            question: question.clone(),
            stacks,
            left_out,
            plan: basis.plan.clone(),
            started: basis.started.clone(),
            machine: basis.machine.clone(),
            headroom: basis.headroom.clone(),
            programs: basis.programs.clone(),
            foreign_intervals: *foreign_intervals,
            largest_measured: Some(largest_file(basis))
                .filter(|&largest| is_beyond(question, largest)),
            largest_folder: largest_folder(basis)
                .filter(|&most| f64::from(question.files) > BEYOND_SIZES * f64::from(most)),
        })
    }
}

impl StackFacts {
    /// Why it does not serve these needs, if so.
    pub fn lacks(&self, needs: &[Property]) -> Option<String> {
        if needs.is_empty() {
            return None;
        }
        let Some(has) = &self.properties else {
            return Some("its definition states no properties".to_owned());
        };
        let missing = needs.iter().filter(|need| !has.contains(need));
        let missing: Vec<&str> = missing.map(|need| need.name()).collect();
        (!missing.is_empty()).then(|| format!("lacks {}", missing.join(", ")))
    }
}

/// The refusal of a question for which every measured stack is left out.
fn none_left(left_out: &[LeftOutStack]) -> String {
    let all = left_out.iter().map(|left| format!("{}: {}", left.stack, left.why));
    let all = all.collect::<Vec<_>>().join("; ");
    format!(
        "none of the measured stacks can be advised ({all}). `headroom lab list` has others: `headroom lab run` \
         measures them on your link, and --from rests on such a run of files of two sizes"
    )
}

/// Why a stack is left out, whatever its times.
fn objection(stack: &BasisStack, facts: &StackFacts, question: &Question) -> Option<String> {
    if let Some(why) = facts.lacks(&question.needs) {
        return Some(why);
    }
    (question.loss > 0.0 && stack.loss_answer == LossAnswer::Unknown)
        .then(|| "how it answers loss is not modelled".to_owned())
}

/// What of the question lies outside what was measured.
fn outside(basis: &Basis, question: &Question) -> Vec<String> {
    let mut reasons = Vec::new();
    // of an interrupted run the last link may have been set up and not measured
    let measured = [false, true].into_iter().flat_map(|lossy| basis.shaped_links(lossy));
    let links: Vec<&BasisLink> = measured.map(|index| &basis.links[index]).collect();
    if links.is_empty() {
        let sentence = "the run measured no link with a rate on which losses, if any, are \
                        independent and the same both ways, so no rate and no round-trip time is \
                        near to what it measured";
        return vec![sentence.to_owned()];
    }
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(None, |ends: Option<[f64; 2]>, value| {
            let [lo, hi] = ends.unwrap_or([value; 2]);
            Some([lo.min(value), hi.max(value)])
        })
    };
    let fastest = basis.stacks.iter().map(|stack| stack.fastest_bps).fold(0.0, f64::max);
    let rates = ends(&mut links.iter().filter_map(|link| link.rate_bps));
    if question.rate_bps > fastest {
        reasons.push(format!(
            "{} is more than the machine of the run ever passed ({})",
            units::rate(question.rate_bps),
            units::rate(fastest)
        ));
    } else if let Some([lo, hi]) = rates
        && !(lo / BEYOND_LINKS..=hi * BEYOND_LINKS).contains(&question.rate_bps)
    {
        reasons.push(format!(
            "{} is more than twice beyond the measured rates, {} to {}",
            units::rate(question.rate_bps),
            units::rate(lo),
            units::rate(hi)
        ));
    }
    if let Some([lo, hi]) = ends(&mut links.iter().map(|link| link.rtt_s))
        && !(lo / BEYOND_LINKS..=hi * BEYOND_LINKS).contains(&question.rtt_s)
    {
        reasons.push(format!(
            "a round-trip time of {} is more than twice beyond the measured ones, {} to {}",
            units::seconds(question.rtt_s),
            units::seconds(lo),
            units::seconds(hi)
        ));
    }
    let most_loss = links.iter().map(|link| link.loss).fold(0.0, f64::max);
    if question.loss > BEYOND_LINKS * most_loss {
        let most = if most_loss > 0.0 {
            format!("the largest measured one is {} %", units::three(100.0 * most_loss))
        } else {
            "the run has no link with loss".to_owned()
        };
        let asked = units::three(100.0 * question.loss);
        reasons.push(format!("a loss of {asked} % is outside what was measured: {most}"));
    }
    if question.loss > 0.0 && basis.congestion_control != "cubic" {
        reasons.push(format!(
            "the run used {}, and only CUBIC's answer to loss is modelled",
            basis.congestion_control
        ));
    }
    let largest = largest_file(basis);
    if question.loss > 0.0 && is_beyond(question, largest) {
        reasons.push(format!(
            "with loss, files of {} are unknown: they are more than ten times as large as the largest measured one, {}",
            units::chosen_size(question.bytes),
            units::chosen_size(largest)
        ));
    }
    reasons
}

/// Files of it; none: no folder was measured.
fn largest_folder(basis: &Basis) -> Option<u32> {
    basis.cells.iter().map(|cell| cell.files).filter(|&files| files > 1).max()
}

fn largest_file(basis: &Basis) -> u64 {
    basis.cells.iter().map(|cell| cell.bytes).max().unwrap_or(0)
}

fn is_beyond(question: &Question, largest: u64) -> bool {
    question.bytes as f64 > BEYOND_SIZES * largest as f64
}

/// Sorts by time and gives ranks: a stack whose ratio to the first of a group is not
/// significant shares its rank.
fn rank(stacks: &mut [Ranked], half_width: impl Fn([&str; 2]) -> f64) {
    stacks.sort_by(|a, b| a.predicted_s.total_cmp(&b.predicted_s));
    let mut first = 0;
    for index in 0..stacks.len() {
        let pair = [first, index].map(|at| stacks[at].stack.as_str());
        let half = half_width(pair);
        let ratio = (stacks[index].predicted_s / stacks[first].predicted_s).ln();
        // sessions of which 95 % are apart do not tie, whatever few links say of their ratio
        let apart = stacks[index].interval_s[0] > stacks[first].interval_s[1];
        if index > first && (ratio > half || apart) {
            first = index;
        }
        stacks[index].rank = first + 1;
        if index > first {
            stacks[index].tied = true;
            stacks[first].tied = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::basis;
    use super::*;

    fn question() -> Question {
        Question {
            rate_bps: 50e6,
            rtt_s: 0.03,
            loss: 0.0,
            files: 1,
            bytes: 1 << 20,
            needs: Vec::new(),
        }
    }

    fn plain(_: &str) -> StackFacts {
        let properties = Some(BTreeSet::from([Property::NoUdp]));
        StackFacts { properties, in_clear: Some(true) }
    }

    #[test]
    fn the_faster_stack_is_first_beyond_doubt() {
        let advice = advise(&basis(), &question(), plain).expect("an answer");
        let ranks: Vec<(&str, usize, bool)> =
            advice.stacks.iter().map(|s| (s.stack.as_str(), s.rank, s.tied)).collect();
        assert_eq!(ranks, [("quick", 1, false), ("slow", 2, false)]);
        let [lo, hi] = advice.stacks[0].interval_s;
        assert!(lo < advice.stacks[0].predicted_s && advice.stacks[0].predicted_s < hi);
    }

    #[test]
    fn stacks_that_differ_by_less_than_the_errors_tie() {
        let mut basis = basis();
        // the second stack takes what the first does, give or take as much as nobody predicts
        let quick: Vec<_> = basis.cells.iter().filter(|c| c.stack == 0).cloned().collect();
        let slow = basis.cells.iter_mut().filter(|cell| cell.stack == 1);
        for (index, (cell, same)) in slow.zip(quick).enumerate() {
            let factor = if index % 2 == 0 { 1.01 } else { 0.99 };
            cell.session_s = same.session_s.iter().map(|s| s * factor).collect();
        }
        let advice = advise(&basis, &question(), plain).expect("an answer");
        assert!(advice.stacks.iter().all(|stack| stack.rank == 1 && stack.tied));
    }

    #[test]
    fn stacks_whose_intervals_are_apart_do_not_tie() {
        let advice = advise(&basis(), &question(), plain).expect("an answer");
        for (interval_s, expected) in [([2.0, 3.0], 2), ([1.0, 3.0], 1)] {
            let mut stacks = advice.stacks.clone();
            (stacks[0].interval_s, stacks[1].interval_s) = ([0.5, 1.5], interval_s);
            // as if nothing were known of the ratio
            rank(&mut stacks, |_| f64::INFINITY);
            assert_eq!(stacks[1].rank, expected, "{interval_s:?}");
        }
    }

    #[test]
    fn needs_leave_stacks_out_and_what_nobody_stated_is_unknown() {
        let facts = |name: &str| StackFacts {
            properties: (name == "quick").then(|| BTreeSet::from([Property::NoUdp])),
            in_clear: None,
        };
        let of = |needs: Vec<Property>| advise(&basis(), &Question { needs, ..question() }, facts);
        assert_eq!(of(Vec::new()).expect("no needs").stacks.len(), 2);
        let advice = of(vec![Property::NoUdp]).expect("one has it");
        assert_eq!(advice.stacks[0].stack, "quick");
        assert_eq!(advice.left_out[0].why, "its definition states no properties");
        let refusal = of(vec![Property::NoUdp, Property::Verified]).expect_err("none has both");
        assert!(refusal.reasons[0].contains("quick: lacks verified"), "{refusal:?}");
    }

    #[test]
    fn refuses_what_lies_outside_what_was_measured() {
        let reasons = |question: Question| match advise(&basis(), &question, plain) {
            Ok(_) => String::new(),
            Err(refusal) => refusal.reasons.join("\n"),
        };
        let cases = [
            (Question { rate_bps: 3e9, ..question() }, "ever passed (2 Gbit/s)"),
            (Question { rate_bps: 1e9, ..question() }, "twice beyond the measured rates"),
            (Question { rate_bps: 1e6, ..question() }, "twice beyond the measured rates"),
            (Question { rtt_s: 1.0, ..question() }, "twice beyond the measured ones"),
            (Question { loss: 0.1, ..question() }, "the largest measured one is 1 %"),
            (Question { loss: 0.01, bytes: 1 << 30, ..question() }, "ten times as large"),
        ];
        for (question, expected) in cases {
            let found = reasons(question);
            assert!(found.contains(expected), "{expected}: {found}");
        }
        assert_eq!(reasons(question()), "");
        let large = Question { bytes: 1 << 30, ..question() };
        let largest = advise(&basis(), &large, plain).expect("an answer").largest_measured;
        assert_eq!(largest, Some(1 << 20), "without loss the rest is bytes at the rate");
        let mut reno = basis();
        reno.congestion_control = "reno".to_owned();
        let question = Question { loss: 0.01, ..question() };
        let refusal = advise(&reno, &question, plain).expect_err("only CUBIC is known");
        assert!(refusal.reasons[0].contains("only CUBIC"), "{refusal:?}");
    }

    #[test]
    fn what_no_measured_stack_can_do_is_not_offered_to_be_measured() {
        let refusal = |needs: Vec<Property>| {
            let question = Question { loss: 0.1, needs, ..question() };
            advise(&basis(), &question, plain).expect_err("the loss is outside")
        };
        assert!(refusal(vec![Property::NoUdp]).measurable);
        let lacking = refusal(vec![Property::PostQuantum, Property::NoUdp]);
        assert!(!lacking.measurable, "{lacking:?}");
        let [loss, needs] = &lacking.reasons[..] else { panic!("{lacking:?}") };
        assert!(loss.contains("a loss of 10 %"), "{loss}");
        assert!(needs.contains("(quick: lacks post-quantum; slow: lacks post-quantum)"), "{needs}");
        // a loss to which nobody knows the answer of a stack can be measured
        let mut unknown = basis();
        unknown.stacks.iter_mut().for_each(|stack| stack.loss_answer = LossAnswer::Unknown);
        let lossy = Question { loss: 0.005, ..question() };
        let refusal = advise(&unknown, &lossy, plain).expect_err("nothing is modelled");
        assert!(refusal.measurable && refusal.reasons.len() == 1, "{refusal:?}");
    }

    #[test]
    fn a_link_on_which_nothing_was_measured_widens_no_range() {
        let distant = Question { rtt_s: 0.15, ..question() };
        assert!(advise(&basis(), &distant, plain).is_ok(), "a link has 100 ms");
        let interrupted = basis().without_link(5);
        let refusal = advise(&interrupted, &distant, plain).expect_err("the next has 50 ms");
        assert!(refusal.reasons[0].ends_with("measured ones, 2 ms to 50 ms"), "{refusal:?}");
        let lossy = Question { loss: 0.015, ..question() };
        assert!(advise(&basis(), &lossy, plain).is_ok(), "a link loses 1 %");
        let refusal = advise(&basis().without_link(6), &lossy, plain).expect_err("0.1 % is left");
        assert!(refusal.reasons[0].contains("the largest measured one is 0.1 %"), "{refusal:?}");
    }

    #[test]
    fn a_run_without_a_link_that_has_a_rate_answers_nothing() {
        let mut unshaped = basis();
        for link in (1..unshaped.links.len()).rev() {
            unshaped = unshaped.without_link(link);
        }
        let refusal = advise(&unshaped, &question(), plain).expect_err("no link has a rate");
        assert!(refusal.measurable, "{refusal:?}");
        assert!(refusal.reasons[0].starts_with("the run measured no link with a rate"));
    }

    #[test]
    fn a_stack_whose_answer_to_loss_is_unknown_is_left_out_where_packets_are_lost() {
        let mut basis = basis();
        basis.stacks[0].loss_answer = LossAnswer::Unknown;
        let question = Question { loss: 0.005, ..question() };
        let advice = advise(&basis, &question, plain).expect("one is left");
        assert!(!advice.foreign_intervals, "two links with loss are enough");
        let fewer = basis.without_link(7);
        let advice = advise(&fewer, &question, plain).expect("one is left");
        assert!(advice.foreign_intervals, "one link with loss calibrates nothing");
        assert_eq!((advice.stacks.len(), advice.left_out[0].stack.as_str()), (1, "quick"));
    }

    #[test]
    fn properties_have_names() {
        for property in Property::ALL {
            assert_eq!(Property::of(property.name()), Some(property));
        }
        assert_eq!(Property::of("fast"), None);
    }

    #[test]
    fn the_shipped_basis_answers_the_example_of_the_manual() {
        let question = Question {
            rate_bps: 200e6,
            loss: 0.001,
            files: 2000,
            needs: vec![Property::NoUdp],
            ..question()
        };
        let advice = advise(&Basis::shipped(), &question, plain).expect("an answer");
        assert!(advice.stacks.len() >= 5 && !advice.foreign_intervals, "{advice:?}");
    }
}
