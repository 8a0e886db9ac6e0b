//! What somebody works out about a type once, before any object of it is seen: where things go, what is always there.
//!
//! ```text
//! Plans ── by the place of the type ──► P: one entry for each of its fields ──► Below ──► P of a field's type
//!                                                                              made when it is first needed
//! ```
//!
//! Types may contain themselves, and most are never used, so plans are made one by one. They are looked up among all for
//! the type of an object only: from there on each knows those below it.

use std::sync::{LazyLock, OnceLock};

use hashbrown::HashMap;
use parking_lot::RwLock;

use super::table::{Kind, Message};

/// The plans of one sort. They live as long as the program, as their types do, which bounds them.
pub struct Plans<P: 'static> {
    make: fn(&'static Message) -> P,
    /// By the place of the type.
    made: LazyLock<RwLock<HashMap<usize, &'static P>>>,
}

impl<P> Plans<P> {
    /// None yet. `make` makes the plan of one type, and must not ask for that of another.
    pub const fn new(make: fn(&'static Message) -> P) -> Self {
        Plans { make, made: LazyLock::new(RwLock::default) }
    }

    /// The plan of a type, made at the first call.
    pub fn of(&self, message: &'static Message) -> &'static P {
        let place = std::ptr::from_ref(message).addr();
        if let Some(plan) = self.made.read().get(&place) {
            return plan;
        }
        self.made.write().entry(place).or_insert_with(|| Box::leak(Box::new((self.make)(message))))
    }
}

/// Another type that a plan has to do with, and its plan, once somebody has asked for it.
pub struct Below<P: 'static> {
    /// That type.
    pub message: &'static Message,
    plan: OnceLock<&'static P>,
}

impl<P> Below<P> {
    /// Without a plan yet.
    pub const fn new(message: &'static Message) -> Self {
        Below { message, plan: OnceLock::new() }
    }

    /// For the values of a field, if they are structs.
    pub fn of_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Message(message) => Some(Below::new(message)),
            _ => None,
        }
    }

    /// The plan, one of `plans`, which must be the same ones in all calls.
    #[inline]
    pub fn plan(&self, plans: &Plans<P>) -> &'static P {
        self.plan.get_or_init(|| plans.of(self.message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::naming::KUBERNETES;
    use crate::schema::builtin;

    #[test]
    fn a_type_has_one_plan_and_one_that_contains_itself_has_its_own_below() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        struct Plan {
            message: &'static Message,
            members: Vec<Option<Below<Plan>>>,
        }
        static PLANS: Plans<Plan> = Plans::new(|message| {
            MADE.fetch_add(1, Ordering::Relaxed);
            Plan { message, members: message.fields.iter().map(|field| Below::of_kind(field.kind)).collect() }
        });
        let schema = builtin::message(
            &KUBERNETES,
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        )
        .unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let plan = PLANS.of(schema);
                    assert!(std::ptr::eq(plan.message, schema) && std::ptr::eq(plan, PLANS.of(schema)));
                    let position = schema.position(b"properties").unwrap();
                    let own = plan.members[usize::from(position)].as_ref().unwrap();
                    assert!(std::ptr::eq(own.message, schema) && std::ptr::eq(own.plan(&PLANS), plan));
                });
            }
        });
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
        let pod = builtin::message(&KUBERNETES, "api.core.v1.Pod").unwrap();
        assert!(!std::ptr::eq(PLANS.of(pod), PLANS.of(schema)));
        assert_eq!(MADE.load(Ordering::Relaxed), 2);
    }
}
