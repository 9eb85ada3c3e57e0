//! The emulator as a process in the router's namespace: started, asked for its
//! counters, ended with the link it makes, and watched, because a run on a dead
//! link measures nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use headroom_lab_results::schema::EmulatorCounters;
use headroom_link_spec::{Direction, DirectionCounters, Ready};
use headroom_mutex::lock;
use nix::unistd::Pid;

use crate::error::{Doing, Error, Result};
use crate::lines::each_line;

/// Why a run cannot go on; set at most once.
pub(crate) type Alarm = Arc<OnceLock<String>>;

/// A running emulator; ended when dropped.
#[derive(Debug)]
pub(super) struct Emulator {
    child: Arc<Mutex<Child>>,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    words: Arc<Mutex<String>>,
    /// Its end is wanted.
    ending: Arc<AtomicBool>,
}

/// Longer than it takes on a busy machine.
const AN_ANSWER: Duration = Duration::from_secs(10);

impl Emulator {
    /// Starts it by `process`, which must become `headroom link --json …`, and
    /// waits until it forwards. Its unwanted end raises the alarm.
    pub(super) fn start(mut process: Process, link: &str, alarm: &Alarm) -> Result<Self> {
        let mut child = process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C is for the lab, which then ends everything in order
            .spawn()
            .doing(|| "start the link's emulator".into())?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        let words = Arc::new(Mutex::new(String::new()));
        let ending = Arc::new(AtomicBool::new(false));
        let (sender, lines) = mpsc::channel();
        let listener = stderr.map(|stderr| {
            let words = Arc::clone(&words);
            std::thread::spawn(move || listen(stderr, &words))
        });
        {
            let (child, words, ending) =
                (Arc::clone(&child), Arc::clone(&words), Arc::clone(&ending));
            let (alarm, link) = (Arc::clone(alarm), link.to_owned());
            std::thread::spawn(move || {
                let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
                let mut ready = false;
                for line in lines.map_while(std::result::Result::ok) {
                    ready |= is_ready(&line);
                    if sender.send(line).is_err() {
                        break;
                    }
                }
                if let Some(listener) = listener {
                    let _ = listener.join();
                }
                let how = how_it_ended(&child);
                // an end before it began is told to who waits for the beginning
                if ready && !ending.load(Ordering::Acquire) {
                    let words = lock(&words);
                    let words = if words.is_empty() { "(nothing)" } else { words.trim() };
                    let _ = alarm.set(format!(
                        "the emulator that makes the link `{link}` ended while it was in use ({how}). It said: {words}"
                    ));
                }
            });
        }
        let emulator = Self { child, stdin, lines, words, ending };
        emulator.wait_ready(link)?;
        Ok(emulator)
    }

    fn wait_ready(&self, link: &str) -> Result<()> {
        let line = self.lines.recv_timeout(AN_ANSWER);
        if line.as_deref().is_ok_and(is_ready) {
            return Ok(());
        }
        let found = match line {
            Ok(line) => format!("it answered `{line}`"),
            Err(mpsc::RecvTimeoutError::Timeout) => "it did not answer within 10 s".to_owned(),
            Err(mpsc::RecvTimeoutError::Disconnected) => how_it_ended(&self.child),
        };
        Err(Error::Failed(format!(
            "the emulator did not begin to make the link `{link}` ({found}). It said: {}",
            lock(&self.words).trim()
        )))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(lock(&self.child).id().cast_signed())
    }

    /// Reads its counters.
    pub(super) fn counters(&mut self) -> Result<EmulatorCounters> {
        let doing = || "ask the link's emulator for its counters".to_owned();
        if let Some(stdin) = &mut self.stdin {
            writeln!(stdin, "stats").doing(doing)?;
        }
        let mut counters = EmulatorCounters::default();
        for _ in 0..2 {
            let line = self.lines.recv_timeout(AN_ANSWER).doing(doing)?;
            let DirectionCounters { direction, counters: counted } =
                serde_json::from_str(&line).doing(doing)?;
            match direction {
                Direction::Up => counters.up = counted,
                Direction::Down => counters.down = counted,
            }
        }
        Ok(counters)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        drop(self.stdin.take()); // which ends it
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut child = lock(&self.child);
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            // the thread that reads its output may want to know how it ended
            drop(child);
            std::thread::sleep(Duration::from_millis(1));
            child = lock(&self.child);
        }
    }
}

/// Whether a line says that it forwards.
fn is_ready(line: &str) -> bool {
    serde_json::from_str::<Ready>(line).is_ok_and(|line| line.ready)
}

/// Keeps the last words that it writes to standard error.
fn listen(stderr: impl Read, words: &Mutex<String>) {
    const KEPT: usize = 2000;
    each_line(stderr, KEPT as u64, |line| {
        let mut words = lock(words);
        words.push_str(line);
        let excess = words.ceil_char_boundary(words.len().saturating_sub(KEPT));
        words.drain(..excess);
    });
}

/// Its output has ended, so it will end too, if it has not.
fn how_it_ended(child: &Mutex<Child>) -> String {
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        match lock(child).try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Err(error) => return error.to_string(),
            Ok(None) => {}
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    "it closed its output".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pretended emulator, written in shell.
    fn pretend(script: &str, alarm: &Alarm) -> Result<Emulator> {
        let mut process = Process::new("sh");
        process.args(["-c", script]);
        Emulator::start(process, "10mbit", alarm)
    }

    #[test]
    fn it_is_asked_for_its_counters_and_ends_with_its_input() {
        let alarm = Alarm::default();
        let script = r#"echo '{"ready":true,"a":"a","b":"b","spec":"10mbit","seed":1}'; while read word; do
            echo '{"direction":"up","received":5}'; echo '{"direction":"down","received":7}'; done"#;
        let mut emulator = pretend(script, &alarm).expect("ready");
        let counters = emulator.counters().expect("counters");
        assert_eq!((counters.down.received, counters.up.received), (7, 5));
        let child = Arc::clone(&emulator.child);
        drop(emulator);
        let status = lock(&child).wait().expect("ended");
        assert!(status.success(), "by itself: {status}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(alarm.get(), None, "its end was wanted");
    }

    #[test]
    fn one_that_cannot_begin_is_told_in_its_own_words() {
        let alarm = Alarm::default();
        let error = pretend("echo 'no such interface' >&2; exit 1", &alarm).expect_err("ended");
        let error = error.to_string();
        assert!(error.contains("no such interface") && error.contains("exit status: 1"), "{error}");
        assert_eq!(alarm.get(), None, "told once");
    }

    #[test]
    fn one_that_dies_raises_the_alarm() {
        let alarm = Alarm::default();
        let script = r#"echo '{"ready":true,"a":"a","b":"b","spec":"10mbit","seed":1}'; echo 'last words' >&2; kill -9 $$"#;
        let _emulator = pretend(script, &alarm).expect("ready");
        let deadline = Instant::now() + AN_ANSWER;
        while alarm.get().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let why = alarm.get().expect("an alarm");
        assert!(why.contains("signal: 9") && why.contains("last words"), "{why}");
    }
}
