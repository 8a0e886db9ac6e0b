//! Parses the response of a webhook as a review; error messages have the wording of the reference server.

use crate::typed;
use values::json::Value;
use values::type_meta::type_of;

/// The scheme that the reference server names in the "no kind is registered" error.
const SCHEME: &str = "in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"";

/// The type of a review that was sent to a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Review<'r> {
    /// Full name of the API group.
    pub group: &'r str,
    /// Version: `v1`, `v1beta1`, or the only version of the group.
    pub version: &'r str,
    /// Kind of the review.
    pub kind: &'r str,
}

impl Review<'_> {
    /// Parses the document in a response. A document that does not state its type is accepted as a review.
    ///
    /// # Errors
    /// The text cannot be parsed, or the document has another kind or version.
    pub fn read(&self, text: &[u8]) -> Result<Value, String> {
        let answer = typed::parse(text)?;
        let (kind, api_version) = type_of(&answer);
        let Review { group, version, kind: expected } = *self;
        let (given_group, given) = split(api_version);
        let kind_or_expected = if kind.is_empty() { expected } else { kind };
        let is_review = (api_version.is_empty()
            || given_group == group && (given == version || matches!(given, "v1" | "v1beta1")))
            && kind_or_expected == expected;
        let is_status = (api_version, kind) == ("v1", "Status");
        if !is_review && !is_status {
            return Err(format!("no kind \"{kind}\" is registered for version \"{api_version}\" {SCHEME}"));
        }
        if is_status || !given.is_empty() && given != version {
            return Err(format!(
                "converting ({given}.{kind_or_expected}) to ({version}.{expected}): unknown conversion"
            ));
        }
        Ok(answer)
    }

    /// Checks that a document states the type of the review. The member names `apiVersion` and `kind` must
    /// match exactly, including case. Only reviews of version v1 are checked.
    ///
    /// # Errors
    /// The message names the type that the document states.
    pub fn verify(&self, answer: &Value) -> Result<(), String> {
        let Review { group, version, kind } = *self;
        let (api_version, given) = (answer.str_at(&["apiVersion"]), answer.str_at(&["kind"]));
        if version != "v1" || (split(api_version), given) == ((group, version), kind) {
            return Ok(());
        }
        let (given_group, given_version) = split(api_version);
        Err(format!(
            "expected webhook response of {group}/{version}, Kind={kind}, got {given_group}/{given_version}, Kind={given}"
        ))
    }
}

/// Splits an apiVersion into group and version.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_be_the_review_that_was_sent() {
        let review = Review { group: "g.example", version: "v1", kind: "Review" };
        let beta = Review { version: "v1beta1", ..review };
        let read = |review: Review<'_>, text: &str| {
            review.read(text.as_bytes()).and_then(|answer| review.verify(&answer))
        };
        let own = r#"{"apiVersion":"g.example/v1","kind":"Review"}"#;
        let own_beta = r#"{"apiVersion":"g.example/v1beta1","kind":"Review"}"#;
        for (review, text, want) in [
            (review, own, ""),
            (beta, own_beta, ""),
            (beta, "{}", ""),
            (review, "apiVersion: g.example/v1\nkind: Review", ""),
            (review, "{}", "expected webhook response of g.example/v1, Kind=Review, got /, Kind="),
            (
                review,
                r#"{"apiVersion":"g.example/v1"}"#,
                "expected webhook response of g.example/v1, Kind=Review, got g.example/v1, Kind=",
            ),
            (review, own_beta, "converting (v1beta1.Review) to (v1.Review): unknown conversion"),
            (beta, own, "converting (v1.Review) to (v1beta1.Review): unknown conversion"),
            (
                review,
                r#"{"apiVersion":"v1","kind":"Status"}"#,
                "converting (v1.Status) to (v1.Review): unknown conversion",
            ),
            (
                review,
                r#"{"apiVersion":"g.example/v9","kind":"Review"}"#,
                "no kind \"Review\" is registered for version \"g.example/v9\" in",
            ),
            (
                review,
                r#"{"apiVersion":"g.example/v1","kind":"Other"}"#,
                "no kind \"Other\" is registered for version \"g.example/v1\" in",
            ),
            (review, "{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
            (review, "[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into"),
            (review, "5", "couldn't get version/kind; json parse error: json: cannot unmarshal number into"),
            (
                review,
                r#"{"apiVersion":5}"#,
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .apiVersion",
            ),
            (review, r#"{"apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c"),
            (
                review,
                r#"{"APIVersion":"v1","Kind":"Status"}"#,
                "converting (v1.Status) to (v1.Review): unknown conversion",
            ),
            // Only members with the exact case of the schema are accepted.
            (
                review,
                r#"{"APIVersion":"g.example/v1","Kind":"Review"}"#,
                "expected webhook response of g.example/v1, Kind=Review, got /, Kind=",
            ),
            (review, "a: [", "yaml: line 1: did not find expected node content"),
            (review, "null", "expected webhook response of g.example/v1, Kind=Review, got /, Kind="),
            (
                review,
                "hello",
                "couldn't get version/kind; json parse error: json: cannot unmarshal string into",
            ),
        ] {
            let got = read(review, text).err().unwrap_or_default();
            assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{text}: {got}");
        }
    }
}
