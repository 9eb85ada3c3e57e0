//! An external program with its arguments: printed in shell syntax, run, and stored in a file to be
//! undone later.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use serde::{Deserialize, Serialize};

/// An external command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The name of the program and its arguments.
    pub argv: Vec<String>,
    /// Its standard input, usually empty.
    #[serde(default)]
    pub input: String,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not installed.
    #[error(
        "the program {0} is missing: install the package {1}, or run scripts/fetch-parts {0} of the source tree"
    )]
    Missing(String, &'static str),
    /// The program could not be started or fed.
    #[error("cannot run `{0}`: {1}")]
    Start(String, std::io::Error),
    /// The program failed.
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its standard error.
        said: String,
    },
}

impl Command {
    /// Makes a command of words separated by spaces.
    pub fn words(line: &str) -> Self {
        Self { argv: line.split_whitespace().map(str::to_owned).collect(), input: String::new() }
    }

    /// Runs the command and waits.
    ///
    /// # Errors
    /// The program is missing, or failed.
    pub fn run(&self) -> Result<(), Error> {
        self.output().map(drop)
    }

    /// Runs the command and returns its output.
    ///
    /// # Errors
    /// The program is missing, or failed.
    pub fn output(&self) -> Result<String, Error> {
        let name = self.argv.first().map_or("", String::as_str);
        let found = locate(name);
        let (path, libraries) =
            found.ok_or_else(|| Error::Missing(name.to_owned(), package_of(name)))?;
        let start = |error| Error::Start(self.line(), error);
        let mut process = Process::new(path);
        process.args(&self.argv[1..]).stdin(Stdio::piped());
        process.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(libraries) = libraries {
            process.env("LD_LIBRARY_PATH", libraries);
        }
        let mut child = process.spawn().map_err(start)?;
        if let Some(mut input) = child.stdin.take() {
            // The exit status of a program that does not read its input tells more than the error
            // here.
            let _ = input.write_all(self.input.as_bytes());
        }
        let output = child.wait_with_output().map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let mut said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        // nft's message if the kernel lacks a feature.
        if name == "nft" && said.contains("No such file or directory") {
            said += ". The kernel may lack nf_tables with named counters: load the modules nf_tables and nft_objref, or \
                     use a kernel that has them";
        }
        Err(Error::Failed { command: self.line(), status: output.status, said })
    }

    /// Returns the command without its input, in shell syntax.
    pub(super) fn line(&self) -> String {
        self.argv.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    }
}

impl Error {
    /// Checks whether the command failed because the object exists.
    pub(super) fn is_there_already(&self) -> bool {
        matches!(self, Self::Failed { said, .. } if said.contains("File exists"))
    }

    /// Checks whether the command failed because the object does not exist.
    pub(super) fn is_gone(&self) -> bool {
        let words =
            ["No such file", "No such process", "No such device", "FIB table does not exist"];
        matches!(self, Self::Failed { said, .. } if words.iter().any(|words| said.contains(words)))
    }
}

impl fmt::Display for Command {
    /// Prints POSIX shell syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        if self.input.is_empty() {
            return Ok(());
        }
        write!(f, " <<'END'\n{}\nEND", self.input.trim_end())
    }
}

/// Quotes a word for a POSIX shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn package_of(program: &str) -> &'static str {
    match program {
        "ip" => "iproute2",
        "nft" => "nftables",
        _ => "procps",
    }
}

/// Finds a program on the system or in the private cache of `scripts/fetch-parts`, there with the
/// folder of its libraries.
fn locate(program: &str) -> Option<(PathBuf, Option<OsString>)> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let path = variable("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    if let Some(found) = found {
        return Some((found, None));
    }
    let cache = variable("HEADROOM_PARTS").map(PathBuf::from).or_else(|| {
        let home = variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = variable("XDG_CACHE_HOME").map(PathBuf::from).or(home)?;
        Some(cache.join("headroom/parts"))
    })?;
    let root = cache.join("root");
    let cached = ["usr/sbin", "usr/bin", "sbin", "bin"].map(|folder| root.join(folder));
    let found =
        cached.map(|folder| folder.join(program)).into_iter().find(|path| path.is_file())?;
    Some((found, std::env::join_paths(library_folders(&root)).ok()))
}

fn library_folders(root: &Path) -> Vec<PathBuf> {
    let folders = ["usr/lib", "lib"].map(|folder| std::fs::read_dir(root.join(folder)));
    folders
        .into_iter()
        .flatten()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("-linux-gnu"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_commands_that_a_shell_can_run() {
        let input = "table inet a {\n}\n".to_owned();
        let command = Command { argv: vec!["cat".into(), "-".into(), "/dev/null".into()], input };
        let output =
            Process::new("sh").arg("-c").arg(command.to_string()).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), command.input);
        let odd =
            Command { argv: vec!["printf".into(), "%s|".into(), "a 'b' $c".into()], ..command };
        let odd = Command { input: String::new(), ..odd };
        let output = Process::new("sh").arg("-c").arg(odd.to_string()).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a 'b' $c|");
    }

    #[test]
    fn a_failure_names_the_command_and_its_output() {
        let argv = ["sh", "-c", "echo no luck >&2; exit 3"].map(str::to_owned).to_vec();
        let error = Command { argv, input: String::new() }.run().expect_err("exit 3").to_string();
        assert!(error.contains("no luck") && error.contains("exit status: 3"), "{error}");
        let missing = Command::words("no-such-program-anywhere").run().expect_err("not there");
        assert!(missing.to_string().contains("is missing"), "{missing}");
    }
}
