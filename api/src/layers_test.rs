//! Checks the direction of dependencies in this crate: a layer imports only from the layers below it, and no
//! two modules of a layer depend on each other.
//!
//! The check reads the `crate::` paths in the sources and skips tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The layers of this crate, lowest first, as listed in `lib.rs`.
const ROOMS: [&str; 4] = ["state", "writes", "requests", "system"];

/// The imports of each module. The name of a module has the form `layer::module`.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_only_from_lower_layers_and_without_circles() {
    let imports = imports(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    let rank = |module: &str| {
        let room = module.split("::").next().unwrap_or_default();
        ROOMS.iter().position(|known| *known == room).unwrap_or_else(|| panic!("{module} is in no room"))
    };
    let upward: Vec<String> = imports
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
        .filter(|(from, to)| rank(from) < rank(to))
        .map(|(from, to)| format!("{from} imports {to}"))
        .collect();
    assert_eq!(upward, Vec::<String>::new());
    let circles: BTreeSet<&str> = imports
        .keys()
        .filter(|module| reached(&imports, module).contains(module.as_str()))
        .map(String::as_str)
        .collect();
    assert_eq!(circles, BTreeSet::new());
}

/// Checks that the code that handles requests does not use the engine directly: this code opens the store with
/// the proof of its permission (`objects/store/access.rs`). Only code that follows the log uses the engine in
/// the context of the server.
#[test]
fn no_request_handler_uses_the_engine_directly() {
    let src = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let rooms = ["requests", "writes/write"].map(|room| sources(&src.join(room)));
    let files: Vec<PathBuf> = rooms.concat().into_iter().filter(|file| !is_test(file)).collect();
    assert!(files.len() > 30, "{} files found", files.len());
    let reaching: Vec<&PathBuf> = files
        .iter()
        .filter(|file| !file.ends_with("server_fixture.rs"))
        .filter(|file| std::fs::read_to_string(file).unwrap().contains(".engine()"))
        .collect();
    assert_eq!(reaching, Vec::<&PathBuf>::new());
}

#[test]
fn modules_in_finds_every_form_of_import() {
    let text = "use crate::r::a::B;\nuse crate::r::{c, d::{E, F}, g::H};\nuse crate::{s::i::J, r::{k}};\n\
                let f = crate::r::l::g();\n// crate::r::not\n#[cfg(test)]\nmod tests { use crate::r::m; }";
    let want = ["r::a", "r::c", "r::d", "r::g", "r::k", "r::l", "s::i"];
    assert_eq!(modules_in(text), want.map(str::to_owned).into());
}

/// Returns all modules that can be reached from `from` by following imports.
fn reached<'i>(imports: &'i Imports, from: &str) -> BTreeSet<&'i str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

fn imports(src: &Path) -> Imports {
    let mut imports = Imports::new();
    for file in sources(src) {
        let relative = file.strip_prefix(src).unwrap().with_extension("");
        let parts: Vec<_> = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        let [room, module, ..] = &parts[..] else { continue };
        if module == "mod" || is_test(&file) {
            continue;
        }
        let module = format!("{room}::{module}");
        let mut found = modules_in(&std::fs::read_to_string(&file).unwrap());
        found.remove(&module);
        imports.entry(module).or_default().extend(found);
    }
    assert!(imports.len() > 20, "{} modules found", imports.len());
    imports
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn is_test(file: &Path) -> bool {
    let name = file.file_stem().unwrap().to_string_lossy();
    name.ends_with("_test") || ["testing", "fixture", "server_fixture"].contains(&&*name)
}

/// Returns the modules that a source file names. Comments, and the tests at the end of the file, are skipped.
fn modules_in(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for tree in code.split("crate::").skip(1) {
        expand(tree, &mut Vec::new(), &mut found);
    }
    found
}

/// Adds the first two segments of each path of a use tree such as `a::{b, c::d}`, and returns the text after
/// the tree.
fn expand<'t>(tree: &'t str, path: &mut Vec<&'t str>, found: &mut BTreeSet<String>) -> &'t str {
    let tree = tree.trim_start();
    if let Some(mut rest) = tree.strip_prefix('{') {
        loop {
            rest = expand(rest, path, found).trim_start().trim_start_matches(',').trim_start();
            match rest.strip_prefix('}') {
                Some(after) => return after,
                None if rest.is_empty() => return rest,
                None => {}
            }
        }
    }
    let end = tree.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tree.len());
    let (word, after) = tree.split_at(end);
    if word.is_empty() {
        // Other items, for example `*`, name no module.
        return after.strip_prefix(|_: char| true).unwrap_or_default();
    }
    path.push(word);
    let after = match after.strip_prefix("::") {
        Some(rest) if rest.starts_with('{') || rest.starts_with(char::is_alphanumeric) => {
            expand(rest, path, found)
        }
        _ => after,
    };
    if let [room, module, ..] = path[..]
        && room.starts_with(char::is_lowercase)
        && module.starts_with(char::is_lowercase)
    {
        found.insert(format!("{room}::{module}"));
    }
    path.pop();
    after
}
