use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program or script of mode 755 to `path`, by another process.
///
/// A file that this process wrote may still be open for writing in a child that the thread
/// of another test has forked and that has not called `execve` yet; executing the file
/// fails with ETXTBSY until then (execve(2)).
///
/// # Panics
/// It cannot be written.
pub fn write_executable(path: &Path, content: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", r#"cat > "$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    writer.stdin.take().expect("it is piped").write_all(content).expect("its content");
    let status = writer.wait().expect("the shell ends");
    assert!(status.success(), "writing {} ended with {status}", path.display());
}
