//! A configuration file as a tree. The tree keeps the order of members, and members that occur twice, so that
//! strict decoding can report errors in the order of the file. The input is JSON. The caller converts YAML
//! files to JSON.

use std::fmt;

use go::json::sets_field;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::json_error;

/// A parsed configuration file that is not checked yet.
#[derive(Debug)]
pub struct Document {
    /// Original text of the file, for messages.
    pub(crate) text: String,
    pub(crate) tree: Tree,
    /// Error about keys that occur twice in YAML. The caller finds these keys before the conversion to JSON.
    pub(crate) duplicates: Option<String>,
}

impl Document {
    /// Creates a document from the original text and its content in JSON. `duplicates` is the error text
    /// about keys that occur twice in YAML. Keys that occur twice in JSON are detected later, in the tree.
    ///
    /// # Errors
    /// Fails if `json` is not valid JSON.
    pub fn new(text: &[u8], json: &[u8], duplicates: Option<String>) -> Result<Document, serde_json::Error> {
        let text = String::from_utf8_lossy(text).into_owned();
        Ok(Document { text, tree: serde_json::from_slice(json)?, duplicates })
    }

    /// Creates a document from `value`. Messages contain `text` as the text of the file.
    #[cfg(test)]
    pub(crate) fn from_value(text: &str, value: &Value) -> Document {
        Document::new(text.as_bytes(), value.to_string().as_bytes(), None).unwrap()
    }
}

/// A JSON value. Objects keep all their members in order, including members with the same name.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// A value that is neither a list nor an object.
    Scalar(Value),
    List(Vec<Tree>),
    Members(Vec<(String, Tree)>),
}

/// The members of a document, with the version and kind that the document declares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typed<'t> {
    pub(crate) members: &'t [(String, Tree)],
    /// Value of `apiVersion`; empty if it is absent.
    pub(crate) api_version: &'t str,
    /// Value of `kind`; empty if it is absent.
    pub(crate) kind: &'t str,
}

impl Tree {
    /// Returns the members of a document with its version and kind. A null document counts as an object
    /// without members. Unlike the names of other members, `apiVersion` and `kind` are not case-sensitive,
    /// and the last string is used. Otherwise a letter in the wrong case could cause the server to read a
    /// policy line with the rules of another version.
    ///
    /// # Errors
    /// Fails with kube-apiserver's error text if the document is not an object, or if its version or kind is
    /// not a string.
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

    /// Converts the tree to a JSON value. If several members have the same name, the last member is used.
    pub(crate) fn value(&self) -> Value {
        match self {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => items.iter().map(Tree::value).collect(),
            Tree::Members(members) => object(members).into(),
        }
    }
}

/// Converts members to an object. If several members have the same name, the last member is used.
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
