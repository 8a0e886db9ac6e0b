//! Citations of `docs/`: every page and heading that a comment cites must exist.
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

/// Returns the citations in `text`: a page, and the anchors on it.
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
fn every_cited_page_and_heading_exists() {
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

/// The page of flags must have one row for each flag of the reference server in the section about them. A
/// test of the server's package generates the rows.
#[test]
fn the_page_of_flags_has_every_flag() {
    let Some(path) = crate::support::reference("facts/flags.json") else { return };
    let facts: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let named = |flag: &serde_json::Value| flag["name"].as_str().expect("a flag has a name").to_owned();
    let mut flags: Vec<String> =
        facts["flags"].as_array().expect("there is a list").iter().map(named).collect();
    flags.sort();
    let page = fs::read_to_string(root().join("docs/flags.md")).unwrap();
    let (_, page) = page.split_once("## Flags of kube-apiserver\n").expect("the page has this section");
    let row = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned());
    let mut rows: Vec<String> = page.lines().filter_map(row).collect();
    rows.sort();
    assert!(flags.len() > 100, "{}", flags.len());
    assert_eq!(rows, flags);
}
