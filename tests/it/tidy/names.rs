//! Names of functions (`docs/style.md`): the name of a test begins with the subject of a sentence, not with a pronoun, and
//! no function has a name such as `of` or `made`, which does not say what the function does.

use std::fs;

use crate::lexer::{Token, tokens};
use crate::tree::{SOURCES, files, root};

/// The name of a test must not begin with one of these words.
const OPENINGS: [&str; 7] = ["what", "who", "whoever", "of", "those", "none", "others"];

/// No function may have one of these names, because they do not say what the function does.
const NAMES: [&str; 20] = [
    "of", "ask", "asked", "begun", "brought", "done", "found", "given", "gone", "judge", "kept", "known",
    "made", "meant", "said", "seen", "served", "shown", "told", "wanted",
];

/// Returns the names of the test functions of a file. An attribute such as `#[tokio::test]` marks a test function.
fn test_functions<'c>(words: &[&'c str]) -> Vec<&'c str> {
    let mut names = Vec::new();
    for at in 0..words.len() {
        let (["#", "[", "test", "]" | "(", rest @ ..] | ["#", "[", _, "::", "test", "]" | "(", rest @ ..]) =
            &words[at..]
        else {
            continue;
        };
        let name = rest.iter().skip_while(|word| **word != "fn").nth(1);
        names.extend(name);
    }
    names
}

/// Returns whether the name of a test begins with one of the [`OPENINGS`].
fn is_forbidden(name: &str) -> bool {
    name.split_once('_').is_some_and(|(opening, _)| OPENINGS.contains(&opening))
}

/// Returns the names of all functions of a file.
fn functions<'c>(words: &[&'c str]) -> Vec<&'c str> {
    words.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1]).collect()
}

/// Fails if `is_wrong` holds for a name that `select` returns. `select` must find more than `least` names in all sources, so
/// that a `select` without results fails.
fn check(least: usize, select: impl for<'c> Fn(&[&'c str]) -> Vec<&'c str>, is_wrong: impl Fn(&str) -> bool) {
    let root = root();
    let mut sources = Vec::new();
    SOURCES.iter().for_each(|name| files(&root.join(name), &["rs"], &mut sources));
    let (mut total, mut wrong) = (0, Vec::new());
    for source in sources {
        let path = source.strip_prefix(&root).expect("a source is in the workspace");
        let code = fs::read_to_string(&source).expect("a source is text");
        let words: Vec<&str> = tokens(&code).map(|Token { text, .. }| text).collect();
        let names = select(&words);
        total += names.len();
        wrong.extend(
            names.into_iter().filter(|name| is_wrong(name)).map(|name| format!("{}: {name}", path.display())),
        );
    }
    assert!(total > least, "{total} functions found");
    assert!(wrong.is_empty(), "docs/style.md has the rules:\n{}", wrong.join("\n"));
}

#[test]
fn names_of_tests_begin_with_a_subject() {
    check(2_000, test_functions, is_forbidden);
}

#[test]
fn names_of_functions_say_what_the_functions_do() {
    check(10_000, functions, |name| NAMES.contains(&name));
}

#[test]
fn test_functions_are_found_by_their_attributes() {
    let code = concat!(
        "#[test]\nfn a_key_expires() {}\n#[tokio::test(start_paused = true)]\n#[ignore = \"slow\"]\nasync fn what_ends() {}\n",
        "#[cfg(test)]\nfn of_no_test() {}\n// #[test] fn none_here() {}\nfn who_calls() { other::test(); }\n",
    );
    let words: Vec<&str> = tokens(code).map(|Token { text, .. }| text).collect();
    assert_eq!(test_functions(&words), ["a_key_expires", "what_ends"]);
    assert!(is_forbidden("what_ends") && !is_forbidden("whatever_ends") && !is_forbidden("officers_come"));
}
