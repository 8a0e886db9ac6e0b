//! Strict decoding of the server's configuration files: an unknown member is an error, so that a typing
//! mistake cannot silently grant or refuse access. The member tables also serve to check responses of
//! webhooks, where unknown members are ignored.

use go::{base64, duration, quote};
use serde_json::{Map, Number, Value};

use crate::document::{self, Document, Tree, Typed};
use crate::json_error;

/// A kind of configuration file.
pub(crate) struct File<'f> {
    pub(crate) kind: &'static str,
    /// Versions that can be read.
    pub(crate) versions: &'f [&'static str],
    /// API group of the versions.
    pub(crate) group: &'f str,
    /// Returns the known members in a given version.
    pub(crate) form: fn(&str) -> &'static Object,
}

/// Version of kube-apiserver's in-memory types. A file of this version can be read as well.
pub(crate) const INTERNAL: &str = "__internal";

/// Name of the Go package of the types of version [`INTERNAL`].
const INTERNAL_PACKAGE: &str = "apiserver";

/// Kinds of configuration files in the same group.
const KINDS: [&str; 5] = [
    "AdmissionConfiguration",
    "AuthenticationConfiguration",
    "AuthorizationConfiguration",
    "EgressSelectorConfiguration",
    "TracingConfiguration",
];

/// Kind in the same group that has only version v1.
const KIND_OF_V1: &str = "EncryptionConfiguration";

/// The expected type of a value. Null is valid for every type.
#[derive(Debug)]
pub enum Form {
    /// A string of any content.
    Text,
    /// A boolean, `true` or `false`.
    Flag,
    /// A 32-bit signed integer.
    Int32,
    /// A 64-bit signed integer.
    Int64,
    /// Bytes as a base64 string.
    Bytes,
    /// A Go duration as a string, such as `1h30m`.
    Duration,
    /// A list whose values all have one type.
    List(&'static Form),
    /// An object whose values are lists of strings: the extra values of a user.
    Extra,
    /// An object with known members.
    Object(&'static Object),
    /// Any value; its content is not checked.
    Any,
}

/// An object type: its name in Go, and its members.
#[derive(Debug)]
pub struct Object {
    /// Name in Go, without the version.
    pub name: &'static str,
    /// Known members with their types.
    pub members: &'static [(&'static str, Form)],
}

impl File<'_> {
    /// Checks a document and returns its members.
    ///
    /// # Errors
    /// The text of kube-apiserver's error.
    pub(crate) fn read(&self, document: &Document) -> Result<Map<String, Value>, String> {
        let Document { text, tree, duplicates } = document;
        let Typed { members, api_version, kind } = tree.typed()?;
        let (group, version) = names::group_version(api_version)?;
        if kind.is_empty() {
            return Err(format!("Object 'Kind' is missing in '{text}'"));
        }
        if version.is_empty() {
            return Err(format!("Object 'apiVersion' is missing in '{text}'"));
        }
        let is_known = group == self.group && self.versions.contains(&version);
        if !is_known || kind != self.kind {
            let is_other = is_known && (KINDS.contains(&kind) || kind == KIND_OF_V1 && version == "v1");
            if is_other {
                return Err(format!("expected {}, got *apiserver.{kind}", self.kind));
            }
            let slash = if group.is_empty() { "" } else { "/" };
            let (kind, version) = (quote(kind), quote(&format!("{group}{slash}{version}")));
            return Err(format!(
                "no kind {kind} is registered for version {version} in scheme \"apiserver\""
            ));
        }
        let package = if version == INTERNAL { INTERNAL_PACKAGE } else { version };
        (self.form)(version).check_strictly(members, package, duplicates.as_ref())?;
        Ok(document::object(members))
    }
}

impl Document {
    /// Checks the types of members. Members that `form` does not have are ignored. `version` is the version
    /// of the Go types in error messages.
    ///
    /// # Errors
    /// The text of Go's error about a document that is not an object, or about a member of the wrong type.
    pub fn check(&self, form: &Object, version: &str) -> Result<(), String> {
        form.check(self.tree.typed()?.members, version, &mut Vec::new())
    }

    /// Checks the types of members and that `form` has all of them.
    ///
    /// # Errors
    /// The text of Go's error, including errors about unknown members.
    pub fn check_strictly(&self, form: &Object, version: &str) -> Result<(), String> {
        form.check_strictly(self.tree.typed()?.members, version, self.duplicates.as_ref())
    }
}

impl Object {
    /// Checks the types of members. Errors that only strict decoding reports are added to `flaws`.
    ///
    /// # Errors
    /// The text of Go's error about a member of the wrong type.
    pub(crate) fn check(
        &self,
        members: &[(String, Tree)],
        version: &str,
        flaws: &mut Vec<String>,
    ) -> Result<(), String> {
        check_members(members, self, &Place { path: "", fields: "", version }, flaws)
    }

    /// Checks the types of members and refuses everything that strict decoding refuses. `before` is an error
    /// that was found earlier.
    ///
    /// # Errors
    /// The text of Go's error.
    pub(crate) fn check_strictly(
        &self,
        members: &[(String, Tree)],
        version: &str,
        before: Option<&String>,
    ) -> Result<(), String> {
        let mut flaws = Vec::from_iter(before.cloned());
        self.check(members, version, &mut flaws)?;
        if flaws.is_empty() { Ok(()) } else { Err(format!("strict decoding error: {}", flaws.join(", "))) }
    }
}

/// The location of a value.
struct Place<'p> {
    /// Path with indices: `jwt[0].issuer`.
    path: &'p str,
    /// Path without indices: `jwt.issuer`.
    fields: &'p str,
    version: &'p str,
}

/// Checks the members of an object. Errors that only strict decoding reports are added to `flaws`, each once.
/// The recursion is as deep as the nesting of the [`Form`]s.
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
        | (_, Form::Any)
        | (Tree::Scalar(Value::String(_)), Form::Text)
        | (Tree::Scalar(Value::Bool(_)), Form::Flag) => Ok(()),
        (Tree::Scalar(Value::Number(number)), Form::Int32 | Form::Int64) => {
            check_number(number, form, within, place)
        }
        (Tree::Scalar(Value::String(text)), Form::Duration) => {
            duration::parse(text).map(drop).map_err(|error| error.to_string())
        }
        (Tree::Scalar(Value::String(text)), Form::Bytes) => base64::standard(text).map(drop),
        (Tree::List(items), Form::List(form)) => {
            for (at, item) in items.iter().enumerate() {
                let path = format!("{}[{at}]", place.path);
                check(item, form, within, &Place { path: &path, ..*place }, flaws)?;
            }
            Ok(())
        }
        (Tree::Members(members), Form::Extra) => {
            members.iter().try_for_each(|(_, values)| check_extra(values, within, place))
        }
        (Tree::Members(members), Form::Object(object)) => check_members(members, object, place, flaws),
        _ => Err(misfit(tree, within, place, &go_type(form, place.version))),
    }
}

/// Checks that a number is an integer in the range of its type.
fn check_number(number: &Number, form: &Form, within: &Object, place: &Place<'_>) -> Result<(), String> {
    let whole = number.as_i64();
    let fits = match form {
        Form::Int32 => whole.is_some_and(|whole| i32::try_from(whole).is_ok()),
        _ => whole.is_some(),
    };
    if fits {
        return Ok(());
    }
    let wanted = go_type(form, place.version);
    Err(json_error::unfit_number(number, &go_field(within, place), &wanted))
}

/// Checks the list of values under one key of an [`Form::Extra`].
fn check_extra(values: &Tree, within: &Object, place: &Place<'_>) -> Result<(), String> {
    match values {
        Tree::List(items) => {
            items.iter().try_for_each(|item| check(item, &Form::Text, within, place, &mut Vec::new()))
        }
        Tree::Scalar(Value::Null) => Ok(()),
        other => Err(misfit(other, within, place, &format!("{}.ExtraValue", place.version))),
    }
}

fn misfit(tree: &Tree, within: &Object, place: &Place<'_>, wanted: &str) -> String {
    json_error::unfit_member(&tree.value(), &go_field(within, place), wanted)
}

fn go_field(within: &Object, place: &Place<'_>) -> String {
    format!("{}.{}", within.name, place.fields)
}

fn go_type(form: &Form, version: &str) -> String {
    match form {
        Form::Text | Form::Duration => "string".to_owned(),
        Form::Flag => "bool".to_owned(),
        Form::Any => "interface {}".to_owned(),
        Form::Int32 => "int32".to_owned(),
        Form::Int64 => "int64".to_owned(),
        Form::Bytes => "[]uint8".to_owned(),
        Form::Extra => format!("map[string]{version}.ExtraValue"),
        Form::List(form) => format!("[]{}", go_type(form, version)),
        Form::Object(object) => format!("{version}.{}", object.name),
    }
}

/// Iterates over the elements of a list.
pub(crate) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// Returns a string member; an absent member gives an empty string.
pub(crate) fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
