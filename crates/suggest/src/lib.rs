//! The known word that an unknown one was probably meant to be.

use std::cmp::Reverse;

/// Returns `` (did you mean `NAME`?)`` with the closest of the known names; nothing where
/// none is close.
pub fn suggestion<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // with four, `hard_hours` would be taken for `hard_bytes`
    let most = unknown.chars().count().div_ceil(3).min(3);
    of_similar_length(unknown, known, most)
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, _)| *distance <= most)
        // people know how a name begins, and how long it is
        .min_by_key(|(distance, name)| {
            (*distance, Reverse(common_prefix(unknown, name)), unknown.len().abs_diff(name.len()))
        })
        .map_or_else(String::new, |(_, name)| format!(" (did you mean `{name}`?)"))
}

/// Returns the names whose length differs by at most `most` characters: the distance of all others is
/// larger. Computing a distance takes memory for each pair of characters, and a name in a file may be
/// long.
fn of_similar_length<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> impl Iterator<Item = &'a str> {
    let len = unknown.chars().count();
    known.into_iter().filter(move |name| name.chars().count().abs_diff(len) <= most)
}

fn common_prefix(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// Adds a suggestion to serde's sentence about an unknown field or variant: ``unknown
/// field `a`, expected one of `b`, `c` ``.
pub fn with_suggestion(sentence: &str) -> String {
    let is_unknown =
        ["unknown field `", "unknown variant `"].iter().any(|s| sentence.starts_with(s));
    let mut names = sentence.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next().filter(|_| is_unknown) else { return sentence.to_owned() };
    let quoted = format!("`{unknown}`");
    sentence.replacen(&quoted, &format!("{quoted}{}", suggestion(unknown, names)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_closest_name_and_nothing_far_away() {
        let known = ["ftp", "ftps", "http", "https", "sftp"];
        assert_eq!(suggestion("htps", known), " (did you mean `https`?)");
        assert_eq!(suggestion("ftsp", known), " (did you mean `ftps`?)");
        assert_eq!(suggestion("fpt", known), " (did you mean `ftp`?)");
        assert_eq!(suggestion("gopher", known), "");
        assert_eq!(suggestion("hard_hours", ["hard_bytes", "hard_seconds"]), "");
        assert_eq!(suggestion("", known), "");
    }

    #[test]
    fn compares_a_long_name_with_none_that_is_far_shorter() {
        let (long, known) = ("ledger".repeat(100_000), ["ledger", "ledger_copy"]);
        assert_eq!(of_similar_length(&long, known, 3).count(), 0);
        assert_eq!(of_similar_length("ledgers", known, 3).collect::<Vec<_>>(), ["ledger"]);
        assert_eq!(suggestion(&long, known), "");
    }

    #[test]
    fn serde_sentences_get_a_suggestion() {
        assert_eq!(
            with_suggestion("unknown field `lnk`, expected `link` or `mtu`"),
            "unknown field `lnk` (did you mean `link`?), expected `link` or `mtu`"
        );
        for same in ["unknown field `x`, expected one of `link`, `mtu`", "missing field `link`"] {
            assert_eq!(with_suggestion(same), same);
        }
    }
}
