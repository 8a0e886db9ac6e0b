//! Conditions in the status of objects (Kubernetes API conventions, "Typical status properties").

use values::clock;
use values::json::{Object, Value};

/// A condition of a status.
pub(super) struct Condition<'c> {
    pub kind: &'c str,
    pub status: &'c str,
    pub reason: &'c str,
    pub message: &'c str,
}

impl Condition<'_> {
    /// Returns whether a list contains this condition.
    pub fn is_in(&self, list: &[Value]) -> bool {
        let held = list.iter().find(|held| held.str_at(&["type"]) == self.kind);
        held.is_some_and(|held| {
            [("status", self.status), ("reason", self.reason), ("message", self.message)]
                .iter()
                .all(|(member, text)| held.str_at(&[member]) == *text)
        })
    }

    /// Returns the condition as an object. If `list` has a condition of the same type and with the same status, the
    /// object keeps the transition time of that condition.
    pub fn object(&self, list: &[Value]) -> Object {
        let held = list.iter().find(|held| held.str_at(&["type"]) == self.kind);
        let since = held.filter(|held| held.str_at(&["status"]) == self.status);
        let since = since.map(|held| held.str_at(&["lastTransitionTime"])).filter(|time| !time.is_empty());
        let since = since.map_or_else(clock::now, str::to_owned);
        let members = [
            ("type", self.kind),
            ("status", self.status),
            ("lastTransitionTime", &since),
            ("reason", self.reason),
            ("message", self.message),
        ];
        Object::from_iter(members.map(|(name, text)| (name.into(), text.into())))
    }

    /// Sets the condition in a list. A condition of the same type is replaced at its position.
    pub fn put(&self, list: &mut Vec<Value>) {
        let condition = self.object(list).into();
        match list.iter_mut().find(|held| held.str_at(&["type"]) == self.kind) {
            Some(held) => *held = condition,
            None => list.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    #[test]
    fn a_condition_keeps_its_position_and_transition_time_while_its_status_is_unchanged() {
        let list = br#"[{"type":"A","status":"True","lastTransitionTime":"2001-01-01T00:00:00Z","reason":"r","message":"m"},{"type":"B"}]"#;
        let Value::Array(mut list) = json::parse(list).unwrap() else { panic!("a list") };
        let mut condition = Condition { kind: "A", status: "True", reason: "r", message: "m" };
        assert!(condition.is_in(&list));
        condition.message = "other";
        assert!(!condition.is_in(&list));
        condition.put(&mut list);
        let shown = |list: &[Value]| -> Vec<String> {
            list.iter()
                .map(|held| ["type", "status", "message"].map(|m| held.str_at(&[m])).join(" "))
                .collect()
        };
        assert_eq!(shown(&list), ["A True other", "B  "]);
        assert_eq!(list[0].str_at(&["lastTransitionTime"]), "2001-01-01T00:00:00Z");
        condition.status = "False";
        condition.put(&mut list);
        assert_ne!(list[0].str_at(&["lastTransitionTime"]), "2001-01-01T00:00:00Z");
        Condition { kind: "C", ..condition }.put(&mut list);
        assert_eq!(shown(&list), ["A False other", "B  ", "C False other"]);
    }
}
