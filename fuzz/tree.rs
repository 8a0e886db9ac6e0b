//! JSON values for models: members have no order, and values are copied freely.
//!
//! Reference models work on them, and documents are compared as them where order does not matter.

use std::collections::BTreeMap;

use api::values::json::Value;

/// A value.
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
    /// Nesting depth of lists and objects, itself counted; 0 for a leaf.
    pub fn nesting(&self) -> usize {
        match self {
            Tree::Leaf(_) => 0,
            Tree::List(items) => 1 + items.iter().map(Tree::nesting).max().unwrap_or(0),
            Tree::Map(members) => 1 + members.values().map(Tree::nesting).max().unwrap_or(0),
        }
    }

    /// Equality by RFC 6902 §4.6, which compares numbers by value.
    pub fn is_worth(&self, other: &Tree) -> bool {
        match (self, other) {
            (Tree::List(a), Tree::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_worth(b))
            }
            (Tree::Map(a), Tree::Map(b)) => {
                a.len() == b.len()
                    && a.iter().zip(b).all(|((a, value), (b, other))| a == b && value.is_worth(other))
            }
            (Tree::Leaf(Value::Int(n)), Tree::Leaf(Value::Float(x)))
            | (Tree::Leaf(Value::Float(x)), Tree::Leaf(Value::Int(n))) => {
                // Exact: every double below 2^127 fits, and none above equals a 64-bit integer.
                x.fract() == 0.0 && *x as i128 == i128::from(*n)
            }
            _ => self == other,
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
