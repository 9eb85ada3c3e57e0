//! Reads the workspace: crates, modules, what each module defines, re-exports and
//! mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// Index into [`Workspace::modules`].
pub(crate) type ModuleId = usize;

/// All crates of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Folders of crates, by the name that a path begins with (`headroom_lab`).
    pub(crate) crates: BTreeMap<String, CrateRoot>,
    pub(crate) modules: Vec<Module>,
}

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct CrateRoot {
    /// The folder's name under `crates/`.
    pub(crate) folder: String,
    /// The module of `src/lib.rs`; none where there is only a program.
    pub(crate) library: Option<ModuleId>,
}

/// A module: a file, or a block inside one.
#[derive(Debug)]
pub(crate) struct Module {
    /// The crate's folder under `crates/`.
    pub(crate) krate: String,
    /// Names from the crate's root on; empty for the root.
    pub(crate) path: Vec<String>,
    /// The file, from the workspace's root.
    pub(crate) file: PathBuf,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) children: BTreeMap<String, ModuleId>,
    /// Names of what is defined here.
    pub(crate) items: BTreeSet<String>,
    /// Names that `use` makes, and the path that each stands for.
    pub(crate) aliases: BTreeMap<String, Vec<String>>,
    /// Paths behind which all names are imported.
    pub(crate) globs: Vec<Vec<String>>,
    /// Paths that the module's code and its private `use` mention.
    pub(crate) mentions: Vec<Mention>,
}

/// A path as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

impl Workspace {
    /// Reads every crate in `crates/`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut workspace = Self::default();
        let folder = root.join("crates");
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let mut names = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<Vec<String>>>()?;
        names.sort();
        for name in names {
            workspace.read_crate(root, &name)?;
        }
        Ok(workspace)
    }

    /// Tells whether a module is a child, or a child's child, of another.
    pub(crate) fn is_inside(&self, module: ModuleId, other: ModuleId) -> bool {
        let parent = |module: &ModuleId| self.modules[*module].parent;
        std::iter::successors(parent(&module), parent).any(|ancestor| ancestor == other)
    }

    fn read_crate(&mut self, root: &Path, folder: &str) -> anyhow::Result<()> {
        #[derive(serde::Deserialize)]
        struct Manifest {
            package: Package,
        }
        #[derive(serde::Deserialize)]
        struct Package {
            name: String,
        }
        let manifest = root.join("crates").join(folder).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .with_context(|| format!("read {}", manifest.display()))?;
        let Manifest { package } =
            toml::from_str(&text).with_context(|| format!("parse {}", manifest.display()))?;
        let source = Path::new("crates").join(folder).join("src");
        let mut roots = ["lib.rs", "main.rs"].map(|file| {
            let file = source.join(file);
            root.join(&file).is_file().then_some(file)
        });
        let library = roots[0].take().map(|file| self.read_file(root, folder, file, None, &[]));
        if let Some(file) = roots[1].take() {
            self.read_file(root, folder, file, None, &[])?;
        }
        let found = CrateRoot { folder: folder.to_owned(), library: library.transpose()? };
        self.crates.insert(package.name.replace('-', "_"), found);
        Ok(())
    }

    /// Reads a file as the module `path`, and its child modules.
    fn read_file(
        &mut self,
        root: &Path,
        krate: &str,
        file: PathBuf,
        parent: Option<ModuleId>,
        path: &[String],
    ) -> anyhow::Result<ModuleId> {
        let whole = root.join(&file);
        let text =
            std::fs::read_to_string(&whole).with_context(|| format!("read {}", whole.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("parse {}", whole.display()))?;
        let id = self.add(krate, file, parent, path);
        self.read_items(root, id, &parsed.items)?;
        Ok(id)
    }

    fn add(
        &mut self,
        krate: &str,
        file: PathBuf,
        parent: Option<ModuleId>,
        path: &[String],
    ) -> ModuleId {
        self.modules.push(Module {
            krate: krate.to_owned(),
            path: path.to_vec(),
            file,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            aliases: BTreeMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
        });
        self.modules.len() - 1
    }

    fn read_items(&mut self, root: &Path, id: ModuleId, items: &[Item]) -> anyhow::Result<()> {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let here = &self.modules[id];
                    let path = [here.path.as_slice(), std::slice::from_ref(&name)].concat();
                    let (krate, file) = (here.krate.clone(), here.file.clone());
                    let child = match &module.content {
                        Some((_, items)) => {
                            let child = self.add(&krate, file, Some(id), &path);
                            self.read_items(root, child, items)?;
                            child
                        }
                        None => {
                            let file = file_of(root, &file, &path)?;
                            self.read_file(root, &krate, file, Some(id), &path)?
                        }
                    };
                    self.modules[id].children.insert(name, child);
                }
                Item::Use(item) => {
                    let is_private = matches!(item.vis, Visibility::Inherited);
                    self.modules[id].import(&item.tree, is_private);
                }
                item => {
                    self.modules[id].items.extend(name_of(item));
                    Mentions { module: &mut self.modules[id] }.visit_item(item);
                }
            }
        }
        Ok(())
    }
}

impl Module {
    /// Adds what a `use` brings in; only a private one is an import of this module's own.
    fn import(&mut self, tree: &UseTree, is_private: bool) {
        let mut paths = Vec::new();
        flatten(tree, &mut Vec::new(), &mut paths);
        for (path, alias, line) in paths {
            if is_private {
                self.mentions.push(Mention { path: path.clone(), line });
            }
            match alias {
                Some(name) => drop(self.aliases.insert(name, path)),
                None => self.globs.push(path),
            }
        }
    }
}

/// The paths of a `use`, each with the name it makes, or none for `*`.
fn flatten(
    tree: &UseTree,
    prefix: &mut Vec<String>,
    paths: &mut Vec<(Vec<String>, Option<String>, usize)>,
) {
    let leaf = |prefix: &[String], name: &syn::Ident, alias: &syn::Ident| {
        let mut path = prefix.to_vec();
        if name != "self" || path.is_empty() {
            path.push(name.to_string());
        }
        let alias = if alias == "self" { path.last().cloned() } else { Some(alias.to_string()) };
        (path, alias, name.span().start().line)
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, paths);
            prefix.pop();
        }
        UseTree::Name(name) => paths.push(leaf(prefix, &name.ident, &name.ident)),
        UseTree::Rename(rename) => paths.push(leaf(prefix, &rename.ident, &rename.rename)),
        UseTree::Glob(glob) => paths.push((prefix.clone(), None, glob.span().start().line)),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, prefix, paths));
        }
    }
}

/// Where `mod name;` of a file finds its module.
fn file_of(root: &Path, parent: &Path, path: &[String]) -> anyhow::Result<PathBuf> {
    let source: PathBuf = parent.components().take(3).collect(); // crates/NAME/src
    let base = source.join(path.iter().collect::<PathBuf>());
    for file in [base.with_extension("rs"), base.join("mod.rs")] {
        if root.join(&file).is_file() {
            return Ok(file);
        }
    }
    bail!("{}: found no file of the module `{}`", parent.display(), path.join("::"));
}

/// Gathers the paths that code mentions.
struct Mentions<'a> {
    module: &'a mut Module,
}

impl Mentions<'_> {
    fn add(&mut self, path: &syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.module.mentions.push(Mention { path: segments, line: path.span().start().line });
    }

    /// Takes what looks like a path out of a macro's arguments.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is_colon =
            |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(first) => {
                    let is_member = at > 0
                        && matches!(&tokens[at - 1], TokenTree::Punct(p) if p.as_char() == '.' && p.spacing() == Spacing::Alone);
                    let mut path = vec![first.to_string()];
                    while is_colon(at + 1)
                        && is_colon(at + 2)
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    let is_call = matches!(tokens.get(at + 1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    if !is_member && (path.len() > 1 || is_call || is_capital(&path[0])) {
                        let line = first.span().start().line;
                        self.module.mentions.push(Mention { path, line });
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    /// A `use` inside a function.
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.module.import(&item.tree, true);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path);
        syn::visit::visit_path(self, path);
    }

    /// A lone name in small letters is a variable, unless it is called.
    fn visit_expr_path(&mut self, expression: &'ast syn::ExprPath) {
        let is_variable =
            expression.path.get_ident().is_some_and(|name| !is_capital(&name.to_string()));
        if !is_variable {
            syn::visit::visit_expr_path(self, expression);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func {
            self.add(&function.path);
        }
        syn::visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.scan(called.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn is_capital(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

/// Whether something is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item has in its module.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
