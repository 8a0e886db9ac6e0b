//! The language rules of `docs/style.md` that a machine can check, for comments, documentation pages and field descriptions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tree::{SOURCES, files, root};

mod functions;
mod list;
mod names;
mod platform;
mod signatures;
mod types;

/// Extensions of the files that contain prose.
const ENDINGS: [&str; 3] = ["md", "proto", "rs"];

/// Files that break the rules on purpose: the page with bad examples, the list of retired words, and this
/// file.
const EXEMPT: [&str; 3] = ["docs/style.md", "docs/glossary.md", "tests/it/tidy.rs"];

/// A sentence must not begin with one of these words, because its subject would be a clause or a pronoun instead of
/// a noun.
const OPENINGS: [&str; 9] = ["What", "Who", "Whoever", "Of", "One", "Those", "None", "Others", "It"];

/// Openings in which "it" is impersonal and does not refer to a noun.
const IMPERSONAL: [&str; 3] = ["It is unknown", "It is time", "It is necessary"];

/// Fragments that negate a noun, such as "an empty one is none".
const NEGATED: [&str; 3] = ["is none", "are none", "was none"];

/// Words that the glossary has replaced.
const RETIRED: [&str; 14] = [
    "vouched",
    "grave",
    "housekeeping",
    "housekeeper",
    "chore",
    "upkeep",
    "sieve",
    "vitals",
    "rendition",
    "vocabulary",
    "vocabularies",
    "whoever",
    "nobody",
    "somebody",
];

/// Minimum number of words in a documentation comment of a public item.
const DOC_WORDS_MIN: usize = 4;

/// Maximum share of field descriptions that are shorter than [`FIELD_WORDS_MIN`] words, in percent.
const SHORT_FIELDS_MAX: usize = 5;
const FIELD_WORDS_MIN: usize = 8;

/// Returns the blocks of prose in a source file: each run of comment lines, without code examples.
fn comments(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim_start();
        let Some(comment) = line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim())
        else {
            blocks.extend((!block.is_empty()).then(|| block.join(" ")));
            block.clear();
            is_code = false;
            continue;
        };
        if comment.starts_with("```") {
            is_code = !is_code;
        } else if !is_code && (comment.is_empty() || comment.starts_with(['-', '|', '#'])) {
            blocks.extend((!block.is_empty()).then(|| block.join(" ")));
            block.clear();
            // A heading such as `# Errors` is not part of the sentence below it.
            let begins_block = !comment.is_empty() && !comment.starts_with('#');
            block.extend(begins_block.then(|| comment.trim_start_matches(['-', '|', ' '])));
        } else if !is_code {
            block.push(comment);
        }
    }
    blocks.extend((!block.is_empty()).then(|| block.join(" ")));
    blocks
}

/// Returns the blocks of prose in a page: paragraphs and list items, without code and tables.
fn paragraphs(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let begins = line.is_empty() || line.starts_with(['-', '#', '|', '`', '*']) || is_code;
        if begins {
            blocks.extend((!block.is_empty()).then(|| block.join(" ")));
            block.clear();
        }
        if !is_code && !line.starts_with(['|', '#']) && !line.starts_with("```") && !line.is_empty() {
            block.push(line.trim_start_matches(['-', '*', ' ']));
        }
    }
    blocks.extend((!block.is_empty()).then(|| block.join(" ")));
    blocks
}

/// Splits a block into sentences.
fn sentences(block: &str) -> impl Iterator<Item = &str> {
    block.split(". ").flat_map(|part| part.split("? ")).map(str::trim).filter(|sentence| !sentence.is_empty())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'').filter(|word| !word.is_empty())
}

/// Counts how often a file breaks each rule.
fn violations(path: &Path, text: &str) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let is_page = path.extension().is_some_and(|ending| ending == "md");
    let blocks = if is_page { paragraphs(text) } else { comments(text) };
    for block in &blocks {
        for sentence in sentences(block) {
            let opening = words(sentence).next().unwrap_or_default();
            let is_impersonal = IMPERSONAL.iter().any(|words| sentence.starts_with(words));
            if OPENINGS.contains(&opening) && sentence.starts_with(opening) && !is_impersonal {
                *counts.entry("opening").or_default() += 1;
            }
        }
        for fragment in NEGATED {
            *counts.entry("negated").or_default() += block.matches(fragment).count();
        }
        for word in words(block) {
            if RETIRED.contains(&word.to_lowercase().as_str()) {
                *counts.entry("retired").or_default() += 1;
            }
        }
    }
    if path.extension().is_some_and(|ending| ending == "rs") {
        *counts.entry("filler").or_default() += fillers(text);
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// Counts public items whose documentation is one line of fewer than [`DOC_WORDS_MIN`] words.
fn fillers(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_doc = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
    let is_short = |at: usize| words(lines[at].trim_start_matches('/')).count() < DOC_WORDS_MIN;
    (0..lines.len())
        .filter(|&at| is_doc(at) && !is_doc(at + 1) && (at == 0 || !is_doc(at - 1)) && is_short(at))
        .filter(|&at| {
            let item = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
            item.is_some_and(|item| item.starts_with("pub ") || item.starts_with("pub("))
        })
        .count()
}

#[test]
fn comments_and_pages_follow_the_language_rules() {
    let root = root();
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|name| files(&root.join(name), &ENDINGS, &mut sources));
    let mut wrong = Vec::new();
    for source in sources {
        let path = source.strip_prefix(&root).expect("a source is in the workspace").display().to_string();
        if EXEMPT.contains(&path.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&source).expect("a source is text");
        let counts = violations(&source, &text);
        wrong.extend(counts.into_iter().map(|(rule, count)| format!("{path} {rule}: {count}")));
    }
    assert!(wrong.is_empty(), "docs/style.md has the rules:\n{}", wrong.join("\n"));
}

/// Checks the descriptions of the fields of all built-in types, which users read in `kubectl explain`.
#[test]
fn field_descriptions_are_complete_sentences() {
    let mut total = 0;
    let mut short = Vec::new();
    let mut schemas = Vec::new();
    files(&root().join("api/schema"), &ENDINGS, &mut schemas);
    for path in schemas.iter().filter(|path| !path.ends_with("options.proto")) {
        let text = fs::read_to_string(path).expect("a schema is text");
        let mut comment = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("//") {
                comment.push(words.trim());
                continue;
            }
            let described = comment.join(" ");
            comment.clear();
            let declaration = line.split(['[', ';']).next().unwrap_or_default();
            let is_field = line.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_uppercase())
                && declaration.contains(" = ")
                && !line.starts_with("option ")
                && !line.starts_with("syntax ");
            if is_field && !described.is_empty() {
                total += 1;
                if described.split_whitespace().count() < FIELD_WORDS_MIN {
                    short.push(format!("{}: {described}", path.display()));
                }
            }
        }
    }
    assert!(total > 2_000, "{total} fields");
    let share = short.len() * 100 / total;
    assert!(
        share < SHORT_FIELDS_MAX,
        "{share} % of {total} fields have short descriptions:\n{}",
        short.join("\n")
    );
}

#[test]
fn the_language_rules_recognize_forbidden_sentences() {
    for (text, rule, count) in [
        ("/// What it is. The server waits.\nfn a() {}", "opening", 1),
        ("// A list. One of them\n// ends here. Of that nothing.", "opening", 2),
        ("// Whatever happens, the log stays.", "opening", 0),
        ("/// # Errors\n/// None of them fits.\nfn a() {}", "opening", 1),
        ("/// An empty one is none.", "negated", 1),
        ("//! ```text\n//! What is drawn here\n//! ```", "opening", 0),
        ("/// A queue. It is empty. It is unknown why.", "opening", 1),
        ("/// Its name.\npub fn name() {}", "filler", 1),
        ("/// Its name.\n#[must_use]\npub fn name() {}", "filler", 1),
        ("/// Its name.\nfn name() {}", "filler", 0),
        ("/// Returns the name of the key.\npub fn name() {}", "filler", 0),
        ("// The vocabulary of whoever.", "retired", 2),
    ] {
        let found = violations(Path::new("a.rs"), text);
        assert_eq!(found.get(rule).copied().unwrap_or(0), count, "{rule} in {text:?}");
    }
    let page = "# What is a heading\n\nWhat is here.\n\n```sh\n# What is code\n```\n\n- One item.\n\n| What | is a table |\n";
    assert_eq!(violations(Path::new("a.md"), page).get("opening"), Some(&2));
}
