//! What ssh runs on the far host: a few lines of shell that need nothing there.

/// What its lines begin with. What a login shell prints before them is passed over.
pub(super) const WORD: &str = "headroom-ssh";

/// The script, as the command of ssh. It prints `headroom-ssh SYSTEM MACHINE OFFER`,
/// where OFFER is what a program that is installed there says of itself, or nothing,
/// and reads one line: `there KEY PORTS`, and the installed one runs, or `sent KEY
/// PORTS NAME OCTETS`; then a program of so many octets follows, and that one runs,
/// from a directory of that name, which it removes itself as soon as it runs.
///
/// Its input is the connection: when that ends, so does what is done here, and
/// `head` that waits for the program.
pub(super) fn command() -> String {
    // a login shell need not be a POSIX shell: all of them know single quotes
    format!("exec sh -c '{}'", SCRIPT.replace('\n', " "))
}

const SCRIPT: &str = r##"
say() { echo "headroom-ssh $*"; };
fail() { say "cannot: $*"; exit 9; };
say "$(uname -s) $(uname -m) $(headroom serve-once --offer 2> /dev/null)";
read -r what key ports name octets || exit 9;
case "$what" in
there) exec headroom serve-once --client "$key" --ports "$ports" ;;
sent) ;;
*) exit 9 ;;
esac;
mask=$(umask); umask 077; d=;
trap "exit 9" HUP INT TERM; trap "rm -rf \"\$d\"" EXIT;
for t in "$TMPDIR" /dev/shm /tmp "$HOME"; do
[ -n "$t" ] && mkdir "$t/headroom-$name" 2> /dev/null || continue;
d="$t/headroom-$name";
echo "#!/bin/sh" > "$d/headroom" && chmod 700 "$d/headroom" && "$d/headroom" 2> /dev/null && break;
rm -rf "$d"; d=;
done;
[ -n "$d" ] || fail "no directory was found in which a program can be stored and run";
head -c "$octets" > "$d/headroom";
[ "$(wc -c < "$d/headroom")" -eq "$octets" ] || fail "this program did not arrive whole: $t may be full";
umask "$mask";
"$d/headroom" serve-once --client "$key" --ports "$ports" --sent;
status=$?;
[ $status -lt 126 ] || [ ! -d "$d" ] || fail "this program does not run there: install headroom on that host";
exit $status
"##;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_script_is_one_line_that_a_shell_can_read() {
        assert_eq!(SCRIPT.matches('\'').count(), 0);
        assert!(SCRIPT.contains(&format!("echo \"{WORD} ")));
        let command = command();
        assert!(!command.contains('\n'));
        let checked = Command::new("sh").args(["-n", "-c", &command]).status();
        assert!(checked.expect("a shell").success());
        let inner = command.strip_prefix("exec sh -c ").expect("so it begins");
        let inner = inner.trim_matches('\'');
        let checked = Command::new("sh").args(["-n", "-c", inner]).status();
        assert!(checked.expect("a shell").success());
    }
    #[test]
    fn a_program_that_does_not_arrive_or_run_leaves_nothing() {
        for (sent, word) in [
            ("sent KEY 1-1 abc 100\nshort", "did not arrive whole"),
            ("sent KEY 1-1 abc 5\nwrong", "does not run"),
            ("sent KEY 1-1 abc", ""),
            ("", ""),
        ] {
            let ground = tempfile::tempdir().expect("a folder");
            let mut shell = Command::new("sh");
            shell.args(["-c", &command()]).env("TMPDIR", ground.path()).stderr(Stdio::null());
            let mut shell =
                shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
            let mut stdin = shell.stdin.take().expect("it is piped");
            stdin.write_all(sent.as_bytes()).expect("it listens");
            drop(stdin);
            let output = shell.wait_with_output().expect("it ends");
            assert!(!output.status.success());
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains(word), "{said}");
            assert_eq!(std::fs::read_dir(ground.path()).expect("a folder").count(), 0, "{sent}");
        }
    }
}
