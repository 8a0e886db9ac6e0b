//! Patches: applies a patch document to an object.
//!
//! ```text
//! media type → PatchKind ─┐
//! body ───────────────────┴► Patch::parse ─► Patch ─► apply(schema, object tree) ─► patched tree
//!                              (400, 413)               (400, 422, 500)
//! ```
//!
//! All functions are pure functions on JSON trees (docs/api/patches.md). The caller first converts the stored
//! object to the requested version, and then decodes, defaults and validates the result. This module
//! recognizes server-side apply, which the module `apply` implements. If the stored object changed in the
//! meantime, the caller can apply a clone of the [`Patch`] again.

mod json;
mod lists;
mod members;
mod merge;
mod merge_failure;
mod merged_patch;
pub mod restore;
mod scalar_texts;
mod strategic;

use types::schema::table::Message;
use values::field::FieldError;
use values::json::{
    Object, ParseError, Value, go_print, parse, parse_exact, parse_exact_reporting_duplicates,
    parse_reporting_duplicates, write,
};
use values::memory::Memory;
use values::status::{Status, StatusReason, Subject};

/// Kind of a patch, determined by its media type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PatchKind {
    /// JSON patch: a list of operations (RFC 6902).
    Json,
    /// Merge patch: a partial document (RFC 7386).
    Merge,
    /// Strategic merge patch: a partial document with directives, merged by the schema.
    Strategic,
    /// Server-side apply of a configuration in YAML. This module only recognizes this kind of patch; `apply`
    /// implements it.
    Apply,
    /// Server-side apply of a configuration in CBOR, which requires a feature gate.
    ApplyCbor,
}

impl PatchKind {
    const ALL: [PatchKind; 5] = [Self::Json, Self::Merge, Self::Strategic, Self::Apply, Self::ApplyCbor];

    /// Returns the kind of patch for a request of a built-in type.
    ///
    /// # Errors
    /// 415 if the media type is not the media type of a patch. Source: docs/api/patches.md#patch-requests.
    pub fn of_request(content_type: &str, cbor: bool) -> Result<PatchKind, Status> {
        let is_on = |kind: &PatchKind| cbor || *kind != Self::ApplyCbor;
        if let Some(kind) = Self::from_media_type(content_type).filter(is_on) {
            return Ok(kind);
        }
        // The reference server accepts the route if one of several types in the header matches. The server
        // then reads the whole header as a single type.
        let kind_of_one = |one: &str| {
            let media_type = one.split(';').next().unwrap_or_default().trim_matches(' ');
            Self::ALL.into_iter().find(|kind| kind.media_type() == media_type).filter(is_on)
        };
        if content_type.split(',').any(|one| kind_of_one(one).is_some()) {
            let all: Vec<&str> = Self::ALL.into_iter().filter(is_on).map(PatchKind::media_type).collect();
            return Err(Status::unsupported_media_type(&all));
        }
        Err(Status::no_such_patch())
    }

    /// Media types that custom resources accept, in the order in which a 415 lists them.
    pub const CUSTOM: [&str; 3] =
        [PatchKind::Json.media_type(), PatchKind::Merge.media_type(), PatchKind::Apply.media_type()];

    /// Returns the kind of patch for a `Content-Type`. The text before the first `;` must match exactly; the
    /// rest is ignored (docs/api/patches.md#patch-requests).
    pub fn from_media_type(content_type: &str) -> Option<PatchKind> {
        let media_type = content_type.split(';').next().unwrap_or("");
        Self::ALL.into_iter().find(|kind| kind.media_type() == media_type)
    }

    /// Returns whether the patch is a configuration for server-side apply.
    pub fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::ApplyCbor)
    }

    /// Returns the media type of this kind of patch.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
            Self::ApplyCbor => "application/apply-patch+cbor",
        }
    }
}

pub use json::Refused;

/// Applies the operations of a JSON patch to a document. The operations are given as a tree.
///
/// # Errors
/// Fails at the first operation that cannot be applied, with the text of the reference server. Also fails if
/// there are too many operations.
pub fn apply_operations(operations: Value, document: Value) -> Result<Value, Refused> {
    let operations = json::parse(operations, false, &mut Vec::new());
    json::carry_out(operations.map_err(|status| Refused::Operation(status.into_message()))?, document)
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Operation(why) => f.write_str(why),
            Refused::Test(path) => write!(f, "testing value {path} failed: test failed"),
            Refused::EffortExceeded => f.write_str(json::EFFORT_EXCEEDED),
        }
    }
}

/// A patched object, with reports about the patch.
#[derive(Debug)]
pub struct Patched {
    /// The result, not yet decoded by the schema.
    pub value: Value,
    /// Texts about unknown and duplicate members of the patch itself (docs/api/patches.md#json-patch,
    /// docs/api/encodings.md#strict-decoding), at most 100.
    pub strict: Vec<String>,
}

/// A parsed patch that can be applied.
#[derive(Clone, Debug)]
pub struct Patch {
    body: Body,
    strict: Vec<String>,
}

#[derive(Clone, Debug)]
enum Body {
    Json(Vec<json::PatchOperation>),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    /// Parses a patch. With `strict_reporting` (field validation `Warn` or `Strict`), unknown and duplicate
    /// members are collected, and errors have the texts of the stricter decoder.
    ///
    /// # Errors
    /// 400 for a malformed body, 413 for more than 10 000 operations, and 415 for a configuration for
    /// server-side apply. Source: docs/api/patches.md#json-patch, #merge-patch, #strategic-merge-patch.
    pub fn parse(kind: PatchKind, text: &[u8], strict_reporting: bool) -> Result<Patch, Status> {
        Memory::check_text(text).map_err(Status::no_memory)?;
        let (value, duplicates) = match read(kind, text, strict_reporting) {
            Ok(read) => read,
            Err(error) => return Err(unreadable(kind, &error, strict_reporting)),
        };
        let mut strict: Vec<String> = Vec::new();
        let body = match kind {
            PatchKind::Json => {
                let mut operations = json::parse(value, strict_reporting, &mut strict)?;
                json::keep_words(&mut operations, text);
                Body::Json(operations)
            }
            PatchKind::Merge => Body::Merge(merge::check(value, strict_reporting)?),
            PatchKind::Strategic => Body::Strategic(strategic::check(value)?),
            PatchKind::Apply | PatchKind::ApplyCbor => {
                let others = [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic];
                return Err(Status::unsupported_media_type(&others.map(PatchKind::media_type)));
            }
        };
        let prefix = if kind == PatchKind::Json { "json patch " } else { "" };
        strict.extend(duplicates.iter().map(|path| format!("{prefix}duplicate field \"{path}\"")));
        strict.truncate(REPORTED_MAX);
        Ok(Patch { body, strict })
    }

    /// Returns whether the patch affects `metadata.managedFields`. A patch that does not affect this member
    /// may be applied to an object without the member.
    pub fn touches_managed_fields(&self) -> bool {
        match &self.body {
            Body::Json(operations) => json::touch(operations, &["metadata", "managedFields"]),
            Body::Merge(patch) | Body::Strategic(patch) => {
                patch.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some())
            }
        }
    }

    /// Applies the patch to `original`. `message` is the type of the object. For custom resources, `message`
    /// is `None`, and a strategic merge patch is refused. A JSON or merge patch sorts the members of the
    /// objects on its paths by name, because the reference server decodes these objects to maps and returns
    /// the result in that order.
    ///
    /// # Errors
    /// 422 if an operation fails; 400, 422 or 500 if a strategic merge fails; 413 if a JSON patch exceeds its
    /// effort limit.
    pub fn apply(self, message: Option<&Message>, original: Value) -> Result<Patched, Status> {
        let value = match self.body {
            Body::Json(operations) => json::apply(operations, original)?,
            Body::Merge(patch) => merge::apply(original, patch),
            Body::Strategic(patch) => strategic::apply(message, original, patch)?,
        };
        Ok(Patched { value, strict: self.strict })
    }

    /// Returns the document for an error about the result, in Go's format of maps. Such an error prints the patched
    /// document or, for a strategic merge, the patch after the merge (docs/api/patches.md#patch-requests). The members
    /// of a custom object are sorted by name, because the reference server patches the sorted text of the object.
    ///
    /// # Errors
    /// Returns the errors of [`Patch::apply`].
    pub fn error_document(&self, message: &Message, mut original: Value) -> Result<String, Status> {
        if let Body::Strategic(patch) = &self.body {
            return Ok(go_print(&merged_patch::merged_patch(message, &original, patch.clone())));
        }
        if message.custom {
            original.sort_names();
        }
        let patched = self.clone().apply(Some(message), original)?;
        let mut text = Vec::new();
        write(&patched.value, &mut text);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Maximum number of unknown and duplicate members that are reported for one patch
/// (docs/api/encodings.md#strict-decoding).
const REPORTED_MAX: usize = 100;

/// Parses and applies a patch; see [`Patch::parse`] and [`Patch::apply`].
pub fn apply(
    kind: PatchKind,
    message: Option<&Message>,
    original: Value,
    patch: &[u8],
    strict_reporting: bool,
) -> Result<Patched, Status> {
    Patch::parse(kind, patch, strict_reporting)?.apply(message, original)
}

/// Returns the 422 for a result that cannot be decoded. `document` is the result of
/// [`Patch::error_document`], and `error` is the text of the decoder.
pub fn undecodable(document: String, error: &str) -> Status {
    let unnamed = Subject { group: "", kind: "", name: "" };
    Status::invalid(unnamed, &[FieldError::invalid("patch", &document.into(), error)])
}

/// Parses a patch document. Numbers keep their spelling in JSON and merge patches, because the reference
/// server applies these patches to text.
fn read(kind: PatchKind, text: &[u8], strict_reporting: bool) -> Result<(Value, Vec<String>), ParseError> {
    match (kind, strict_reporting) {
        (PatchKind::Json | PatchKind::Merge, true) => parse_exact_reporting_duplicates(text),
        (PatchKind::Json | PatchKind::Merge, false) => Ok((parse_exact(text)?, Vec::new())),
        (_, true) => parse_reporting_duplicates(text),
        (_, false) => Ok((parse(text)?, Vec::new())),
    }
}

/// Returns the 400 for a body that is not JSON.
fn unreadable(kind: PatchKind, error: &ParseError, strict_reporting: bool) -> Status {
    match kind {
        PatchKind::Strategic | PatchKind::Apply | PatchKind::ApplyCbor => {
            Status::bad_request(error.to_string())
        }
        _ if strict_reporting => Status::bad_request(format!("error decoding patch: {error}")),
        PatchKind::Merge => Status::bad_request(merge::INVALID),
        PatchKind::Json => Status::bad_request(error.to_string()),
    }
}

/// Sorts the members of an object by name.
fn sort_members(object: &mut Object) {
    values::json::sort_members(object.members_mut());
}

/// Returns the 500 without a reason for a failure that the reference server does not convert to a Status
/// (docs/api/errors.md#messages).
fn plain_error(text: impl Into<String>) -> Status {
    Status::new(StatusReason::Unknown, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;
    use types::schema::builtin::{ELEMENT, FIELD};
    use types::schema::make::plain;
    use types::schema::table::{Element, Field, Kind, List, ListType, PatchStrategy, Ref};

    #[test]
    fn the_patch_kind_follows_from_the_content_type() {
        for (content_type, kind) in [
            ("application/json-patch+json", Some(PatchKind::Json)),
            ("application/merge-patch+json; charset=utf-8", Some(PatchKind::Merge)),
            ("application/strategic-merge-patch+json", Some(PatchKind::Strategic)),
            ("application/apply-patch+yaml;x", Some(PatchKind::Apply)),
            ("application/apply-patch+cbor", Some(PatchKind::ApplyCbor)),
            ("application/json-patch+json ", None),
            ("Application/json-patch+json", None),
            ("application/json", None),
            ("", None),
        ] {
            assert_eq!(PatchKind::from_media_type(content_type), kind, "{content_type}");
        }
        assert_eq!(Patch::parse(PatchKind::Apply, b"{}", true).unwrap_err().code, 415);
        // A media type whose feature gate is disabled is not accepted.
        for cbor in [false, true] {
            let gated = PatchKind::of_request("application/apply-patch+cbor", cbor);
            assert_eq!(gated.ok(), cbor.then_some(PatchKind::ApplyCbor));
            let refused = PatchKind::of_request("application/json", cbor).unwrap_err();
            assert_eq!(refused.message, "415: Unsupported Media Type");
            assert!(refused.details.is_some(), "routing errors have empty details");
            let two = "application/merge-patch+json, application/json-patch+json";
            let refused = PatchKind::of_request(two, cbor).unwrap_err();
            let why = "the body of the request was in an unknown format - accepted media types include: ";
            assert!(refused.message.starts_with(why), "{}", refused.message);
            assert_eq!(refused.message.contains("cbor"), cbor);
        }
    }

    #[test]
    fn an_undecodable_result_is_422_with_the_patch() {
        let document =
            r#"{"kind":"K","data":{"b":"1","a":"<"},"apiVersion":"v1","metadata":{"name":"n","labels":{}}}"#;
        let sorted = r#""{\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\u003c\",\"b\":2},\"kind\":\"K\",\"metadata\":{\"name\":\"n\",\"labels\":{}}}""#;
        let printed = r#""map[data:map[a:1.5 b:[1 x <nil> true map[y:1e-05 z:3e+09]]]]""#;
        for (kind, patch, shown) in [
            (PatchKind::Merge, r#"{"data":{"b":2}}"#, sorted),
            (PatchKind::Json, r#"[{"op":"replace","path":"/data/b","value":2}]"#, sorted),
            (
                PatchKind::Strategic,
                r#"{"data":{"b":[1,"x",null,true,{"z":3e9,"y":0.00001}],"a":1.5}}"#,
                printed,
            ),
        ] {
            let patch = Patch::parse(kind, patch.as_bytes(), true).unwrap();
            let document = patch.error_document(&lists(), parse(document.as_bytes()).unwrap()).unwrap();
            let status = undecodable(document, "no such luck");
            assert_eq!(status.code, 422);
            let want = format!(" \"\" is invalid: patch: Invalid value: {shown}: no such luck");
            assert_eq!(status.message, want, "{kind:?}");
        }
    }

    #[test]
    fn a_refused_patch_of_a_custom_object_shows_sorted_members() {
        let document = r#"{"kind":"K","metadata":{"name":"n","labels":{"b":"1","a":[{"d":1,"c":2}]}},"apiVersion":"v1"}"#;
        let custom = Message { custom: true, ..lists() };
        for (kind, patch) in [
            (PatchKind::Merge, r#"{"spec":{"z":1,"y":2}}"#),
            (PatchKind::Json, r#"[{"op":"add","path":"/spec","value":{"z":1,"y":2}}]"#),
        ] {
            let patch = Patch::parse(kind, patch.as_bytes(), true).unwrap();
            let shown = patch.error_document(&custom, parse(document.as_bytes()).unwrap()).unwrap();
            let metadata = r#""metadata":{"labels":{"a":[{"c":2,"d":1}],"b":"1"},"name":"n"}"#;
            let start = format!(r#"{{"apiVersion":"v1","kind":"K",{metadata},"spec":{{"#);
            assert!(shown.starts_with(&start), "{kind:?}: {shown}");
        }
    }

    #[test]
    fn a_refused_strategic_merge_patch_shows_the_remaining_document() {
        let document = r#"{"a":[{"name":"x","b":["1"]},{"name":"y"}],"b":["1"],"m":{"k":1,"l":2},"n":1}"#;
        for (patch, want) in [
            (r#"{"$setElementOrder/a":[{"name":"x"}],"a":[{"name":"x","z":1}],"n":2}"#, "map[n:2]"),
            (r#"{"a":[{"name":"x","$setElementOrder/b":["1"],"z":1}]}"#, "map[a:[map[name:x z:1]]]"),
            (
                r#"{"a":[{"name":"x","$patch":"delete"},{"name":"y","$retainKeys":["name"]}]}"#,
                "map[a:[map[$patch:delete name:x] map[name:y]]]",
            ),
            (r#"{"m":{"$retainKeys":["k"],"k":2}}"#, "map[m:map[k:2]]"),
            (r#"{"m":{"$patch":"replace","k":2}}"#, "map[m:map[k:2]]"),
            (r#"{"m":{"$patch":"delete"}}"#, "map[m:map[$patch:delete]]"),
            (r#"{"m":{"k":null,"z":null}}"#, "map[m:map[k:<nil> z:<nil>]]"),
            (r#"{"foo":{"a":null,"b":1}}"#, "map[foo:map[b:1]]"),
            (r#"{"foo":{"$patch":"replace","b":1}}"#, "map[foo:map[$patch:replace b:1]]"),
            (
                r#"{"foo":{"c":{"$patch":"delete"},"d":[{"$patch":"delete"},{"e":null}]}}"#,
                "map[foo:map[d:[map[]]]]",
            ),
            (r#"{"m":[{"$patch":"delete"},{"e":null}]}"#, "map[m:[map[$patch:delete] map[]]]"),
            (r#"{"$deleteFromPrimitiveList/b":["1"]}"#, "map[$deleteFromPrimitiveList/b:[1]]"),
        ] {
            let patch = Patch::parse(PatchKind::Strategic, patch.as_bytes(), true).unwrap();
            assert_eq!(patch.error_document(&lists(), parse(document.as_bytes()).unwrap()).unwrap(), want);
        }
    }

    #[test]
    fn duplicate_members_of_each_patch_kind_are_reported() {
        for (kind, patch, want) in [
            (PatchKind::Merge, r#"{"a":{"b":1,"b":2}}"#, "duplicate field \"a.b\""),
            (PatchKind::Strategic, r#"{"a":1,"a":2}"#, "duplicate field \"a\""),
            (
                PatchKind::Json,
                r#"[{"op":"add","path":"/a","path":"/b","value":1}]"#,
                "json patch duplicate field \"[0].path\"",
            ),
        ] {
            let original = parse(br#"{"x":1}"#).unwrap();
            assert_eq!(apply(kind, Some(&lists()), original, patch.as_bytes(), true).unwrap().strict, [want]);
            assert!(Patch::parse(kind, patch.as_bytes(), false).unwrap().strict.is_empty());
        }
    }

    #[test]
    fn random_documents_and_bytes_never_panic() {
        let mut random = Random(0x5eed);
        const NAMES: [&str; 12] = [
            "a",
            "b",
            "name",
            "op",
            "path",
            "from",
            "value",
            "$patch",
            "$retainKeys",
            "$setElementOrder/a",
            "$deleteFromPrimitiveList/b",
            "$setElementOrder/name",
        ];
        const TEXTS: [&str; 12] = [
            "\"a\"",
            "\"/a/0\"",
            "\"/a/-\"",
            "\"add\"",
            "\"move\"",
            "\"copy\"",
            "\"replace\"",
            "\"delete\"",
            "1",
            "0.5",
            "null",
            "true",
        ];
        fn document(random: &mut Random, depth: usize) -> String {
            match random.index(if depth == 0 { 1 } else { 3 }) {
                0 => random.pick(&TEXTS).to_owned(),
                1 => {
                    let items: Vec<String> =
                        (0..random.index(4)).map(|_| document(random, depth - 1)).collect();
                    format!("[{}]", items.join(","))
                }
                _ => {
                    let mut member =
                        || format!("\"{}\":{}", random.pick(&NAMES), document(random, depth - 1));
                    let members: Vec<String> = (0..5).map(|_| member()).collect();
                    format!("{{{}}}", members.join(","))
                }
            }
        }
        let mut applied = [0; 3];
        for _ in 0..30_000 {
            let mut text = document(&mut random, 4).into_bytes();
            if random.index(4) == 0 {
                let at = random.index(text.len());
                text[at] = random.index(256) as u8;
            }
            for (at, kind) in
                [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic].into_iter().enumerate()
            {
                let original =
                    parse(br#"{"a":[{"name":1},{"name":"a"}],"b":["a",1],"name":{"a":null}}"#).unwrap();
                applied[at] +=
                    usize::from(apply(kind, Some(&lists()), original, &text, random.index(2) == 0).is_ok());
            }
        }
        assert!(
            applied.iter().all(|count| *count > 500),
            "too few of the documents are patches: {applied:?}"
        );
    }

    /// Returns a type with two lists that merge; list `a` merges by a key.
    fn lists() -> Message {
        let list = |name: &'static str, merge_key: Option<&'static str>| {
            let item = Element { kind: Kind::Message(Ref::new(plain("Item", Vec::new()))), ..ELEMENT };
            let list = List { item, merge: ListType::Atomic, wrapped: false };
            let patch = PatchStrategy { merge: true, merge_key, ..PatchStrategy::default() };
            Field { name: name.into(), number: 1, kind: Kind::List(Ref::new(list)), patch, ..FIELD }
        };
        plain("Lists", vec![list("a", Some("name")), list("b", None)])
    }
}
