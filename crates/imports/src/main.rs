//! `headroom-imports [FOLDER]`: checks the workspace in a folder, by default the current
//! one.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let problems = headroom_imports::check(&root)?;
    for problem in &problems {
        eprintln!("{problem}\n");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
