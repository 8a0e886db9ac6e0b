//! Signatures and branches (`docs/style.md`). No parameter of a function is a tuple, because the elements of a tuple
//! have no names for the caller. No `match` has a Boolean value, because `if` is simpler.

use std::fs;
use std::path::Path;

use crate::lexer::{Token, is_word, tokens};
use crate::tree::{SOURCES, files, root};

/// Returns the functions of a file that have a tuple as a parameter.
fn with_tuples<'c>(words: &[&'c str]) -> Vec<&'c str> {
    let mut found = Vec::new();
    for (at, pair) in words.windows(2).enumerate() {
        if pair[0] == "fn" && pair[1].starts_with(is_word) && has_tuple(&words[at + 2..]) {
            found.push(pair[1]);
        }
    }
    found
}

/// Returns whether the parameters after the name of a function contain a tuple at the top level. `words` begins after the
/// name, so type parameters may come first.
fn has_tuple(words: &[&str]) -> bool {
    let Some(begin) = parameters(words) else { return false };
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(begin) {
        match *word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ":" if depth == 1 => {
                let is_prefix = |word: &str| word == "&" || word == "mut" || word.starts_with('\'');
                let mut kind = words[at + 1..].iter().skip_while(|word| is_prefix(word));
                let is_tuple = kind.next() == Some(&"(")
                    && !kind.next().is_some_and(|word| matches!(*word, "dyn" | "impl" | ")"));
                if is_tuple {
                    return true;
                }
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    false
}

/// Returns the position of the parenthesis that opens the parameters, after the type parameters if there are any.
fn parameters(words: &[&str]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "<" => depth += 1,
            // `->` in the bound of a type parameter closes nothing.
            ">" if words[at - 1] != "-" => depth -= 1,
            "(" if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Returns the number of `match` expressions whose first arm is a Boolean literal.
fn boolean_matches(words: &[&str]) -> usize {
    words.windows(4).filter(|words| matches!(words, ["{", "true" | "false", "=", ">"])).count()
}

/// Whether a file contains tests only. Tests may pass rows of a table to a function.
fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_in = |name: &str| path.components().any(|part| part.as_os_str() == name);
    name.ends_with("_test") || name == "tests" || is_in("tests") || is_in("fuzz")
}

#[test]
fn no_parameter_is_a_tuple_and_no_match_has_a_boolean_value() {
    let root = root();
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|name| files(&root.join(name), &["rs"], &mut sources));
    let mut wrong = Vec::new();
    for source in sources {
        let path = source.strip_prefix(&root).expect("a source is in the workspace");
        let code = fs::read_to_string(&source).expect("a source is text");
        let words: Vec<&str> = tokens(&code).map(|Token { text, .. }| text).collect();
        if !is_test(path) {
            let found = with_tuples(&words);
            wrong
                .extend(found.iter().map(|name| format!("{}: {name} has a tuple parameter", path.display())));
        }
        if boolean_matches(&words) > 0 {
            wrong.push(format!("{}: match on a Boolean value", path.display()));
        }
    }
    assert!(wrong.is_empty(), "docs/style.md has the rules:\n{}", wrong.join("\n"));
}

#[test]
fn with_tuples_and_boolean_matches_are_recognized() {
    for (code, tuples, matches) in [
        ("fn a((b, c): (u8, u8)) {}", 1, 0),
        ("fn a<F: Fn(u8) -> u8>(f: F, b: &'static (u8, u8)) {}", 1, 0),
        ("fn a(b: &(dyn Fn() + Sync), c: impl Fn((u8, u8))) -> (u8, u8) { (1, 2) }", 0, 0),
        ("fn a(b: ()) { match b { () => {} } }", 0, 0),
        ("fn a(b: bool) { match b { true => {} false => {} } }", 0, 1),
        ("fn a(b: (bool, u8)) { match b { (true, _) => {} _ => {} } }", 1, 0),
    ] {
        let words: Vec<&str> = tokens(code).map(|Token { text, .. }| text).collect();
        assert_eq!((with_tuples(&words).len(), boolean_matches(&words)), (tuples, matches), "{code}");
    }
}
