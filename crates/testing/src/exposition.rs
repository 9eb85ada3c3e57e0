//! A strict parser of metrics in Prometheus' text format (exposition format 0.0.4). It accepts what
//! our programs print, not all that the format allows, and checks the rules for names.

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric.
    pub name: String,
    /// Its labels, in their order.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
}

/// Parses metrics: families of a line with help, one with the type, and at least one sample.
///
/// # Panics
/// A line is malformed, a name or a sample is there twice, a counter's name does not end with
/// `_total` or another's does, or the samples of a family have different labels.
pub fn metrics(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'), "the last line is not complete: {text}");
    let (mut families, mut all): (Vec<&str>, Vec<Sample>) = (Vec::new(), Vec::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = comment(line, "HELP");
        assert!(is_name(name) && help.ends_with('.'), "{line}");
        assert!(!families.contains(&name), "{name} is there twice");
        families.push(name);
        let line = lines.next().expect("a type follows");
        let (typed, kind) = comment(line, "TYPE");
        assert_eq!(typed, name, "the type of another metric");
        assert!(matches!(kind, "counter" | "gauge"), "{line}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        let first = all.len();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let sample = sample(line).unwrap_or_else(|| panic!("this is no sample: {line}"));
            assert_eq!(sample.name, name, "a sample of another metric");
            assert!(sample.value >= 0.0, "{line}");
            for earlier in &all[first..] {
                assert!(earlier.labels != sample.labels, "it is there twice: {line}");
                let names =
                    |of: &Sample| of.labels.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
                assert_eq!(names(earlier), names(&sample), "other labels: {line}");
            }
            all.push(sample);
        }
        assert!(all.len() > first, "{name} has no samples");
    }
    all
}

/// Returns the value of a metric with these labels.
///
/// # Panics
/// There is none.
pub fn value(metrics: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let is_it = |sample: &&Sample| {
        let its = sample.labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
        sample.name == name && its.eq(labels.iter().copied())
    };
    let found = metrics.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {name} with {labels:?}")).value
}

/// Parses `# WORD NAME TEXT`.
fn comment<'a>(line: &'a str, word: &str) -> (&'a str, &'a str) {
    let rest = line.strip_prefix("# ").and_then(|rest| rest.strip_prefix(word));
    let parts = rest.and_then(|rest| rest.strip_prefix(' ')?.split_once(' '));
    parts.unwrap_or_else(|| panic!("not a line with {word}: {line}"))
}

/// Parses `NAME{LABELS} VALUE`.
fn sample(line: &str) -> Option<Sample> {
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value: f64 = rest.strip_prefix(' ')?.parse().ok()?;
    value.is_finite().then(|| Sample { name: name.to_owned(), labels, value })
}

/// Parses `NAME="VALUE",NAME="VALUE"}`; returns what follows, too.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    letter @ ('\\' | '"') => letter,
                    _ => return None,
                }),
                (_, letter) => value.push(letter),
            }
        };
        if !is_name(name) || name.starts_with("__") {
            return None;
        }
        labels.push((name.to_owned(), value));
        match after[end..].split_at_checked(1)? {
            (",", more) => rest = more,
            ("}", more) => return Some((labels, more)),
            _ => return None,
        }
    }
}

/// Whether this is a name in small letters, digits and underscores, as ours are.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total Counts.\n# TYPE a_total counter\na_total{b=\"x\"} 1\na_total{b=\"y \\\"}\\\\\"} 2.5\n# HELP c Is.\n# TYPE c gauge\nc 0\n";

    #[test]
    fn values_are_found_by_name_and_labels() {
        let metrics = metrics(GOOD);
        assert_eq!(value(&metrics, "a_total", &[("b", "x")]), 1.0);
        assert_eq!(value(&metrics, "a_total", &[("b", "y \"}\\")]), 2.5);
        assert_eq!(value(&metrics, "c", &[]), 0.0);
    }

    #[test]
    fn what_breaks_a_rule_is_refused() {
        assert_eq!(metrics(GOOD).len(), 3);
        for (from, to) in [
            ("c 0\n", "c 0"),
            ("c 0\n", ""),
            ("c 0\n", "c 0\nc 0\n"),
            ("c 0\n", "c  0\n"),
            ("c 0\n", "c NaN\n"),
            ("c 0\n", "d 0\n"),
            ("c gauge", "c summary"),
            ("c gauge", "c counter"),
            ("# TYPE c gauge\n", ""),
            ("# HELP c Is.\n", ""),
            ("b=\"y", "d=\"y"),
            ("b=\"y", "B=\"y"),
            ("b=\"x\"}", "b=\"x\""),
            ("b=\"x\"", "b=\"y \\\"}\\\\\""),
            ("# HELP c Is.", "# HELP a_total Is."),
        ] {
            let wrong = GOOD.replace(from, to);
            assert_ne!(wrong, GOOD);
            let refused = std::panic::catch_unwind(|| metrics(&wrong));
            assert!(refused.is_err(), "{wrong}");
        }
    }
}
