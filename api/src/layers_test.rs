//! Checks that the top-level modules of this crate import each other in one direction only.
//!
//! Reads the `crate::` paths in the sources, tests left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_each_other_in_one_direction() {
    let imports = imports(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    let circles: BTreeSet<&str> = imports
        .keys()
        .filter(|module| reached(&imports, module).contains(module.as_str()))
        .map(String::as_str)
        .collect();
    assert_eq!(circles, BTreeSet::new());
}

#[test]
fn paths_are_found_in_every_form_of_import() {
    let text = "use crate::a::B;\nuse crate::{c, d::E};\nlet f = crate::f::g();\n#[cfg(test)]\nmod tests { use crate::h; }";
    assert_eq!(modules_in(text), ["a", "c", "d", "f"].map(str::to_owned).into());
}

/// All modules that can be reached from one by following imports.
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

/// What each top-level module imports of the others.
fn imports(src: &Path) -> Imports {
    let mut imports = Imports::new();
    for file in sources(src) {
        let relative = file.strip_prefix(src).unwrap();
        let top = relative.components().next().unwrap().as_os_str().to_string_lossy();
        let top = top.trim_end_matches(".rs").to_owned();
        if top == "lib" || is_test(&file) {
            continue;
        }
        let found = modules_in(&std::fs::read_to_string(&file).unwrap());
        imports.entry(top.clone()).or_default().extend(found.into_iter().filter(|module| *module != top));
    }
    assert!(imports.len() > 40, "{} modules found", imports.len());
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

/// The top-level modules that a source names, outside comments and the tests at its foot.
fn modules_in(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            None => found.insert(word(after)),
            Some(group) => {
                let group = group.split('}').next().unwrap_or_default();
                found.extend(group.split(',').map(|item| word(item.trim())));
                true
            }
        };
    }
    found.retain(|module| !module.is_empty());
    found
}
