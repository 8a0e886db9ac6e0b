//! Configuration files of the server, decoded strictly: a member that is not known is an error, so that a typing mistake
//! does not open or close a door.

use serde_json::{Map, Value};

use crate::document::{self, Document, Tree};
use crate::go::{self, duration, quote};

/// A kind of configuration file.
pub(crate) struct File<'f> {
    /// Its kind.
    pub(crate) kind: &'static str,
    /// The versions that are read. All have the same members.
    pub(crate) versions: &'f [&'static str],
    /// The group of its versions.
    pub(crate) group: &'f str,
    /// Its members.
    pub(crate) form: &'static Object,
}

/// The kinds of configuration files in the same group.
const KINDS: [&str; 5] = [
    "AdmissionConfiguration",
    "AuthenticationConfiguration",
    "AuthorizationConfiguration",
    "EgressSelectorConfiguration",
    "TracingConfiguration",
];

/// A kind in the same group that has version v1 only.
const KIND_OF_V1: &str = "EncryptionConfiguration";

/// The form of a value.
pub(crate) enum Form {
    Text,
    Flag,
    /// A text such as `1h30m`.
    Duration,
    List(&'static Form),
    Object(&'static Object),
}

/// An object: its name in Go, and its members.
pub(crate) struct Object {
    pub(crate) name: &'static str,
    pub(crate) members: &'static [(&'static str, Form)],
}

impl File<'_> {
    /// The members of the file.
    ///
    /// # Errors
    /// The text of kube-apiserver's error.
    pub(crate) fn read(&self, document: &Document) -> Result<Map<String, Value>, String> {
        let Document { text, tree, duplicates } = document;
        let members = match tree {
            Tree::Members(members) => members.as_slice(),
            Tree::Scalar(Value::Null) => &[],
            Tree::Scalar(_) | Tree::List(_) => return Err(go::no_version_kind(&tree.value())),
        };
        let root = document::object(members);
        for (name, tree) in members.iter().filter(|(name, _)| matches!(name.as_str(), "apiVersion" | "kind"))
        {
            if !matches!(tree, Tree::Scalar(Value::Null | Value::String(_))) {
                return Err(go::odd_version_kind(name, &tree.value()));
            }
        }
        let member = |name: &str| root.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (member("apiVersion"), member("kind"));
        if kind.is_empty() {
            return Err(format!("Object 'Kind' is missing in '{text}'"));
        }
        if api_version.is_empty() {
            return Err(format!("Object 'apiVersion' is missing in '{text}'"));
        }
        let version = api_version.split_once('/').filter(|(found, _)| *found == self.group);
        let version = version.map(|(_, version)| version).filter(|version| self.versions.contains(version));
        match version {
            Some(_) if kind == self.kind => {}
            Some(version) if KINDS.contains(&kind) || kind == KIND_OF_V1 && version == "v1" => {
                return Err(format!("expected {}, got *apiserver.{kind}", self.kind));
            }
            _ => {
                let (kind, version) = (quote(kind), quote(api_version));
                return Err(format!(
                    "no kind {kind} is registered for version {version} in scheme \"apiserver\""
                ));
            }
        }
        let version = version.unwrap_or_default();
        let mut flaws = Vec::from_iter(duplicates.clone());
        check_members(members, self.form, &Place { path: "", fields: "", version }, &mut flaws)?;
        if flaws.is_empty() { Ok(root) } else { Err(format!("strict decoding error: {}", flaws.join(", "))) }
    }
}

/// Where a value stands.
struct Place<'p> {
    /// With indices: `jwt[0].issuer`.
    path: &'p str,
    /// Without: `jwt.issuer`.
    fields: &'p str,
    version: &'p str,
}

/// Checks the members of an object. What only strict decoding refuses is added to `flaws`, once each. The depth is that
/// of the forms.
fn check_members(
    members: &[(String, Tree)],
    object: &Object,
    place: &Place<'_>,
    flaws: &mut Vec<String>,
) -> Result<(), String> {
    let joined = |before: &str, name: &str| {
        if before.is_empty() { name.to_owned() } else { format!("{before}.{name}") }
    };
    for (at, (name, tree)) in members.iter().enumerate() {
        let path = joined(place.path, name);
        let Some((_, form)) = object.members.iter().find(|(known, _)| known == name) else {
            add(flaws, format!("unknown field {}", quote(&path)));
            continue;
        };
        if members[..at].iter().any(|(before, _)| before == name) {
            add(flaws, format!("duplicate field {}", quote(&path)));
        }
        let fields = joined(place.fields, name);
        let place = Place { path: &path, fields: &fields, version: place.version };
        check(tree, form, object, &place, flaws)?;
    }
    Ok(())
}

fn add(flaws: &mut Vec<String>, flaw: String) {
    if !flaws.contains(&flaw) {
        flaws.push(flaw);
    }
}

fn check(
    tree: &Tree,
    form: &Form,
    within: &Object,
    place: &Place<'_>,
    flaws: &mut Vec<String>,
) -> Result<(), String> {
    match (tree, form) {
        (Tree::Scalar(Value::Null), _)
        | (Tree::Scalar(Value::String(_)), Form::Text)
        | (Tree::Scalar(Value::Bool(_)), Form::Flag) => Ok(()),
        (Tree::Scalar(Value::String(text)), Form::Duration) => {
            duration::parse(text).map(drop).map_err(|error| error.to_string())
        }
        (Tree::List(items), Form::List(form)) => {
            for (at, item) in items.iter().enumerate() {
                let path = format!("{}[{at}]", place.path);
                check(item, form, within, &Place { path: &path, ..*place }, flaws)?;
            }
            Ok(())
        }
        (Tree::Members(members), Form::Object(object)) => check_members(members, object, place, flaws),
        _ => {
            let found = go::kind(&tree.value());
            Err(format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
                within.name,
                place.fields,
                go_type(form, place.version)
            ))
        }
    }
}

fn go_type(form: &Form, version: &str) -> String {
    match form {
        Form::Text | Form::Duration => "string".to_owned(),
        Form::Flag => "bool".to_owned(),
        Form::List(form) => format!("[]{}", go_type(form, version)),
        Form::Object(object) => format!("{version}.{}", object.name),
    }
}

/// The elements of a list.
pub(crate) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// A member that is a text; empty without it.
pub(crate) fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
