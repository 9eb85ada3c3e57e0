//! Runs many commands. Neighbouring commands of `ip` share a process: starting one for each route of
//! thousands takes most of the time of `up`.

use super::command::{Command, Error};

/// The most lines for one process. They fit in a pipe, so neither end waits for the other.
const MAX_LINES: usize = 500;
/// What `ip -batch` says of a line that failed, before the line's number.
const FAILED: &str = "Command failed -:";

/// Runs all commands in order, also after one that fails; but those of IPv4 before those of IPv6, where
/// both are side by side. Returns the errors with the places of their commands.
pub(super) fn run_all(commands: &[&Command]) -> Vec<(usize, Error)> {
    let mut errors: Vec<(usize, Error)> = Vec::new();
    for group in groups(commands) {
        errors.extend(run_group(commands, &group));
    }
    errors.sort_by_key(|(at, _)| *at);
    errors
}

/// Commands that one process runs.
struct Group {
    /// The options of `ip` for all of them; none: the command runs by itself.
    options: Option<Option<String>>,
    at: Vec<usize>,
}

fn groups(commands: &[&Command]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // where the present neighbours begin
    let mut first = 0;
    for (at, command) in commands.iter().enumerate() {
        let options = options_of(command);
        let both_have_family =
            |one: &Group| matches!((&one.options, &options), (Some(Some(_)), Some(Some(_))));
        if !groups.last().is_some_and(both_have_family) {
            first = groups.len();
        }
        let same = groups.iter().enumerate().skip(first.min(groups.len().saturating_sub(1)));
        let mut same = same.rev();
        let found = same.find(|(_, one)| one.options.is_some() && one.options == options);
        match found.map(|(found, _)| found).filter(|found| groups[*found].at.len() < MAX_LINES) {
            Some(found) => groups[found].at.push(at),
            None => groups.push(Group { options, at: vec![at] }),
        }
    }
    groups
}

/// Returns the options of a command of `ip` that can be a line of a batch.
fn options_of(command: &Command) -> Option<Option<String>> {
    let plain = |word: &String| {
        !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "\\\"'#".contains(c))
    };
    match &command.argv[..] {
        [ip, rest @ ..] if ip == "ip" && command.input.is_empty() && rest.iter().all(plain) => {
            let [first, ..] = rest else { return None };
            match first.as_str() {
                "-4" | "-6" => Some(Some(first.clone())),
                other if other.starts_with('-') => None,
                _ => Some(None),
            }
        }
        _ => None,
    }
}

fn run_group(commands: &[&Command], group: &Group) -> Vec<(usize, Error)> {
    let one_by_one = || {
        let run = |at: &usize| commands[*at].run().err().map(|error| (*at, error));
        group.at.iter().filter_map(run).collect()
    };
    let Some(options) = group.options.as_ref().filter(|_| group.at.len() > 1) else {
        return one_by_one();
    };
    let skipped = 1 + usize::from(options.is_some());
    let lines = group.at.iter().map(|at| commands[*at].argv[skipped..].join(" ") + "\n");
    let family = options.iter().map(String::as_str);
    let argv = ["ip"].into_iter().chain(family).chain(["-force", "-batch", "-"]);
    let batch = Command { argv: argv.map(str::to_owned).collect(), input: lines.collect() };
    match batch.run() {
        Ok(()) => Vec::new(),
        Err(Error::Failed { status, said, .. }) => {
            let Some(failed) = failures(&said, group.at.len()) else {
                // it stopped in the middle: what was done already is done again, which is no error
                return one_by_one();
            };
            let error = |(line, said): (usize, String)| {
                let at = group.at[line];
                (at, Error::Failed { command: commands[at].line(), status, said })
            };
            failed.into_iter().map(error).collect()
        }
        Err(error) => vec![(group.at[0], error)],
    }
}

/// Reads which of so many lines failed, from 0, and why; none if `ip` did not come to the end.
fn failures(said: &str, lines: usize) -> Option<Vec<(usize, String)>> {
    let (mut failed, mut why) = (Vec::new(), Vec::new());
    for line in said.lines() {
        match line.strip_prefix(FAILED) {
            Some(number) => {
                let line = number.trim().parse::<usize>().ok()?.checked_sub(1)?;
                failed.push((line, why.join("\n")));
                why.clear();
            }
            None => why.push(line),
        }
    }
    let is_whole = why.is_empty() && !failed.is_empty();
    (is_whole && failed.iter().all(|(line, _)| *line < lines)).then_some(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(lines: &[&str]) -> Vec<Vec<usize>> {
        let commands: Vec<Command> = lines.iter().map(|line| Command::words(line)).collect();
        let groups = groups(&commands.iter().collect::<Vec<_>>());
        groups.into_iter().map(|group| group.at).collect()
    }

    #[test]
    fn neighbours_of_one_ip_version_share_a_process() {
        let [v4, v6, none, nft] = ["ip -4 route add", "ip -6 route add", "ip link", "nft -f -"];
        assert_eq!(grouped(&[v4, v6, v4, v6]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(grouped(&[v4, nft, v4, v4]), [vec![0], vec![1], vec![2, 3]]);
        assert_eq!(grouped(&[none, none, v4, none]), [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(grouped(&[nft, nft]), [vec![0], vec![1]]);
        assert_eq!(grouped(&vec![v4; MAX_LINES + 1]).len(), 2);
        assert_eq!(grouped(&["ip -4 route 'a b'", v4]), [vec![0], vec![1]]);
    }

    #[test]
    fn each_line_that_fails_has_its_reason() {
        let said =
            "RTNETLINK answers: File exists\nCommand failed -:2\nError: a\nb\nCommand failed -:3";
        let expected = [(1, "RTNETLINK answers: File exists"), (2, "Error: a\nb")];
        let expected = expected.map(|(line, why)| (line, why.to_owned()));
        assert_eq!(failures(said, 3), Some(expected.to_vec()));
        for broken in
            ["", "Error: what?", "Command failed -:4", "Command failed -:0", "Command failed -:x"]
        {
            assert_eq!(failures(broken, 3), None, "{broken}");
        }
    }

    #[test]
    fn all_lines_run_and_those_that_fail_are_named() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: this test makes a network namespace, which needs root");
            return;
        }
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let table = "lookup 77";
        let lines = [
            format!("ip -4 rule add pref 100 to 10.1.0.0/16 {table}"),
            format!("ip -4 rule add pref 100 to 10.1.0.0/16 {table}"),
            format!("ip -4 rule add pref 101 to 10.2.0.0/16 {table}"),
        ];
        let run = |lines: &[String]| {
            let commands: Vec<Command> = lines.iter().map(|line| Command::words(line)).collect();
            let errors = run_all(&commands.iter().collect::<Vec<_>>());
            errors.into_iter().map(|(at, error)| (at, error.to_string())).collect::<Vec<_>>()
        };
        let [(1, error)] = &run(&lines)[..] else { panic!("the second alone fails") };
        assert!(
            error.contains("pref 100 to 10.1.0.0/16") && error.contains("File exists"),
            "{error}"
        );
        // `ip` stops at what it cannot read
        let nonsense =
            [lines[0].replace("10.1", "10.3"), "ip -4 rule add to here".into(), lines[2].clone()];
        let errors = run(&nonsense);
        assert!(errors.iter().any(|(at, error)| *at == 1 && error.contains("here")), "{errors:?}");
        let shown = Command::words("ip -4 rule show").output().expect("rules");
        for network in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
            assert!(shown.contains(network), "{shown}");
        }
    }
}
