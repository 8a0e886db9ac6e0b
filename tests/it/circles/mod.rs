//! Circles of imports between the files of a crate. The test reads the text of the sources and compiles nothing.
//!
//! `tests/tidy/circles.txt` lists the circles that are accepted, each as its set of files. No circle may gain a
//! file, and no new circle may appear. The list must match the sources, so the test also fails if a circle has
//! become smaller or has disappeared. `UPDATE_GOLDEN=1 cargo test --package tests --test it circles` then updates
//! the list. The update never adds a file.
//!
//! A file imports another file if a path in a `use` declaration, an expression or a type leads to an item of that
//! file. A path through a re-export leads to the file that defines the item, and the re-export itself is not an
//! import. The check ignores tests, names from macros and from `use module::*`, method calls and generated code.
//!
//! A parent module and a file below it may import each other: the parent calls its children, and the children use
//! the types and constants of the parent. If one file is the parent of all other files in a circle, the check
//! removes the parent and reports the circle only if the other files still form a circle. The root file of a
//! crate is such a parent. If a circle extends beyond the module of the parent, the parent counts like any other
//! file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::tree::{files, root};

mod graph;
mod source;

/// Directories with the crates of the product.
const CRATES: [&str; 5] = ["api", "auth", "bin", "engine", "lib"];

const LIST: &str = "tests/tidy/circles.txt";

const HEAD: &str = "# Circles of imports that tests/it/circles accepts. The list may only shrink.\n";

/// A set of files; each file imports all others, directly or through other files. Paths are relative to the
/// workspace.
type Circle = BTreeSet<String>;

/// Parses circles that blank lines separate, with one file on each line.
fn parse(list: &str) -> BTreeSet<Circle> {
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    let blocks = lines.split(|line| line.is_empty()).filter(|block| !block.is_empty());
    blocks.map(|block| block.iter().map(|&file| file.to_owned()).collect()).collect()
}

fn print<'c>(circles: impl Iterator<Item = &'c Circle>) -> String {
    let block = |circle: &Circle| circle.iter().map(|file| format!("{file}\n")).collect::<String>();
    circles.map(block).collect::<Vec<_>>().join("\n")
}

/// Returns the circles of all crates, and the number of files.
fn circles(workspace: &Path) -> (BTreeSet<Circle>, usize) {
    let mut sources = Vec::new();
    CRATES.iter().for_each(|name| files(&workspace.join(name), &["rs"], &mut sources));
    let relative = |file: &Path| {
        file.strip_prefix(workspace).expect("a source is in the workspace").display().to_string()
    };
    let mut circles = BTreeSet::new();
    let mut total = 0;
    for source in sources.iter().filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"))
    {
        let imports = graph::imports(source, &|file| fs::read_to_string(file).ok());
        total += imports.len();
        let found = graph::circles(&imports);
        circles
            .extend(found.iter().map(|circle| circle.iter().map(|file| relative(file)).collect::<Circle>()));
    }
    (circles, total)
}

/// Returns a message for each circle that is only in the sources or only in the list.
fn differences(found: &BTreeSet<Circle>, accepted: &BTreeSet<Circle>) -> Vec<String> {
    let mut wrong = Vec::new();
    for circle in found.difference(accepted) {
        let nearest = accepted.iter().max_by_key(|known| known.intersection(circle).count());
        let (reason, gained): (_, Vec<&str>) = match nearest {
            Some(known) if circle.is_subset(known) => {
                ("has become smaller; run with UPDATE_GOLDEN=1", Vec::new())
            }
            Some(known) if !circle.is_disjoint(known) => {
                ("has gained files", circle.difference(known).map(String::as_str).collect())
            }
            _ => ("is new", Vec::new()),
        };
        wrong.push(format!("this circle {reason} {}:\n{}", gained.join(" "), print([circle].into_iter())));
    }
    for circle in
        accepted.difference(found).filter(|known| found.iter().all(|circle| circle.is_disjoint(known)))
    {
        wrong
            .push(format!("this circle is gone; run with UPDATE_GOLDEN=1:\n{}", print([circle].into_iter())));
    }
    wrong
}

#[test]
fn source_files_import_each_other_only_in_the_accepted_circles() {
    let root = root();
    let (found, total) = circles(&root);
    assert!(total > 800, "{total} files found");
    eprintln!("{} circles:\n\n{}", found.len(), print(found.iter()));
    let list = root.join(LIST);
    let mut accepted = parse(&fs::read_to_string(&list).expect("the list can be read"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let is_accepted = |circle: &&Circle| accepted.iter().any(|known| circle.is_subset(known));
        let kept: BTreeSet<Circle> = found.iter().filter(is_accepted).cloned().collect();
        fs::write(&list, format!("{HEAD}\n{}", print(kept.iter()))).expect("the list can be written");
        accepted = kept;
    }
    let wrong = differences(&found, &accepted);
    assert!(wrong.is_empty(), "{LIST} lists the accepted circles:\n{}", wrong.join("\n"));
}

#[test]
fn differences_reports_each_circle_that_is_new_larger_smaller_or_gone() {
    let accepted = parse("# head\n\na\nb\nc\n\nd\ne\n");
    assert_eq!(print(accepted.iter()), "a\nb\nc\n\nd\ne\n");
    for (found, reason) in [
        ("a\nb\nc\n\nd\ne\n\nx\ny\n", "is new"),
        ("a\nb\nc\nx\n\nd\ne\n", "has gained files x"),
        ("a\nb\n\nd\ne\n", "has become smaller"),
        ("a\nb\nc\n", "is gone"),
        ("a\nb\nc\nd\ne\n", "has gained files d e"),
    ] {
        let wrong = differences(&parse(found), &accepted);
        assert!(wrong.len() == 1 && wrong[0].contains(reason), "{found:?}: {wrong:?}");
    }
    assert_eq!(differences(&accepted, &accepted), Vec::<String>::new());
}
