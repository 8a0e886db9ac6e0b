//! Quotes names in messages as kube-apiserver does.

use std::fmt::{self, Write};

/// Shows a string in double quotes; quotes, backslashes and characters that do not print are escaped.
pub(crate) struct Quoted<'s>(pub(crate) &'s str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{b}' => f.write_str("\\v")?,
                '\0'..='\u{1f}' | '\u{7f}' => write!(f, "\\x{:02x}", u32::from(c))?,
                // Separators and format characters that could rearrange the line the name is in.
                '\u{80}'..='\u{a0}'
                | '\u{ad}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202f}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}' => {
                    write!(f, "\\u{:04x}", u32::from(c))?;
                }
                _ => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Shows a list of strings as `["a" "b"]`.
pub(crate) struct QuotedList<'l>(pub(crate) &'l [String]);

impl fmt::Display for QuotedList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (at, item) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { " " } else { "" }, Quoted(item))?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_cannot_break_out() {
        for (text, quoted) in [
            ("jane", r#""jane""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("a\nb\u{1}", r#""a\nb\x01""#),
            ("é\u{202e}", "\"é\\u202e\""),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }
}
