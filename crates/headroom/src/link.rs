//! `headroom link`: runs the emulator.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::BufRead;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};

use anyhow::Context;
use headroom_emulator::{DOWN, Emulator, Error, Settings, Shared, UP};
use headroom_link_spec::{Counters, Direction, DirectionCounters, LinkSpec, Ready};

use crate::arguments::Link;
use crate::output::print_line;

/// Events that the command waits for.
enum Event {
    Stop,
    Stats,
    Ended(Result<(), Error>),
}

pub(crate) fn run(arguments: Link) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        spec: spec(&arguments)?,
        seed: arguments.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
        a: arguments.a,
        b: arguments.b,
    };
    let mut emulator = Emulator::open(&settings)?;
    let shared = emulator.shared();
    let (events, incoming) = channel();
    let stop = events.clone();
    ctrlc::set_handler(move || drop(stop.send(Event::Stop))).context("cannot watch for signals")?;
    listen(events.clone());
    let loop_thread = std::thread::Builder::new().name("link".into());
    loop_thread
        .spawn(move || drop(events.send(Event::Ended(emulator.run()))))
        .context("cannot start the forwarding thread")?;
    announce(&settings, arguments.json)?;
    for event in incoming {
        match event {
            Event::Stop => shared.stop(),
            Event::Stats if arguments.json => report(&shared, true)?,
            Event::Stats => {}
            Event::Ended(outcome) => {
                report(&shared, arguments.json)?;
                outcome?;
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the link from `--spec` or from an option for each key.
fn spec(arguments: &Link) -> Result<LinkSpec, Error> {
    let text = arguments.spec.clone().unwrap_or_else(|| {
        let limit = match &arguments.trace {
            Some(trace) => format!("trace={trace}"),
            None => arguments.rate.clone().unwrap_or_else(|| "unshaped".to_owned()),
        };
        let keys = [
            ("delay", &arguments.delay),
            ("jitter", &arguments.jitter),
            ("loss", &arguments.loss),
            ("burst", &arguments.burst),
            ("queue", &arguments.queue),
            ("aqm", &arguments.aqm),
            ("duplicate", &arguments.duplicate),
            ("reorder", &arguments.reorder),
            ("corrupt", &arguments.corrupt),
        ];
        let given = keys.iter().filter_map(|(key, value)| value.as_ref().map(|v| (key, v)));
        given.fold(limit, |text, (key, value)| format!("{text},{key}={value}"))
    });
    let folder = arguments.trace_folder.as_deref().unwrap_or(Path::new(""));
    LinkSpec::read(&text, folder)
        .map_err(|error| Error::Arguments(format!("the link `{text}`: {error}")))
}

/// Reads requests from standard input if it is a pipe or a socket. Its end means that the
/// parent process has gone.
fn listen(events: Sender<Event>) {
    let Ok(input) = std::fs::metadata("/dev/stdin") else { return };
    let kind = input.file_type();
    let is_pipe = kind.is_fifo() || kind.is_socket();
    if !is_pipe {
        return;
    }
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if line.trim() == "stats" && events.send(Event::Stats).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Stop);
    });
}

fn announce(settings: &Settings, as_json: bool) -> anyhow::Result<()> {
    let Settings { a, b, spec, seed } = settings;
    print_line(&if as_json {
        let (a, b, spec) = (a.clone(), b.clone(), spec.to_string());
        serde_json::to_string(&Ready { ready: true, a, b, spec, seed: *seed })?
    } else {
        format!("{a} <-> {b}: {spec} (seed {seed}); forwarding until interrupted")
    });
    Ok(())
}

fn report(shared: &Shared, as_json: bool) -> anyhow::Result<()> {
    let counters = shared.counters();
    for (index, direction) in [(UP, Direction::Up), (DOWN, Direction::Down)] {
        let counters = counters[index];
        print_line(&if as_json {
            serde_json::to_string(&DirectionCounters { counters, direction })?
        } else {
            as_text(direction, &counters)
        });
    }
    Ok(())
}

fn as_text(direction: Direction, counters: &Counters) -> String {
    let arrow = match direction {
        Direction::Up => "a → b",
        Direction::Down => "b → a",
    };
    let mut text =
        format!("{arrow}: {} received, {} forwarded", counters.received, counters.forwarded);
    for (count, what) in [
        (counters.lost, "lost"),
        (counters.dropped_by_queue, "dropped by the queue"),
        (counters.marked, "marked"),
        (counters.dropped_by_memory, "dropped by the memory limit"),
        (counters.dropped_by_kernel, "dropped by the kernel"),
        (counters.duplicated, "duplicated"),
        (counters.corrupted, "corrupted"),
        (counters.reordered, "reordered"),
        (counters.malformed, "malformed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}
