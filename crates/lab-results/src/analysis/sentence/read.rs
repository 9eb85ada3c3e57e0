//! Claims of printed words: a finished report is held against its own tables by what it
//! says, not by what it meant to say. Also reads the sentences of earlier versions.

use headroom_units as units;

use super::added::{AddedRoundTrips, Pair};
use super::claim::{
    BY_MODEL, Claim, Compared, Costs, Fills, Fixed, NOT_IN_TIMES, NOT_TOLD, UNDECIDED,
};
use crate::analysis::measured::Estimate;
use crate::schema::Results;

/// Start of the sentence on machine, offloads and ciphers.
pub(in crate::analysis) const CONDITIONS: &str = "Measured with ";

/// A printed sentence, read.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// It says this of the run's cells.
    Claims(Vec<Claim>),
    /// It makes no comparison: warnings, and what the answer holds for.
    NoComparison,
    /// Nobody knows how to hold it against figures.
    Unknown,
}

/// Reads one sentence of an answer.
pub fn read(sentence: &str, results: &Results) -> Reading {
    let compared = compared(sentence, results);
    if let Some(claim) = costs(sentence, results).or(compared) {
        return Reading::Claims(vec![claim]);
    }
    // what is no comparison is known by its first words: any other could hold one
    let is_disturbed = |words: &str| words.starts_with(|first: char| first.is_ascii_digit());
    let is_plain = sentence.starts_with(CONDITIONS)
        || sentence.split_once(" blocks were disturbed ").is_some_and(|(n, _)| is_disturbed(n));
    let of_row = [" takes ", " carries ", " arrives at "];
    if !is_plain && of_row.iter().any(|words| sentence.contains(words)) {
        return Reading::Claims(vec![Claim::Row(sentence.to_owned())]);
    }
    if is_plain { Reading::NoComparison } else { Reading::Unknown }
}

/// Sentences of an answer that the run's own cells contradict, or that cannot be held
/// against them, each with the reason.
pub fn contradictions(results: &Results) -> Vec<String> {
    let against = |sentence: &String| match read(sentence, results) {
        Reading::Claims(claims) => claims
            .iter()
            .flat_map(|claim| claim.contradictions(results))
            .map(|why| format!("\"{sentence}\": {why}"))
            .collect(),
        Reading::NoComparison => Vec::new(),
        Reading::Unknown => vec![format!("\"{sentence}\": no rule holds it against figures")],
    };
    results.answer.iter().flat_map(against).collect()
}

/// Counts the sentences at the start of an answer that answer the question: what stacks
/// cost, and why not to believe it. The others compare stacks and say where it holds.
pub fn lead(results: &Results) -> usize {
    let is_lead = |sentence: &&String| {
        compared(sentence, results).is_none() && !sentence.starts_with(CONDITIONS)
    };
    results.answer.iter().take_while(is_lead).count()
}

fn costs(sentence: &str, results: &Results) -> Option<Claim> {
    let name = sentence.split(' ').next()?;
    let stack = results.plan.stacks.iter().find(|stack| stack.name.to_uppercase() == name)?;
    let pair = Pair { stack: stack.name.clone(), base: stack.baseline.clone()? };
    ["round trip", " per session over "]
        .iter()
        .any(|words| sentence.contains(words))
        .then_some(())?;
    let (adds, saves) = match sentence.split_once("saves") {
        Some((adds, saves)) => (adds, saves),
        None => (sentence, ""),
    };
    let trips = |text: &str| before(text, "round trip").map(|ends| ends.map(|end| end as i64));
    let time = |text: &str| {
        let per_session = text.split(" per session").next().unwrap_or(text);
        let [seconds, ms] = [before(per_session, "s"), before(per_session, "ms")];
        ms.map(|ends| ends.map(|end| end / 1e3)).or(seconds)
    };
    let opposite = |ends: [f64; 2]| [-ends[1], -ends[0]];
    let ends = trips(adds)
        .or_else(|| trips(saves).map(|[lo, hi]| [-hi, -lo]))
        .or_else(|| before(sentence, "fewer round trips").map(|[n, _]| [-(n as i64); 2]))
        .unwrap_or([0; 2]);
    let more = before(sentence, "% more");
    let bytes = more.or_else(|| before(sentence, "% fewer").map(opposite)).unwrap_or([0.0; 2]);
    let told = |start: &str, end: &[char]| {
        let rest = sentence.split_once(start)?.1;
        let rate = rest.split(BY_MODEL).next()?.split(end).next()?;
        units::parse_rate(rate.trim()).ok()
    };
    // an earlier version's "below 3.4 Gbit/s you will not notice the rest"
    let below = sentence
        .split_once(" you will not notice")
        .and_then(|(before, _)| units::parse_rate(before.rsplit_once("below ")?.1).ok());
    let fills = told("fill links up to ", &['(', ';']).or(below);
    let fills = fills.map(|bps| Fills { bps: bps as f64, checked: !sentence.contains(BY_MODEL) });
    let number = |start: &str, end: char| {
        sentence.split_once(start).and_then(|(_, rest)| rest.split(end).next()?.parse().ok())
    };
    let n = number("(n = ", ')').or_else(|| number(&format!("{NOT_TOLD}: "), ' '));
    let habit = |words: &str| before(sentence, words).map_or(0, |[count, _]| count as u32);
    let fixed = match sentence.split_once(&format!("{UNDECIDED}: ")) {
        Some((_, rest)) => Fixed::Undecided(time(rest)?),
        None if sentence.contains(NOT_TOLD) || sentence.contains("takes large files") => {
            Fixed::TooFew
        }
        None => {
            let longer = time(adds).or_else(|| time(saves).map(opposite));
            Fixed::Longer(longer.unwrap_or([0.0; 2]))
        }
    };
    Some(Claim::Costs(Costs {
        pair,
        round_trips: AddedRoundTrips { ends, significant: !sentence.contains(NOT_IN_TIMES) },
        retries: [habit("for HelloRetryRequest"), habit("for refused command")],
        fixed,
        bytes: bytes.map(|pct| pct / 100.0),
        fills,
        n,
    }))
}

/// The number, or the two of `3 to 5`, before the first of these words.
fn before(text: &str, words: &str) -> Option<[f64; 2]> {
    let tokens: Vec<&str> = text.split([' ', ',', '(', ';', ':']).collect();
    let wanted: Vec<&str> = words.split(' ').collect();
    let fits = |index: &usize| {
        let found = tokens[*index..].iter().zip(&wanted);
        tokens.len() - index >= wanted.len()
            && found.enumerate().all(|(nth, (token, word))| {
                *token == *word || (nth + 1 == wanted.len() && *token == format!("{word}s"))
            })
    };
    let number = |index: usize| tokens.get(index)?.parse::<f64>().ok();
    (1..tokens.len()).filter(fits).find_map(|at| {
        let hi = number(at - 1)?;
        let lo = at.checked_sub(3).filter(|_| tokens[at - 2] == "to").and_then(number);
        Some([lo.unwrap_or(hi), hi])
    })
}

fn compared(sentence: &str, results: &Results) -> Option<Claim> {
    let rest = sentence.strip_prefix("A session with a ")?;
    let (what, rest) = rest.split_once(" takes ")?;
    let (size, workload) = what.rsplit_once(' ')?;
    let (rest, n) = rest.rsplit_once(" (n = ")?;
    let n = n.split(')').next()?.parse().ok()?;
    let size_bytes = units::parse_size(size).ok()?;
    let stack = |name: &str| {
        let named = |stack: &&crate::schema::StackRecord| stack.name.to_uppercase() == name;
        results.plan.stacks.iter().find(named).map(|stack| stack.name.clone())
    };
    let (mut sessions, mut slower_pct) = (Vec::new(), Vec::new());
    let parts: Vec<&str> = rest.split(" by ").collect();
    for pair in parts.windows(2) {
        let time = pair[0].rsplit([',', ')']).next()?.trim_start_matches(" and ").trim();
        let mut time = time.rsplit_once("and ").map_or(time, |(_, time)| time).split(' ');
        let scale = |unit: &str| match unit {
            "s" => Some(1.0),
            "ms" => Some(1e-3),
            "µs" => Some(1e-6),
            _ => None,
        };
        let value = time.next()?.parse::<f64>().ok()? * scale(time.next()?)?;
        let name = pair[1].split([' ', ',']).next()?;
        sessions.push((stack(name)?, value));
        if sessions.len() > 1 {
            let slower = pair[1].split_once("(+").map(|(_, rest)| rest);
            let ends = slower.and_then(|rest| {
                let (value, rest) = rest.split_once(" [")?;
                let (lo, rest) = rest.split_once(", ")?;
                let hi = rest.split(']').next()?;
                Some((value.parse().ok()?, [lo.parse().ok()?, hi.parse().ok()?]))
            });
            slower_pct.push(match ends {
                Some((value, ci95)) => Estimate { value, ci95: Some(ci95), n: None },
                None => Estimate::exact(0.0),
            });
        }
    }
    let workload = workload.to_owned();
    Some(Claim::Compared(Compared { workload, size_bytes, sessions, slower_pct, n }))
}
