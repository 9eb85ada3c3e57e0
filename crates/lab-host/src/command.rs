//! Commands that touch the system: the same value is printed by `--dry-run` and
//! executed by a run, so what is printed is what happens.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::process::{Command as Process, Stdio};
use std::sync::Mutex;

use headroom_mutex::lock;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::programs::{Located, Program, SearchPath};

/// One word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// A program, looked up on the host where the command runs. It can stand behind
    /// another (`nsenter … ethtool`); what every system has (`sh`, `chown`) is text.
    Program(Program),
    /// Anything else.
    Text(String),
}

impl From<Program> for Arg {
    fn from(program: Program) -> Self {
        Self::Program(program)
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Arg {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Display for Arg {
    /// As one would type it into a POSIX shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => f.write_str(program.name),
            Self::Text(text) => f.write_str(&quote(text)),
        }
    }
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    argv: Vec<Arg>,
}

impl Command {
    /// A command from a program and its arguments.
    pub fn new<I>(program: impl Into<Arg>, arguments: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Arg>,
    {
        let mut command = Self { argv: vec![program.into()] };
        command.args(arguments);
        command
    }

    /// A command from a program and its arguments, separated by spaces.
    pub fn words(program: impl Into<Arg>, arguments: &str) -> Self {
        Self::new(program, arguments.split_whitespace())
    }

    /// Adds arguments.
    pub fn args<I>(&mut self, arguments: I) -> &mut Self
    where
        I: IntoIterator,
        I::Item: Into<Arg>,
    {
        self.argv.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// This command with another as its last arguments, which it runs.
    pub fn running(mut self, command: Self) -> Self {
        self.argv.extend(command.argv);
        self
    }

    /// Looks its programs up; one that `locate` gives no place for stays a name.
    ///
    /// # Errors
    /// Those of `locate`.
    pub(crate) fn resolve(
        &self,
        mut locate: impl FnMut(Program) -> Result<Option<Located>>,
    ) -> Result<Resolved> {
        let mut resolved = Resolved { argv: Vec::new(), environment: BTreeMap::new() };
        for arg in &self.argv {
            let word = match arg {
                Arg::Text(text) => text.clone(),
                Arg::Program(program) => match locate(*program)? {
                    None => program.name.to_owned(),
                    Some(located) => {
                        resolved.environment.extend(located.environment);
                        located.path.display().to_string()
                    }
                },
            };
            resolved.argv.push(word);
        }
        Ok(resolved)
    }
}

/// A command of a program that needs no looking up.
impl From<Vec<String>> for Command {
    fn from(argv: Vec<String>) -> Self {
        Self { argv: argv.into_iter().map(Arg::Text).collect() }
    }
}

impl Display for Command {
    /// As one would type it into a POSIX shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }
}

/// A command with the paths of its programs, and the variables that they need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    pub(crate) argv: Vec<String>,
    /// Variables by name.
    pub environment: BTreeMap<String, String>,
}

impl Resolved {
    /// The program.
    pub(crate) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// A process ready to be started, without standard input; its variables come on top of
    /// those of this process.
    ///
    /// # Errors
    /// There is no word at all.
    pub(crate) fn process(&self) -> Result<Process> {
        let no_program = || Error::Failed("a command without a program".into());
        let (program, arguments) = self.argv.split_first().ok_or_else(no_program)?;
        let mut process = Process::new(program);
        process.args(arguments).envs(&self.environment).stdin(Stdio::null());
        Ok(process)
    }

    /// The same with its own variables alone.
    ///
    /// # Errors
    /// As [`Resolved::process`].
    pub(crate) fn process_alone(&self) -> Result<Process> {
        let mut process = self.process()?;
        process.env_clear().envs(&self.environment);
        Ok(process)
    }
}

impl Display for Resolved {
    /// As one would type it into a POSIX shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables =
            self.environment.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let words = variables.chain(self.argv.iter().map(|word| quote(word)));
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

/// Runs a process to its end and returns what it printed; errors name the `command`.
///
/// # Errors
/// The command, its exit status and what it printed to standard error.
pub(crate) fn output(mut process: Process, command: &impl Display) -> Result<String> {
    let output = process.output().doing(|| format!("start `{command}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Command { command: command.to_string(), status: output.status, said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A word as a POSIX shell reads it back.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+#".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('#') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs commands, or prints them.
#[derive(Debug)]
pub struct Executor {
    search_path: SearchPath,
    dry: Option<Mutex<Vec<String>>>,
}

impl Executor {
    /// An executor that runs what it is given.
    pub fn real(search_path: SearchPath) -> Self {
        Self { search_path, dry: None }
    }

    /// An executor that only notes what it is given.
    pub fn dry(search_path: SearchPath) -> Self {
        Self { search_path, dry: Some(Mutex::default()) }
    }

    /// Returns the paths on which it finds programs.
    pub(crate) fn search_path(&self) -> &SearchPath {
        &self.search_path
    }

    /// Whether nothing is really run.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry.is_some()
    }

    /// Returns the commands given to a dry executor so far, one line each.
    pub fn noted(&self) -> Vec<String> {
        self.dry.as_ref().map_or_else(Vec::new, |lines| lock(lines).clone())
    }

    /// Notes a line of a dry run that is not a command of this executor.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.dry {
            lock(lines).push(line());
        }
    }

    /// Does what is no command; a dry run notes the line in its place.
    ///
    /// # Errors
    /// Those of `act`.
    pub(crate) fn act<T>(
        &self,
        line: impl FnOnce() -> String,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        self.note(line);
        self.really(act)
    }

    /// Does what a dry run leaves out without a word.
    ///
    /// # Errors
    /// Those of `act`.
    pub(crate) fn really<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        if self.is_dry() { Ok(None) } else { act().map(Some) }
    }

    /// Notes a line unless it was noted before.
    pub(crate) fn note_once(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.dry {
            let line = line();
            let mut lines = lock(lines);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }

    /// Runs a command to its end and returns what it printed.
    ///
    /// # Errors
    /// The command, its exit status and what it printed to standard error.
    pub(crate) fn run(&self, command: &Command) -> Result<String> {
        if self.is_dry() {
            self.note(|| self.typed(command));
            return Ok(String::new());
        }
        tracing::debug!(%command, "run");
        output(self.process(command)?, command)
    }

    /// Runs several commands, one after the other.
    ///
    /// # Errors
    /// The first that failed.
    pub(crate) fn run_all<'a>(
        &self,
        commands: impl IntoIterator<Item = &'a Command>,
    ) -> Result<()> {
        commands.into_iter().try_for_each(|command| self.run(command).map(drop))
    }

    /// A process ready to be started, without standard input.
    ///
    /// # Errors
    /// [`Error::Missing`]: a program of it.
    pub fn process(&self, command: &Command) -> Result<Process> {
        self.resolve(command)?.process()
    }

    /// Looks a command's programs up on this machine; a dry run names those that are
    /// missing.
    fn resolve(&self, command: &Command) -> Result<Resolved> {
        command.resolve(|program| match self.search_path.locate(program) {
            Err(_) if self.is_dry() => Ok(None),
            located => located.map(Some),
        })
    }

    /// The command as one would type it, found programs by path.
    fn typed(&self, command: &Command) -> String {
        self.resolve(command).map_or_else(|_| command.to_string(), |resolved| resolved.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted_into_a_shell() {
        let command = Command::new("printf", ["%s|", "a b", "it's", "$HOME", "", "x=1,y:2"]);
        let output =
            Process::new("sh").arg("-c").arg(command.to_string()).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|it's|$HOME||x=1,y:2|");
    }

    #[test]
    fn a_failure_says_what_was_run_and_what_it_said() {
        let executor = Executor::real(SearchPath::from_environment());
        let error = executor.run(&Command::new("sh", ["-c", "echo no luck >&2; exit 3"]));
        let error = error.expect_err("exit 3").to_string();
        assert!(error.contains("no luck") && error.contains("exit status: 3"), "{error}");
    }
}
