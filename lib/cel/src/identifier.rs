//! Conversion between property names and identifiers of the expression language.
//!
//! Keywords, dots, dashes, slashes and double underscores are escaped between double underscores: `a.b` is
//! `a__dot__b`, `in` is `__in__`. Names with other characters have no identifier.

/// Names that cannot be identifiers. `in`, `true`, `false` and `null` are separate tokens.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// Words that the lexer treats as tokens.
const TOKENS: [&str; 4] = ["true", "false", "null", "in"];

/// Returns the identifier of a property; `None` if the name cannot be escaped.
pub fn escape(name: &str) -> Option<String> {
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_allowed) {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(char) = rest.chars().next() {
        let (word, len) = match char {
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            _ => (&rest[..1], 1),
        };
        out.push_str(word);
        rest = &rest[len..];
    }
    Some(out)
}

/// Returns the property of an identifier; `None` if the identifier contains an unknown escape.
pub fn unescape(identifier: &str) -> Option<String> {
    if let Some(name) = identifier.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && is_reserved(name)
    {
        return Some(name.to_owned());
    }
    const WORDS: [(&str, &str); 4] =
        [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(char) = rest.chars().next() {
        if let Some((word, meaning)) = WORDS.iter().find(|(word, _)| rest.starts_with(word)) {
            out.push_str(meaning);
            rest = &rest[word.len()..];
            continue;
        }
        // A word between double underscores must be a known escape. Other double underscores are kept.
        if let Some(word) = rest.strip_prefix("__")
            && let Some((word, _)) = word.split_once("__")
            && !word.is_empty()
            && !word.contains('_')
        {
            return None;
        }
        out.push(char);
        rest = &rest[char.len_utf8()..];
    }
    Some(out)
}

/// Returns whether a property whose name is a reserved word can be selected by that name: the grammar
/// accepts such a word after a dot, but not as a variable.
pub fn is_selectable_word(name: &str) -> bool {
    RESERVED.contains(&name)
}

fn is_reserved(name: &str) -> bool {
    TOKENS.contains(&name) || RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_cel_identifiers_and_unescaped() {
        for (name, want) in [
            ("a", Some("a")),
            ("a-b", Some("a__dash__b")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("__a", Some("__underscores__a")),
            ("__dot__", Some("__underscores__dot__underscores__")),
            ("a---b", Some("a__dash____dash____dash__b")),
            ("a_b", Some("a_b")),
            ("in", Some("__in__")),
            ("while", Some("__while__")),
            ("In", Some("In")),
            ("self", Some("self")),
            ("a b", None),
            ("a$b", None),
            ("1a", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(escape(name).as_deref(), want, "{name}");
            if let Some(identifier) = want {
                assert_eq!(unescape(identifier).as_deref(), Some(name), "{identifier}");
            }
        }
        for (identifier, want) in [
            ("__a__", None),
            ("a__b", Some("a__b")),
            ("a-b", Some("a-b")),
            ("__a.b__", None),
            ("x__in__", None),
        ] {
            assert_eq!(unescape(identifier).as_deref(), want, "{identifier}");
        }
    }
}
