//! Looks up members and elements by name or key in constant time. Clients choose the number of members, so
//! linear searches for all members would take quadratic time in total.

use hashbrown::HashMap;

use types::schema::table::{Slice, Text};
use values::json::{self, Object, Value};

/// Maximum number of members without an index.
const FEW: usize = 16;

/// Maximum number of look-ups without an index.
const FEW_LOOKUPS: usize = 4;

/// The members of one object, prepared for look-ups by name.
pub enum MemberLookup<'o> {
    /// An object with few members, which is searched linearly.
    Few(&'o Object),
    /// An index of many members.
    Many(HashMap<&'o str, &'o Value>),
}

impl<'o> MemberLookup<'o> {
    /// Prepares the members of an object for about `lookups` look-ups.
    pub fn new(object: &'o Object, lookups: usize) -> MemberLookup<'o> {
        if object.len() <= FEW || lookups <= FEW_LOOKUPS {
            return MemberLookup::Few(object);
        }
        MemberLookup::Many(object.iter().collect())
    }

    /// Returns the value of the member called `name`.
    pub fn get(&self, name: &str) -> Option<&'o Value> {
        match self {
            MemberLookup::Few(object) => object.get(name),
            MemberLookup::Many(members) => members.get(name).copied(),
        }
    }
}

/// The elements of a keyed list by their keys. If several elements have equal keys, only the first is
/// included.
pub struct Keyed<'l> {
    keys: &'l Slice<Text>,
    elements: HashMap<Vec<u8>, &'l Value>,
}

impl<'l> Keyed<'l> {
    /// Indexes `items` by the values of `keys`.
    pub fn new(keys: &'l Slice<Text>, items: &'l [Value]) -> Keyed<'l> {
        let mut elements = HashMap::with_capacity(items.len());
        for item in items {
            elements.entry(identity(keys, item)).or_insert(item);
        }
        Keyed { keys, elements }
    }

    /// Returns the element with the same keys as `item`.
    pub fn get(&self, item: &Value) -> Option<&'l Value> {
        self.elements.get(&identity(self.keys, item)).copied()
    }
}

/// Returns the keys of an element as text, separated by commas. An absent key is an empty text.
fn identity(keys: &[Text], item: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    let members = item.as_object().map(|members| MemberLookup::new(members, keys.len()));
    for key in keys {
        if let Some(value) = members.as_ref().and_then(|members| members.get(key)) {
            json::write(value, &mut text);
        }
        text.push(b',');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_find_members_and_elements_in_small_and_large_collections() {
        for count in [0, 1, FEW, FEW + 1, 100] {
            let name = |at: usize| format!("n{at}");
            let object: Object = (0..count).map(|at| (name(at).into(), Value::Int(at as i64))).collect();
            let members = MemberLookup::new(&object, 100);
            let keys: Slice<Text> = vec!["a".into(), "b".into()].into();
            let element = |at: usize| -> Value {
                let members = [("x".into(), Value::Int(0)), ("a".into(), Value::Int(at as i64))];
                Object::from_iter(members).into()
            };
            let items: Vec<Value> = (0..count).chain(0..count).map(element).collect();
            let keyed = Keyed::new(&keys, &items);
            for (at, item) in items.iter().enumerate().take(count) {
                assert_eq!(members.get(&name(at)), Some(&Value::Int(at as i64)));
                assert!(keyed.get(&element(at)).is_some_and(|found| std::ptr::eq(found, item)));
            }
            assert!(members.get("n").is_none() && keyed.get(&element(count)).is_none());
            assert!(keyed.get(&Value::Null).is_none());
        }
    }
}
