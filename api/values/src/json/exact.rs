//! Parsing that keeps the original text of numbers other than 64-bit integers.
//!
//! The reference server applies a patch to text, so that a quantity in the patch keeps all its digits. This
//! module first finds the numbers of the text. A text has few numbers, and most of them are 64-bit integers.
//! If there are other numbers, the module replaces each number that the tokenizer returns by its original
//! text.

use super::number_words::Words;
use super::parse::{Duplicates, read_words};
use super::{ParseError, Value, parse, parse_reporting_duplicates};

/// Parses one JSON document like [`parse`], except that numbers other than 64-bit integers become
/// [`Value::Number`], even if they exceed the range of a double.
///
/// # Errors
/// The same errors as [`parse`].
pub fn parse_exact(text: &[u8]) -> Result<Value, ParseError> {
    match Words::from_text(text) {
        None => parse(text),
        Some(words) => read_words(text, &words, None),
    }
}

/// Parses like [`parse_exact`] and also returns the paths of members that occur more than once.
///
/// # Errors
/// The same errors as [`parse`].
pub fn parse_exact_reporting_duplicates(text: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    match Words::from_text(text) {
        None => parse_reporting_duplicates(text),
        Some(words) => {
            let watch = Duplicates::default();
            let value = read_words(text, &words, Some(&watch))?;
            Ok((value, watch.into_found()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number_words::out_of_range;
    use super::super::write;
    use super::*;

    #[test]
    fn parse_exact_keeps_the_text_of_numbers() {
        for (text, want) in [
            ("[1,-2,3]", "[1,-2,3]"),
            ("[1.0,1e3,-0,1E+2]", "[1.0,1e3,0,1E+2]"),
            (
                r#"{"a":18446744073709551615,"b":"1e400","c":1e400}"#,
                r#"{"a":18446744073709551615,"b":"1e400","c":1e400}"#,
            ),
            (
                r#"{"a\"1.5":{"x":1e400,"x":2.50},"b":[-1e999,true,7]}"#,
                r#"{"a\"1.5":{"x":2.50},"b":[-1e999,true,7]}"#,
            ),
            ("100000000000000000001", "100000000000000000001"),
        ] {
            let mut out = Vec::new();
            write(&parse_exact(text.as_bytes()).unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{text}");
        }
        let (value, duplicates) =
            parse_exact_reporting_duplicates(br#"{"a":[{"x":1e400,"x":1.50}]}"#).unwrap();
        assert_eq!(duplicates, ["a[0].x"]);
        assert_eq!(
            value.at(&["a"]).unwrap().as_array().unwrap()[0].get("x"),
            Some(&Value::Number("1.50".into()))
        );
        // Invalid strings are repaired here too.
        assert!(parse_exact(b"[1.0,\"\xff\",2.0]").is_ok());
        for text in ["[1.5", "[1.5,]", "1.5 2", "-", "1e", "\"1.5", "[1e400,x]"] {
            assert!(parse_exact(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(out_of_range(br#"{"1e400":1,"a":[1e300,-1e400]}"#), Some("-1e400"));
    }
}
