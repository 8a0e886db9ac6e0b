//! The log of one object: a page of the retained versions of the object, the newest version first.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use engine::{Entry, Revision};
use http::StatusCode;

use super::item::{IncludedParts, RetainedState, item};
use super::{authorize, convert_to_requested};
use crate::requests::verbs::Call;
use objects::negotiate::Encoding;
use objects::store;
use values::json::{self, Indenter, Object, Value};
use values::status::Status;
use values::yaml;
use wire::response::{Response, respond_shared};

/// Default and maximum number of versions in a page.
const ITEMS_DEFAULT: usize = 100;
const ITEMS_MAX: usize = 500;

/// A page ends as soon as its stored states have this total size. A single object can have several MiB.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Approximate size of an item without optional members: its author and some changed fields.
const ITEM_BYTES: usize = 2 * 1024;

/// A page ends as soon as its text has this size, even if its states are smaller. The size is a fraction of the
/// budget for responses.
const TEXT_BYTES: usize = 8 * 1024 * 1024;

/// Number of copies of a page's text in memory at one time: the text of the items, and the encoded page.
const COPIES: usize = 2;

/// Maximum number of decoded objects in memory at one time, each charged with the size of the largest state: the
/// two states that are compared, and the optional members `object` and `patch` of the item.
const TREES: usize = 4;

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
    let page = page_len(&entries, limit);
    let charged: Vec<usize> = entries.iter().take(page + 1).map(Entry::stored_len).collect();
    let largest = charged.iter().copied().max().unwrap_or_default();
    let trees = call.server().operations.memory.work(0, TREES * largest).await.map_err(Status::no_memory)?;
    let text_bytes = page * ITEM_BYTES + included.multiple() * charged.iter().sum::<usize>();
    let text_bytes = text_bytes.min(TEXT_BYTES);
    let charge = call.request.account.answer(COPIES * text_bytes).await.map_err(Status::no_memory)?;
    let mut items = Items::new(call.output.encoding, text_bytes);
    let mut state = None;
    for at in 0..page {
        let newer = match state.take() {
            Some(state) => state,
            None => retained(call, &entries[at]).await?,
        };
        let older = match entries.get(at + 1) {
            Some(entry) => Some(retained(call, entry).await?),
            None => None,
        };
        items.push(item(&newer, older.as_ref(), included)?.into());
        state = older;
        if items.text.len() >= text_bytes {
            break;
        }
    }
    drop(trees);
    let next = entries.get(items.count).map(|entry| encode(entry.revision())).unwrap_or_default();
    let text = text(call, items, view.revision(), next);
    let charge = match text.len().saturating_sub(charge.bytes()) {
        0 => charge,
        missing => charge.and(call.request.account.answer(missing).await.map_err(Status::no_memory)?),
    };
    Ok(respond_shared(StatusCode::OK, call.output.media_type, charge.hold(text)))
}

/// Returns the number of entries of a page: at most `limit`, and fewer if the states are large.
fn page_len(entries: &[Entry], limit: usize) -> usize {
    let page = entries.len().min(limit);
    let sizes = entries.iter().scan(0, |sum: &mut usize, entry| {
        *sum += entry.stored_len();
        Some(*sum)
    });
    sizes.take(page).position(|sum| sum > PAGE_BYTES).map_or(page, |at| at + 1)
}

/// Reads a version.
async fn retained(call: &Call<'_>, entry: &Entry) -> Result<RetainedState, Status> {
    let record = entry.read().map_err(store::damaged)?;
    let attributes = record.attributes.clone();
    Ok(RetainedState { entry: entry.clone(), attributes, object: convert_to_requested(call, record).await? })
}

/// The items of a page as text.
struct Items {
    encoding: Encoding,
    count: usize,
    text: Vec<u8>,
}

impl Items {
    fn new(encoding: Encoding, text_bytes: usize) -> Items {
        Items { encoding, count: 0, text: Vec::with_capacity(text_bytes) }
    }

    fn push(&mut self, item: Value) {
        if self.encoding == Encoding::Yaml {
            yaml::write_item(&item, &mut self.text);
        } else {
            if self.count > 0 {
                self.text.push(b',');
            }
            json::write(&item, &mut self.text);
        }
        self.count += 1;
    }
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

/// Returns the revision with which a page begins. An empty token means the highest possible revision.
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

/// Encodes the page in the media type that the client requested.
fn text(call: &Call<'_>, items: Items, revision: Revision, next: String) -> Vec<u8> {
    let mut metadata = Object::new();
    metadata.push("resourceVersion", revision.to_string().into());
    if !next.is_empty() {
        metadata.push("continue", next.into());
    }
    let mut head = Object::new();
    head.push("kind", "ObjectHistory".into());
    head.push("apiVersion", call.server().types.naming.api_version("history", true, "v1alpha1").into());
    head.push("metadata", metadata.into());
    let mut out = Vec::with_capacity(items.text.len() + ITEM_BYTES);
    if items.encoding == Encoding::Yaml {
        yaml::write(&head.into(), &mut out);
        out.extend_from_slice(if items.count == 0 { b"items: []\n" } else { b"items:\n" });
        out.extend_from_slice(&items.text);
        return out;
    }
    json::write(&head.into(), &mut out);
    // The items follow as the last member.
    out.pop();
    out.extend_from_slice(b",\"items\":[");
    out.extend_from_slice(&items.text);
    out.extend_from_slice(b"]}");
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
    fn a_log_token_continues_at_the_end_of_the_previous_page() {
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
    fn the_limit_of_a_log_defaults_to_100_and_is_capped_at_500() {
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
