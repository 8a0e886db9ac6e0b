//! The members of an object that its type declares, in the order of the fields.
//!
//! Code that walks an object by its type (encoding, validation, ownership) does not visit all fields of the type. Such
//! code visits the declared members, and the few fields that matter even if the object lacks them. Typical objects need
//! no allocation.

use smallvec::SmallVec;

use super::decode_form::is_always_written;
use super::table::{Field, Message, Presence};
use values::json::{Object, Value};

/// Number of members that most objects do not exceed.
const TYPICAL: usize = 16;

/// Declared members with the positions of their fields in [`Message::fields`], ascending.
#[derive(Default)]
pub struct Declared<'o>(SmallVec<[(usize, &'o Value); TYPICAL]>);

impl<'o> Declared<'o> {
    /// Creates an empty list of members.
    #[inline]
    pub fn new() -> Self {
        Declared(SmallVec::new())
    }

    /// Collects the members of `object`, which is of type `message`. Fills `self` in place, because moving a
    /// [`Declared`] costs as much as reading a small object.
    #[inline]
    pub fn collect(&mut self, message: &Message, object: &'o Object) -> &[(usize, &'o Value)] {
        let mut is_ascending = true;
        let mut last = 0;
        for (name, value) in object.iter() {
            let Some(at) = message.position(name.as_bytes()) else { continue };
            is_ascending &= last <= at;
            last = at;
            self.0.push((at, value));
        }
        if !is_ascending {
            self.0.sort_by_key(|(at, _)| *at);
        }
        &self.0
    }
}

/// Visits the declared members and the fields at the positions `due`, both ascending, in the order of the
/// fields. Absent fields of `due` are visited without a value.
#[inline]
pub fn visit<'m, 'o>(
    message: &'m Message,
    declared: &[(usize, &'o Value)],
    due: &[usize],
    mut visit: impl FnMut(&'m Field, Option<&'o Value>),
) {
    let fields = &*message.fields;
    let mut due = due.iter().copied().peekable();
    for &(at, value) in declared {
        while let Some(absent) = due.next_if(|due| *due < at) {
            visit(&fields[absent], None);
        }
        due.next_if_eq(&at);
        visit(&fields[at], Some(value));
    }
    due.for_each(|absent| visit(&fields[absent], None));
}

impl Field {
    /// Returns the rule of validation for the presence of the field.
    pub fn presence(&self) -> Presence {
        self.check.map_or(Presence::Published, |check| check.presence)
    }

    /// Returns whether validation may reject an object without the field.
    pub fn is_demanded(&self) -> bool {
        match self.presence() {
            Presence::Published => self.required,
            Presence::Taken => false,
            Presence::Needed | Presence::NotZero | Presence::AsEmpty => true,
        }
    }
}

impl Message {
    /// Returns the positions of the fields that are always written, ascending.
    pub(crate) fn always_written(&self) -> &[usize] {
        self.compiled.always.get_or_init(|| self.positions(is_always_written))
    }

    /// Returns the positions of the fields whose absence validation may reject, ascending.
    pub fn demanded(&self) -> &[usize] {
        self.compiled.demanded.get_or_init(|| self.positions(Field::is_demanded))
    }

    /// Returns the rank of each field in the order of names. The index is the position of the field.
    pub fn ranks(&self) -> &[u32] {
        self.compiled.ranks.get_or_init(|| {
            let mut by_name: Vec<usize> = (0..self.fields.len()).collect();
            by_name.sort_unstable_by_key(|at| &self.fields[*at].name);
            let mut ranks = vec![0; by_name.len()];
            by_name.iter().zip(0..).for_each(|(at, rank)| ranks[*at] = rank);
            ranks
        })
    }

    fn positions(&self, is_one: impl Fn(&Field) -> bool) -> Vec<usize> {
        self.fields.iter().enumerate().filter(|(_, field)| is_one(field)).map(|(at, _)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;
    use values::json;
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn field_ranks_follow_the_order_of_the_names() {
        for message in builtin::messages(&KUBERNETES) {
            let mut by_rank: Vec<_> = message.ranks().iter().zip(&*message.fields).collect();
            by_rank.sort_by_key(|(rank, _)| **rank);
            assert!(by_rank.is_sorted_by(|(_, a), (_, b)| a.name < b.name), "{}", message.name);
        }
    }

    #[test]
    fn members_are_visited_in_field_order_together_with_due_fields() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.ContainerPort").unwrap();
        for (given, due, expected) in [
            ("{}", &[][..], ""),
            (r#"{"name":"a","containerPort":1}"#, &[], "name=\"a\" containerPort=1"),
            (r#"{"containerPort":1,"other":2,"name":"a"}"#, &[], "name=\"a\" containerPort=1"),
            ("{}", &[0, 2], "name containerPort"),
            (r#"{"containerPort":1}"#, &[0, 2, 3], "name containerPort=1 protocol"),
            (r#"{"protocol":null}"#, &[2], "containerPort protocol=null"),
        ] {
            let object = object(given);
            let mut found = Declared::new();
            let mut seen = Vec::new();
            visit(message, found.collect(message, &object), due, |field, value| {
                let mut text = field.name.as_bytes().to_vec();
                if let Some(value) = value {
                    text.push(b'=');
                    json::write(value, &mut text);
                }
                seen.push(String::from_utf8(text).unwrap());
            });
            assert_eq!(seen.join(" "), expected, "{given}");
        }
    }
}
