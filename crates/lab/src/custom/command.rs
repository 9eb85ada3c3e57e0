//! Commands of a definition: lists of words, the first of which is one of its programs.

use std::collections::BTreeMap;
use std::fmt;

use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;
use headroom_suggest::suggestion;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use super::keep;
use super::template::{Template, Values};
use crate::at::{At, at};

/// A command as TOML has it.
pub(super) type Written = Spanned<Vec<Spanned<String>>>;

/// A program as TOML has it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProgramFile {
    version: Spanned<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<Spanned<String>>,
}

impl<'de> Deserialize<'de> for ProgramFile {
    /// Reads a table. What serde derives takes a list for one as well, `curl = ["--version"]`, and
    /// then says that its first word should be a list.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ProgramVisitor)
    }
}

struct ProgramVisitor;

impl<'de> Visitor<'de> for ProgramVisitor {
    type Value = ProgramFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a table with the arguments that make the program print its version, such as { version = [\"--version\"] }",
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<ProgramFile, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            version: Spanned<Vec<String>>,
            package: Option<Spanned<String>>,
        }
        let Keys { version, package } = Keys::deserialize(MapAccessDeserializer::new(table))?;
        Ok(ProgramFile { version, package })
    }
}

/// Programs by name, as TOML has them.
pub(super) type ProgramsFile = BTreeMap<Spanned<String>, ProgramFile>;

/// A command with placeholders.
#[derive(Debug, Clone)]
pub(super) struct CommandLine {
    program: Program,
    words: Vec<Word>,
}

#[derive(Debug, Clone)]
enum Word {
    Program(Program),
    Text(Template),
}

/// The programs of a definition.
#[derive(Debug)]
pub(super) struct Programs(Vec<Program>);

/// Programs, words of a command, and bytes of one, that a definition may have.
const MAX_PROGRAMS: usize = 16;
const MAX_WORDS: usize = 256;
const LONGEST_WORD: usize = 4096;
/// Bytes of a name.
const LONGEST_NAME: usize = 256;

/// Another program, as a word of its own.
const PROGRAM: &str = "{program:";

impl Programs {
    /// Reads the programs of a definition; those that only the commands of one side name are
    /// needed on that side alone.
    pub(super) fn read(
        written: &ProgramsFile,
        server: &[&Written],
        client: &[&Written],
    ) -> Result<Self, At> {
        if let Some((name, _)) = written.iter().nth(MAX_PROGRAMS) {
            return Err(at(name, format!("a definition has at most {MAX_PROGRAMS} programs")));
        }
        let names = |commands: &[&Written], name: &str| {
            let mut commands = commands.iter().flat_map(|command| named(command.get_ref()));
            commands.any(|named| named == name)
        };
        let programs = written.iter().map(|(name, file)| {
            let text = name.get_ref();
            require_program_name(name)?;
            let words = file.version.get_ref();
            let good = |word: &String| word.len() <= LONGEST_WORD && !word.contains('\0');
            if words.is_empty() || words.len() > MAX_PROGRAMS || !words.iter().all(good) {
                let message =
                    format!("`version` has the arguments that make `{text}` print its version");
                return Err(at(&file.version, message));
            }
            let package = match &file.package {
                None => text.rsplit('/').next().unwrap_or(text),
                Some(package) => {
                    require_line(package, "a package")?;
                    package.get_ref()
                }
            };
            let version = keep::words(words.iter().map(String::as_str));
            let program = Program::new(keep::text(text), keep::text(package), version).custom();
            Ok(match (names(server, text), names(client, text)) {
                (true, false) => program.only_on(Role::Server),
                (false, true) => program.only_on(Role::Client),
                _ => program,
            })
        });
        Ok(Self(programs.collect::<Result<_, At>>()?))
    }

    /// All of them, for as long as this process runs.
    pub(super) fn kept(&self) -> &'static [Program] {
        Vec::leak(self.0.clone())
    }

    /// Reads a command with `known` placeholders.
    pub(super) fn command(
        &self,
        written: &Written,
        known: &[&'static str],
    ) -> Result<CommandLine, At> {
        let words = written.get_ref();
        let Some((first, rest)) = words.split_first() else {
            return Err(at(written, "a command begins with its program"));
        };
        if words.len() > MAX_WORDS {
            return Err(at(written, format!("a command has at most {MAX_WORDS} words")));
        }
        let program = self.find(first.get_ref(), first)?;
        let words = rest.iter().map(|word| self.word(word, known));
        Ok(CommandLine { program, words: words.collect::<Result<_, At>>()? })
    }

    fn word(&self, word: &Spanned<String>, known: &[&'static str]) -> Result<Word, At> {
        let text = word.get_ref();
        if text.len() > LONGEST_WORD || text.contains('\0') {
            let message = format!("a word has at most {LONGEST_WORD} bytes, none of them zero");
            return Err(at(word, message));
        }
        if let Some(name) = program_of(text) {
            return Ok(Word::Program(self.find(name, word)?));
        }
        if text.contains(PROGRAM) {
            return Err(at(word, "`{program:NAME}` is a word of its own"));
        }
        Ok(Word::Text(Template::parse(text, known).map_err(|message| at(word, message))?))
    }

    fn find(&self, name: &str, word: &Spanned<String>) -> Result<Program, At> {
        self.0.iter().find(|program| program.name == name).copied().ok_or_else(|| {
            let meant = suggestion(name, self.0.iter().map(|program| program.name));
            let message = format!(
                "`{name}` is none of the definition's `programs`{meant}; there, name it with the arguments that make it \
                 print its version"
            );
            at(word, message)
        })
    }
}

/// The programs that a command names.
fn named(words: &[Spanned<String>]) -> impl Iterator<Item = &str> {
    let mut words = words.iter().map(|word| word.get_ref().as_str());
    words.next().into_iter().chain(words.filter_map(program_of))
}

fn program_of(word: &str) -> Option<&str> {
    word.strip_prefix(PROGRAM)?.strip_suffix('}')
}

fn require_program_name(name: &Spanned<String>) -> Result<(), At> {
    let text = name.get_ref();
    let plain = |c: char| c.is_ascii_graphic() && !"{}".contains(c);
    let good = !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text.chars().all(plain)
        && !text.starts_with('-')
        && ![".", ".."].contains(&text.as_str())
        && (text.starts_with('/') || !text.contains('/'));
    if good {
        return Ok(());
    }
    Err(at(name, format!("`{text}` is no program: write its name, or its whole path from / on")))
}

/// Refuses a text that is not one line of moderate length.
pub(super) fn require_line(text: &Spanned<String>, what: &str) -> Result<(), At> {
    let written = text.get_ref();
    let good =
        !written.is_empty() && written.len() <= LONGEST_NAME && !written.contains(char::is_control);
    if good {
        Ok(())
    } else {
        Err(at(text, format!("{what} is one line of 1 to {LONGEST_NAME} bytes")))
    }
}

impl CommandLine {
    /// The command with a value for each placeholder.
    pub(super) fn command(&self, values: &Values) -> Command {
        let word = |word: &Word| match word {
            Word::Program(program) => Arg::from(*program),
            Word::Text(template) => Arg::from(template.fill(values)),
        };
        Command::new(self.program, self.words.iter().map(word))
    }
}
