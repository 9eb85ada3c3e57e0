//! The shell script that ssh runs on the host; it needs nothing else there.

/// The beginning of its lines. Other output, such as that of a login shell, is ignored.
pub(super) const WORD: &str = "headroom-ssh";

/// Returns the script as a command for ssh. It prints `headroom-ssh SYSTEM MACHINE OFFER`,
/// where OFFER is what an installed program prints for `serve-once --offer`, or nothing. Then
/// it reads one line. `there KEY PORTS` runs the installed program.
/// `sent KEY PORTS NAME BYTES` is followed by a program of that size, which is run from a
/// directory of that name, and deletes itself when it starts.
///
/// Its standard input is the connection: when that ends, the server ends, and so does `head`
/// while it receives the program.
pub(super) fn command() -> String {
    // a login shell need not be a POSIX shell, but all of them know single quotes
    format!("exec sh -c '{}'", SCRIPT.replace('\n', " "))
}

const SCRIPT: &str = r##"
say() { echo "headroom-ssh $*"; };
fail() { say "cannot: $*"; exit 9; };
say "$(uname -s) $(uname -m) $(headroom serve-once --offer 2> /dev/null)";
read -r what key ports name bytes || exit 9;
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
head -c "$bytes" > "$d/headroom";
[ "$(wc -c < "$d/headroom")" -eq "$bytes" ] || fail "this program did not arrive complete: $t may be full";
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
    fn a_program_that_is_not_received_or_does_not_run_leaves_nothing() {
        for (sent, word) in [
            ("sent KEY 1-1 abc 100\nshort", "did not arrive complete"),
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
