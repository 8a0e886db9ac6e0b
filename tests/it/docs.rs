//! Citations of `docs/`: every page and heading that a comment cites must exist. So must the tests that a command in a
//! page or a comment selects.
//!
//! A citation is `docs/api/writes.md#create`, and may name further headings of the page: `, #update`.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use crate::tree::{SOURCES, files, root};

/// Extensions of the files that may contain citations.
const ENDINGS: [&str; 4] = ["md", "proto", "rs", "txt"];

/// Returns the anchors of a page's headings, as GitHub generates them.
fn anchors(page: &str) -> Vec<String> {
    page.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// Returns the characters of an anchor or a path at the beginning of `text`.
fn word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '/'))
        .unwrap_or(text.len());
    &text[..end]
}

/// Returns the citations in `text`. A citation is a page with its anchors.
fn citations(text: &str) -> Vec<(String, Vec<String>)> {
    // A line break inside a comment counts as a space.
    let text: Vec<&str> =
        text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!']).trim()).collect();
    let text = text.join(" ");
    let mut found = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let path = word(&text[at..]);
        let Some(mut rest) = text[at + path.len()..].strip_prefix(".md") else { continue };
        let mut named = Vec::new();
        let mut separator = "#";
        while let Some(anchor) = rest.strip_prefix(separator) {
            let anchor = word(anchor);
            rest = &rest[separator.len() + anchor.len()..];
            separator = ", #";
            named.push(anchor.to_owned());
        }
        found.push((format!("{path}.md"), named));
    }
    found
}

#[test]
fn every_cited_documentation_page_and_heading_exists() {
    let root = root();
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|name| files(&root.join(name), &ENDINGS, &mut sources));
    let mut pages: HashMap<String, Option<Vec<String>>> = HashMap::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for source in sources.iter().filter(|source| !source.ends_with("it/docs.rs")) {
        for (page, named) in citations(&fs::read_to_string(source).unwrap()) {
            count += 1;
            let known = pages
                .entry(page.clone())
                .or_insert_with(|| Some(anchors(&fs::read_to_string(root.join(&page)).ok()?)));
            match known {
                None => wrong.push(format!("{}: no page {page}", source.display())),
                Some(known) => wrong.extend(
                    named
                        .iter()
                        .filter(|anchor| !known.contains(anchor))
                        .map(|anchor| format!("{}: no heading {page}#{anchor}", source.display())),
                ),
            }
        }
    }
    assert!(count > 100, "only {count} citations found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Rows of test tables name a heading without its page.
#[test]
fn headings_are_unique_across_the_pages_of_the_api() {
    let mut seen: HashMap<String, PathBuf> = HashMap::new();
    let mut pages = Vec::new();
    files(&root().join("docs/api"), &ENDINGS, &mut pages);
    for page in pages {
        for anchor in anchors(&fs::read_to_string(&page).unwrap()) {
            let other = seen.insert(anchor.clone(), page.clone());
            assert!(
                other.as_ref().is_none_or(|other| *other == page),
                "{anchor}: {} and {other:?}",
                page.display()
            );
        }
    }
}

/// Returns the filters of the commands `cargo test …` in `text`, which select tests by a part of their name.
fn filters(text: &str) -> Vec<String> {
    let mut filters = Vec::new();
    for line in text.split(['\n', '`']) {
        let Some((_, command)) = line.split_once("cargo test ") else { continue };
        let mut words = command.split_whitespace().take_while(|word| *word != "#");
        while let Some(word) = words.next() {
            if matches!(word, "-p" | "--package" | "--test" | "--bench" | "--features") {
                words.next();
            } else if word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | ':')) {
                filters.push(word.to_owned());
            }
        }
    }
    filters
}

#[test]
fn documented_test_commands_select_existing_tests() {
    let root = root();
    let endings = ["md", "rs", "yml"];
    let mut sources = vec![root.join("justfile")];
    SOURCES
        .iter()
        .chain([&".github", &"clients"])
        .for_each(|name| files(&root.join(name), &endings, &mut sources));
    let texts: Vec<(PathBuf, String)> =
        sources.into_iter().map(|source| (source.clone(), fs::read_to_string(source).unwrap())).collect();
    let is_known = |filter: &str| {
        texts.iter().any(|(path, text)| {
            path.file_stem().is_some_and(|stem| stem == filter)
                || text.lines().any(|line| line.contains("fn ") && line.contains(filter))
        })
    };
    let (mut count, mut wrong) = (0, Vec::new());
    for (source, text) in texts.iter().filter(|(source, _)| !source.ends_with("it/docs.rs")) {
        let filters = filters(text);
        count += filters.len();
        wrong.extend(
            filters
                .iter()
                .filter(|filter| !is_known(filter))
                .map(|filter| format!("{}: no test {filter}", source.display())),
        );
    }
    assert!(count > 8, "only {count} filters found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flags_and_their_values_are_not_filters() {
    let text = "Run `X=1 cargo test -p tests --test it a_b` or\ncargo test --workspace  # all tests\n\
                cargo test -p engine --test faults -- --nocapture c::d\n`cargo test -p tests NAME`";
    assert_eq!(filters(text), ["a_b", "c::d"]);
}

/// The section about the flags of the reference server must have one row for each of these flags. A test of the
/// server's package generates the rows.
#[test]
fn the_documentation_lists_every_flag_of_the_reference_server() {
    let Some(path) = crate::support::reference("facts/flags.json") else { return };
    let facts: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let named = |flag: &serde_json::Value| flag["name"].as_str().expect("a flag has a name").to_owned();
    let mut flags: Vec<String> =
        facts["flags"].as_array().expect("the reference has a list of flags").iter().map(named).collect();
    flags.sort();
    let page = fs::read_to_string(root().join("docs/flags.md")).unwrap();
    let (_, page) = page.split_once("## Flags of kube-apiserver\n").expect("the page has this section");
    let row = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned());
    let mut rows: Vec<String> = page.lines().filter_map(row).collect();
    rows.sort();
    assert!(flags.len() > 100, "{}", flags.len());
    assert_eq!(rows, flags);
}
