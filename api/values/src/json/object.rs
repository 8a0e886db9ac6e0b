//! JSON objects, with their members in writing order.
//!
//! An object is a vector of pairs, because objects have few members, their order matters on the wire, and a
//! vector costs one allocation where a map costs many. Names that a schema declares are borrowed from its
//! static tables.
//!
//! An object that was read from storage may be *settled*: trees share it, together with the text that it was
//! read from. Most parts that an update leaves unchanged are settled, so they are not copied, compared or
//! serialized again. The first change of a settled object copies the object to an ordinary object. Otherwise,
//! both kinds of objects behave in the same way. The members of a settled object are parsed at the first
//! access, so parts that an update neither changes nor examines are never parsed.
//!
//! ```text
//! Object ─┬─ its own members, few or many
//!         └─ Arc ─► canonical text, members once parsed  shared by the old tree and the new one
//! ```
//!
//! An object with many members has an index by name (`members`), so that an algorithm over a client's tree
//! takes time linear in the size of the tree, even if it looks up each member.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::key::Key;
use super::members::{Members, SCAN_MAX, position};
use super::scan::Scan;
use super::{Value, parse};

/// A JSON object: members in writing order, each name at most once.
#[derive(Clone, Debug)]
pub struct Object(MemberStorage);

#[derive(Clone, Debug)]
enum MemberStorage {
    Own(Vec<(Key, Value)>),
    /// Members owned by this object; their number has exceeded [`SCAN_MAX`] at some time.
    Many(Box<Members>),
    Settled(Arc<Settled>),
}

/// A shared object with its stored text.
#[derive(Debug)]
struct Settled {
    /// Text of the object in the canonical form that the schema defines.
    text: Bytes,
    members: OnceLock<Members>,
    /// Parser of the members; `None` if they were available from the start.
    source: Option<&'static dyn ReadMembers>,
}

/// A parser of the members of an object from its canonical text; implemented by types of the schema.
pub trait ReadMembers: fmt::Debug + Sync {
    /// Returns the members. Must not fail, even if the text is malformed.
    fn read_members(&self, text: &Bytes) -> Vec<(Key, Value)>;
}

impl Settled {
    fn members(&self) -> &Members {
        self.members.get_or_init(|| {
            #[cfg(any(test, feature = "testing"))]
            sharing::read();
            self.source.map_or_else(Members::default, |source| source.read_members(&self.text).into())
        })
    }

    fn into_members(mut self) -> Vec<(Key, Value)> {
        self.members();
        self.members.take().unwrap_or_default().into_list()
    }
}

impl Object {
    /// Creates an object without members.
    pub const fn new() -> Self {
        Object(MemberStorage::Own(Vec::new()))
    }

    /// Creates an empty object with capacity for `members`.
    pub fn with_capacity(members: usize) -> Self {
        Object(MemberStorage::Own(Vec::with_capacity(members)))
    }

    /// Makes the object settled with the canonical text `text`. Copies share the text until they are
    /// changed.
    ///
    /// The caller guarantees that the object is what its schema reads from `text`.
    pub fn settle(&mut self, text: Bytes) {
        let members = OnceLock::from(Members::from(std::mem::take(self).into_members()));
        self.0 = MemberStorage::Settled(Arc::new(Settled { text, members, source: None }));
    }

    /// Creates a settled object with the canonical text `text`. `source` parses the text at the first access
    /// to a member.
    pub fn unread(text: Bytes, source: &'static dyn ReadMembers) -> Object {
        Object(MemberStorage::Settled(Arc::new(Settled {
            text,
            members: OnceLock::new(),
            source: Some(source),
        })))
    }

    /// Gives an unread object its members. The caller guarantees that `members` equals the members in the
    /// text of the object.
    pub fn fill(&self, members: Vec<(Key, Value)>) {
        if let MemberStorage::Settled(settled) = &self.0 {
            // If another thread has parsed the members in the meantime, the parsed members equal `members`.
            let _ = settled.members.set(members.into());
        }
    }

    /// Returns the canonical text, if the object is settled and no member was accessed yet.
    pub fn unread_text(&self) -> Option<&Bytes> {
        match &self.0 {
            MemberStorage::Settled(settled) if settled.members.get().is_none() => Some(&settled.text),
            _ => None,
        }
    }

    /// Returns whether both objects have equal members in any order. The order is ignored because an
    /// admission plugin appends members after the existing members.
    pub fn has_same_members(&self, other: &Object) -> bool {
        let (own, others) = (self.members(), other.members());
        own.len() == others.len()
            && own.iter().zip(others).all(|((name, value), (at, beside))| {
                let beside = if name == at { Some(beside) } else { other.get(name) };
                beside.is_some_and(|beside| value.is_same_in_any_order(beside))
            })
    }

    /// Returns the canonical text, if the object is settled.
    pub fn settled_text(&self) -> Option<&Bytes> {
        match &self.0 {
            MemberStorage::Own(_) | MemberStorage::Many(_) => None,
            MemberStorage::Settled(settled) => Some(&settled.text),
        }
    }

    /// Counts the objects and arrays in this object, including the object itself. For an unread object, the
    /// number is an upper bound from its text.
    pub fn structures(&self) -> usize {
        if let Some(text) = self.unread_text() {
            return text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
        }
        1 + self.members().iter().map(|(_, value)| value.structures()).sum::<usize>()
    }

    /// Returns whether the object is settled.
    pub fn is_settled(&self) -> bool {
        matches!(self.0, MemberStorage::Settled(_))
    }

    /// Returns whether both objects share one settled object.
    pub fn is_one_with(&self, other: &Object) -> bool {
        matches!(
            (&self.0, &other.0),
            (MemberStorage::Settled(a), MemberStorage::Settled(b)) if Arc::ptr_eq(a, b)
        )
    }

    /// Returns whether the first member of the dotted `path` is the same settled object in both objects, so
    /// that nothing at the path can differ.
    pub fn shares(&self, path: &str, other: &Object) -> bool {
        let name = path.split('.').next().unwrap_or_default();
        let own = self.get(name).and_then(Value::as_object);
        own.zip(other.get(name).and_then(Value::as_object)).is_some_and(|(own, other)| own.is_one_with(other))
    }

    /// Returns the members in order, with their stored names.
    #[inline]
    pub fn members(&self) -> &[(Key, Value)] {
        match &self.0 {
            MemberStorage::Own(members) => members,
            MemberStorage::Many(members) => members.list(),
            MemberStorage::Settled(settled) => settled.members().list(),
        }
    }

    /// Returns the position of the member `name` in [`Object::members`].
    fn position(&self, name: &str) -> Option<usize> {
        match &self.0 {
            MemberStorage::Own(members) => position(members, name),
            MemberStorage::Many(members) => members.position(name),
            MemberStorage::Settled(settled) => settled.members().position(name),
        }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.members().len()
    }

    /// Returns whether the object has no member.
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// Returns the member `name`. The amortized cost of a call does not depend on the number of members.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).and_then(|at| self.members().get(at)).map(|(_, value)| value)
    }

    /// Returns the member `name`. An unread object stays unread, because only this member is parsed from its
    /// text.
    pub fn member(&self, name: &str) -> Option<Cow<'_, Value>> {
        match self.unread_text() {
            Some(text) => member_of(text, name).map(Cow::Owned),
            None => self.get(name).map(Cow::Borrowed),
        }
    }

    /// Returns the member `name` for modification.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.position(name)?;
        self.slots().get_mut(at).map(|(_, value)| value)
    }

    /// Returns whether the object has a member `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Sets the member `name` at its existing position, or appends the member if it is absent. Returns the
    /// old value.
    pub fn insert(&mut self, name: impl Into<Key>, value: Value) -> Option<Value> {
        let name = name.into();
        match self.get_mut(&name) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.append(name, value);
                None
            }
        }
    }

    /// Appends a member without a search. The caller guarantees that the object has no member of this name.
    pub fn push(&mut self, name: impl Into<Key>, value: Value) {
        let name = name.into();
        debug_assert!(!self.contains(&name), "member {name} is there already");
        self.append(name, value);
    }

    /// Removes the member `name` and returns its value. The other members keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.position(name)?;
        Some(self.members_mut().remove(at).1)
    }

    /// Returns the member `name`. An absent member is first added with the value `null`.
    pub fn entry(&mut self, name: impl Into<Key>) -> &mut Value {
        let name = name.into();
        let at = match self.position(&name) {
            Some(at) => at,
            None => {
                self.append(name, Value::Null);
                self.len() - 1
            }
        };
        &mut self.slots()[at].1
    }

    /// Returns the object at member `name`. An absent member, or a member of another type, is replaced by an
    /// empty object.
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

    /// Returns the members in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> {
        self.members().iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// Returns the members in order, with values for modification.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.slots().iter_mut().map(|member| (&*member.0, &mut member.1))
    }

    /// Keeps only the members for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.members_mut().retain_mut(|(key, value)| keep(key, value));
    }

    /// Returns the members as a vector, for reordering and sorting. This call drops the index by name; later
    /// lookups build a new index. A caller that adds many members this way must call
    /// [`Object::index_members`] to get an index.
    pub fn members_mut(&mut self) -> &mut Vec<(Key, Value)> {
        self.own();
        match &mut self.0 {
            MemberStorage::Own(members) => members,
            MemberStorage::Many(members) => members.list_mut(),
            MemberStorage::Settled(_) => unreachable!("made its own just now"),
        }
    }

    /// Ensures that members are found by name without a scan, even if many members were added through
    /// [`Object::members_mut`].
    pub fn index_members(&mut self) {
        if let MemberStorage::Own(members) = &mut self.0
            && members.len() > SCAN_MAX
        {
            self.0 = MemberStorage::Many(Box::new(std::mem::take(members).into()));
        }
    }

    /// Copies the members of a settled object, so that they can be changed.
    fn own(&mut self) {
        if let MemberStorage::Settled(_) = self.0 {
            *self = std::mem::take(self).into_members().into_iter().collect();
        }
    }

    /// Returns the members for changes of values. The caller must not change names.
    fn slots(&mut self) -> &mut [(Key, Value)] {
        self.own();
        match &mut self.0 {
            MemberStorage::Own(members) => members,
            MemberStorage::Many(members) => members.slots(),
            MemberStorage::Settled(_) => unreachable!("made its own just now"),
        }
    }

    /// Appends a member, which must be absent.
    fn append(&mut self, name: Key, value: Value) {
        self.own();
        match &mut self.0 {
            MemberStorage::Own(members) => {
                members.push((name, value));
                self.index_members();
            }
            MemberStorage::Many(members) => members.push(name, value),
            MemberStorage::Settled(_) => unreachable!("made its own just now"),
        }
    }

    /// Returns the members by value.
    pub fn into_members(self) -> Vec<(Key, Value)> {
        match self.0 {
            MemberStorage::Own(members) => members,
            MemberStorage::Many(members) => members.into_list(),
            MemberStorage::Settled(settled) => match Arc::try_unwrap(settled) {
                Ok(settled) => settled.into_members(),
                Err(shared) => {
                    #[cfg(any(test, feature = "testing"))]
                    sharing::copied();
                    shared.members().list().to_vec()
                }
            },
        }
    }
}

/// Parses the member `name` from a canonical text.
fn member_of(text: &[u8], name: &str) -> Option<Value> {
    let mut scan = Scan::new(text);
    let mut is_more = scan.take(b'{');
    while is_more {
        let at = scan.name()?;
        let value = scan.value()?;
        if at.raw == name.as_bytes() && !at.is_escaped {
            return parse(value).ok();
        }
        is_more = scan.more(b'}')?;
    }
    None
}

/// Counts reads, copies and writes of settled objects, for the test which checks that an update shares
/// unchanged parts. The counts are per thread, so the test runs the whole server on its own thread.
#[cfg(any(test, feature = "testing"))]
pub mod sharing {
    use std::cell::Cell;

    thread_local! {
        static COPIED: Cell<usize> = const { Cell::new(0) };
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn read() {
        READ.set(READ.get() + 1);
    }

    /// Returns how many unread objects were parsed since the last call.
    pub fn take_read() -> usize {
        READ.take()
    }

    pub(super) fn copied() {
        COPIED.set(COPIED.get() + 1);
    }

    /// Counts an object that was written by copying its text.
    pub fn written() {
        WRITTEN.set(WRITTEN.get() + 1);
    }

    /// Returns how many objects were copied, and how many were written by copying their text, since the last
    /// call.
    pub fn take() -> (usize, usize) {
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
    /// Collects members. The caller must pass each name at most once.
    fn from_iter<T: IntoIterator<Item = (Key, Value)>>(members: T) -> Self {
        let mut object = Object(MemberStorage::Own(members.into_iter().collect()));
        object.index_members();
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    /// The parser of unread objects in these tests.
    #[derive(Debug)]
    struct Parse;

    impl ReadMembers for Parse {
        fn read_members(&self, text: &Bytes) -> Vec<(Key, Value)> {
            object(std::str::from_utf8(text).expect("JSON is text")).into_members()
        }
    }

    #[test]
    fn a_settled_object_behaves_like_a_plain_object() {
        let mut read = object(TEXT);
        read.settle(Bytes::from_static(TEXT.as_bytes()));
        assert_eq!(read.unread_text(), None);
        behaves_like_any_other(&read);
        let unread = Object::unread(Bytes::from_static(TEXT.as_bytes()), &Parse);
        assert_eq!((unread.structures(), unread.unread_text().map(Bytes::len)), (2, Some(TEXT.len())));
        behaves_like_any_other(&unread);
        assert_eq!(unread.unread_text(), None);
    }

    #[test]
    fn the_members_of_an_unread_object_are_parsed_once() {
        sharing::take_read();
        let unread = Object::unread(Bytes::from_static(TEXT.as_bytes()), &Parse);
        let copy = unread.clone();
        assert!(copy.is_one_with(&unread) && copy == unread);
        assert_eq!(sharing::take_read(), 0);
        assert_eq!((copy.len(), unread.len()), (2, 2));
        assert_eq!(sharing::take_read(), 1);
        let filled = Object::unread(Bytes::from_static(TEXT.as_bytes()), &Parse);
        filled.fill(object(TEXT).into_members());
        assert_eq!((&filled, filled.unread_text(), sharing::take_read()), (&object(TEXT), None, 0));
        let only = Object::unread(Bytes::from_static(TEXT.as_bytes()), &Parse);
        assert_eq!((only.into_members().len(), sharing::take_read()), (2, 1));
    }

    #[test]
    fn a_single_member_can_be_read_from_the_text_of_an_unread_object() {
        const STORED: &str = r#"{"a":{"x":1},"b":"\"t\"","c":-2,"e":null,"f":["b"],"\u0067":1}"#;
        sharing::take_read();
        let unread = Object::unread(Bytes::from_static(STORED.as_bytes()), &Parse);
        let cases = [
            ("a", Some(object(r#"{"x":1}"#).into())),
            ("x", None),
            ("b", Some(Value::from("\"t\""))),
            ("c", Some(Value::Int(-2))),
            ("e", Some(Value::Null)),
            ("f", Some(Value::Array(vec!["b".into()]))),
            ("h", None),
        ];
        for (name, want) in &cases {
            assert_eq!(unread.member(name).as_deref(), want.as_ref(), "{name}");
        }
        assert_eq!((sharing::take_read(), unread.len()), (0, 6));
        for (name, want) in &cases {
            assert_eq!(unread.member(name).as_deref(), want.as_ref(), "{name}");
        }
        let empty = Object::unread(Bytes::from_static(b"{}"), &Parse);
        assert_eq!(empty.member("a"), None);
    }

    const TEXT: &str = r#"{"a":{"b":1},"c":2}"#;

    fn behaves_like_any_other(settled: &Object) {
        let copy = settled.clone();
        let holder = |part: &Object| Object::from_iter([("p".into(), part.clone().into())]);
        assert!(holder(&copy).shares("p", &holder(settled)) && !holder(&copy).shares("q", &holder(settled)));
        assert!(holder(&copy).shares("p.a.b", &holder(settled)));
        assert!(!holder(&object(TEXT)).shares("p", &holder(settled)));
        assert!(copy.is_one_with(settled) && !copy.is_one_with(&object(TEXT)));
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
