//! Names of types (rule 5 of `docs/style.md`): a type that other modules use has a name that is unique within its
//! crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::lexer::{Token, is_word, tokens};
use crate::tree::{files, root};

/// Directories with the crates of the product.
const CRATES: [&str; 5] = ["api", "auth", "bin", "engine", "lib"];

/// Words that begin the declaration of a type.
const DECLARATIONS: [&str; 5] = ["enum", "struct", "trait", "type", "union"];

/// Names of types that each module may declare.
const SHARED: [&str; 2] = ["Error", "Settings"];

/// Returns the names of the types that a file declares and other modules can use.
fn visible_types(code: &str) -> BTreeSet<&str> {
    let words: Vec<&str> = tokens(code).map(|Token { text, .. }| text).collect();
    let mut names = BTreeSet::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "pub") {
        let mut rest = &words[at + 1..];
        if rest.first() == Some(&"(") {
            let end = rest.iter().position(|word| *word == ")").unwrap_or_default();
            rest = &rest[end + 1..];
        }
        if let [declaration, name, ..] = rest
            && DECLARATIONS.contains(declaration)
            && name.starts_with(is_word)
        {
            names.insert(*name);
        }
    }
    names
}

/// Whether a file contains tests only.
fn is_test(file: &Path) -> bool {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name.ends_with("_test") || name == "tests"
}

#[test]
fn visible_types_of_a_crate_have_unique_names() {
    let root = root();
    let mut sources = Vec::new();
    CRATES.iter().for_each(|name| files(&root.join(name), &["rs"], &mut sources));
    let mut declared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !is_test(source)) {
        let path = source.strip_prefix(&root).expect("a source is in the workspace").display().to_string();
        let Some((crate_path, _)) = path.split_once("/src/") else { continue };
        let text = fs::read_to_string(source).expect("a source is text");
        for name in visible_types(&text).into_iter().filter(|name| !SHARED.contains(name)) {
            declared.entry(format!("{crate_path} {name}")).or_default().insert(path.clone());
        }
    }
    assert!(declared.len() > 1_000, "{} types found", declared.len());
    let repeated = declared.iter().filter(|(_, files)| files.len() > 1);
    let wrong: Vec<String> = repeated
        .map(|(name, files)| format!("{name}: {}", files.iter().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert!(wrong.is_empty(), "a type that other modules use needs a unique name:\n{}", wrong.join("\n"));
}

#[test]
fn types_with_visibility_are_found() {
    let code = concat!(
        "pub struct A { pub b: B }\npub(super) enum C {}\npub(in crate::x) type D = u8;\nstruct E;\n",
        "pub fn f() { struct G; }\n// pub struct H;\npub trait I { type J; }\nconst K: &str = \"pub struct L\";\n",
    );
    assert_eq!(visible_types(code).into_iter().collect::<Vec<_>>(), ["A", "C", "D", "I"]);
}
