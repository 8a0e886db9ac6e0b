//! The log of one object: a page of its retained versions, the newest first.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::Revision;
use http::StatusCode;

use super::item::{IncludedParts, RetainedState, item};
use super::{authorize, served};
use crate::requests::verbs::Call;
use objects::negotiate::Encoding;
use objects::store;
use values::json::{self, Indenter, Object, Value};
use values::status::Status;
use values::yaml;
use wire::response::{Response, respond_shared};

/// Number of versions in a page if the client sets no limit, and at most.
const ITEMS_DEFAULT: usize = 100;
const ITEMS_MAX: usize = 500;

/// Size of the stored states from which a page ends. Objects have up to some MiB each.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Memory of a page in addition to that of its states, as trees and as text.
const MULTIPLE: usize = 4;

/// Media types of the log.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];

/// Returns a page of the history of the object in the path.
///
/// # Errors
/// 404 if no version of the object is retained.
pub async fn log(call: &mut Call<'_>) -> Result<Response, Status> {
    authorize(call).await?;
    if call.info.verb.as_str() != "get" {
        return Err(Status::method_not_allowed());
    }
    if !matches!(call.output.encoding, Encoding::Json | Encoding::Yaml) {
        return Err(Status::not_acceptable(&MEDIA_TYPES));
    }
    let included = IncludedParts::parse(&call.request.query)?;
    let limit = limit(call.request.query.first("limit").unwrap_or_default())?;
    let until = decode(call.request.query.first("continue").unwrap_or_default())?;
    store::check_key_name(&call.info.name)?;
    let key = store::key(call.resource, call.info.namespace_of(call.resource), &call.info.name);
    let view = call.view()?;
    let entries = view.versions(&key, until, limit + 1);
    if entries.is_empty() && until == Revision::MAX {
        return Err(Status::not_found(call.subject(&call.info.name)));
    }
    let mut page = entries.len().min(limit);
    let sizes = entries.iter().scan(0, |sum: &mut usize, entry| {
        *sum += entry.stored_len();
        Some(*sum)
    });
    if let Some(at) = sizes.take(page).position(|sum| sum > PAGE_BYTES) {
        page = at + 1;
    }
    let bytes: usize = entries.iter().take(page + 1).map(|entry| entry.stored_len()).sum();
    let charge = call.request.account.answer(MULTIPLE * bytes).await.map_err(Status::no_memory)?;
    let mut states = Vec::with_capacity(page + 1);
    for entry in entries.iter().take(page + 1) {
        let record = entry.read().map_err(store::damaged)?;
        let attributes = record.attributes.clone();
        states.push(RetainedState { entry: entry.clone(), attributes, object: served(call, record).await? });
    }
    let mut items = Vec::with_capacity(page);
    for (at, state) in states.iter().enumerate().take(page) {
        items.push(item(state, states.get(at + 1), included)?.into());
    }
    let next = entries.get(page).map(|entry| encode(entry.revision())).unwrap_or_default();
    let text = text(call, items, view.revision(), next);
    Ok(respond_shared(StatusCode::OK, call.output.media_type, charge.hold(text)))
}

fn limit(text: &str) -> Result<usize, Status> {
    match text {
        "" | "0" => Ok(ITEMS_DEFAULT),
        text => match text.parse::<usize>() {
            Ok(limit) => Ok(limit.min(ITEMS_MAX)),
            Err(_) => Err(Status::bad_request(format!("invalid limit {text:?}: must be a number"))),
        },
    }
}

/// Returns the continue token of the page that begins with the version of `revision`.
fn encode(revision: Revision) -> String {
    URL_SAFE_NO_PAD.encode(format!("history {revision}"))
}

/// Returns the revision with which a page begins; the highest one without a token.
fn decode(token: &str) -> Result<Revision, Status> {
    if token.is_empty() {
        return Ok(Revision::MAX);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let revision = bytes
        .as_deref()
        .and_then(|bytes| std::str::from_utf8(bytes).ok()?.strip_prefix("history ")?.parse().ok());
    revision.ok_or_else(|| Status::bad_request("invalid continue token: it is not from a history"))
}

/// Encodes the page as the client asked for it.
fn text(call: &Call<'_>, items: Vec<Value>, revision: Revision, next: String) -> Vec<u8> {
    let mut metadata = Object::new();
    metadata.push("resourceVersion", revision.to_string().into());
    if !next.is_empty() {
        metadata.push("continue", next.into());
    }
    let mut page = Object::new();
    page.push("kind", "ObjectHistory".into());
    page.push("apiVersion", call.server().types.naming.api_version("history", true, "v1alpha1").into());
    page.push("metadata", metadata.into());
    page.push("items", Value::Array(items));
    let page = Value::from(page);
    let mut out = Vec::new();
    if call.output.encoding == Encoding::Yaml {
        yaml::write(&page, &mut out);
        return out;
    }
    json::write(&page, &mut out);
    if call.output.pretty {
        let compact = std::mem::take(&mut out);
        Indenter::default().push(&compact, &mut out);
    }
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_continues_where_a_page_ended() {
        for revision in [1, 184_467, u64::MAX - 1] {
            let revision = Revision::new(revision);
            assert_eq!(decode(&encode(revision)).unwrap(), revision);
        }
        assert_eq!(decode("").unwrap(), Revision::MAX);
        for token in ["x", "7", &URL_SAFE_NO_PAD.encode("history x"), &URL_SAFE_NO_PAD.encode("7")] {
            assert_eq!(decode(token).unwrap_err().code.as_u16(), 400, "{token}");
        }
    }

    #[test]
    fn a_limit_is_a_number() {
        for (text, want) in [
            ("", Some(100)),
            ("0", Some(100)),
            ("7", Some(7)),
            ("9999", Some(500)),
            ("-1", None),
            ("x", None),
        ] {
            assert_eq!(limit(text).ok(), want, "{text}");
        }
    }
}
