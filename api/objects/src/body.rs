//! Decodes request bodies to objects and checks that their kind is the kind of the endpoint
//! (docs/api/writes.md#request-body).

use go::json::{no_version_kind, sets_field, undecided};

use crate::codec::cbor;
use crate::codec::protobuf::{self, envelope::Unknown};
use crate::known_types::{TypeName, is_known, not_registered, other_form, unreadable_as};
use crate::negotiate::Input;
use types::convert::ingress;
use types::schema::conform::conform;
use types::schema::decode::{decode, decode_known};
use types::schema::decoded::{DecodeError, Decoded};
use types::schema::registry::Registry;
use types::schema::table::Message;
use types::schema::unreadable_annotation;
use values::field::FieldError;
use values::json::{self, Object, Value};
use values::memory::Memory;
use values::object::meta;
use values::status::{Status, Subject};
use values::type_meta::{type_of, untyped};
use values::yaml;

/// The kind of object that an endpoint accepts.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'e> {
    /// Kind of the accepted objects.
    pub kind: &'e str,
    /// Group and version, such as `apps/v1`.
    pub api_version: &'e str,
    /// Schema type of the accepted objects.
    pub message: &'e Message,
    /// Older versions of the same group with the same schema, which are accepted as well.
    pub older: &'e [&'e str],
    /// An object of this type that the body probably resembles. Decoding reuses the parts that are unchanged.
    pub known: Option<&'e Object>,
    /// Whether unknown and duplicate fields are reported. This setting also selects the error for a custom
    /// object without a kind.
    pub is_strict: bool,
}

impl Expected<'_> {
    /// Decodes a request body according to its `Content-Type`. If the body has a kind and an apiVersion, these values
    /// must be the kind and the apiVersion of the endpoint. If kind and apiVersion are absent, the values of the
    /// endpoint are used, except for custom types.
    pub fn decode(&self, input: Input, registry: &Registry, body: &[u8]) -> Result<Decoded, Status> {
        match input {
            Input::Json => self.decode_json(registry, body),
            Input::Yaml => self.decode_yaml(registry, body),
            Input::Cbor => self.decode_cbor(registry, body),
            Input::Protobuf => self.decode_protobuf(registry, body),
        }
    }

    /// Returns the findings of strict decoding for a body that is refused because it has another version of
    /// the kind. The body is read in that version before it is refused.
    pub fn strict_as_named(&self, input: Input, registry: &Registry, body: &[u8]) -> Vec<String> {
        let document = match input {
            Input::Json if !self.message.custom => json::parse(body).ok(),
            Input::Yaml if !self.message.custom => yaml::parse(body).ok().map(|document| document.value),
            _ => None,
        };
        let Some(document) = document else { return Vec::new() };
        let (kind, api_version) = type_of(&document);
        let named = TypeName::new(if kind.is_empty() { self.kind } else { kind }, api_version);
        let is_of_kind = named.kind == self.kind && is_known(registry, named, self.api_version);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if is_of_kind && ingress::is_older(named.kind, group, version) {
            let mut found = Vec::new();
            if let Value::Object(mut object) = document {
                ingress::to_v1(&mut object, &mut found);
            }
            return found;
        }
        match other_form(registry, named, self.api_version).filter(|_| is_of_kind) {
            Some((other, _)) => {
                conform(&other.table.message, document).map(|decoded| decoded.strict).unwrap_or_default()
            }
            None => Vec::new(),
        }
    }

    fn decode_json(&self, registry: &Registry, body: &[u8]) -> Result<Decoded, Status> {
        Memory::check_text(body).map_err(Status::no_memory)?;
        let decoded = match self.known {
            Some(known) => decode_known(self.message, body, known),
            None => decode(self.message, body),
        };
        // The reference server ignores the case of member names when it reads the kind and version, but not when it
        // reads the rest of the object.
        let is_apart = |decoded: &Decoded| decoded.strict.iter().any(|found| is_of_type(found));
        let document = match &decoded {
            Ok(decoded) if !self.message.custom && is_apart(decoded) => json::parse(body).ok(),
            _ => None,
        };
        if let Some(why) = document.as_ref().and_then(untyped) {
            return Err(self.unrecognized(body, &why));
        }
        // Decoding skips the values of unknown fields at any depth, so the syntax of these values was not checked.
        if decoded.as_ref().is_ok_and(|decoded| !decoded.strict.is_empty())
            && let Some(syntax) = json::syntax_error(body)
        {
            return Err(self.unrecognized(body, &undecided(&syntax)));
        }
        self.check(decoded, document.as_ref().map(type_of), body, |error| self.explain(registry, body, error))
    }

    /// Decodes YAML by converting it to JSON, which sorts the members by name. Strict decoding errors of the YAML text
    /// come before strict decoding errors of the object.
    fn decode_yaml(&self, registry: &Registry, body: &[u8]) -> Result<Decoded, Status> {
        let mut document = yaml::parse(body).map_err(|error| self.unrecognized(body, &error.to_string()))?;
        untyped(&document.value).map_or(Ok(()), |why| Err(self.unrecognized(body, &why)))?;
        if !self.message.custom {
            document.value.sort_names();
        }
        let duplicates = document.strict_error();
        let type_of = if self.message.custom { exact_type_of } else { type_of };
        let decoded = self.decode_tree(registry, document.value, type_of, body)?;
        Ok(Decoded { strict: duplicates.into_iter().chain(decoded.strict).collect(), ..decoded })
    }

    /// Decodes CBOR. The CBOR parser has already refused duplicate names, so this function only has to find
    /// unknown fields.
    fn decode_cbor(&self, registry: &Registry, body: &[u8]) -> Result<Decoded, Status> {
        let value = cbor::parse(body).map_err(|error| self.unrecognized(body, &error.to_string()))?;
        self.decode_tree(registry, value, exact_type_of, body)
    }

    /// Decodes a body that was parsed to a tree without its schema. `type_of` returns the kind and the
    /// version that the body states.
    fn decode_tree(
        &self,
        registry: &Registry,
        value: Value,
        type_of: impl Fn(&Value) -> (&str, &str),
        body: &[u8],
    ) -> Result<Decoded, Status> {
        Memory::check_structures(value.structures()).map_err(Status::no_memory)?;
        let (kind, api_version) = type_of(&value);
        let (kind, api_version) = (kind.to_owned(), api_version.to_owned());
        let other = (!self.fits(&kind, &api_version)).then(|| value.clone());
        let decoded = conform(self.message, value);
        let named = (!self.message.custom).then_some((&*kind, &*api_version));
        self.check(decoded, named, body, |error| {
            self.mismatch(registry, TypeName::new(&kind, &api_version), other.clone(), error)
        })
    }

    /// Checks that a body has the kind of the endpoint, and sets the kind. `named` is the kind and the
    /// version that the body states, for bodies whose object does not contain kind and version.
    fn check(
        &self,
        decoded: Result<Decoded, DecodeError>,
        named: Option<(&str, &str)>,
        body: &[u8],
        refuse: impl Fn(&str) -> Status,
    ) -> Result<Decoded, Status> {
        let mut decoded = decoded.map_err(|error| refuse(&error.to_string()))?;
        let text = |name: &str| decoded.object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, api_version) = named.unwrap_or_else(|| (text("kind"), text("apiVersion")));
        if self.message.custom {
            if kind.is_empty() {
                return Err(self.without_kind(body));
            }
            if api_version.is_empty() {
                return Err(self.other_version(""));
            }
        }
        if !self.fits(kind, api_version) {
            return Err(if self.message.custom && self.fits("", api_version) {
                self.other_kind(kind, &decoded.object)
            } else {
                refuse("")
            });
        }
        for (name, value) in [("kind", self.kind), ("apiVersion", self.api_version)] {
            decoded.object.insert(name, value.into());
        }
        match unreadable_annotation(self.message, &decoded.object) {
            Some(why) => Err(refuse(&why)),
            None => Ok(decoded),
        }
    }

    /// Decodes protobuf, which carries kind and apiVersion in the envelope. Unknown fields are not reported.
    fn decode_protobuf(&self, registry: &Registry, body: &[u8]) -> Result<Decoded, Status> {
        let unknown = Unknown::read(body).map_err(|error| self.unrecognized(body, &error.to_string()))?;
        if !self.fits(unknown.kind, unknown.api_version) {
            return Err(self.mismatch(registry, TypeName::new(unknown.kind, unknown.api_version), None, ""));
        }
        if unknown.holds_json() {
            return self.decode_json(registry, unknown.raw);
        }
        let mut object = protobuf::decode(registry, self.message, unknown.raw).map_err(|error| {
            self.mismatch(registry, TypeName::new(unknown.kind, unknown.api_version), None, &error.message)
        })?;
        if let Some(why) = unreadable_annotation(self.message, &object) {
            return Err(self.mismatch(
                registry,
                TypeName::new(unknown.kind, unknown.api_version),
                None,
                &why,
            ));
        }
        Unknown { kind: self.kind, api_version: self.api_version, ..unknown }.name(&mut object);
        Ok(Decoded { object, strict: Vec::new() })
    }

    fn fits(&self, kind: &str, api_version: &str) -> bool {
        let is_older = |version: &str| {
            let group = |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned());
            group(version) == group(self.api_version)
                && version.split_once('/').is_some_and(|(_, version)| self.older.contains(&version))
        };
        (kind.is_empty() || kind == self.kind)
            && (api_version.is_empty() || api_version == self.api_version || is_older(api_version))
    }

    /// Returns the 400 for an object of a custom type that does not state its kind.
    fn without_kind(&self, body: &[u8]) -> Status {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        if self.is_strict {
            return self.unrecognized(body, &why);
        }
        let (_, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        let kind = self.kind;
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    }

    /// Returns the 422 for an object of another kind at an endpoint of custom objects. Such an endpoint
    /// decodes objects of any kind, and validation refuses other kinds.
    fn other_kind(&self, kind: &str, object: &Object) -> Status {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        let subject = Subject { group, kind, name: meta(object, "name") };
        let error = FieldError::invalid("kind", &kind.into(), format!("must be {}", self.kind));
        Status::invalid(subject, &[error])
    }

    /// Returns the 400 for a JSON body that has another type or cannot be read.
    fn explain(&self, registry: &Registry, body: &[u8], error: &str) -> Status {
        if let Some(why) = untyped_text(body) {
            return self.unrecognized(body, &why);
        }
        let document = json::parse(body).unwrap_or_default();
        let (kind, api_version) = type_of(&document);
        self.mismatch(registry, TypeName::new(kind, api_version), Some(document.clone()), error)
    }

    fn other_version(&self, api_version: &str) -> Status {
        Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            self.api_version
        ))
    }

    fn unrecognized(&self, body: &[u8], error: &str) -> Status {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({})",
            self.kind,
            summary(body)
        ))
    }

    /// Returns the 400 for a readable body whose kind is not the kind of the endpoint. `document` is the body
    /// as a tree, if it was parsed.
    fn mismatch(
        &self,
        registry: &Registry,
        TypeName { kind, api_version }: TypeName<'_>,
        document: Option<Value>,
        error: &str,
    ) -> Status {
        let kind = if kind.is_empty() { self.kind } else { kind };
        let api_version = if api_version.is_empty() { self.api_version } else { api_version };
        let (_, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if kind == self.kind && api_version == self.api_version {
            return Status::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: {error}",
                self.kind
            ));
        }
        // An object of a custom type is decoded even if it states another type. The version is compared
        // afterwards.
        if self.message.custom && api_version != self.api_version {
            return self.other_version(api_version);
        }
        let (given, own) = (TypeName::new(kind, api_version), TypeName::new(self.kind, self.api_version));
        let why = match is_known(registry, given, self.api_version) {
            true if kind == self.kind => return self.other_version(api_version),
            true => unreadable_as(registry, document.unwrap_or_default(), given, own),
            false => not_registered(given, self.api_version),
        };
        Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
            self.kind
        ))
    }
}

/// Returns whether a finding of strict decoding is about `kind` or `apiVersion` written in a different case.
fn is_of_type(found: &str) -> bool {
    let name = found.strip_prefix("unknown field \"").and_then(|rest| rest.strip_suffix('"'));
    name.is_some_and(|name| ["kind", "apiVersion"].iter().any(|field| sets_field(name, field)))
}

/// Returns the result of [`untyped`] for a body that should be JSON text.
pub fn untyped_text(body: &[u8]) -> Option<String> {
    if let Some(syntax) = json::syntax_error(body) {
        return Some(undecided(&syntax));
    }
    match go::json::kind(body)? {
        "object" => json::parse(body).ok().as_ref().and_then(untyped),
        "null" => None,
        found => Some(no_version_kind(found)),
    }
}

/// Returns the kind and the version that a document states in members named exactly `kind` and `apiVersion`.
fn exact_type_of(document: &Value) -> (&str, &str) {
    (document.str_at(&["kind"]), document.str_at(&["apiVersion"]))
}

/// Returns the beginning of a body for error messages.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let head = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { " ..." } else { "" };
    if body[0] == b'{' {
        format!("{}{more}", String::from_utf8_lossy(head))
    } else {
        let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hex}{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use go::json::odd_version_kind;
    use types::schema::builtin;
    use values::naming::KUBERNETES;

    #[test]
    fn kind_and_api_version_of_a_body_may_be_in_any_case() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        let (kind, api_version) = ("Pod", "v1");
        let expected = Expected { kind, api_version, message, older: &[], known: None, is_strict: true };
        let registry = Registry::new(&KUBERNETES);
        let cannot = |why: &str| format!(" cannot be handled as a Pod: {why}");
        let service = "converting (v1.Service) to (core.Pod): unknown conversion";
        for (body, want) in [
            (
                r#"{"Kind":"Pod","APIVersion":"v1"}"#,
                Ok(r#"unknown field "Kind", unknown field "APIVersion""#.to_owned()),
            ),
            (r#"{"kind":"Service","Kind":"Pod"}"#, Ok(r#"unknown field "Kind""#.to_owned())),
            (r#"{"Kind":"Service"}"#, Err(format!(r#"Service in version "v1"{}"#, cannot(service)))),
            (
                r#"{"kind":"Pod","KIND":"Service","spec":{}}"#,
                Err(format!(r#"Service in version "v1"{}"#, cannot(service))),
            ),
            (
                r#"{"apiversion":"v2","kind":"Pod"}"#,
                Err(format!(
                    r#"Pod in version "v2"{}"#,
                    cannot(&not_registered(TypeName::new("Pod", "v2"), "v1"))
                )),
            ),
            (
                r#"{"Kind":5}"#,
                Err(format!(
                    r#"the object provided is unrecognized (must be of type Pod): {} ({{"Kind":5}})"#,
                    odd_version_kind("number", "kind")
                )),
            ),
        ] {
            let decoded = expected.decode(Input::Json, &registry, body.as_bytes());
            let got = decoded.map(|decoded| decoded.strict.join(", ")).map_err(Status::into_message);
            assert_eq!(got, want, "{body}");
        }
        let yaml = expected.decode(Input::Yaml, &registry, b"Kind: Service");
        let status = yaml.unwrap_err();
        assert_eq!(status.message, format!(r#"Service in version "v1"{}"#, cannot(service)));
    }

    #[test]
    fn a_body_may_nest_unknown_fields_as_deep_as_the_json_decoder_of_go_allows() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.ConfigMap").unwrap();
        let (kind, api_version) = ("ConfigMap", "v1");
        let expected = Expected { kind, api_version, message, older: &[], known: None, is_strict: true };
        let registry = Registry::new(&KUBERNETES);
        let decode = |depth| {
            let body = format!(r#"{{"x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
            let decoded = expected.decode(Input::Json, &registry, body.as_bytes());
            decoded.map(|decoded| decoded.strict.join(", ")).map_err(Status::into_message)
        };
        assert_eq!(decode(9_999), Ok(r#"unknown field "x""#.to_owned()));
        let refused = decode(10_000).unwrap_err();
        let why = "couldn't get version/kind; json parse error: invalid character '[' exceeded max depth";
        assert!(refused.contains(why), "{refused}");
    }

    #[test]
    fn a_body_that_is_not_an_object_is_refused_with_its_json_type() {
        for (body, want) in [
            (r#"{"kind":"A","apiVersion":"a/b"}"#, None),
            (r#"{"kind":null}"#, None),
            ("null", None),
            (r#""x""#, Some(no_version_kind("string"))),
            (r#"{"kind":5}"#, Some(odd_version_kind("number", "kind"))),
            (r#"{"apiVersion":[],"kind":{}}"#, Some(odd_version_kind("array", "apiVersion"))),
            (r#"{"apiVersion":"a/b/c"}"#, Some("unexpected GroupVersion string: a/b/c".to_owned())),
        ] {
            assert_eq!(untyped(&json::parse(body.as_bytes()).unwrap()), want, "{body}");
        }
    }
}
