//! Strict decoding of the server's configuration files. An unknown member is an error, because a mistyped
//! name could otherwise silently grant or refuse access. The responses of webhooks are checked with the same
//! types, but unknown members in them are ignored.

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
    /// Returns the known members of a version.
    pub(crate) form: fn(&str) -> &'static Object,
}

/// Version of kube-apiserver's in-memory types. A file can also have this version.
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

/// A kind in the same group that exists only in version v1.
const KIND_OF_V1: &str = "EncryptionConfiguration";

/// The expected type of a value. Null is valid for every type.
#[derive(Debug)]
pub enum MemberType {
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
    /// A list of values that all have the same type.
    List(&'static MemberType),
    /// An object whose values are lists of strings: the extra values of a user.
    Extra,
    /// An object with known members.
    Object(&'static Object),
    /// Any value; its content is not checked.
    Any,
}

/// An object type, with the name of the Go type and the members.
#[derive(Debug)]
pub struct Object {
    /// Name of the Go type, without the version.
    pub name: &'static str,
    /// Known members with their types.
    pub members: &'static [(&'static str, MemberType)],
}

impl File<'_> {
    /// Checks a document and returns its members.
    ///
    /// # Errors
    /// Returns the error text of kube-apiserver.
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
    /// Checks the types of members. Members that `form` does not declare are ignored. `version` is the
    /// version of the Go types in error messages.
    ///
    /// # Errors
    /// Returns Go's error text if the document is not an object, or if a member has the wrong type.
    pub fn check(&self, form: &Object, version: &str) -> Result<(), String> {
        form.check(self.tree.typed()?.members, version, &mut Vec::new())
    }

    /// Checks the types of members, and that `form` declares all members.
    ///
    /// # Errors
    /// Returns Go's error text, including errors about unknown members.
    pub fn check_strictly(&self, form: &Object, version: &str) -> Result<(), String> {
        form.check_strictly(self.tree.typed()?.members, version, self.duplicates.as_ref())
    }
}

impl Object {
    /// Checks the types of members. Adds errors that only strict decoding reports to `flaws`.
    ///
    /// # Errors
    /// Returns Go's error text if a member has the wrong type.
    pub(crate) fn check(
        &self,
        members: &[(String, Tree)],
        version: &str,
        flaws: &mut Vec<String>,
    ) -> Result<(), String> {
        check_members(members, self, &MemberLocation { path: "", fields: "", version }, flaws)
    }

    /// Checks the types of members, including the errors that only strict decoding reports. `before` is an
    /// error that was found earlier; it precedes the other errors.
    ///
    /// # Errors
    /// Returns Go's error text.
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

/// The location of a value in a file.
struct MemberLocation<'p> {
    /// Path with indices, for example `jwt[0].issuer`.
    path: &'p str,
    /// Path without indices, for example `jwt.issuer`.
    fields: &'p str,
    version: &'p str,
}

/// Checks the members of an object. Adds to `flaws` the errors that only strict decoding reports, without
/// duplicates. The nesting of the [`MemberType`]s limits the depth of the recursion.
fn check_members(
    members: &[(String, Tree)],
    object: &Object,
    location: &MemberLocation<'_>,
    flaws: &mut Vec<String>,
) -> Result<(), String> {
    let joined = |before: &str, name: &str| {
        if before.is_empty() { name.to_owned() } else { format!("{before}.{name}") }
    };
    for (at, (name, tree)) in members.iter().enumerate() {
        let path = joined(location.path, name);
        let Some((_, member_type)) = object.members.iter().find(|(known, _)| known == name) else {
            add(flaws, format!("unknown field {}", quote(&path)));
            continue;
        };
        if members[..at].iter().any(|(before, _)| before == name) {
            add(flaws, format!("duplicate field {}", quote(&path)));
        }
        let fields = joined(location.fields, name);
        let location = MemberLocation { path: &path, fields: &fields, version: location.version };
        check(tree, member_type, object, &location, flaws)?;
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
    member_type: &MemberType,
    within: &Object,
    location: &MemberLocation<'_>,
    flaws: &mut Vec<String>,
) -> Result<(), String> {
    match (tree, member_type) {
        (Tree::Scalar(Value::Null), _)
        | (_, MemberType::Any)
        | (Tree::Scalar(Value::String(_)), MemberType::Text)
        | (Tree::Scalar(Value::Bool(_)), MemberType::Flag) => Ok(()),
        (Tree::Scalar(Value::Number(number)), MemberType::Int32 | MemberType::Int64) => {
            check_number(number, member_type, within, location)
        }
        (Tree::Scalar(Value::String(text)), MemberType::Duration) => {
            duration::parse(text).map(drop).map_err(|error| error.to_string())
        }
        (Tree::Scalar(Value::String(text)), MemberType::Bytes) => base64::standard(text).map(drop),
        (Tree::List(items), MemberType::List(member_type)) => {
            for (at, item) in items.iter().enumerate() {
                let path = format!("{}[{at}]", location.path);
                check(item, member_type, within, &MemberLocation { path: &path, ..*location }, flaws)?;
            }
            Ok(())
        }
        (Tree::Members(members), MemberType::Extra) => {
            members.iter().try_for_each(|(_, values)| check_extra(values, within, location))
        }
        (Tree::Members(members), MemberType::Object(object)) => {
            check_members(members, object, location, flaws)
        }
        _ => Err(misfit(tree, within, location, &go_type(member_type, location.version))),
    }
}

/// Checks that a number is an integer in the range of its type.
fn check_number(
    number: &Number,
    member_type: &MemberType,
    within: &Object,
    location: &MemberLocation<'_>,
) -> Result<(), String> {
    let whole = number.as_i64();
    let fits = match member_type {
        MemberType::Int32 => whole.is_some_and(|whole| i32::try_from(whole).is_ok()),
        _ => whole.is_some(),
    };
    if fits {
        return Ok(());
    }
    let expected = go_type(member_type, location.version);
    Err(json_error::unfit_number(number, &go_field(within, location), &expected))
}

/// Checks the list of values under one key of a [`MemberType::Extra`].
fn check_extra(values: &Tree, within: &Object, location: &MemberLocation<'_>) -> Result<(), String> {
    match values {
        Tree::List(items) => items
            .iter()
            .try_for_each(|item| check(item, &MemberType::Text, within, location, &mut Vec::new())),
        Tree::Scalar(Value::Null) => Ok(()),
        other => Err(misfit(other, within, location, &format!("{}.ExtraValue", location.version))),
    }
}

fn misfit(tree: &Tree, within: &Object, location: &MemberLocation<'_>, expected: &str) -> String {
    json_error::unfit_member(&tree.value(), &go_field(within, location), expected)
}

fn go_field(within: &Object, location: &MemberLocation<'_>) -> String {
    format!("{}.{}", within.name, location.fields)
}

fn go_type(member_type: &MemberType, version: &str) -> String {
    match member_type {
        MemberType::Text | MemberType::Duration => "string".to_owned(),
        MemberType::Flag => "bool".to_owned(),
        MemberType::Any => "interface {}".to_owned(),
        MemberType::Int32 => "int32".to_owned(),
        MemberType::Int64 => "int64".to_owned(),
        MemberType::Bytes => "[]uint8".to_owned(),
        MemberType::Extra => format!("map[string]{version}.ExtraValue"),
        MemberType::List(member_type) => format!("[]{}", go_type(member_type, version)),
        MemberType::Object(object) => format!("{version}.{}", object.name),
    }
}

/// Iterates over the elements of a list.
pub(crate) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// Returns the value of a string member; empty if the member is absent.
pub(crate) fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
