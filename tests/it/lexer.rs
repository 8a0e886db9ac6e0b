//! The tokens of Rust code, for tests that read the sources of the workspace.

/// A word, `::`, a literal (its text is `"`), or a single other character.
pub struct Token<'t> {
    pub text: &'t str,
    /// Offset of the token in the code, in bytes.
    pub at: usize,
}

/// Splits Rust code into tokens, without blanks and comments.
pub fn tokens(code: &str) -> impl Iterator<Item = Token<'_>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        loop {
            let at = next;
            let rest = &code[at..];
            let first = rest.chars().next()?;
            let text = &rest[..token_length(rest, first)];
            next = at + text.len();
            if text.starts_with("//") || text.starts_with("/*") || first.is_whitespace() {
                continue;
            }
            return Some(Token { text: if is_literal(text) { "\"" } else { text }, at });
        }
    })
}

/// Whether a character can be a part of a word.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a token is a string or a character. A lifetime also begins with an apostrophe, but is not a literal.
fn is_literal(token: &str) -> bool {
    token.ends_with('"') || token.ends_with("\"#") || (token.len() > 1 && token.ends_with('\''))
}

/// Returns the bytes of the token at the beginning of `code`.
fn token_length(code: &str, first: char) -> usize {
    let up_to = |end: Option<usize>| end.unwrap_or(code.len());
    if code.starts_with("//") {
        return up_to(code.find('\n'));
    }
    if code.starts_with("/*") {
        return up_to(code.find("*/").map(|at| at + 2));
    }
    if code.starts_with("::") {
        return 2;
    }
    if first == '\'' {
        return quote_length(code);
    }
    let prefix = code.find(|c| c != 'b' && c != 'c' && c != 'r').unwrap_or(code.len());
    let hashes = code[prefix..].len() - code[prefix..].trim_start_matches('#').len();
    let is_raw = code[..prefix].contains('r');
    if code[prefix + hashes..].starts_with('"') && (is_raw || hashes == 0) {
        let text = prefix + hashes + 1;
        if is_raw {
            let end = format!("\"{}", "#".repeat(hashes));
            return up_to(code[text..].find(&end).map(|at| text + at + end.len()));
        }
        return up_to(closing(&code[text..], '"').map(|at| text + at));
    }
    match code.find(|c| !is_word(c)).unwrap_or(code.len()) {
        0 => first.len_utf8(),
        word => word,
    }
}

/// Returns the position after the first `end` without a preceding backslash.
fn closing(text: &str, end: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if c == end && !is_escaped {
            return Some(at + c.len_utf8());
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    None
}

/// Returns the bytes of a character or a lifetime.
fn quote_length(code: &str) -> usize {
    let text = &code[1..];
    let first = text.chars().next().map_or(0, char::len_utf8);
    if text.starts_with('\\') || text[first..].starts_with('\'') {
        return 1 + closing(text, '\'').unwrap_or(text.len());
    }
    1 + text.find(|c| !is_word(c)).unwrap_or(text.len())
}
