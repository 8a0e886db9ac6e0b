//! Documents that say their version and kind, in JSON or YAML, as kube-apiserver parses them: configuration files, and
//! answers of webhooks. What begins with `{` is JSON, anything else YAML, of which the first document counts. The members
//! of YAML are checked in the order of their names.

use std::borrow::Cow;

use api::values::json;
use api::wire::codec::yaml;
use auth::document::Document;

/// Parses a configuration file.
///
/// # Errors
/// The text of kube-apiserver's error.
pub fn parse(bytes: &[u8]) -> Result<Document, String> {
    let (json, duplicates) = read(bytes)?;
    Document::new(bytes, &json, duplicates).map_err(|why| go::json::undecided(&why))
}

/// The JSON that an answer says.
///
/// # Errors
/// The text of kube-apiserver's error.
pub fn answer(bytes: &[u8]) -> Result<Vec<u8>, String> {
    read(bytes).map(|(json, _)| json.into_owned())
}

/// A tree as a document, whose members can be checked.
///
/// # Errors
/// It is nested too deep.
pub fn of(value: &json::Value) -> Result<Document, String> {
    let mut json = Vec::new();
    json::write_sorted(value, &mut json);
    Document::new(b"", &json, None).map_err(|why| go::json::undecided(&why))
}

/// The JSON that a document says, and the error about keys that YAML sets twice.
fn read(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, Option<String>), String> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        json::parse(bytes).map_err(|why| go::json::undecided(&why))?;
        return Ok((bytes.into(), None));
    }
    let document = yaml::parse(bytes).map_err(|why| why.to_string())?;
    let mut json = Vec::new();
    json::write_sorted(&document.value, &mut json);
    Ok((json.into(), document.strict_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_json_or_yaml() {
        for (text, want) in [
            ("{\"b\":1, \"a\":2}", Ok("{\"b\":1, \"a\":2}")),
            ("b: 1\na: 2\n", Ok("{\"a\":2,\"b\":1}")),
            ("hello", Ok("\"hello\"")),
            ("{", Err("couldn't get version/kind; json parse error: unexpected end of JSON input")),
            ("a: b\nc: d\n\te: []\n", Err("yaml: line 3: found a tab character that violates indentation")),
        ] {
            let got = answer(text.as_bytes()).map(|json| String::from_utf8(json).unwrap());
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
