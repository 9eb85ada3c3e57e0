//! Commands that touch the system: the same value is printed by `--dry-run` and
//! executed by a run, so what is printed is what happens.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command as Process, Stdio};
use std::sync::Mutex;

use crate::error::{Doing, Error, Result};
use crate::parts::Parts;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    /// The program's name (looked up when it runs) and the arguments.
    pub(crate) argv: Vec<String>,
}

impl Command {
    /// A command from a program and its arguments.
    pub(crate) fn new<I>(program: impl Into<String>, arguments: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut argv = vec![program.into()];
        argv.extend(arguments.into_iter().map(Into::into));
        Self { argv }
    }

    /// A command of one program, arguments separated by spaces.
    pub(crate) fn words(line: &str) -> Self {
        Self { argv: line.split_whitespace().map(str::to_owned).collect() }
    }
}

impl fmt::Display for Command {
    /// As one would type it into a POSIX shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.argv.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            f.write_str(&quote(word))?;
        }
        Ok(())
    }
}

/// A word as a POSIX shell reads it back.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+#".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('#') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs commands, or prints them.
#[derive(Debug)]
pub(crate) struct Executor {
    parts: Parts,
    dry: Option<Mutex<Vec<String>>>,
}

impl Executor {
    /// An executor that runs what it is given.
    pub(crate) fn real(parts: Parts) -> Self {
        Self { parts, dry: None }
    }

    /// An executor that only notes what it is given.
    pub(crate) fn dry(parts: Parts) -> Self {
        Self { parts, dry: Some(Mutex::default()) }
    }

    /// Where programs are found.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Whether nothing is really run.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry.is_some()
    }

    /// What a dry executor was given so far, one line each.
    pub(crate) fn noted(&self) -> Vec<String> {
        self.dry.as_ref().map_or_else(Vec::new, |lines| lock(lines).clone())
    }

    /// Notes a line of a dry run that is not a command of this executor.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.dry {
            lock(lines).push(line());
        }
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
        let output = self.process(command)?.output().doing(|| format!("start `{command}`"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Failed(format!(
                "`{command}` failed ({}): {}",
                output.status,
                said.trim()
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
    pub(crate) fn process(&self, command: &Command) -> Result<Process> {
        let (command, environment) = self.resolve(command)?;
        let mut process = Process::new(&command.argv[0]);
        process.args(&command.argv[1..]).envs(environment).stdin(Stdio::null());
        Ok(process)
    }

    /// The command with the paths of its programs, and the variables they need.
    /// A program can stand behind another (`nsenter … ethtool`); what is not a
    /// part (`sh`, `chown`) is on every system.
    pub(crate) fn resolve(&self, command: &Command) -> Result<(Command, BTreeMap<String, String>)> {
        let mut environment = BTreeMap::new();
        let mut argv = command.argv.clone();
        for (index, word) in argv.iter_mut().enumerate() {
            let Some(program) = crate::service::program(word) else { continue };
            let located = match self.parts.locate(program) {
                Ok(located) => located,
                Err(_) if index > 0 || self.is_dry() => continue,
                Err(error) => return Err(error),
            };
            environment.extend(located.environment);
            *word = located.path.display().to_string();
        }
        Ok((Command { argv }, environment))
    }

    /// The command as one would type it, found programs by path.
    fn typed(&self, command: &Command) -> String {
        let Ok((resolved, environment)) = self.resolve(command) else { return command.to_string() };
        let variables = environment.iter().map(|(name, value)| format!("{name}={} ", quote(value)));
        variables.chain([resolved.to_string()]).collect()
    }
}

fn lock(lines: &Mutex<Vec<String>>) -> std::sync::MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
        let executor = Executor::real(Parts::from_environment());
        let error = executor.run(&Command::new("sh", ["-c", "echo no luck >&2; exit 3"]));
        let error = error.expect_err("exit 3").to_string();
        assert!(error.contains("no luck") && error.contains("exit status: 3"), "{error}");
    }
}
