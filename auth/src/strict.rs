//! Configuration files of the server, decoded strictly: a member that is not known is an error, so that a typing mistake
//! does not open or close a door. The forms of members also check answers of webhooks, where unknown ones are ignored.

use go::{base64, duration, quote};
use serde_json::{Map, Number, Value};

use crate::document::{self, Document, Tree, Typed};
use crate::json_error;

/// A kind of configuration file.
pub(crate) struct File<'f> {
    /// Its kind.
    pub(crate) kind: &'static str,
    /// The versions that are read.
    pub(crate) versions: &'f [&'static str],
    /// The group of its versions.
    pub(crate) group: &'f str,
    /// Its members in a version.
    pub(crate) form: fn(&str) -> &'static Object,
}

/// The version in which kube-apiserver keeps what it has read; it can be read as well.
pub(crate) const INTERNAL: &str = "__internal";

/// The name of its types in Go.
const INTERNAL_PACKAGE: &str = "apiserver";

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

/// The form of a value. Null has every form.
#[derive(Debug)]
pub enum Form {
    /// A text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// Bytes as a text in base64.
    Bytes,
    /// A text such as `1h30m`.
    Duration,
    /// A list of values of one form.
    List(&'static Form),
    /// Lists of texts by name: the extra values of a user.
    Extra,
    /// An object.
    Object(&'static Object),
    /// Any value, which is not looked into.
    Any,
}

/// An object: its name in Go, and its members.
#[derive(Debug)]
pub struct Object {
    /// Its name in Go, without the version.
    pub name: &'static str,
    /// The members that are known.
    pub members: &'static [(&'static str, Form)],
}

impl File<'_> {
    /// The members of the file.
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
            return Err(match is_other {
                true => format!("expected {}, got *apiserver.{kind}", self.kind),
                false => {
                    let slash = if group.is_empty() { "" } else { "/" };
                    let (kind, version) = (quote(kind), quote(&format!("{group}{slash}{version}")));
                    format!("no kind {kind} is registered for version {version} in scheme \"apiserver\"")
                }
            });
        }
        let package = if version == INTERNAL { INTERNAL_PACKAGE } else { version };
        (self.form)(version).check_strictly(members, package, duplicates.as_ref())?;
        Ok(document::object(members))
    }
}

impl Object {
    /// Checks members. What only strict decoding refuses is added to `flaws`.
    ///
    /// # Errors
    /// The text of Go's error about a member of another form.
    pub(crate) fn check(
        &self,
        members: &[(String, Tree)],
        version: &str,
        flaws: &mut Vec<String>,
    ) -> Result<(), String> {
        check_members(members, self, &Place { path: "", fields: "", version }, flaws)
    }

    /// The same, with all that strict decoding refuses; `before` is what it has found already.
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

/// Checks that a number is whole, and in the range of its form.
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

/// Checks the values of one name.
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

/// The elements of a list.
pub(crate) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// A member that is a text; empty without it.
pub(crate) fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}
