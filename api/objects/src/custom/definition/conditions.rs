//! The state of a definition, which its conditions express.
//!
//! ```text
//! names granted ─► NamesAccepted ─► Established, permanently
//! deleted       ─► Terminating: pending ─► in progress ─► completed
//! ```
//!
//! Conditions keep the order of their first appearance, and the time at which their status last changed.

use super::approval::{self, Approval};
use super::naming::{ESTABLISHED, NAMES_ACCEPTED, TakenNames, grant};
use super::{Condition, Definition, Names};
use values::json::{Object, Value};
use values::naming::Naming;

/// Type of the condition that reports the approval of a custom type. The condition exists only in protected
/// groups.
pub const APPROVAL_CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";

/// Type of the condition that reports a schema that is not structural.
pub const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// Type of the condition that reports the deletion of the objects of a deleted definition.
pub const TERMINATING: &str = "Terminating";

/// Returns the finalizer that keeps a deleted definition until its objects are deleted.
pub fn finalizer(naming: &Naming) -> String {
    format!("customresourcecleanup.{}", naming.group("apiextensions", true))
}

/// Facts about a definition that are not in the definition itself or in the names in use.
#[derive(Clone, Debug, Default)]
pub struct Findings<'f> {
    /// Content of the approval annotation; `None` if the group is not protected.
    pub approval: Option<Approval<'f>>,
    /// Reasons why schemas are not structural, as one text.
    pub violations: Option<String>,
    /// Whether the CA bundle of the conversion webhook is invalid.
    pub bad_bundle: bool,
}

/// The part of a definition's status that the server derives.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    /// Names that the definition was granted.
    pub accepted: Names,
    /// Conditions, in the order of their first appearance.
    pub conditions: Vec<Condition>,
}

impl State {
    /// Returns the stored state of a definition.
    pub fn from_definition(definition: &Definition) -> State {
        State { accepted: definition.accepted.clone(), conditions: definition.conditions.clone() }
    }

    /// Sets a condition. The time of the condition becomes `now` if its status changes.
    pub fn set(&mut self, condition: Condition, now: &str) {
        match self.conditions.iter_mut().find(|other| other.kind == condition.kind) {
            None => {
                let last_transition_time = now.to_owned();
                self.conditions.push(Condition { last_transition_time, ..condition });
            }
            Some(old) => {
                let keeps_time = old.status == condition.status && !old.last_transition_time.is_empty();
                let time =
                    if keeps_time { std::mem::take(&mut old.last_transition_time) } else { now.to_owned() };
                *old = Condition { last_transition_time: time, ..condition };
            }
        }
    }

    /// Writes the state into the status of the definition's object.
    pub fn write(&self, object: &mut Object) {
        let status = object.object_entry("status");
        let conditions = self.conditions.iter().map(Condition::to_value).collect();
        status.insert("conditions", Value::Array(conditions));
        status.insert("acceptedNames", self.accepted.to_value());
    }
}

/// Reason while a definition is not yet established.
const INSTALLING: &str = "Installing";

/// Returns the state that a stored definition should have. The server grants the names and establishes the
/// definition in one step, because there is a single server.
pub fn derive(
    naming: &Naming,
    definition: &Definition,
    taken: &TakenNames,
    findings: &Findings,
    now: &str,
) -> State {
    let mut state = State::from_definition(definition);
    if let Some(approval) = &findings.approval {
        let reason = approval.reason(&approval::annotation(naming));
        let (status, why) = match approval {
            Approval::Approved(_) => ("True", "ApprovedAnnotation"),
            Approval::Bypassed(_) => ("False", "UnapprovedAnnotation"),
            Approval::Missing => ("False", "MissingAnnotation"),
            Approval::Invalid(_) => ("False", "InvalidAnnotation"),
        };
        state.change(Condition::new(APPROVAL_CONFORMANT, status, why, reason), now);
    }
    match &findings.violations {
        Some(violations) => {
            state.change(Condition::new(NON_STRUCTURAL, "True", "Violations", violations.as_str()), now);
        }
        None => state.conditions.retain(|condition| condition.kind != NON_STRUCTURAL),
    }
    let granted = grant(definition, taken);
    let is_judged = granted.is_some();
    if let Some((names, condition)) = granted {
        state.accepted = names;
        state.change(condition, now);
    }
    let is = |kind: &str| state.conditions.iter().any(|other| other.kind == kind && other.status == "True");
    if !is(ESTABLISHED) {
        let condition = match (is(NAMES_ACCEPTED), findings.bad_bundle) {
            (false, _) if !is_judged => return state,
            (false, _) => Condition::new(ESTABLISHED, "False", "NotAccepted", "not all names are accepted"),
            (true, true) => Condition::new(
                ESTABLISHED,
                "False",
                "InvalidCABundle",
                "The conversion webhook CABundle is invalid",
            ),
            (true, false) => Condition::new(
                ESTABLISHED,
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        };
        state.change(condition, now);
    }
    state
}

impl State {
    /// Returns the intermediate state for which clients wait: the names are granted, and the types are about
    /// to be served. Returns `None` if the state does not establish the definition, or if the definition
    /// already has such a condition.
    pub fn installing(&self, definition: &Definition) -> Option<State> {
        let is_established = self.conditions.iter().position(|other| other.kind == ESTABLISHED);
        let at = is_established.filter(|at| self.conditions[*at].status == "True")?;
        let before = definition.condition(ESTABLISHED);
        if before.is_some_and(|before| before.status == "True" || before.reason == INSTALLING) {
            return None;
        }
        let mut state = self.clone();
        state.conditions[at].status = "False".to_owned();
        state.conditions[at].reason = INSTALLING.to_owned();
        Some(state)
    }

    /// Sets a condition, except if an equal condition exists.
    fn change(&mut self, condition: Condition, now: &str) {
        if !self
            .conditions
            .iter()
            .any(|old| old.kind == condition.kind && old.is_same_except_times(&condition))
        {
            self.set(condition, now);
        }
    }
}

/// Progress of the deletion of a definition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Deletion {
    /// The deletion was requested and has not begun.
    Pending,
    /// Objects are being deleted.
    InProgress,
    /// All objects are deleted.
    Completed,
    /// Objects could not be deleted; contains the reason.
    Failed(String),
    /// The server could not check whether objects remain; contains the reason.
    Unchecked(String),
    /// The definition was never established, so there are no objects.
    NeverEstablished,
    /// The objects belong to a built-in type and are not deleted.
    BuiltIn,
}

impl Deletion {
    /// Returns the condition for this progress.
    pub fn condition(&self) -> Condition {
        let of =
            |status: &str, reason: &str, message: &str| Condition::new(TERMINATING, status, reason, message);
        match self {
            Deletion::Pending => of(
                "True",
                "InstanceDeletionPending",
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            ),
            Deletion::InProgress => {
                of("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            }
            Deletion::Completed => of("False", "InstanceDeletionCompleted", "removed all instances"),
            Deletion::Failed(why) => {
                of("True", "InstanceDeletionFailed", &format!("could not issue all deletes: {why}"))
            }
            Deletion::Unchecked(why) => of(
                "True",
                "InstanceDeletionCheck",
                &format!("could not confirm zero CustomResources remaining: {why}"),
            ),
            Deletion::NeverEstablished => of("False", "NeverEstablished", "resource was never established"),
            Deletion::BuiltIn => of(
                "False",
                "OverlappingBuiltInResource",
                "instances overlap with built-in resources in storage",
            ),
        }
    }
}

impl Condition {
    /// Creates a condition whose time is not set yet.
    pub fn new(kind: &str, status: &str, reason: &str, message: impl Into<String>) -> Condition {
        let message = message.into();
        let [kind, status, reason] = [kind, status, reason].map(str::to_owned);
        Condition { kind, status, reason, message, last_transition_time: String::new() }
    }

    /// Returns whether both conditions are equal except for their times.
    pub fn is_same_except_times(&self, other: &Condition) -> bool {
        (&self.status, &self.reason, &self.message) == (&other.status, &other.reason, &other.message)
    }

    fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.push("type", self.kind.as_str().into());
        object.push("status", self.status.as_str().into());
        let time = self.last_transition_time.as_str();
        object.push("lastTransitionTime", if time.is_empty() { Value::Null } else { time.into() });
        for (name, text) in [("reason", &self.reason), ("message", &self.message)] {
            if !text.is_empty() {
                object.push(name, text.as_str().into());
            }
        }
        object.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;
    use values::testing::object;

    fn condition_texts(state: &State) -> Vec<String> {
        let show = |condition: &Condition| {
            let Condition { kind, status, reason, last_transition_time, .. } = condition;
            format!("{kind}={status} {reason} @{last_transition_time}")
        };
        state.conditions.iter().map(show).collect()
    }

    fn definition(names: &str) -> Definition {
        Definition::read(&object(&format!(r#"{{"spec":{{"group":"g.example","names":{names}}}}}"#)))
    }

    #[test]
    fn a_type_is_established_when_its_names_are_accepted_and_remains_established() {
        let mut definition = definition(r#"{"plural":"as","kind":"A"}"#);
        let mut taken = TakenNames::default();
        taken.add(&Names { kind: "A".to_owned(), ..Names::default() });
        let none = Findings::default();
        let state = derive(&KUBERNETES, &definition, &taken, &none, "1");
        assert_eq!(
            condition_texts(&state),
            ["NamesAccepted=False KindConflict @1", "Established=False NotAccepted @1"]
        );
        (definition.accepted, definition.conditions) = (state.accepted, state.conditions);
        assert_eq!(State::from_definition(&definition), derive(&KUBERNETES, &definition, &taken, &none, "2"));

        let state = derive(&KUBERNETES, &definition, &TakenNames::default(), &none, "3");
        let established = ["NamesAccepted=True NoConflicts @3", "Established=True InitialNamesAccepted @3"];
        assert_eq!(condition_texts(&state), established);
        assert_eq!(state.accepted, definition.names);
        (definition.accepted, definition.conditions) = (state.accepted, state.conditions);

        definition.names.kind = "B".to_owned();
        taken.add(&Names { kind: "B".to_owned(), ..Names::default() });
        let state = derive(&KUBERNETES, &definition, &taken, &none, "4");
        assert_eq!(
            condition_texts(&state),
            ["NamesAccepted=False KindConflict @4", "Established=True InitialNamesAccepted @3"]
        );
        assert_eq!(state.accepted.kind, "A");
    }

    #[test]
    fn names_that_equal_the_accepted_names_are_not_checked_again() {
        let mut definition = definition(r#"{"plural":"as","kind":"A"}"#);
        definition.accepted = definition.names.clone();
        let none = Findings::default();
        let state = derive(&KUBERNETES, &definition, &TakenNames::default(), &none, "1");
        assert_eq!(condition_texts(&state), Vec::<String>::new());
    }

    #[test]
    fn approval_schema_and_bundle_findings_have_their_own_conditions() {
        let mut definition = definition(r#"{"plural":"as","kind":"A"}"#);
        let findings = Findings {
            approval: Some(Approval::Bypassed("unapproved")),
            violations: Some("bad".to_owned()),
            bad_bundle: true,
        };
        let state = derive(&KUBERNETES, &definition, &TakenNames::default(), &findings, "1");
        assert_eq!(
            condition_texts(&state),
            [
                "KubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation @1",
                "NonStructuralSchema=True Violations @1",
                "NamesAccepted=True NoConflicts @1",
                "Established=False InvalidCABundle @1"
            ]
        );
        (definition.accepted, definition.conditions) = (state.accepted, state.conditions);
        let state = derive(&KUBERNETES, &definition, &TakenNames::default(), &Findings::default(), "2");
        assert_eq!(
            condition_texts(&state),
            [
                "KubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation @1",
                "NamesAccepted=True NoConflicts @1",
                "Established=True InitialNamesAccepted @2"
            ]
        );
    }

    #[test]
    fn a_state_is_written_into_the_status_of_the_definition() {
        let mut state = State { accepted: Names::default(), conditions: Vec::new() };
        state.set(Deletion::Completed.condition(), "2024-01-01T00:00:00Z");
        let mut target =
            object(r#"{"status":{"conditions":null,"acceptedNames":null,"storedVersions":["v1"]}}"#);
        state.write(&mut target);
        let want = r#"{"status":{"conditions":[{"type":"Terminating","status":"False",
            "lastTransitionTime":"2024-01-01T00:00:00Z","reason":"InstanceDeletionCompleted",
            "message":"removed all instances"}],"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}}"#;
        assert_eq!(target, object(want));
    }
}
