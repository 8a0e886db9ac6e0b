//! Configuration files that are objects with a version and a kind, in JSON or YAML, as kube-apiserver parses them: what
//! begins with `{` is JSON, anything else YAML, of which the first document counts. The members of a YAML file are checked
//! in the order of their names.

use api::values::json;
use api::wire::codec::yaml;
use auth::document::Document;

/// Parses a file.
///
/// # Errors
/// The text of kube-apiserver's error.
pub fn parse(bytes: &[u8]) -> Result<Document, String> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        let undecided = |why| format!("couldn't get version/kind; json parse error: {why}");
        json::parse(bytes).map_err(|why| undecided(why.to_string()))?;
        return Document::new(bytes, bytes, None).map_err(|why| undecided(why.to_string()));
    }
    let mut document = yaml::parse(bytes).map_err(|why| why.to_string())?;
    document.value.sort_names();
    let mut text = Vec::new();
    json::write(&document.value, &mut text);
    Document::new(bytes, &text, document.strict_error()).map_err(|why| why.to_string())
}
