//! Path of a value in a custom object. A path is a linked list on the stack, and is formatted only if an
//! error is reported.

use std::fmt;

/// A path displays as `spec.containers[0].env`. Errors of schemas show the keys of maps as names. All other
/// errors show the keys in brackets (`{:#}`).
#[derive(Clone, Copy)]
pub(super) enum ValuePath<'p> {
    /// The object itself.
    Root,
    /// A member of a struct.
    Name(&'p ValuePath<'p>, &'p str),
    /// A member of a map.
    Key(&'p ValuePath<'p>, &'p str),
    /// An element of a list.
    Index(&'p ValuePath<'p>, usize),
}

impl<'p> ValuePath<'p> {
    /// Returns the path of a member of a struct.
    pub(super) fn child(&'p self, name: &'p str) -> ValuePath<'p> {
        ValuePath::Name(self, name)
    }

    /// Returns the path of a member of a map.
    pub(super) fn key(&'p self, key: &'p str) -> ValuePath<'p> {
        ValuePath::Key(self, key)
    }

    /// Returns the path of an element of a list.
    pub(super) fn index(&'p self, at: usize) -> ValuePath<'p> {
        ValuePath::Index(self, at)
    }
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ValuePath::Root => Ok(()),
            ValuePath::Key(parent, key) if f.alternate() => write!(f, "{parent:#}[{key}]"),
            ValuePath::Name(ValuePath::Root, name) => f.write_str(name),
            ValuePath::Name(parent, name) | ValuePath::Key(parent, name) => {
                parent.fmt(f)?;
                write!(f, ".{name}")
            }
            ValuePath::Index(parent, at) => {
                parent.fmt(f)?;
                write!(f, "[{at}]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_keys_in_a_value_path_have_a_dotted_and_a_bracketed_form() {
        let spec = ValuePath::Root.child("spec");
        let map = spec.child("map");
        let key = map.key("a.b");
        let item = key.index(2);
        assert_eq!(format!("{item}|{item:#}"), "spec.map.a.b[2]|spec.map[a.b][2]");
        assert_eq!(ValuePath::Root.to_string(), "");
    }
}
