//! Finds files that import one another in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::resolve::Import;
use crate::source::Workspace;

/// Returns a sentence for each group of files of which each imports every other one, by
/// way of others or directly.
pub(crate) fn problems(workspace: &Workspace, imports: &[Import]) -> Vec<String> {
    let mut graph: Graph<'_> = BTreeMap::new();
    for import in imports.iter().filter(|import| !workspace.is_inside(import.from, import.to)) {
        let file = |module: usize| workspace.modules[module].file.as_path();
        graph.entry(file(import.from)).or_default().entry(file(import.to)).or_insert(import);
    }
    let mut problems = Vec::new();
    let mut told = BTreeSet::new();
    for &file in graph.keys() {
        let Some(circle) = shortest_circle(&graph, file) else { continue };
        if told.contains(file) {
            continue;
        }
        let mut group = reached(&graph, file);
        group.retain(|other| reached(&graph, other).contains(file));
        told.extend(group.iter().copied());
        problems.push(sentence(&graph, &group, &circle));
    }
    problems
}

/// Which files a file imports, and by what.
type Graph<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, &'a Import>>;

fn sentence(graph: &Graph<'_>, group: &BTreeSet<&Path>, circle: &[&Path]) -> String {
    let mut lines = vec![format!(
        "{} files import one another in a circle. The shortest one through {}:",
        group.len(),
        circle[0].display()
    )];
    for (index, from) in circle.iter().enumerate() {
        let to = circle[(index + 1) % circle.len()];
        let Import { path, line, .. } = graph[from][to];
        lines.push(format!("  {}:{line}: `{path}` is defined in {}", from.display(), to.display()));
    }
    if group.len() > circle.len() {
        let others = group.iter().filter(|file| !circle.contains(file));
        let others: Vec<String> = others.map(|file| file.display().to_string()).collect();
        lines.push(format!("  also in it: {}", others.join(", ")));
    }
    lines.push(
        "  Move what one of them needs of the next into a file that imports neither, or pass it in."
            .to_owned(),
    );
    lines.join("\n")
}

/// All files that a file imports, directly or by way of others.
fn reached<'a>(graph: &Graph<'a>, from: &Path) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for &next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found
}

/// The files of the shortest circle through a file, in the order of their imports.
fn shortest_circle<'a>(graph: &Graph<'a>, through: &'a Path) -> Option<Vec<&'a Path>> {
    let mut before: BTreeMap<&Path, &'a Path> = BTreeMap::new();
    let mut open = VecDeque::from([through]);
    while let Some(file) = open.pop_front() {
        for &next in graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            if before.contains_key(next) {
                continue;
            }
            before.insert(next, file);
            if next == through {
                let mut circle = Vec::new();
                let mut at = through;
                loop {
                    at = before[at];
                    circle.push(at);
                    if at == through {
                        circle.reverse();
                        return Some(circle);
                    }
                }
            }
            open.push_back(next);
        }
    }
    None
}
