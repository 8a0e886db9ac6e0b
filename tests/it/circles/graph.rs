//! The import graph between the files of one crate, and its circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::{Import, Scoped, Source, read};

/// Maximum number of re-exports that are followed for one path. Re-exports may form a ring.
const FORWARDS_MAX: usize = 16;

/// For each file, the files that it imports.
pub type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// A module path from the root of the crate.
type ModulePath = Vec<String>;

/// The modules of one crate.
struct Crate<'t> {
    modules: BTreeMap<ModulePath, Module>,
    sources: BTreeMap<PathBuf, (ModulePath, Source)>,
    text: &'t dyn Fn(&Path) -> Option<String>,
}

/// A module: its file and the names that it imports, without `module::*`.
struct Module {
    file: PathBuf,
    imports: BTreeMap<String, Scoped>,
}

/// The meaning of a path.
enum Meaning {
    /// The path names a module.
    Module(ModulePath),
    /// The path names something that this file defines.
    Item(PathBuf),
}

/// Reads the crate with this root file, `lib.rs` or `main.rs`, and returns which file imports which. `text` returns
/// the text of a file that exists.
pub fn imports(root: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Imports {
    let mut modules = Crate { modules: BTreeMap::new(), sources: BTreeMap::new(), text };
    modules.load(root, Vec::new(), root.parent().expect("a root file is in a directory"));
    modules
        .sources
        .iter()
        .map(|(file, (module, source))| (file.clone(), modules.imported(file, module, source)))
        .collect()
}

impl Crate<'_> {
    /// Reads a file and the files of the modules below it, which are in `directory`.
    fn load(&mut self, file: &Path, module: ModulePath, directory: &Path) {
        let source = read(&(self.text)(file).expect("a source is text"));
        let inline = source.inline.iter().cloned().chain([Vec::new()]);
        for scope in inline {
            let is_here = |import: &&Import| import.target.scope == scope;
            let target = |import: &Import| Scoped { scope: Vec::new(), path: import.target.path.clone() };
            let names = source.imports.iter().filter(is_here).filter(|import| import.name != "*");
            let imports = names.map(|import| (import.name.clone(), target(import))).collect();
            let path = [&module[..], &scope].concat();
            self.modules.insert(path, Module { file: file.to_owned(), imports });
        }
        for declared in &source.declared {
            let directory = declared.scope.iter().fold(directory.to_owned(), |path, name| path.join(name));
            let below = directory.join(&declared.path[0]);
            let child = [&module[..], &declared.scope, &declared.path].concat();
            match [below.with_extension("rs"), below.join("mod.rs")]
                .into_iter()
                .find(|file| (self.text)(file).is_some())
            {
                Some(file) => self.load(&file, child, &below),
                None => panic!("{} declares {child:?}, which has no file", file.display()),
            }
        }
        self.sources.insert(file.to_owned(), (module, source));
    }

    /// Returns the other files that a file imports. An import of the module itself does not count as an import of
    /// its file; only the paths that begin with the module count.
    fn imported(&self, file: &Path, module: &ModulePath, source: &Source) -> BTreeSet<PathBuf> {
        // If this file re-exports a name and does not use it itself, the import counts for the files that
        // import the name from this file.
        let is_used = |import: &&Import| !import.is_public || source.words.contains(&import.name);
        let imports = source.imports.iter().filter(is_used).map(|import| &import.target);
        imports
            .chain(&source.mentions)
            .filter_map(|path| match self.meaning(&[&module[..], &path.scope].concat(), &path.path, 0) {
                Some(Meaning::Item(defined)) if defined != file => Some(defined),
                _ => None,
            })
            .collect()
    }

    /// Finds the meaning of a path in a module, unless another crate or a local name begins it.
    fn meaning(&self, module: &[String], path: &[String], forwards: usize) -> Option<Meaning> {
        let first = path.first()?.as_str();
        match first {
            "crate" => self.within(Vec::new(), &path[1..], forwards),
            "self" => self.within(module.to_vec(), &path[1..], forwards),
            "super" => {
                let mut parent = module.to_vec();
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                parent.truncate(parent.len().checked_sub(ups)?);
                self.within(parent, &path[ups..], forwards)
            }
            _ => {
                let is_import = self.modules[module].imports.contains_key(first);
                let is_child = self.modules.contains_key(&[module, &path[..1]].concat());
                (is_import || is_child).then(|| self.within(module.to_vec(), path, forwards)).flatten()
            }
        }
    }

    /// Finds the meaning of a path that begins in a module.
    fn within(&self, module: ModulePath, path: &[String], forwards: usize) -> Option<Meaning> {
        let known = self.modules.get(&module)?;
        let Some(name) = path.first() else { return Some(Meaning::Module(module)) };
        let child = [&module[..], &path[..1]].concat();
        if self.modules.contains_key(&child) {
            return self.within(child, &path[1..], forwards);
        }
        if forwards == FORWARDS_MAX {
            return None;
        }
        if let Some(import) = known.imports.get(name) {
            // The name of another crate has no meaning here.
            return match self.meaning(&module, &import.path, forwards + 1)? {
                Meaning::Module(module) => self.within(module, &path[1..], forwards + 1),
                item @ Meaning::Item(_) => Some(item),
            };
        }
        Some(Meaning::Item(known.file.clone()))
    }
}

/// Returns the circles: the largest sets of files each of which reaches all others. If one file is the parent of all
/// other files of a circle, removes this file and searches the other files for circles again.
pub fn circles(imports: &Imports) -> Vec<BTreeSet<PathBuf>> {
    let mut circles = Vec::new();
    for mut circle in components(imports) {
        let Some(parent) = circle.iter().find(|file| is_parent_of_all(file, &circle)).cloned() else {
            circles.push(circle);
            continue;
        };
        circle.remove(&parent);
        let among = |file: &PathBuf| (file.clone(), imports[file].intersection(&circle).cloned().collect());
        circles.extend(self::circles(&circle.iter().map(among).collect()));
    }
    circles
}

/// Whether all other files belong to modules below the module of `file`. Such a parent is `mod.rs`, `name.rs` next to a
/// directory `name`, or the root file.
fn is_parent_of_all(file: &Path, others: &BTreeSet<PathBuf>) -> bool {
    let is_inside = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
    let directory = if is_inside { file.with_file_name("") } else { file.with_extension("") };
    others.iter().all(|other| other == file || other.starts_with(&directory))
}

/// Returns the largest sets of two or more files each of which reaches all others.
fn components(imports: &Imports) -> Vec<BTreeSet<PathBuf>> {
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        imports.keys().map(|file| (file, reached(imports, file))).collect();
    let circles: BTreeSet<BTreeSet<PathBuf>> = reached
        .iter()
        .filter(|(file, others)| others.contains(**file))
        .map(|(file, others)| {
            others
                .iter()
                .filter(|other| reached[**other].contains(*file))
                .map(|other| (*other).clone())
                .collect()
        })
        .collect();
    circles.into_iter().collect()
}

/// Returns the files that can be reached from a file by following imports.
fn reached<'i>(imports: &'i Imports, from: &PathBuf) -> BTreeSet<&'i PathBuf> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// Returns the circles of a crate with these files.
fn circles_of(sources: &[(&str, &str)]) -> Vec<String> {
    let sources: BTreeMap<&Path, &str> =
        sources.iter().map(|&(file, text)| (Path::new(file), text)).collect();
    let imports = imports(Path::new("src/lib.rs"), &|file| Some((*sources.get(file)?).to_owned()));
    let name = |file: &PathBuf| file.strip_prefix("src").unwrap_or(file).display().to_string();
    circles(&imports).iter().map(|circle| circle.iter().map(name).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn imports_are_resolved_to_the_file_that_defines_the_item() {
    for (uses, circle) in [
        ("use crate::b::c::C;", "a.rs b/c.rs"),
        ("use crate::b::C;", "a.rs b/c.rs"),
        ("use crate::b; fn f(c: b::C) {}", "a.rs b/c.rs"),
        ("use super::{b::{self, C as D}};", "a.rs b/c.rs"),
        ("fn f() -> crate::b::C {}", "a.rs b/c.rs"),
        ("mod inner { use super::super::b::c; fn f() { c::f(); } }", "a.rs b/c.rs"),
        // Imports of a module itself, re-exports and imports in tests do not count as imports of a file.
        ("use crate::b;", ""),
        ("pub use crate::b::C;", ""),
        ("pub use crate::b::C; struct A(C);", "a.rs b/c.rs"),
        ("#[cfg(test)] mod tests { use crate::b::C; }", ""),
        ("use other::b::C;", ""),
    ] {
        let b = ("src/b/mod.rs", "pub mod c; pub use c::C;");
        let c = ("src/b/c.rs", "use crate::a::A; pub struct C(A);");
        let found = circles_of(&[("src/lib.rs", "mod a; mod b;"), ("src/a.rs", uses), b, c]);
        assert_eq!(found.join("; "), circle, "{uses}");
    }
}

#[test]
fn a_parent_module_does_not_belong_to_a_circle_within_it() {
    let root = ("src/lib.rs", "mod a; mod m; pub const C: u8 = a::A;");
    let parent = ("src/m.rs", "mod x; mod y; use x::X; use y::Y;");
    let x = ("src/m/x.rs", "use super::M;");
    let calls_y = ("src/m/x.rs", "use super::{M, y::Y};");
    let y = ("src/m/y.rs", "use super::x::X; use super::M;");
    let outside = ("src/a.rs", "use crate::m::M; use crate::C;");
    assert_eq!(circles_of(&[root, ("src/a.rs", "use crate::C;"), parent, x, y]), [""; 0]);
    assert_eq!(circles_of(&[root, outside, parent, calls_y, y]), ["m/x.rs m/y.rs"]);
    let calls_outside = ("src/m/x.rs", "use super::M; use crate::a::A;");
    assert_eq!(circles_of(&[root, outside, parent, calls_outside, y]), ["a.rs m/x.rs m/y.rs m.rs"]);
}
