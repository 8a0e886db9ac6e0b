//! A configuration file as a tree that keeps the order of members and those that occur twice, so that strict decoding can
//! report them in the order of the file. The text is JSON; a file in YAML is converted before.

use std::fmt;

use go::json::sets_field;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::json_error;
use crate::strict::Object;

/// A configuration file that was parsed, but not yet checked.
#[derive(Debug)]
pub struct Document {
    /// The file as it is, for messages.
    pub(crate) text: String,
    pub(crate) tree: Tree,
    /// What strict parsing found before: keys that are set twice in YAML.
    pub(crate) duplicates: Option<String>,
}

impl Document {
    /// A file whose contents are `text`, which says what `json` says. `duplicates` is the text of an error about keys that
    /// occur twice in YAML; in JSON they are found here.
    ///
    /// # Errors
    /// `json` is not JSON.
    pub fn new(text: &[u8], json: &[u8], duplicates: Option<String>) -> Result<Document, serde_json::Error> {
        let text = String::from_utf8_lossy(text).into_owned();
        Ok(Document { text, tree: serde_json::from_slice(json)?, duplicates })
    }

    /// Checks the types of members. Those that `form` does not have are ignored; `version` is that of the types.
    ///
    /// # Errors
    /// The text of Go's error about a document that is no object, or about a member of another type.
    pub fn check(&self, form: &Object, version: &str) -> Result<(), String> {
        form.check(self.tree.typed()?.members, version, &mut Vec::new())
    }

    /// Checks the types of members, of which `form` has all.
    ///
    /// # Errors
    /// The text of Go's error, also about members that are not known.
    pub fn check_strictly(&self, form: &Object, version: &str) -> Result<(), String> {
        form.check_strictly(self.tree.typed()?.members, version, self.duplicates.as_ref())
    }

    /// A file with these contents, which is shown as `text`.
    #[cfg(test)]
    pub(crate) fn of(text: &str, value: &Value) -> Document {
        Document::new(text.as_bytes(), value.to_string().as_bytes(), None).unwrap()
    }
}

/// A JSON value whose objects have their members in order, each as often as it occurs.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// Neither a list nor an object.
    Scalar(Value),
    List(Vec<Tree>),
    Members(Vec<(String, Tree)>),
}

/// The members of a document, and the type that it says it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed<'t> {
    pub(crate) members: &'t [(String, Tree)],
    /// Group and version as they stand there; empty if there is none.
    pub(crate) api_version: &'t str,
    /// Empty if there is none.
    pub(crate) kind: &'t str,
}

impl Tree {
    /// What a document is; null has no members. Unlike other members, those of its type have names of any case, and the last
    /// text counts: a line of policies must not be read by the rules of another version because of a letter.
    ///
    /// # Errors
    /// The text of kube-apiserver's error: it is no object, or its version or kind is no text.
    pub(crate) fn typed(&self) -> Result<Typed<'_>, String> {
        let members = match self {
            Tree::Members(members) => members.as_slice(),
            Tree::Scalar(Value::Null) => &[],
            Tree::Scalar(_) | Tree::List(_) => return Err(json_error::no_version_kind(&self.value())),
        };
        let mut typed = Typed { members, api_version: "", kind: "" };
        for (name, tree) in members {
            let (field, place) = match name {
                name if sets_field(name, "apiVersion") => ("apiVersion", &mut typed.api_version),
                name if sets_field(name, "kind") => ("kind", &mut typed.kind),
                _ => continue,
            };
            match tree {
                Tree::Scalar(Value::String(text)) => *place = text,
                Tree::Scalar(Value::Null) => {}
                other => return Err(json_error::odd_version_kind(field, &other.value())),
            }
        }
        Ok(typed)
    }

    /// The value; of members with one name the last.
    pub(crate) fn value(&self) -> Value {
        match self {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => items.iter().map(Tree::value).collect(),
            Tree::Members(members) => object(members).into(),
        }
    }
}

/// Members as an object; of those with one name the last.
pub(crate) fn object(members: &[(String, Tree)]) -> Map<String, Value> {
    members.iter().map(|(name, tree)| (name.clone(), tree.value())).collect()
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(flag.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(member) = members.next_entry()? {
            list.push(member);
        }
        Ok(Tree::Members(list))
    }
}
