//! Helpers that the tests of this crate share: random numbers from a seed, conversion of objects to and from
//! text, and permissions.

use auth::authz::{Binding, Policy, RoleRef, Rule, Subject};

use crate::values::json::{Object, Value, parse, write};

/// A deterministic random number generator (SplitMix64): the same seed gives the same numbers on every
/// platform.
pub(crate) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns true with a probability of one in `count`.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns a random element of `from`.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Returns the processor time of this thread, which load by other processes does not lengthen.
pub(crate) fn processor_time() -> std::time::Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    std::time::Duration::from_nanos(nanos.unwrap_or(0))
}

/// Parses an object from JSON text.
pub(crate) fn object(text: &str) -> Object {
    parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
}

/// Returns the JSON text of an object.
pub(crate) fn object_text(object: &Object) -> String {
    text(&Value::Object(object.clone()))
}

/// Returns the JSON text of a value.
pub(crate) fn text(value: &Value) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8(out).unwrap()
}

/// Returns rules under which the user jane may only get pods, in all namespaces, through the role `reader`.
pub(crate) fn jane_may_get_pods() -> Policy {
    let list = |text: &str| vec![text.to_owned()];
    let read = Rule { verbs: list("get"), api_groups: list(""), resources: list("pods"), ..Rule::default() };
    user_may("jane", read)
}

/// Returns rules under which a user may do what `rule` permits, in all namespaces, through the role `reader`.
pub(crate) fn user_may(name: &str, rule: Rule) -> Policy {
    let mut policy = Policy::default();
    policy.set_cluster_role("reader", Some([rule].into()));
    let [kind, role_kind] = ["User", "ClusterRole"].map(str::to_owned);
    let user = Subject { kind, name: name.to_owned(), api_group: String::new(), namespace: String::new() };
    let role = RoleRef { kind: role_kind, name: "reader".to_owned(), api_group: String::new() };
    let (namespace, name) = (String::new(), "b".to_owned());
    policy.set_binding(Binding { namespace, name, role, subjects: vec![user] });
    policy
}
