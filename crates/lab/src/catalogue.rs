//! Catalogues of applications and layers, from which a plan chooses by name. A choice is
//! written `name(option,key=value)`; this file reads, names and lists all of them.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use headroom_lab_host::programs::Program;
use headroom_suggest::suggestion;

/// A pinned setting, for the record: its name and its value.
pub(crate) type Fact = (&'static str, String);

/// Everything of one sort that a plan can choose from.
pub struct Catalogue<T: ?Sized + 'static> {
    /// The word for one of them in messages.
    pub(crate) sort: &'static str,
    /// A choice with options, for messages.
    pub(crate) example: &'static str,
    /// All of them, in the order in which they are listed.
    pub entries: &'static [Entry<T>],
}

/// One application or layer, before its options are known.
pub struct Entry<T: ?Sized + 'static> {
    /// The name in plans and results.
    pub name: &'static str,
    /// One line for `headroom lab list`.
    pub about: &'static str,
    /// The programs that it may need, on any machine.
    pub programs: &'static [Program],
    pub(crate) make: Make<T>,
}

/// The constructor of an entry.
pub(crate) enum Make<T: ?Sized + 'static> {
    /// It takes no options.
    Fixed(fn() -> Arc<T>),
    /// A plan defines it; it takes no options either.
    Defined(&'static (dyn Fn() -> Arc<T> + Send + Sync)),
    Configured {
        /// The options that it takes, for `headroom lab list` and messages.
        known: fn() -> String,
        read: fn(&Options<'_>) -> Configured<T>,
    },
}

/// The options that are not default, in the order of results, and the value that they make;
/// or a sentence that names the wrong one.
pub(crate) type Configured<T> = Result<(Vec<String>, Arc<T>), String>;

/// The options in parentheses behind a name.
pub(crate) struct Options<'a> {
    name: &'static str,
    known: fn() -> String,
    all: Vec<&'a str>,
}

/// An entry as its options make it.
pub struct Chosen<T: ?Sized + 'static> {
    /// The chosen entry.
    pub entry: &'static Entry<T>,
    options: Vec<String>,
    made: Arc<T>,
}

impl<T: ?Sized> Catalogue<T> {
    /// Reads `name` or `name(option,key=value)`.
    ///
    /// # Errors
    /// A sentence that names what is unknown, and lists what is known.
    pub fn parse(&self, written: &str) -> Result<Chosen<T>, String> {
        self.parse_with(&[], written)
    }

    /// The same with `more` that a plan defines.
    ///
    /// # Errors
    /// As [`Catalogue::parse`].
    pub(crate) fn parse_with(
        &self,
        more: &[&'static Entry<T>],
        written: &str,
    ) -> Result<Chosen<T>, String> {
        let (name, options) = split(written).ok_or_else(|| {
            format!("`{written}`: options stand in parentheses, as in `{}`", self.example)
        })?;
        let all = || self.entries.iter().chain(more.iter().copied());
        let entry = all().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<&str> = all().map(|entry| entry.name).collect();
            let (sort, meant) = (self.sort, suggestion(name, names.iter().copied()));
            format!("there is no {sort} `{name}`{meant}; there are {}", names.join(", "))
        })?;
        entry.choose(options)
    }
}

impl<T: ?Sized> Entry<T> {
    /// Describes the options that it takes; none where it takes none.
    pub fn options(&self) -> Option<String> {
        match self.make {
            Make::Fixed(_) | Make::Defined(_) => None,
            Make::Configured { known, .. } => Some(known()),
        }
    }

    /// Returns it without options.
    ///
    /// # Errors
    /// A sentence: it cannot be without.
    pub fn by_default(&'static self) -> Result<Chosen<T>, String> {
        self.choose(Vec::new())
    }

    fn choose(&'static self, all: Vec<&str>) -> Result<Chosen<T>, String> {
        let (options, made) = match self.make {
            Make::Fixed(make) if all.is_empty() => (Vec::new(), make()),
            Make::Defined(make) if all.is_empty() => (Vec::new(), make()),
            Make::Fixed(_) | Make::Defined(_) => {
                return Err(format!("`{}` takes no options", self.name));
            }
            Make::Configured { known, read } => read(&Options::new(self.name, known, all)?)?,
        };
        Ok(Chosen { entry: self, options, made })
    }
}

impl<'a> Options<'a> {
    /// Refuses an option that is given twice.
    pub(crate) fn new(
        name: &'static str,
        known: fn() -> String,
        all: Vec<&'a str>,
    ) -> Result<Self, String> {
        let key = |option: &'a str| option.split('=').next();
        let again = all
            .iter()
            .enumerate()
            .find(|(nth, option)| all[..*nth].iter().any(|earlier| key(earlier) == key(option)));
        match again {
            None => Ok(Self { name, known, all }),
            Some((_, option)) => {
                Err(format!("`{name}` is given `{}` twice", key(option).unwrap_or_default()))
            }
        }
    }

    /// The options as they are written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a str> {
        self.all.iter().copied()
    }

    /// Says that there is no such option, and which ones there are.
    pub(crate) fn unknown(&self, option: &str) -> String {
        format!("`{}` has no option `{option}`; the options are {}", self.name, (self.known)())
    }
}

impl<T: ?Sized> Chosen<T> {
    /// Returns what an entry becomes with these options, which results show.
    #[cfg(test)]
    pub(crate) fn new(entry: &'static Entry<T>, options: Vec<String>, made: Arc<T>) -> Self {
        Self { entry, options, made }
    }

    /// Returns the name without options.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Returns the name in results: options in a fixed order, without those that are
    /// default.
    pub fn title(&self) -> String {
        titled(self.entry.name, &self.options)
    }
}

impl<T: ?Sized> Deref for Chosen<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.made
    }
}

impl<T: ?Sized> Clone for Chosen<T> {
    fn clone(&self) -> Self {
        Self { entry: self.entry, options: self.options.clone(), made: Arc::clone(&self.made) }
    }
}

/// Splits `name(option,key=value)` into the name and the options; none where a parenthesis
/// is missing.
pub(crate) fn split(written: &str) -> Option<(&str, Vec<&str>)> {
    let Some((name, rest)) = written.split_once('(') else { return Some((written, Vec::new())) };
    Some((name, rest.strip_suffix(')')?.split(',').map(str::trim).collect()))
}

/// Writes a name with its options.
pub(crate) fn titled<S: Borrow<str>>(name: &str, options: &[S]) -> String {
    if options.is_empty() { name.to_owned() } else { format!("{name}({})", options.join(",")) }
}

/// Returns facts whose values are known beforehand.
pub(crate) fn stated<const N: usize>(facts: [(&'static str, &'static str); N]) -> Vec<Fact> {
    facts.map(|(name, value)| (name, value.to_owned())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Colour(String);

    const COLOURS: Catalogue<Colour> = Catalogue {
        sort: "colour",
        example: "red(dark)",
        entries: &[
            Entry {
                name: "red",
                about: "",
                programs: &[],
                make: Make::Configured {
                    known: || "dark, alpha=N".to_owned(),
                    read: |options| {
                        let mut all: Vec<&str> = options.iter().collect();
                        if let Some(other) = all.iter().find(|one| !one.starts_with(['d', 'a'])) {
                            return Err(options.unknown(other));
                        }
                        all.sort_unstable();
                        let colour = Arc::new(Colour(all.join("+")));
                        Ok((all.into_iter().map(str::to_owned).collect(), colour))
                    },
                },
            },
            Entry {
                name: "blue",
                about: "",
                programs: &[],
                make: Make::Fixed(|| Arc::new(Colour(String::new()))),
            },
        ],
    };

    #[test]
    fn reads_a_name_with_options_and_writes_it_in_one_order() {
        let chosen = COLOURS.parse("red( dark , alpha=2)").expect("a colour");
        assert_eq!(
            (chosen.title().as_str(), chosen.0.as_str()),
            ("red(alpha=2,dark)", "alpha=2+dark")
        );
        assert_eq!(COLOURS.parse("red").map(|chosen| chosen.title()).as_deref(), Ok("red"));
        assert_eq!(COLOURS.parse("blue").map(|chosen| chosen.clone().name()), Ok("blue"));
    }

    #[test]
    fn refuses_what_is_unknown_or_given_twice() {
        for (written, sentence) in [
            ("rde", "there is no colour `rde` (did you mean `red`?); there are red, blue"),
            ("red(dark", "`red(dark`: options stand in parentheses, as in `red(dark)`"),
            ("red()", "`red` has no option ``; the options are dark, alpha=N"),
            ("red(light)", "`red` has no option `light`; the options are dark, alpha=N"),
            ("red(alpha=1,alpha=2)", "`red` is given `alpha` twice"),
            ("red(dark,dark)", "`red` is given `dark` twice"),
            ("blue(dark)", "`blue` takes no options"),
            ("blue()", "`blue` takes no options"),
        ] {
            assert_eq!(COLOURS.parse(written).err().as_deref(), Some(sentence));
        }
    }
}
