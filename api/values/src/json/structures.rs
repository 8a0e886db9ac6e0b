//! Counting of objects and lists in a text before it is parsed.

use super::DEPTH_MAX;

/// Counts the objects and lists that begin in `text`. The number is exact if the text is JSON. The function
/// allocates nothing, reads each byte once, and stops where the text is nested deeper than the parser
/// accepts.
pub fn structures_in(text: &[u8]) -> usize {
    let (mut count, mut depth, mut rest) = (0, 0_usize, text);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(rest),
            b'{' | b'[' => {
                (count, depth) = (count + 1, depth + 1);
                if depth > DEPTH_MAX {
                    break;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    count
}

/// Returns the text after the closing quote of a string. `rest` starts inside the string.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_escape = rest[at] == b'\\';
        rest = rest.get(at + 1 + usize::from(is_escape)..).unwrap_or_default();
        if !is_escape {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn structures_in_counts_as_many_structures_as_the_parser_makes() {
        for text in [
            "{}",
            "[]",
            "7",
            r#""{[""#,
            r#"{"a":[{},{},[1,[]]],"b":{"c":null}}"#,
            r#"{"\"{":"[[\\","b\\\"[":[]}"#,
            r#"[{"a":"\u007b{"},"[",{}]"#,
        ] {
            assert_eq!(
                structures_in(text.as_bytes()),
                parse(text.as_bytes()).unwrap().structures(),
                "{text}"
            );
        }
    }

    #[test]
    fn structures_in_stops_counting_beyond_the_depth_limit() {
        for text in ["[".repeat(1000), format!("{}{}", "[".repeat(1000), "]".repeat(1000))] {
            assert_eq!(structures_in(text.as_bytes()), DEPTH_MAX + 1);
        }
        let wide = format!("[{}[]]", "[[]],".repeat(1000));
        assert_eq!(structures_in(wide.as_bytes()), 2002);
    }

    #[test]
    fn structures_in_counts_an_incomplete_text_up_to_its_end() {
        for (text, count) in [("", 0), ("[{", 2), (r#"[""#, 1), (r#"["\"#, 1), (r#"["{\"[", ["#, 2)] {
            assert_eq!(structures_in(text.as_bytes()), count, "{text}");
        }
    }
}
