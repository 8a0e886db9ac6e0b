//! Encodes events as JSON objects or as lines of the legacy format. Events that are too long are truncated
//! (docs/api/audit.md#log).

use std::borrow::Cow;

use super::Event;
use values::field::go_quote;
use values::json::{self, Object, Value};

/// The format of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// A complete JSON object.
    Json,
    /// A JSON object without type, for a list that names the type of its items.
    Item,
    /// A line of text with the most important members.
    Legacy,
}

/// Annotation of an event whose objects were left out.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The reason why an event is not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// The event is too long.
    #[error("the event is too long")]
    TooLong,
    /// The patch of the request cannot be written as JSON.
    #[error("the patch is not JSON")]
    LacksPatch,
}

/// Encodes events as text.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// Format of the text.
    pub format: Format,
    /// Maximum size of an event as JSON, in bytes; `None` means unlimited.
    pub event_bytes_max: Option<usize>,
}

impl Encoder {
    /// Returns the text of an event, without a line break.
    ///
    /// # Errors
    /// The event is too long even without the objects of request and response, or the event lacks its patch and
    /// the format or the size limit requires JSON.
    pub fn encode(&self, event: &Event) -> Result<Vec<u8>, EncodeError> {
        let is_json = self.format != Format::Legacy || self.event_bytes_max.is_some();
        if event.lacks_patch && is_json {
            return Err(EncodeError::LacksPatch);
        }
        let mut event = Cow::Borrowed(&event.members);
        if self.format == Format::Item {
            let item = event.to_mut();
            item.remove("kind");
            item.remove("apiVersion");
        }
        let mut text = to_json(&event);
        if let Some(bytes_max) = self.event_bytes_max.filter(|bytes_max| text.len() > *bytes_max) {
            event = Cow::Owned(truncated(&event));
            text = to_json(&event);
            if text.len() > bytes_max {
                return Err(EncodeError::TooLong);
            }
        }
        Ok(match self.format {
            Format::Json | Format::Item => text,
            Format::Legacy => legacy(&event).into_bytes(),
        })
    }
}

fn to_json(event: &Object) -> Vec<u8> {
    let mut text = Vec::with_capacity(1024);
    json::write(&event.clone().into(), &mut text);
    text
}

/// Returns the event without the objects of request and response, with an annotation.
fn truncated(event: &Object) -> Object {
    let mut event = event.clone();
    event.remove("requestObject");
    event.remove("responseObject");
    let mut annotations = Object::new();
    annotations.push(TRUNCATED, "true".into());
    let there = event.remove("annotations");
    for (key, value) in there.as_ref().and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        annotations.insert(key.to_owned(), value.clone());
    }
    event.push("annotations", annotations.into());
    event
}

/// Returns the line of the legacy format. A missing member is replaced by a word in angle brackets.
fn legacy(event: &Object) -> String {
    let event = Value::Object(event.clone());
    let text = |path: &[&str], absent: &str| {
        let text = event.str_at(path);
        go_quote(if text.is_empty() { absent } else { text })
    };
    let first = event.get("sourceIPs").and_then(Value::as_array).and_then(<[Value]>::first);
    let ip = go_quote(first.and_then(Value::as_str).unwrap_or("<unknown>"));
    let groups = |member: &str, absent: &str| {
        let groups = event.get(member).and_then(|user| user.get("groups")).and_then(Value::as_array);
        let quoted: Vec<String> =
            groups.unwrap_or_default().iter().filter_map(Value::as_str).map(go_quote).collect();
        go_quote(if quoted.is_empty() { absent.to_owned() } else { quoted.join(",") }.as_str())
    };
    let code = event.get("responseStatus").and_then(|status| status.get("code")).and_then(Value::as_i64);
    let response = code.map_or_else(|| "<deferred>".to_owned(), |code| code.to_string());
    format!(
        "{} AUDIT: id={} stage={} ip={ip} method={} user={} groups={} as={} asgroups={} user-agent={} \
         namespace={} uri={} response=\"{response}\"",
        event.str_at(&["requestReceivedTimestamp"]),
        text(&["auditID"], ""),
        text(&["stage"], ""),
        text(&["verb"], ""),
        text(&["user", "username"], "<none>"),
        groups("user", "<none>"),
        text(&["impersonatedUser", "username"], "<self>"),
        groups("impersonatedUser", "<lookup>"),
        text(&["userAgent"], ""),
        text(&["objectRef", "namespace"], "<none>"),
        text(&["requestURI"], ""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        let members = json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone();
        Event { members, lacks_patch: false }
    }

    #[test]
    fn oversized_audit_events_lose_their_objects_or_are_dropped() {
        let long =
            r#"{"verb":"get","requestObject":{"a":1},"responseObject":{"b":2},"annotations":{"k":"v"}}"#;
        let short = r#"{"verb":"get","annotations":{"audit.k8s.io/truncated":"true","k":"v"}}"#;
        for (bytes_max, want) in [
            (None, Ok(long)),
            (Some(long.len()), Ok(long)),
            (Some(long.len() - 1), Ok(short)),
            (Some(short.len()), Ok(short)),
            (Some(short.len() - 1), Err(EncodeError::TooLong)),
        ] {
            let encoder = Encoder { format: Format::Json, event_bytes_max: bytes_max };
            let text = encoder.encode(&event(long)).map(|text| String::from_utf8(text).unwrap());
            assert_eq!(text.as_deref(), want.as_deref(), "{bytes_max:?}");
        }
    }

    #[test]
    fn audit_events_without_their_patch_are_written_only_in_the_legacy_format() {
        let event = Event { members: Object::new(), lacks_patch: true };
        for (format, event_bytes_max, is_written) in [
            (Format::Json, None, false),
            (Format::Item, None, false),
            (Format::Legacy, None, true),
            (Format::Legacy, Some(1000), false),
        ] {
            let written = Encoder { format, event_bytes_max }.encode(&event);
            assert_eq!(written.err(), (!is_written).then_some(EncodeError::LacksPatch), "{format:?}");
        }
    }

    #[test]
    fn legacy_audit_lines_have_placeholders_for_absent_values() {
        let encoder = Encoder { format: Format::Legacy, event_bytes_max: None };
        for (text, want) in [
            (
                r#"{"stage":"RequestReceived","auditID":"i","requestURI":"/a","verb":"get","user":{},"requestReceivedTimestamp":"T"}"#,
                r#"T AUDIT: id="i" stage="RequestReceived" ip="<unknown>" method="get" user="<none>" groups="<none>" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="/a" response="<deferred>""#,
            ),
            (
                r#"{"stage":"ResponseComplete","auditID":"i","requestURI":"/a","verb":"get","sourceIPs":["::1","::2"],"userAgent":"x\"y","user":{"username":"joe","groups":["a","b"]},"impersonatedUser":{"username":"kim","groups":["c"]},"objectRef":{"namespace":"n"},"responseStatus":{"code":403},"requestReceivedTimestamp":"T"}"#,
                r#"T AUDIT: id="i" stage="ResponseComplete" ip="::1" method="get" user="joe" groups="\"a\",\"b\"" as="kim" asgroups="\"c\"" user-agent="x\"y" namespace="n" uri="/a" response="403""#,
            ),
        ] {
            let line = encoder.encode(&event(text)).unwrap();
            assert_eq!(String::from_utf8(line).unwrap(), want);
        }
    }
}
