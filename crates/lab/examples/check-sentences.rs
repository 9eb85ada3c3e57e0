//! Holds the sentences of finished runs against their own rows:
//! `cargo run --release -p headroom-lab --example check-sentences -- results/RUN …`
//! Ends with 1 where a cell contradicts a sentence, or no rule can hold it against one.

use std::path::PathBuf;
use std::process::ExitCode;

use headroom_lab_results::analysis::sentence::read;
use headroom_lab_results::report;

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("check-sentences: name folders of runs, or their results.json");
        return ExitCode::from(2);
    }
    let mut good = true;
    for path in paths {
        let results = if path.is_file() { report::read_file(&path) } else { report::read(&path) };
        let results = match results {
            Ok(results) => results,
            Err(error) => {
                eprintln!("check-sentences: {error}");
                good = false;
                continue;
            }
        };
        let contradictions = read::contradictions(&results);
        println!(
            "{}: {} sentences, {} contradictions",
            path.display(),
            results.answer.len(),
            contradictions.len()
        );
        for contradiction in &contradictions {
            println!("  {contradiction}");
        }
        good &= contradictions.is_empty();
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
