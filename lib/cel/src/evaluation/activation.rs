//! Inputs of one evaluation: the variables of the host, and the limits.

use crate::value::Value;

/// The host's variables of one evaluation. Each variable is read at most once per evaluation, when it is
/// needed.
pub trait Activation<'v> {
    /// Returns the value of a variable by its full name. A variable without a value is `None`, which is an
    /// error of the evaluation.
    fn variable(&self, name: &str) -> Option<Value<'v>>;
}

impl<'v> Activation<'v> for [(&str, Value<'v>)] {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

impl<'v, const N: usize> Activation<'v> for [(&str, Value<'v>); N] {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        self.as_slice().variable(name)
    }
}

impl<'v> Activation<'v> for Vec<(String, Value<'v>)> {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        self.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
}

/// The limits that end an evaluation early.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    /// Cost limit; the evaluation ends as soon as its cost exceeds the limit.
    pub cost: u64,
    /// Callback that is called regularly ([`Steps`](super::Steps)); if it returns true, the evaluation ends.
    /// Hosts check a deadline here.
    pub interrupted: &'l (dyn Fn() -> bool + Sync),
}

impl Limits<'_> {
    /// No limits, for expressions that are known to be small.
    pub const NONE: Limits<'static> = Limits { cost: u64::MAX, interrupted: &|| false };

    /// Creates limits with only a cost limit.
    pub const fn cost(cost: u64) -> Limits<'static> {
        Limits { cost, interrupted: &|| false }
    }
}
