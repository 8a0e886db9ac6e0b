//! Field paths of validation errors: a linked list on the stack, formatted only when an error is reported.

use std::fmt::{self, Display, Write};

use super::rules::view::View;
use values::json::Value;

/// Path of a field, such as `spec.containers[0].env` or `metadata.labels[app]`.
#[derive(Clone, Copy)]
pub struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Name(&'p str),
    Index(usize),
    Key(&'p str),
}

impl<'p> Path<'p> {
    /// Path of the object itself, which has no name.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Name("") };

    /// Returns the path of the containing value.
    pub fn parent(&self) -> &Path<'p> {
        self.parent.unwrap_or(&Path::ROOT)
    }

    /// Returns the value at this path of an object.
    pub(super) fn value<'v>(&self, object: View<'v>) -> Option<&'v Value> {
        let parent = self.parent?;
        match self.step {
            Step::Index(at) => parent.value(object)?.as_array()?.get(at),
            Step::Name(name) | Step::Key(name) if parent.parent.is_none() => object.get(name),
            Step::Name(name) | Step::Key(name) => parent.value(object)?.get(name),
        }
    }

    /// Returns the path of a member of an object.
    pub const fn child(&'p self, name: &'p str) -> Path<'p> {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    /// Returns the path of an element of a list.
    pub const fn index(&'p self, at: usize) -> Path<'p> {
        Path { parent: Some(self), step: Step::Index(at) }
    }

    /// Returns the path of a member of a map.
    pub const fn key(&'p self, key: &'p str) -> Path<'p> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl Display for Path<'_> {
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

impl From<Path<'_>> for String {
    fn from(path: Path) -> String {
        path.to_string()
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path) -> String {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_members_and_elements() {
        let spec = Path::ROOT.child("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        assert_eq!(first.child("name").to_string(), "spec.containers[0].name");
        let data = Path::ROOT.child("data");
        assert_eq!(data.key("a.b").to_string(), "data[a.b]");
        assert_eq!(Path::ROOT.to_string(), "");
    }
}
