//! Follows each path that a module mentions to the file that defines what it names.

use std::collections::BTreeSet;

use crate::source::{ModuleId, Workspace};

/// One module uses what another one's file defines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: ModuleId,
    pub(crate) to: ModuleId,
    /// The line that names it,
    pub(crate) line: usize,
    /// and the path as written.
    pub(crate) path: String,
}

/// Returns all imports between files.
pub(crate) fn imports(workspace: &Workspace) -> Vec<Import> {
    let mut imports = BTreeSet::new();
    for (from, module) in workspace.modules.iter().enumerate() {
        for mention in &module.mentions {
            if let Some(Target::Item(to)) = workspace.resolve(from, &mention.path, LONGEST_CHAIN)
                && workspace.modules[to].file != module.file
            {
                let path = mention.path.join("::");
                imports.insert(Import { from, to, path, line: mention.line });
            }
        }
    }
    imports.into_iter().collect()
}

/// Re-exports of re-exports; rustc has checked that they end.
const LONGEST_CHAIN: u32 = 16;

/// What a path leads to.
#[derive(Debug, Clone, Copy)]
enum Target {
    Module(ModuleId),
    /// Something that this module defines.
    Item(ModuleId),
}

impl Workspace {
    /// Resolves a path of a module; `None`: a name of no crate of the workspace.
    fn resolve(&self, from: ModuleId, path: &[String], left: u32) -> Option<Target> {
        let left = left.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let module = &self.modules[from];
        let mut target = match first.as_str() {
            "crate" => Target::Module(self.root_of(from)),
            "self" => Target::Module(from),
            "super" => Target::Module(module.parent?),
            name => self.look_up(from, name, rest.is_empty(), left).or_else(|| {
                self.crates.get(name).and_then(|krate| krate.library).map(Target::Module)
            })?,
        };
        for (index, name) in rest.iter().enumerate() {
            let Target::Module(inside) = target else { break };
            let is_last = index + 1 == rest.len();
            target = match name.as_str() {
                "super" => Target::Module(self.modules[inside].parent?),
                // what is not found was made by a macro of that module
                name => self.look_up(inside, name, is_last, left).unwrap_or(Target::Item(inside)),
            };
        }
        Some(target)
    }

    /// Looks a name up in a module. A module and a function may have the same name: a path
    /// that goes on means the module.
    fn look_up(&self, inside: ModuleId, name: &str, is_last: bool, left: u32) -> Option<Target> {
        let module = &self.modules[inside];
        let child = module.children.get(name).map(|&child| Target::Module(child));
        if !is_last && child.is_some() {
            return child;
        }
        if module.items.contains(name) {
            return Some(Target::Item(inside));
        }
        if let Some(path) = module.aliases.get(name)
            && let Some(target) = self.resolve_alias(inside, name, path, left)
        {
            return Some(target);
        }
        child.or_else(|| self.look_up_in_globs(inside, name, is_last, left))
    }

    /// Resolves what a `use` stands for. `use read::read` names a child module first.
    fn resolve_alias(
        &self,
        inside: ModuleId,
        name: &str,
        path: &[String],
        left: u32,
    ) -> Option<Target> {
        let is_itself = path.first().is_some_and(|first| first == name);
        if is_itself && !self.modules[inside].children.contains_key(name) {
            // `use toml;` or `use toml::…`: a crate
            let library = self.crates.get(name)?.library?;
            let rest = [&["crate".to_owned()], &path[1..]].concat();
            return self.resolve(library, &rest, left);
        }
        self.resolve(inside, path, left)
    }

    fn look_up_in_globs(
        &self,
        inside: ModuleId,
        name: &str,
        is_last: bool,
        left: u32,
    ) -> Option<Target> {
        let left = left.checked_sub(1)?;
        self.modules[inside].globs.iter().find_map(|path| {
            match self.resolve(inside, path, left)? {
                Target::Module(module) => self.look_up(module, name, is_last, left),
                Target::Item(_) => None,
            }
        })
    }

    fn root_of(&self, mut module: ModuleId) -> ModuleId {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }
}
