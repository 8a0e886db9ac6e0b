//! JSON values without an order of members, which can be copied freely.
//!
//! Reference models use these values, and tests compare documents in this form if the order of members does
//! not matter.

use std::collections::BTreeMap;

use values::json::{Value, write};

/// A JSON value without an order of members.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    /// A scalar.
    Leaf(Value),
    /// Elements in order.
    List(Vec<Tree>),
    /// Members by name.
    Map(BTreeMap<String, Tree>),
}

impl Tree {
    /// Returns the nesting depth of lists and objects, including this one; 0 for a leaf.
    pub fn nesting(&self) -> usize {
        match self {
            Tree::Leaf(_) => 0,
            Tree::List(items) => 1 + items.iter().map(Tree::nesting).max().unwrap_or(0),
            Tree::Map(members) => 1 + members.values().map(Tree::nesting).max().unwrap_or(0),
        }
    }

    /// Compares like a JSON patch: members in any order, and scalars by their text.
    pub fn is_written_as(&self, other: &Tree) -> bool {
        let written = |leaf: &Value| {
            let mut text = Vec::new();
            write(leaf, &mut text);
            text
        };
        match (self, other) {
            (Tree::List(a), Tree::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_written_as(b))
            }
            (Tree::Map(a), Tree::Map(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|((a, value), (b, other))| a == b && value.is_written_as(other))
            }
            (Tree::Leaf(a), Tree::Leaf(b)) => written(a) == written(b),
            _ => false,
        }
    }
}

impl From<&Value> for Tree {
    fn from(value: &Value) -> Self {
        match value {
            Value::Array(items) => Tree::List(items.iter().map(Tree::from).collect()),
            Value::Object(members) => {
                Tree::Map(members.iter().map(|(name, value)| (name.to_owned(), value.into())).collect())
            }
            leaf => Tree::Leaf(leaf.clone()),
        }
    }
}

impl From<&Tree> for Value {
    fn from(tree: &Tree) -> Self {
        match tree {
            Tree::Leaf(value) => value.clone(),
            Tree::List(items) => Value::Array(items.iter().map(Value::from).collect()),
            Tree::Map(members) => Value::Object(
                members.iter().map(|(name, value)| (name.clone().into(), value.into())).collect(),
            ),
        }
    }
}
