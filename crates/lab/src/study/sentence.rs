//! Texts of a study with the page's figures in them, sentence by sentence.

use serde::{Deserialize, Serialize};

use super::claim::ClaimResults;
use super::section_results::SectionResults;
use super::{Study, section, template};

/// A sentence of the answer or of a reason, and the figures that it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// `answer`, or the section whose reason it is in.
    pub place: String,
    /// The text.
    pub text: String,
    /// Of it, what was written by hand and not chosen by a claim.
    pub written: String,
    /// The cells that it quotes, `section/column/row`.
    pub quotes: Vec<String>,
    /// The claims in it.
    pub claims: Vec<String>,
}

/// A text, filled.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// The sentences all of whose figures were measured.
    pub(super) sentences: Vec<Sentence>,
    /// Whether another sentence lacks a figure.
    pub(super) lacks_some: bool,
}

impl Filled {
    pub(super) fn text(&self) -> String {
        let texts: Vec<&str> = self.sentences.iter().map(|s| s.text.as_str()).collect();
        texts.join(" ")
    }
}

/// Fills a text of a study. A sentence of which a figure was not measured is left out.
pub(super) fn filled(
    place: &str,
    text: &str,
    study: &Study,
    sections: &[SectionResults],
    claims: &[ClaimResults],
) -> Filled {
    let mut draft = Draft { place, study, sections, claims, done: Filled::default(), open: None };
    draft.add(text, None);
    draft.close();
    draft.done
}

struct Draft<'a> {
    place: &'a str,
    study: &'a Study,
    sections: &'a [SectionResults],
    claims: &'a [ClaimResults],
    done: Filled,
    /// The sentence that is being written, and whether it lacks a figure.
    open: Option<(Sentence, bool)>,
}

impl Draft<'_> {
    /// Adds a text; `claim`: it is what this claim says.
    fn add(&mut self, text: &str, claim: Option<&ClaimResults>) {
        for piece in template::pieces(text) {
            match piece {
                template::Piece::Text(text) => self.add_words(text, claim),
                template::Piece::Name(name) => match name.strip_prefix('?') {
                    Some(id) => self.add_claim(id),
                    None => self.add_figure(name, claim),
                },
            }
        }
    }

    fn add_words(&mut self, text: &str, claim: Option<&ClaimResults>) {
        let ended = |draft: &Self| draft.open.as_ref().is_some_and(|(s, _)| s.text.ends_with('.'));
        if text.starts_with(' ') && ended(self) {
            self.close();
        }
        let mut rest = text;
        while let Some((sentence, behind)) = rest.split_once(". ") {
            self.write(&format!("{sentence}."), claim);
            self.close();
            rest = behind;
        }
        self.write(rest, claim);
    }

    fn add_claim(&mut self, id: &str) {
        let known = self.study.claims.iter().zip(self.claims).find(|(claim, _)| claim.id == id);
        if let Some((claim, judged)) = known {
            self.add(claim.text(judged.outcome), Some(judged));
        }
    }

    fn add_figure(&mut self, name: &str, claim: Option<&ClaimResults>) {
        if OF_CLAIMS.contains(&name) {
            let told = claim.and_then(|claim| of_claim(claim, name));
            self.write(told.as_deref().unwrap_or_default(), claim);
            if let Some((_, lacks)) = &mut self.open {
                *lacks |= told.is_none();
            }
            return;
        }
        let cell = section::find(&self.study.sections, name);
        let told = cell.and_then(|(section, column, row)| {
            let section = &self.sections[section];
            section.rows[row].values[column].told(&section.columns[column])
        });
        self.write(told.as_deref().unwrap_or_default(), claim);
        if let Some((sentence, lacks)) = &mut self.open {
            sentence.quotes.push(name.to_owned());
            *lacks |= told.is_none();
        }
    }

    fn write(&mut self, text: &str, claim: Option<&ClaimResults>) {
        if text.is_empty() && self.open.is_none() {
            return;
        }
        let place = self.place;
        let (sentence, _) = self.open.get_or_insert_with(|| {
            let (text, written) = (String::new(), String::new());
            let sentence =
                Sentence { place: place.into(), text, written, quotes: vec![], claims: vec![] };
            (sentence, false)
        });
        sentence.text += text;
        match claim {
            None => sentence.written += text,
            Some(claim) if !sentence.claims.contains(&claim.id) => {
                sentence.claims.push(claim.id.clone());
            }
            Some(_) => {}
        }
    }

    fn close(&mut self) {
        let Some((mut sentence, lacks)) = self.open.take() else { return };
        sentence.text = sentence.text.trim().to_owned();
        if lacks {
            self.done.lacks_some = true;
        } else if !sentence.text.is_empty() {
            self.done.sentences.push(sentence);
        }
    }
}

/// Placeholders of a claim's text: how many pairs hold, fail, are undecided, and exist; why
/// some are undecided; how much larger the left side of its only comparison is, by block.
pub(super) const OF_CLAIMS: [&str; 6] = ["#holds", "#fails", "#unknown", "#all", "#why", "#paired"];

/// One of [`OF_CLAIMS`]; none of another name, and of what was not measured.
fn of_claim(claim: &ClaimResults, name: &str) -> Option<String> {
    let [holds, fails, unknown] = claim.counts;
    match name {
        "#holds" => Some(holds.to_string()),
        "#fails" => Some(fails.to_string()),
        "#unknown" => Some(unknown.to_string()),
        "#all" => Some((holds + fails + unknown).to_string()),
        "#why" => Some(claim.why()),
        "#paired" => claim.paired_told(),
        _ => None,
    }
}
