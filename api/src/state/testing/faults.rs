//! Rules that cause selected requests to fail, to be delayed, or to read an earlier state.
//!
//! A rule lets its first `skip` matches pass, and then applies to the next `count` matches. If several rules apply to a
//! request, only the rule that was created first takes effect.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::pattern::{RequestPattern, RequestSubject};
use super::watches::WatchFault;

/// Maximum number of rules.
const RULES_MAX: usize = 256;

/// An error response of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InjectedError {
    /// HTTP status code, 400 to 599.
    pub code: StatusCode,
    /// Reason in the Status.
    pub reason: String,
    /// Message in the Status.
    pub message: String,
    /// Value of `Retry-After` and of `retryAfterSeconds`; 0 means unset.
    pub retry_after_s: u32,
}

/// The effect of a rule on a request. The effect replaces the response, or changes how the request is served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FaultEffect {
    /// The request is served normally. Rules that only delay requests have this effect.
    None,
    /// The request gets this response and is not served.
    Error(InjectedError),
    /// The response is aborted, and the request is not served.
    CloseBefore,
    /// The request is served, and its response is aborted, so that the client does not learn the result.
    CloseAfter,
    /// The request reads at this earlier point (docs/api/history.md#reading-the-past).
    Stale(String),
    /// The fault applies to a watch that has begun.
    Watch(WatchFault),
}

/// A rule as a client describes it.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// The requests to which the rule applies.
    pub pattern: RequestPattern,
    /// Number of matches that pass before the rule applies.
    pub skip: u64,
    /// Number of matches that the rule applies to; `None` for all matches.
    pub count: Option<u64>,
    /// Time for which a request is delayed before the effect applies.
    pub delay: Duration,
    /// The effect on a request.
    pub effect: FaultEffect,
    /// The rule as the client wrote it, for display.
    pub text: Value,
}

/// The rule that applies to a request.
#[derive(Clone, Debug)]
pub struct AppliedFault {
    /// Number of the rule.
    pub rule: u64,
    /// Time that the request waits before the effect.
    pub delay: Duration,
    /// The effect on the request.
    pub effect: FaultEffect,
}

struct CountedRule {
    id: u64,
    rule: FaultRule,
    matched: u64,
    applied: u64,
}

/// The rules of a server.
#[derive(Default)]
pub struct FaultRules(Mutex<Rules>);

#[derive(Default)]
struct Rules {
    last: u64,
    entries: Vec<CountedRule>,
}

impl FaultRules {
    /// Adds a rule and returns its description.
    ///
    /// # Errors
    /// Fails if the maximum number of rules is reached.
    pub fn add(&self, rule: FaultRule) -> Result<Value, String> {
        let mut rules = self.0.lock();
        if rules.entries.len() >= RULES_MAX {
            return Err(format!(
                "cannot add the rule: there are already {RULES_MAX} rules, which is the maximum; delete a rule first"
            ));
        }
        rules.last += 1;
        let entry = CountedRule { id: rules.last, rule, matched: 0, applied: 0 };
        let description = entry.to_value();
        rules.entries.push(entry);
        Ok(description)
    }

    /// Returns the descriptions of all rules, in their order.
    pub fn list(&self) -> Vec<Value> {
        self.0.lock().entries.iter().map(CountedRule::to_value).collect()
    }

    /// Returns the description of one rule.
    pub fn get(&self, id: u64) -> Option<Value> {
        self.0.lock().entries.iter().find(|entry| entry.id == id).map(CountedRule::to_value)
    }

    /// Removes one rule, and returns its last description.
    pub fn remove(&self, id: u64) -> Option<Value> {
        let mut rules = self.0.lock();
        let at = rules.entries.iter().position(|entry| entry.id == id)?;
        Some(rules.entries.remove(at).to_value())
    }

    /// Removes all rules and returns their number.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut self.0.lock().entries).len()
    }

    /// Returns the rule that applies to a request, and counts the request.
    pub fn apply(&self, subject: &RequestSubject<'_>) -> Option<AppliedFault> {
        let mut rules = self.0.lock();
        rules.entries.iter_mut().find_map(|entry| entry.apply(subject))
    }
}

impl CountedRule {
    fn apply(&mut self, subject: &RequestSubject<'_>) -> Option<AppliedFault> {
        if !self.rule.concerns(subject) {
            return None;
        }
        self.matched += 1;
        if self.matched <= self.rule.skip || self.rule.count.is_some_and(|count| self.applied >= count) {
            return None;
        }
        self.applied += 1;
        Some(AppliedFault { rule: self.id, delay: self.rule.delay, effect: self.rule.effect.clone() })
    }

    fn to_value(&self) -> Value {
        json!({ "id": self.id, "matched": self.matched, "applied": self.applied, "rule": self.rule.text })
    }
}

impl FaultRule {
    /// Returns whether a request matches the rule. Only watches match a rule for watches, and only reads match
    /// a rule for stale reads.
    fn concerns(&self, subject: &RequestSubject<'_>) -> bool {
        let fits = match self.effect {
            FaultEffect::Watch(_) => subject.verb == "watch",
            FaultEffect::Stale(_) => matches!(subject.verb, "get" | "list" | "watch"),
            _ => true,
        };
        fits && self.pattern.matches(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str, skip: u64, count: Option<u64>, effect: FaultEffect) -> FaultRule {
        let pattern = serde_json::from_str(pattern).unwrap();
        FaultRule { pattern, skip, count, delay: Duration::ZERO, effect, text: Value::Null }
    }

    #[test]
    fn a_fault_rule_applies_to_its_occurrences_and_the_first_due_rule_wins() {
        let rules = FaultRules::default();
        rules.add(rule(r#"{"verbs":["update"]}"#, 1, Some(2), FaultEffect::CloseBefore)).unwrap();
        rules.add(rule("{}", 0, Some(3), FaultEffect::CloseAfter)).unwrap();
        rules.add(rule("{}", 0, None, FaultEffect::Stale("-1s".to_owned()))).unwrap();
        let of = |verb| {
            let subject =
                RequestSubject { is_resource: true, verb, resource: "pods", ..RequestSubject::default() };
            rules.apply(&subject).map(|applied| applied.rule)
        };
        let seen = ["update", "update", "get", "update", "update", "update", "get"].map(of);
        assert_eq!(seen, [Some(2), Some(1), Some(2), Some(1), Some(2), None, Some(3)]);
        let counts = |id| rules.get(id).map(|shown| (shown["matched"].clone(), shown["applied"].clone()));
        assert_eq!(counts(1), Some((json!(5), json!(2))));
        assert_eq!((rules.remove(1).is_some(), rules.remove(1).is_some(), rules.clear()), (true, false, 2));
    }

    #[test]
    fn the_number_of_fault_rules_is_bounded() {
        let rules = FaultRules::default();
        for _ in 0..RULES_MAX {
            rules.add(rule("{}", 0, None, FaultEffect::None)).unwrap();
        }
        assert!(rules.add(rule("{}", 0, None, FaultEffect::None)).is_err());
    }
}
