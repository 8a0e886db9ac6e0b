//! Lengths of functions: no function of the workspace has more than [`LINES_MAX`] lines.
//!
//! `tests/tidy/functions.txt` lists longer functions with their numbers of lines, in sections that begin with a reason.
//! The numbers may only decrease; `UPDATE_GOLDEN=1` lowers them.

use std::collections::BTreeMap;
use std::fs;

use super::list;
use crate::lexer::{Token, is_word, tokens};
use crate::tree::{SOURCES, files, root};

/// Maximum number of lines from `fn` to the closing brace.
const LINES_MAX: usize = 80;

const LIST: &str = "tests/tidy/functions.txt";

const HEAD: &str =
    "# Functions of more than 80 lines: file, function, number of lines. The numbers may only shrink.\n";

/// Returns the names of the functions of a file, with their numbers of lines.
fn functions(code: &str) -> Vec<(&str, usize)> {
    let tokens: Vec<Token> = tokens(code).collect();
    let mut functions = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        if pair[0].text == "fn" && pair[1].text.starts_with(is_word) {
            let end = body_end(&tokens[at..]).unwrap_or(pair[1].at);
            functions.push((pair[1].text, code[pair[0].at..end].matches('\n').count() + 1));
        }
    }
    functions
}

/// Returns the offset of the brace that closes the function at the beginning of `tokens`; `None` for a declaration.
fn body_end(tokens: &[Token]) -> Option<usize> {
    let mut open = 0_usize;
    for token in tokens {
        match token.text {
            "(" | "[" | "{" => open += 1,
            ")" | "]" | "}" => {
                open = open.checked_sub(1)?;
                if open == 0 && token.text == "}" {
                    return Some(token.at);
                }
            }
            ";" if open == 0 => return None,
            _ => {}
        }
    }
    None
}

#[test]
fn functions_are_not_longer_than_a_page() {
    let root = root();
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|name| files(&root.join(name), &["rs"], &mut sources));
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut total = 0;
    for source in sources {
        let path = source.strip_prefix(&root).expect("a source is in the workspace").display().to_string();
        let text = fs::read_to_string(&source).expect("a source is text");
        for (name, lines) in functions(&text) {
            total += 1;
            if lines > LINES_MAX {
                let known = found.entry(format!("{path} {name}")).or_default();
                *known = lines.max(*known);
            }
        }
    }
    assert!(total > 9_000, "{total} functions found");
    let wrong = list::differences(&root.join(LIST), HEAD, &found);
    let explained: String = wrong.iter().map(|(name, reason)| format!("{name}: {reason}\n")).collect();
    assert!(wrong.is_empty(), "a function has at most {LINES_MAX} lines:\n{explained}");
}

#[test]
fn function_lines_are_counted_to_the_closing_brace() {
    let code = concat!(
        "fn one() {}\ntrait T {\n    fn declared(\n        &self,\n    );\n    fn two(a: [u8; 2]) {\n    }\n}\n",
        "fn four() {\n    // }\n    let _ = \"}\";\n}\nfn outer() {\n    fn inner() {\n    }\n}\n",
    );
    assert_eq!(
        functions(code),
        [("one", 1), ("declared", 1), ("two", 2), ("four", 4), ("outer", 4), ("inner", 2)]
    );
}
