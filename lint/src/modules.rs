//! The modules of a crate, what each defines and imports, and the paths that its code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, UseTree, Visibility};

/// A module, which may share its file with the module that contains it.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) file: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    /// Names of the items that it defines.
    pub(crate) items: BTreeSet<String>,
    /// What a `use` makes known here: the name, and the path that it stands for.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// Paths before `::*`.
    pub(crate) globs: Vec<Vec<String>>,
    /// The paths that stand in its code, imports included but for those that only hand a name on.
    pub(crate) paths: BTreeSet<Vec<String>>,
}

/// The modules of one crate; the first is its root.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) modules: Vec<Module>,
}

impl Crate {
    /// Reads the crate whose root is `root` (`src/lib.rs` or the like). Code for tests is left out.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut found = Self::default();
        let directory = root.parent().unwrap_or(Path::new("")).to_owned();
        found.add_file(root, None, &directory)?;
        Ok(found)
    }

    fn add_file(
        &mut self,
        file: &Path,
        parent: Option<usize>,
        children: &Path,
    ) -> Result<usize, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        self.files.push(file.to_owned());
        let file = self.files.len() - 1;
        self.add_module(file, parent, children, &parsed.items)
    }

    fn add_module(
        &mut self,
        file: usize,
        parent: Option<usize>,
        directory: &Path,
        items: &[Item],
    ) -> Result<usize, String> {
        self.modules.push(Module { file, parent, ..Module::default() });
        let index = self.modules.len() - 1;
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let child = self.add_child(file, index, directory, module)?;
                    self.modules[index].children.insert(name, child);
                }
                Item::Use(item) => self.modules[index].import(item),
                item => {
                    let module = &mut self.modules[index];
                    module.items.extend(name(item));
                    Paths(&mut module.paths).visit_item(item);
                }
            }
        }
        Ok(index)
    }

    fn add_child(
        &mut self,
        file: usize,
        parent: usize,
        directory: &Path,
        module: &ItemMod,
    ) -> Result<usize, String> {
        let name = module.ident.to_string();
        let below = directory.join(&name);
        if let Some((_, items)) = &module.content {
            return self.add_module(file, Some(parent), &below, items);
        }
        let flat = directory.join(format!("{name}.rs"));
        let path = if flat.is_file() { flat } else { below.join("mod.rs") };
        self.add_file(&path, Some(parent), &below)
    }

    /// The module in which what `path` names, written in module `from`, is defined; `None` for what
    /// is of another crate or only a module. A path that leads through imports leads on from there.
    pub(crate) fn definition(&self, from: usize, path: &[String]) -> Option<usize> {
        self.resolve(from, path, 0).filter(|found| found.is_item).map(|found| found.module)
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Found> {
        // Imports that name each other have no end.
        if depth > 16 {
            return None;
        }
        let mut at = Found { module: from, is_item: false };
        for (position, segment) in path.iter().enumerate() {
            let module = &self.modules[at.module];
            at = match segment.as_str() {
                "crate" => Found { module: 0, is_item: false },
                "self" => at,
                "super" => Found { module: module.parent?, is_item: false },
                name => self.member(at.module, name, position == 0, depth)?,
            };
            if at.is_item {
                // What follows is a variant or an associated item.
                break;
            }
        }
        Some(at)
    }

    /// What `name` means in `module`.
    fn member(&self, module: usize, name: &str, first: bool, depth: usize) -> Option<Found> {
        let scope = &self.modules[module];
        if let Some(child) = scope.children.get(name) {
            return Some(Found { module: *child, is_item: false });
        }
        if scope.items.contains(name) {
            return Some(Found { module, is_item: true });
        }
        if let Some(path) = scope.imports.get(name) {
            // A name that is imported under itself is another crate's.
            let itself = path.len() == 1 && path[0] == name;
            return if itself { None } else { self.resolve(module, path, depth + 1) };
        }
        let mut globs = scope.globs.iter();
        globs.find_map(|glob| {
            let target = self.resolve(module, glob, depth + 1).filter(|found| !found.is_item)?;
            let loops = target.module == module || (first && depth > 8);
            if loops { None } else { self.member(target.module, name, false, depth + 1) }
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Found {
    module: usize,
    is_item: bool,
}

impl Module {
    fn import(&mut self, item: &ItemUse) {
        let mut imports = Vec::new();
        self.import_tree(&item.tree, &mut Vec::new(), &mut imports);
        for (name, path) in imports {
            // Who hands a name on does not need it.
            if matches!(item.vis, Visibility::Inherited) {
                self.paths.insert(path.clone());
            }
            self.imports.insert(name, path);
        }
    }

    fn import_tree(
        &mut self,
        tree: &UseTree,
        path: &mut Vec<String>,
        imports: &mut Vec<(String, Vec<String>)>,
    ) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.import_tree(&part.tree, path, imports);
                path.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                imports.extend(path.last().cloned().map(|last| (last, path.clone())));
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                imports.push((name.clone(), [&path[..], &[name]].concat()));
            }
            UseTree::Rename(rename) => {
                let full = [&path[..], &[rename.ident.to_string()]].concat();
                imports.push((rename.rename.to_string(), full));
            }
            UseTree::Glob(_) => self.globs.push(path.clone()),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import_tree(tree, path, imports));
            }
        }
    }
}

/// Collects the paths that stand in code, also as arguments of macros.
struct Paths<'a>(&'a mut BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.0.insert(path.segments.iter().map(|part| part.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        collect(found.tokens.clone(), self.0);
        syn::visit::visit_macro(self, found);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }
}

/// The paths among the tokens of a macro: names joined by `::`.
fn collect(tokens: proc_macro2::TokenStream, paths: &mut BTreeSet<Vec<String>>) {
    use proc_macro2::TokenTree;
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if path.is_empty() || colons == 2 => {
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
            other => {
                if !path.is_empty() {
                    paths.insert(core::mem::take(&mut path));
                }
                colons = 0;
                match other {
                    TokenTree::Group(group) => collect(group.stream(), paths),
                    TokenTree::Ident(ident) => path.push(ident.to_string()),
                    TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                }
            }
        }
    }
    if !path.is_empty() {
        paths.insert(path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether one of the attributes is `#[cfg(test)]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == "test")
    })
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// All Rust files of the crate at `directory`, its tests, benchmarks and examples, in order.
pub(crate) fn source_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut directories: Vec<PathBuf> =
        ["src", "tests", "benches", "examples"].iter().map(|name| directory.join(name)).collect();
    directories.retain(|directory| directory.is_dir());
    while let Some(directory) = directories.pop() {
        let error = |error| format!("{}: {error}", directory.display());
        for entry in std::fs::read_dir(&directory).map_err(error)? {
            let path = entry.map_err(error)?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
