//! The `ConversionReview`: builds the request to a webhook and parses the response.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use values::json::{self, Object, Value};
use wire::outgoing::{Review, ReviewResponse};

/// Parameters of one review.
#[derive(Clone, Copy)]
pub(super) struct ReviewParameters<'r> {
    /// Full name of the API group of reviews.
    pub(super) group: &'r str,
    /// Version of the review: `v1` or `v1beta1`.
    pub(super) version: &'r str,
    pub(super) uid: &'r str,
}

impl ReviewParameters<'_> {
    fn review(&self) -> Review<'_> {
        Review { group: self.group, version: self.version, kind: "ConversionReview" }
    }

    /// Returns the document that requests the conversion of objects to the version `to`. The objects are
    /// given as JSON texts.
    pub(super) fn request(&self, to: &str, objects: impl Iterator<Item = Vec<u8>>) -> Bytes {
        let mut out = Vec::new();
        let mut text = |before: &str, text: &str| {
            out.extend_from_slice(before.as_bytes());
            json::write_string(text, &mut out);
        };
        text("{\"kind\":\"ConversionReview\",\"apiVersion\":", &format!("{}/{}", self.group, self.version));
        text(",\"request\":{\"uid\":", self.uid);
        text(",\"desiredAPIVersion\":", to);
        out.extend_from_slice(b",\"objects\":[");
        for (at, object) in objects.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&object);
        }
        // The reference server includes an empty response, and webhooks in other languages may rely on the empty
        // response.
        out.extend_from_slice(
            b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}",
        );
        out.into()
    }

    /// Returns the objects of a response.
    ///
    /// # Errors
    /// Fails if the document is not a response, or if the response reports a failure.
    pub(super) fn answer(&self, text: &[u8]) -> Result<Vec<Value>, String> {
        let review = self.review();
        let mut answer = review.read(text)?;
        ReviewResponse::Conversion.check(answer.get("response"), self.version)?;
        review.verify(&answer)?;
        let response = answer.as_object_mut().and_then(|answer| answer.remove("response"));
        let mut response = match response {
            Some(Value::Object(response)) => response,
            _ => return Err("no response provided".to_owned()),
        };
        let said = |path: &[&str]| answer_text(&response, path);
        let (given, status, message) =
            (said(&["uid"]), said(&["result", "status"]), said(&["result", "message"]));
        if self.version == "v1" && given != self.uid {
            return Err(format!("expected response.uid={:?}, got {given:?}", self.uid));
        }
        if status != "Success" {
            return Err(match message.as_str() {
                "" => format!("response.result.status was '{status}', not 'Success'"),
                _ => message,
            });
        }
        Ok(match response.remove("convertedObjects") {
            Some(Value::Array(objects)) => objects,
            _ => Vec::new(),
        })
    }
}

fn answer_text(response: &Object, path: &[&str]) -> String {
    let (first, rest) = path.split_first().unwrap_or((&"", &[]));
    response.get(first).map(|value| value.str_at(rest).to_owned()).unwrap_or_default()
}

/// Returns the object at index `at` of a response.
///
/// # Errors
/// Fails if the value is not an object or has no kind.
pub(super) fn object(answer: &[u8], at: usize, value: Value) -> Result<Object, String> {
    match value {
        Value::Object(object) if says_its_kind(&object) => Ok(object),
        Value::Object(object) => {
            let text = raw(answer, at).unwrap_or_else(|| {
                let mut text = Vec::new();
                json::write(&object.into(), &mut text);
                String::from_utf8_lossy(&text).into_owned()
            });
            Err(format!("Object 'Kind' is missing in '{text}'"))
        }
        Value::Null => Err("unexpected end of JSON input".to_owned()),
        other => Err(go::json::unfit(other.go_kind(), go::json::MAP)),
    }
}

/// Returns whether an object has a kind. An invalid version counts as a missing kind.
fn says_its_kind(object: &Object) -> bool {
    let text = |name| answer_text(object, &[name]);
    !text("kind").is_empty() && text("apiVersion").matches('/').count() <= 1
}

/// Returns the original text of an object in a response.
fn raw(answer: &[u8], at: usize) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ReviewResponse<'a> {
        #[serde(borrow)]
        converted_objects: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        response: ReviewResponse<'a>,
    }
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    answer.response.converted_objects.get(at).map(|object| object.get().to_owned())
}
