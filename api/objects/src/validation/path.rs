//! Field paths of validation errors: a linked list on the stack, formatted only when an error is reported.

use std::fmt::{self, Display, Write};

use super::rules::view::StructView;
use values::json::Value;

/// Path of a field, such as `spec.containers[0].env` or `metadata.labels[app]`.
#[derive(Clone, Copy)]
pub struct FieldPath<'p> {
    parent: Option<&'p FieldPath<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Name(&'p str),
    Index(usize),
    Key(&'p str),
}

impl<'p> FieldPath<'p> {
    /// Path of the object itself, which has no name.
    pub const ROOT: FieldPath<'static> = FieldPath { parent: None, step: Step::Name("") };

    /// Returns the path of the containing value.
    pub fn parent(&self) -> &FieldPath<'p> {
        self.parent.unwrap_or(&FieldPath::ROOT)
    }

    /// Returns the value at this path of an object.
    pub(super) fn value<'v>(&self, object: StructView<'v>) -> Option<&'v Value> {
        let parent = self.parent?;
        match self.step {
            Step::Index(at) => parent.value(object)?.as_array()?.get(at),
            Step::Name(name) | Step::Key(name) if parent.parent.is_none() => object.get(name),
            Step::Name(name) | Step::Key(name) => parent.value(object)?.get(name),
        }
    }

    /// Returns the path of a member of an object.
    pub const fn child(&'p self, name: &'p str) -> FieldPath<'p> {
        FieldPath { parent: Some(self), step: Step::Name(name) }
    }

    /// Returns the path of an element of a list.
    pub const fn index(&'p self, at: usize) -> FieldPath<'p> {
        FieldPath { parent: Some(self), step: Step::Index(at) }
    }

    /// Returns the path of a member of a map.
    pub const fn key(&'p self, key: &'p str) -> FieldPath<'p> {
        FieldPath { parent: Some(self), step: Step::Key(key) }
    }
}

impl Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let is_first = match self.parent {
            Some(parent) => {
                parent.fmt(f)?;
                parent.parent.is_none() && matches!(parent.step, Step::Name(""))
            }
            None => true,
        };
        match self.step {
            Step::Name(name) if is_first => f.write_str(name),
            Step::Name(name) => {
                f.write_char('.')?;
                f.write_str(name)
            }
            Step::Index(at) => write!(f, "[{at}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl From<FieldPath<'_>> for String {
    fn from(path: FieldPath) -> String {
        path.to_string()
    }
}

impl From<&FieldPath<'_>> for String {
    fn from(path: &FieldPath) -> String {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_members_and_elements() {
        let spec = FieldPath::ROOT.child("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        assert_eq!(first.child("name").to_string(), "spec.containers[0].name");
        let data = FieldPath::ROOT.child("data");
        assert_eq!(data.key("a.b").to_string(), "data[a.b]");
        assert_eq!(FieldPath::ROOT.to_string(), "");
    }
}
