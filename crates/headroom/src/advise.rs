//! `headroom lab advise`.

use std::path::Path;
use std::process::ExitCode;

use headroom_lab::Error;
use headroom_lab::plan::Plan;
use headroom_lab::stack::Stack;
use headroom_lab_host::command::quote;
use headroom_lab_results::analysis::advise::{
    self, Basis, LossAnswer, Property, Question, StackFacts, back_test,
};
use headroom_lab_results::report;
use headroom_units::{exact_rate, exact_size};
use serde_json::json;

use crate::arguments::Advise;

/// Exit code of a question that lies outside what was measured.
const REFUSED: u8 = 5;

/// Answers in lines of `width` columns; `measure` runs a plan.
pub(crate) fn run(
    arguments: &Advise,
    width: usize,
    measure: impl Fn(&Plan) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let basis = match &arguments.from {
        Some(path) => basis(path)?,
        None => Basis::shipped(),
    };
    if arguments.back_test {
        let rows = back_test::rows(&basis);
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&rows)?);
        } else {
            print!("{}", report::advice::back_test(&rows, width));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.basis {
        println!("{}", serde_json::to_string(&basis)?);
        return Ok(ExitCode::SUCCESS);
    }
    let question = question(arguments)?;
    let answer = advise::advise(&basis, &question, facts);
    if arguments.measure {
        let stacks = stacks_to_measure(&basis, &question, answer.as_ref().ok());
        if stacks.is_empty() {
            return Err(Error::Plan("no measured stack has what is needed".to_owned()).into());
        }
        if question.bytes > LARGEST_MEASURED {
            let sentence =
                "--measure moves files of 1 GiB at most: ask for such a file, which tells the rate";
            return Err(Error::Plan(sentence.to_owned()).into());
        }
        let plan = Plan::from_toml(&plan_text(&question, &stacks), "advise");
        return measure(&plan.map_err(Error::Plan)?);
    }
    let settle = settle(arguments);
    match answer {
        Ok(advice) if arguments.json => {
            let mut all = serde_json::to_value(&advice)?;
            all["settle"] = json!(settle);
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(advice) => {
            let text = report::advice::text(&advice, &settle, arguments.arithmetic, width);
            print!("{text}");
        }
        Err(refusal) => {
            if arguments.json {
                let all = json!({
                    "refused": refusal.reasons,
                    "settle": refusal.measurable.then_some(settle.as_str()),
                });
                println!("{}", serde_json::to_string_pretty(&all)?);
            }
            for reason in &refusal.reasons {
                eprintln!("headroom: no advice: {reason}");
            }
            if refusal.measurable {
                eprintln!("headroom: measure it: {settle}");
            }
            return Ok(ExitCode::from(REFUSED));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A run's basis, from its folder, its results.json, or a file of `--basis`.
fn basis(path: &Path) -> anyhow::Result<Basis> {
    if path.is_file()
        && let Ok(text) = std::fs::read_to_string(path)
        && serde_json::from_str::<Basis>(&text).is_ok()
    {
        let doing = |error| Error::Plan(format!("reading {}: {error}", path.display()));
        return Ok(Basis::parse(&text).map_err(doing)?);
    }
    let mut results = if path.is_file() { report::read_file(path) } else { report::read(path) }
        .map_err(|error| Error::Plan(error.to_string()))?;
    headroom_lab::run::reanalyse(&mut results);
    // nobody stated what carries a stack that a plan defines
    let loss_answer =
        |name: &str| Stack::parse(name).map_or(LossAnswer::Unknown, |stack| stack.loss_answer());
    let mut basis = Basis::of(&results, loss_answer).map_err(Error::Plan)?;
    // where the run counted no packets, the applications say which connections they open
    for stack in basis.stacks.iter_mut().filter(|stack| stack.round_trips.is_none()) {
        let opens = |stack: Stack| stack.application.data_connections();
        if Stack::parse(&stack.name).is_ok_and(opens) {
            (stack.connects_for_each_file, stack.connections) = (true, 2);
        }
    }
    Ok(basis)
}

fn question(arguments: &Advise) -> anyhow::Result<Question> {
    let missing = || Error::Plan("advise needs --rate, --rtt and --files".to_owned());
    let files = arguments.files.ok_or_else(missing)?;
    Ok(Question {
        rate_bps: arguments.rate.ok_or_else(missing)? as f64,
        rtt_s: arguments.rtt.ok_or_else(missing)?.as_secs_f64(),
        loss: arguments.loss / 100.0,
        files: files.count,
        bytes: files.bytes,
        needs: arguments.need.iter().filter_map(|name| Property::of(name)).collect(),
    })
}

fn facts(name: &str) -> StackFacts {
    match Stack::parse(name) {
        Ok(stack) => StackFacts {
            properties: stack.properties().map(headroom_lab::properties::Properties::all),
            in_clear: Some(!stack.is_secured()),
        },
        // what a plan defines: nobody stated its properties, nor what encrypts it
        Err(_) => StackFacts { properties: None, in_clear: None },
    }
}

/// The largest file of a plan.
const LARGEST_MEASURED: u64 = 1 << 30;

/// The command that measures what was asked, with files of 1 GiB where they are larger, as a
/// shell reads it.
fn settle(arguments: &Advise) -> String {
    let shown = |name: &str, value: String| format!(" --{name} {value}");
    let mut command = "headroom lab advise".to_owned();
    if let (Some(rate), Some(rtt), Some(files)) = (arguments.rate, arguments.rtt, arguments.files) {
        command += &shown("rate", exact_rate(rate));
        command += &shown("rtt", duration_word(rtt));
        if arguments.loss > 0.0 {
            command += &shown("loss", format!("{}%", arguments.loss));
        }
        let bytes = files.bytes.min(LARGEST_MEASURED);
        command += &shown("files", format!("{}x{}", files.count, exact_size(bytes)));
    }
    if !arguments.need.is_empty() {
        command += &shown("need", arguments.need.join(","));
    }
    if let Some(from) = &arguments.from {
        command += &shown("from", quote(&from.display().to_string()));
    }
    command + " --measure"
}

fn duration_word(time: std::time::Duration) -> String {
    format!("{}ms", time.as_secs_f64() * 1e3)
}

/// The advised stacks; without advice all that have the needs.
fn stacks_to_measure(
    basis: &Basis,
    question: &Question,
    advice: Option<&advise::Advice>,
) -> Vec<String> {
    match advice {
        Some(advice) => advice.stacks.iter().map(|stack| stack.stack.clone()).collect(),
        None => {
            let names = basis.stacks.iter().map(|stack| &stack.name);
            names.filter(|name| facts(name).lacks(&question.needs).is_none()).cloned().collect()
        }
    }
}

fn plan_text(question: &Question, stacks: &[String]) -> String {
    let names: Vec<String> = stacks.iter().map(|name| format!("{name:?}")).collect();
    let one_way_ms = 500.0 * question.rtt_s;
    let loss = match question.loss {
        loss if loss > 0.0 => format!(",loss={}%", 100.0 * loss),
        _ => String::new(),
    };
    let (kind, files) = match question.files {
        1 => ("download", String::new()),
        count => ("many", format!("files = {count}\n")),
    };
    format!(
        "question = \"Which stack is the fastest on my link?\"\nstacks = [{}]\nlink = \"{},delay={one_way_ms}ms{loss}\"\n\
         count-packets = false\n[[workload]]\nkind = \"{kind}\"\nsizes = [\"{}\"]\n{files}",
        names.join(", "),
        exact_rate(question.rate_bps as u64),
        exact_size(question.bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_refused_is_measured_with_the_stacks_that_have_the_needs() {
        let needs = vec![Property::MutualAuth];
        let question =
            Question { rate_bps: 1e12, rtt_s: 0.03, loss: 0.0, files: 1, bytes: 1, needs };
        let stacks = stacks_to_measure(&Basis::shipped(), &question, None);
        let expected =
            ["ftps", "sftp", "scp", "rsync", "headroom", "http/wireguard", "http/esp(ike)"];
        assert_eq!(stacks, expected);
    }

    /// The command that settles what these arguments ask.
    fn settled(more: &[&str]) -> String {
        use crate::arguments::{Arguments, Command, Lab};
        use clap::Parser;

        let line = "headroom lab advise --rate 200mbit --rtt 80ms";
        let words = line.split(' ').chain(more.iter().copied());
        let parsed = Arguments::try_parse_from(words).expect("arguments");
        let Command::Lab(Lab::Advise(asked)) = parsed.command else { panic!("another command") };
        settle(&asked)
    }

    #[test]
    fn the_command_that_settles_it_asks_for_files_that_a_plan_may_have() {
        let command = settled(&["--files", "10GB"]);
        assert!(command.ends_with("--files 1x1GiB --measure"), "{command}");
    }

    #[test]
    fn the_command_that_settles_it_names_the_run_as_a_shell_reads_it() {
        let command = settled(&["--files", "1MiB", "--from", "results/my run"]);
        assert!(command.ends_with(" --from 'results/my run' --measure"), "{command}");
    }

    #[test]
    fn what_is_measured_is_the_question() {
        let mut question = Question {
            rate_bps: 200e6,
            rtt_s: 0.03,
            loss: 0.001,
            files: 2000,
            bytes: 1 << 20,
            needs: Vec::new(),
        };
        let stacks = ["http".to_owned(), "ftp".to_owned()];
        let plan = Plan::from_toml(&plan_text(&question, &stacks), "advise").expect("a plan");
        assert_eq!(plan.link.to_string(), "200mbit,delay=15ms,loss=0.1%");
        assert_eq!((plan.workloads[0].files, plan.workloads[0].sizes[0]), (2000, 1 << 20));
        (question.files, question.loss, question.bytes) = (1, 0.0, 1500);
        let plan = Plan::from_toml(&plan_text(&question, &stacks), "advise").expect("a plan");
        assert_eq!(plan.workloads[0].kind, headroom_lab::workload::WorkloadKind::Download);
    }
}
