//! `headroom lab parts`, and measuring what it fetched.

use std::path::Path;
use std::process::ExitCode;

use headroom_lab::Error;
use headroom_lab_host::privileges::Privileges;
use headroom_lab_host::programs::{self, Program, SearchPath};
use headroom_lab_parts::Tree;
use headroom_units as units;
use indicatif::{ProgressBar, ProgressStyle};

/// Fetches the tree, from an archive or from the one of this machine's own packages.
pub(crate) fn fetch(archive: Option<String>) -> anyhow::Result<ExitCode> {
    let tree = SearchPath::from_environment().pinned_tree();
    let (packages, bytes) = Tree::size();
    let name = Tree::name();
    if tree.is_current() {
        println!("{name} is in {} already.", tree.path().display());
        return Ok(ExitCode::SUCCESS);
    }
    let archive = archive.or_else(headroom_lab_parts::archive_of_this_machine).ok_or_else(|| {
        Error::Plan(
            "this machine's packages come from no archive of Debian: name one with --archive, such as that \
             of your country, by http:// and without /debian (https://www.debian.org/mirror/list)"
                .to_owned(),
        )
    })?;
    eprintln!("headroom: fetching {packages} packages of {name}, {}", units::size(bytes));
    let bar = ProgressBar::new(bytes);
    let shown = "{elapsed_precise} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
    bar.set_style(ProgressStyle::with_template(shown)?);
    let fetched = tree.fetch(&archive, &|arrived| bar.set_position(arrived));
    bar.finish_and_clear();
    fetched?;
    println!(
        "{name} is in {}: `headroom lab run` measures its programs from now on, with --host-programs \
         those of this machine.",
        tree.path().display()
    );
    Ok(ExitCode::SUCCESS)
}

/// What decides whether a run measures the pinned programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// What it needs.
    pub(crate) needed: &'a [Program],
    /// Whether stacks whose programs are missing are left out.
    pub(crate) skip_missing: bool,
    /// The paths that it was given, and that must mean the same then.
    pub(crate) paths: &'a [&'a Path],
    /// Whether an interrupted run that it continues has measured them; none: it is a new one.
    pub(crate) before: Option<bool>,
}

impl<'a> Choice<'a> {
    /// What the run cannot do without.
    fn required(self) -> &'a [Program] {
        if self.skip_missing { programs::TESTBED } else { self.needed }
    }
}

/// Says before a dry run which programs a run would not find, on this machine or, unless it is
/// to measure this machine's, in the pinned tree.
pub(crate) fn warn_of_missing(choice: Choice<'_>, host_programs: bool) {
    let search = SearchPath::from_environment();
    let may_enter = !host_programs && headroom_lab_parts::entered().is_none();
    if may_enter && obstacle(&search, &search.pinned_tree(), choice).is_none() {
        return;
    }
    if let Err(error) = search.require(choice.required()) {
        eprintln!("headroom: a run would end with exit code 3: {error}");
    }
}

/// Begins this program again among the pinned programs, where that is possible and wanted; returns
/// otherwise.
///
/// # Errors
/// What is to be continued has measured them, and they cannot be entered.
pub(crate) fn enter_if_possible(choice: Choice<'_>) -> anyhow::Result<()> {
    if headroom_lab_parts::entered().is_some() {
        return Ok(());
    }
    let search = SearchPath::from_environment();
    let tree = search.pinned_tree();
    if choice.before == Some(false) {
        if tree.is_current() {
            eprintln!(
                "headroom: this run began with this machine's programs, and goes on with them, not with the pinned \
                 ones; a new run measures those"
            );
        }
        return Ok(());
    }
    let why = match obstacle(&search, &tree, choice) {
        None => match headroom_lab_parts::enter(&tree) {
            Ok(never) => match never {},
            Err(error @ headroom_lab_parts::Error::Begin { .. }) => return Err(error.into()),
            Err(error) => error.to_string(),
        },
        Some(why) => why,
    };
    if choice.before == Some(true) {
        let sentence = format!("this run has measured pinned programs before: {why}");
        return Err(Error::Missing(sentence).into());
    }
    if tree.is_current() || tree.has_other_version() {
        eprintln!("headroom: measuring this machine's programs: {why}");
    }
    Ok(())
}

fn obstacle(search: &SearchPath, tree: &Tree, choice: Choice<'_>) -> Option<String> {
    let (name, folder) = (Tree::name(), tree.path().display());
    if !tree.is_current() {
        return Some(format!("{name} is not in {folder}: run `headroom lab parts`"));
    }
    if Privileges::of_this_process().is_root() && !tree.is_roots() {
        return Some(format!("others than root can write to {folder}"));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let paths = choice.paths.iter().copied().chain([here.as_path()]);
    if let Some(path) = paths.into_iter().find(|path| !headroom_lab_parts::stays(path)) {
        return Some(format!("{} would not be there among the pinned ones", path.display()));
    }
    let mut names: Vec<&str> = choice.required().iter().map(|program| program.name).collect();
    names.sort_unstable();
    names.dedup();
    let lacks: Vec<&str> = names.into_iter().filter(|name| !search.can_run_pinned(name)).collect();
    (!lacks.is_empty()).then(|| format!("{name} has no {}", lacks.join(", ")))
}
