//! Parses the parameters of a media type like Go's `mime` package (RFC 2045 section 5.1).

use std::collections::HashMap;

/// Returns whether the text after the first semicolon of a header consists of parameters. A parameter is a
/// name and a value. If a name occurs twice, both values must be equal. A single semicolon at the end is
/// permitted.
pub fn are_valid(header: &str) -> bool {
    let Some(at) = header.find(';') else { return true };
    let mut rest = header[at..].trim();
    let mut seen = HashMap::new();
    while !rest.is_empty() && rest != ";" {
        let Some((name, value, after)) = parameter(rest) else { return false };
        if seen.get(&name).is_some_and(|before| *before != value) {
            return false;
        }
        seen.insert(name, value);
        rest = after.trim_start();
    }
    true
}

/// Returns the name and the value of the parameter at the start of a text, and the text after the parameter.
/// The parameter begins with a semicolon.
fn parameter(text: &str) -> Option<(String, String, &str)> {
    let (name, rest) = token(text.strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    if name.is_empty() {
        return None;
    }
    let (value, rest) = match (rest.strip_prefix('"'), token(rest)) {
        (Some(quoted), _) => unquoted(quoted)?,
        (None, ("", _)) => return None,
        (None, (value, rest)) => (value.to_owned(), rest),
    };
    Some((name.to_ascii_lowercase(), value, rest))
}

/// Returns the token at the start of a text, which may be empty, and the text after the token.
fn token(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_graphic() && !is_special(c);
    text.split_at(text.find(|c: char| !is_part(c)).unwrap_or(text.len()))
}

fn is_special(c: char) -> bool {
    "()<>@,;:\\\"/[]?=".contains(c)
}

/// Returns the value of a quoted string, and the text after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\r' | '\n' => return None,
            '\\' => value.push(letters.next_if(|(_, next)| is_special(*next)).map_or('\\', |(_, next)| next)),
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_parameters_need_a_name_and_a_value() {
        for (header, want) in [
            ("a/b", true),
            ("a/b;", true),
            ("a/b ; ", true),
            ("a/b; charset=utf-8", true),
            ("a/b; charset = utf-8;", true),
            (r#"a/b; x="a;\"b""#, true),
            (r#"a/b; x="""#, true),
            ("a/b; a*=b", true),
            ("a/b; a=b; A=b", true),
            ("a/b;;", false),
            ("a/b; charset", false),
            (r#"a/b; charset="utf-8"#, false),
            ("a/b;a=@", false),
            ("a/b;=b", false),
            ("a/b; a=", false),
            ("a/b; a=b; a=c", false),
            ("a/b; a=b c=d", false),
        ] {
            assert_eq!(are_valid(header), want, "{header}");
        }
    }
}
