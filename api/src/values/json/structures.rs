//! Counts objects and lists in a text that was not read yet.

/// How many objects and lists begin in `text`: exactly as many as it has, if it is JSON. Makes nothing of it, and looks at each
/// byte once.
pub fn structures_in(text: &[u8]) -> usize {
    let (mut count, mut rest) = (0, text);
    while let Some(at) = memchr::memchr3(b'"', b'{', b'[', rest) {
        let is_string = rest[at] == b'"';
        rest = &rest[at + 1..];
        if is_string {
            rest = after_string(rest);
        } else {
            count += 1;
        }
    }
    count
}

/// What follows the string that `rest` is within.
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
    use crate::values::json::parse;

    #[test]
    fn as_many_are_counted_as_are_made() {
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
    fn a_text_that_breaks_off_is_counted_up_to_its_end() {
        for (text, count) in [("", 0), ("[{", 2), (r#"[""#, 1), (r#"["\"#, 1), (r#"["{\"[", ["#, 2)] {
            assert_eq!(structures_in(text.as_bytes()), count, "{text}");
        }
    }
}
