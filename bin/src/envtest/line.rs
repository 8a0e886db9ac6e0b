//! Reads flags of a command line, in the forms that the programs of a test control plane accept: `--name=value`,
//! `--name value`, `-name`.

use std::ffi::{OsStr, OsString};

/// Returns the last value of a flag in words of the form `--name=value`.
pub fn last<'w>(words: &'w [OsString], name: &str) -> Option<&'w str> {
    words.iter().rev().find_map(|word| value(word, name))
}

/// Returns the value in a word, if the word sets this flag.
pub fn value<'w>(word: &'w OsStr, name: &str) -> Option<&'w str> {
    word.to_str()?.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('=')
}

/// Joins each value to its flag, for a program whose flags all have values. A single dash means the same as two dashes.
pub fn joined(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        let text = word.to_string_lossy();
        match text.strip_prefix('-') {
            Some(flag) => joined.push(format!("--{}", flag.trim_start_matches('-')).into()),
            None => match joined.last_mut().filter(|flag| !flag.to_string_lossy().contains('=')) {
                Some(flag) => {
                    flag.push("=");
                    flag.push(&word);
                }
                None => joined.push(word),
            },
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_flag_is_found_in_every_notation() {
        let words = |line: &str| joined(line.split_whitespace().map(OsString::from));
        for (line, want) in [
            ("--data-dir=a", Some("a")),
            ("--data-dir a --name b", Some("a")),
            ("-data-dir a", Some("a")),
            ("--data-dir=a --data-dir=b", Some("b")),
            ("--data-dir=", Some("")),
            ("--data-dir", None),
            ("--data-directory=a", None),
        ] {
            assert_eq!(last(&words(line), "data-dir"), want, "{line}");
        }
    }
}
