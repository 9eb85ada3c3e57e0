//! Braces in a plan's lists: `chunk={200..1400:100}` is a range with its step,
//! `cipher={none,aes-128-gcm}` a choice; each stands for as many entries.

/// Entries that one text may stand for.
const MAX_ENTRIES: usize = 1000;

/// All that `text` stands for, the last braces changing fastest; itself, where it has
/// none.
///
/// # Errors
/// A sentence: a brace is not closed, a range is none, or it is too many.
pub(crate) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut all = vec![String::new()];
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) =
            behind.split_once('}').ok_or_else(|| format!("`{text}`: a `{{` is not closed"))?;
        let choices = choices(inside).map_err(|why| format!("`{text}`: {why}"))?;
        if all.len() * choices.len() > MAX_ENTRIES {
            return Err(format!("`{text}` expands to more than {MAX_ENTRIES} entries"));
        }
        let with = |start: &String| {
            let start = format!("{start}{before}");
            choices.iter().map(move |choice| format!("{start}{choice}")).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
        rest = after;
    }
    all.iter_mut().for_each(|start| start.push_str(rest));
    Ok(all)
}

fn choices(inside: &str) -> Result<Vec<String>, String> {
    let Some((first, last)) = inside.split_once("..") else {
        return Ok(inside.split(',').map(|choice| choice.trim().to_owned()).collect());
    };
    let (last, step) = last.split_once(':').unwrap_or((last, "1"));
    let number = |text: &str| {
        let none = format!("{{{inside}}} is not a range: write {{FIRST..LAST:STEP}}");
        text.trim().parse::<u64>().map_err(|_| none)
    };
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    let steps = last.checked_sub(first).and_then(|length| length.checked_div(step));
    match steps.and_then(|steps| usize::try_from(steps).ok()) {
        Some(steps) if steps < MAX_ENTRIES => {
            Ok((0..=steps as u64).map(|nth| (first + nth * step).to_string()).collect())
        }
        Some(_) => Err(format!("{{{inside}}} expands to more than {MAX_ENTRIES} entries")),
        None => Err(format!("{{{inside}}} is an empty range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_choices_are_written_out() {
        let all = |text| expand(text).expect("good braces");
        assert_eq!(all("ftp"), ["ftp"]);
        assert_eq!(
            all("h(chunk={200..400:100})"),
            ["h(chunk=200)", "h(chunk=300)", "h(chunk=400)"]
        );
        assert_eq!(all("{a, b}/{1..2}"), ["a/1", "a/2", "b/1", "b/2"]);
        assert_eq!(all("{5..9:3}"), ["5", "8"], "the last need not be met");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, why) in [
            ("a{1..2", "not closed"),
            ("{x..2}", "not a range"),
            ("{3..2}", "an empty range"),
            ("{1..2:0}", "an empty range"),
            ("{0..18446744073709551615}", "more than"),
            ("{1..100}{1..100}", "more than"),
        ] {
            let error = expand(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
