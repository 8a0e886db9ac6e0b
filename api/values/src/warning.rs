//! `Warning` headers: `299 - "<text>"`, one for each distinct text, within a total budget
//! (docs/api/paths-and-verbs.md#warnings).

use http::HeaderValue;

/// Maximum number of characters of all texts together.
const TOTAL_MAX: usize = 4096;

/// Maximum number of characters of each text if the total exceeds its limit.
const CUT_MAX: usize = 256;

/// Returns the headers for `texts`. Drops texts with control characters.
pub fn headers(texts: &[String]) -> Vec<HeaderValue> {
    let mut distinct: Vec<&str> = Vec::with_capacity(texts.len());
    for text in texts {
        if !text.chars().any(char::is_control) && !distinct.contains(&text.as_str()) {
            distinct.push(text);
        }
    }
    let total: usize = distinct.iter().map(|text| text.chars().count()).sum();
    let each = if total > TOTAL_MAX { CUT_MAX } else { usize::MAX };
    let mut used = 0;
    let mut headers = Vec::with_capacity(distinct.len());
    for text in distinct {
        // The text that crosses the limit is still sent.
        if used >= TOTAL_MAX {
            break;
        }
        let cut: String = text.chars().take(each).collect();
        used += cut.chars().count();
        let escaped = cut.replace('\\', "\\\\").replace('"', "\\\"");
        headers.extend(HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_encoded_as_headers() {
        let texts = |list: &[&str]| headers(&list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        let shown = |list: &[&str]| -> Vec<String> {
            texts(list).iter().map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()).collect()
        };
        assert_eq!(
            shown(&["unknown field \"a\"", "b\\c", "b\\c"]),
            [r#"299 - "unknown field \"a\"""#, r#"299 - "b\\c""#]
        );
        assert_eq!(shown(&["bad\ttext", "fine"]), [r#"299 - "fine""#]);
        let long = "x".repeat(3000);
        let other = "y".repeat(3000);
        let cut = shown(&[&long, &other]);
        assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [256 + 8, 256 + 8]);
    }
}
