//! JSON objects: members in the order in which they will be written.
//!
//! A vector of pairs, because objects have few members, order matters on the wire, and it costs one allocation where a
//! map costs many. Names that a schema declares are borrowed from its static tables.
//!
//! An object read from storage may be *settled*: shared between trees, together with the text it was read from. Most
//! parts that an update leaves unchanged are settled, so they are neither copied, nor compared, nor serialized again.
//! The first change of a settled object copies it to an ordinary one; otherwise the two behave alike.
//!
//! ```text
//! Object ─┬─ its own members
//!         └─ Arc ─► members + canonical text          shared by the old tree and the new one
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::Value;

/// A member name: borrowed from the schema tables where the schema declares it, owned otherwise.
pub type Key = Cow<'static, str>;

/// Members in writing order; a name occurs at most once.
#[derive(Clone, Debug)]
pub struct Object(Form);

#[derive(Clone, Debug)]
enum Form {
    Own(Vec<(Key, Value)>),
    Settled(Arc<Settled>),
}

/// A shared object with its stored text.
#[derive(Debug)]
struct Settled {
    members: Vec<(Key, Value)>,
    /// The canonical text by its schema.
    text: Bytes,
}

impl Object {
    /// An object without members.
    pub const fn new() -> Self {
        Object(Form::Own(Vec::new()))
    }

    /// An object with room for `members`.
    pub fn with_capacity(members: usize) -> Self {
        Object(Form::Own(Vec::with_capacity(members)))
    }

    /// Settles the object, whose canonical text is `text`; until it is changed, copies share it.
    ///
    /// The caller guarantees that the object is what its schema reads from `text`.
    pub fn settle(&mut self, text: Bytes) {
        let members = std::mem::take(self).into_members();
        self.0 = Form::Settled(Arc::new(Settled { members, text }));
    }

    /// Takes from `other` its settled members that are equal to this object's, in whatever order they stand, so that both
    /// share them.
    pub fn share(&mut self, other: &Object) {
        for (name, value) in self.iter_mut() {
            if let (Value::Object(own), Some(Value::Object(settled))) = (value, other.get(name))
                && settled.is_settled()
                && !own.is_one_with(settled)
                && own.has_same_members(settled)
            {
                *own = settled.clone();
            }
        }
    }

    /// Whether both have equal members, in whatever order: what a plugin fills in stands behind what was there.
    pub(super) fn has_same_members(&self, other: &Object) -> bool {
        let (own, others) = (self.members(), other.members());
        own.len() == others.len()
            && own.iter().zip(others).all(|((name, value), (at, beside))| {
                let beside = if name == at { Some(beside) } else { other.get(name) };
                beside.is_some_and(|beside| value.is_same_in_any_order(beside))
            })
    }

    /// The canonical text, if the object is settled.
    pub fn settled_text(&self) -> Option<&Bytes> {
        match &self.0 {
            Form::Own(_) => None,
            Form::Settled(settled) => Some(&settled.text),
        }
    }

    /// Objects and arrays in it, itself included.
    pub fn structures(&self) -> usize {
        1 + self.iter().map(|(_, value)| value.structures()).sum::<usize>()
    }

    /// Whether the object is settled.
    pub fn is_settled(&self) -> bool {
        matches!(self.0, Form::Settled(_))
    }

    /// Whether both share one settled object.
    pub fn is_one_with(&self, other: &Object) -> bool {
        matches!((&self.0, &other.0), (Form::Settled(a), Form::Settled(b)) if Arc::ptr_eq(a, b))
    }

    /// The members in order, with their names as held.
    #[inline]
    pub fn members(&self) -> &[(Key, Value)] {
        match &self.0 {
            Form::Own(members) => members,
            Form::Settled(settled) => &settled.members,
        }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members().len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// The member `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members().iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The member `name`, for change.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.members_mut().iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Whether there is a member `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets member `name`, at its old position if it was there and at the end otherwise; returns the old value.
    pub fn insert(&mut self, name: impl Into<Key>, value: Value) -> Option<Value> {
        let name = name.into();
        match self.get_mut(&name) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.members_mut().push((name, value));
                None
            }
        }
    }

    /// Appends a member that the caller knows to be absent, without a search.
    pub fn push(&mut self, name: impl Into<Key>, value: Value) {
        let name = name.into();
        debug_assert!(!self.contains(&name), "member {name} is there already");
        self.members_mut().push((name, value));
    }

    /// Removes member `name` and returns its value; the others keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.members().iter().position(|(key, _)| key == name)?;
        Some(self.members_mut().remove(at).1)
    }

    /// The member `name`, set to `null` first if it is absent.
    pub fn entry(&mut self, name: impl Into<Key>) -> &mut Value {
        let name = name.into();
        let members = self.members_mut();
        let at = match members.iter().position(|(key, _)| *key == name) {
            Some(at) => at,
            None => {
                members.push((name, Value::Null));
                members.len() - 1
            }
        };
        &mut members[at].1
    }

    /// The object at member `name`; replaces an absent member or one of another type by an empty object.
    pub fn object_entry(&mut self, name: impl Into<Key>) -> &mut Object {
        let slot = self.entry(name);
        if !matches!(slot, Value::Object(_)) {
            *slot = Value::Object(Object::new());
        }
        match slot {
            Value::Object(members) => members,
            _ => unreachable!("made an object just now"),
        }
    }

    /// The members in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> {
        self.members().iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// The members in order, values for change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.members_mut().iter_mut().map(|member| (&*member.0, &mut member.1))
    }

    /// Keeps the members for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.members_mut().retain_mut(|(key, value)| keep(key, value));
    }

    /// The members as a vector, for reordering and sorting.
    pub fn members_mut(&mut self) -> &mut Vec<(Key, Value)> {
        if let Form::Settled(_) = self.0 {
            let members = std::mem::take(self).into_members();
            self.0 = Form::Own(members);
        }
        match &mut self.0 {
            Form::Own(members) => members,
            Form::Settled(_) => unreachable!("made its own just now"),
        }
    }

    /// The members, moved out.
    pub fn into_members(self) -> Vec<(Key, Value)> {
        match self.0 {
            Form::Own(members) => members,
            Form::Settled(settled) => match Arc::try_unwrap(settled) {
                Ok(settled) => settled.members,
                Err(shared) => {
                    #[cfg(test)]
                    sharing::copied();
                    shared.members.clone()
                }
            },
        }
    }
}

/// What became of settled objects, for the test that an update shares what it leaves as it is. One count per thread: the test
/// runs the whole server on its own.
#[cfg(test)]
pub(crate) mod sharing {
    use std::cell::Cell;

    thread_local! {
        static COPIED: Cell<usize> = const { Cell::new(0) };
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn copied() {
        COPIED.set(COPIED.get() + 1);
    }

    /// Notes that one was written as its text.
    pub(crate) fn written() {
        WRITTEN.set(WRITTEN.get() + 1);
    }

    /// How many were copied and how many written as their text since the last call.
    pub(crate) fn take() -> (usize, usize) {
        (COPIED.take(), WRITTEN.take())
    }
}

impl Default for Object {
    fn default() -> Self {
        Object::new()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.is_one_with(other) || self.members() == other.members()
    }
}

impl FromIterator<(Key, Value)> for Object {
    /// Collects members; the caller must pass each name at most once.
    fn from_iter<T: IntoIterator<Item = (Key, Value)>>(members: T) -> Self {
        Object(Form::Own(members.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    #[test]
    fn equal_settled_members_are_shared() {
        let mut old = object(r#"{"a":{"x":1},"b":{"y":[2]},"c":{"z":3},"d":4}"#);
        for (_, value) in old.iter_mut().filter(|(name, _)| *name != "c") {
            if let Value::Object(part) = value {
                part.settle(Bytes::new());
            }
        }
        for (text, shared) in [
            (r#"{"b":{"y":[2]},"a":{"x":1},"c":{"z":3},"d":4}"#, "b a"),
            (r#"{"a":{"x":2},"b":{"y":[2]}}"#, "b"),
            (r#"{"a":{"x":1,"y":2},"d":4}"#, ""),
            (r#"{"a":1,"b":{"x":1},"e":{"x":1}}"#, ""),
        ] {
            let mut new = object(text);
            new.share(&old);
            assert_eq!(new, object(text));
            let is_shared = |value: &Value| value.as_object().is_some_and(Object::is_settled);
            let names: Vec<_> =
                new.iter().filter(|(_, value)| is_shared(value)).map(|(name, _)| name).collect();
            assert_eq!(names.join(" "), shared, "{text}");
        }
    }

    #[test]
    fn members_are_shared_in_whatever_order_they_stand() {
        const TEXT: &str = r#"{"a":{"x":[{"u":1,"v":2}],"y":{"w":null}}}"#;
        let mut old = object(TEXT);
        old.get_mut("a").and_then(Value::as_object_mut).expect("an object").settle(Bytes::new());
        for (text, is_shared) in [
            (r#"{"a":{"y":{"w":null},"x":[{"v":2,"u":1}]}}"#, true),
            (r#"{"a":{"y":{"w":null},"x":[{"v":1,"u":2}]}}"#, false),
            (r#"{"a":{"y":{"z":null},"x":[{"v":2,"u":1}]}}"#, false),
            (r#"{"a":{"y":{"w":null},"x":[{"v":2,"u":1},{}]}}"#, false),
        ] {
            let mut new = object(text);
            new.share(&old);
            assert_eq!(new == object(TEXT), is_shared, "{text}");
        }
    }

    #[test]
    fn a_settled_object_behaves_like_any_other_until_it_is_changed() {
        const TEXT: &str = r#"{"a":{"b":1},"c":2}"#;
        let mut settled = object(TEXT);
        settled.settle(Bytes::from_static(TEXT.as_bytes()));
        let copy = settled.clone();
        assert!(copy.is_one_with(&settled) && !copy.is_one_with(&object(TEXT)));
        assert_eq!(copy, object(TEXT));
        assert_eq!((copy.len(), copy.get("c"), copy.contains("d")), (2, Some(&Value::Int(2)), false));
        assert_eq!(copy.clone().into_members(), object(TEXT).into_members());
        type Change = fn(&mut Object);
        let changes: [(Change, &str); 6] = [
            (|o| drop(o.insert("c", Value::Int(3))), r#"{"a":{"b":1},"c":3}"#),
            (|o| drop(o.remove("a")), r#"{"c":2}"#),
            (|o| o.push("d", Value::Null), r#"{"a":{"b":1},"c":2,"d":null}"#),
            (|o| drop(o.object_entry("a").remove("b")), r#"{"a":{},"c":2}"#),
            (|o| o.retain(|name, _| name == "c"), r#"{"c":2}"#),
            (|o| o.iter_mut().for_each(|(_, value)| *value = Value::Null), r#"{"a":null,"c":null}"#),
        ];
        for (change, want) in changes {
            let mut changed = copy.clone();
            change(&mut changed);
            assert_eq!(changed, object(want));
            assert_eq!(changed.settled_text(), None, "{want}");
            assert_eq!(copy, object(TEXT), "{want}");
        }
        assert_eq!(settled.settled_text().map(|text| &text[..]), Some(TEXT.as_bytes()));
    }
}
