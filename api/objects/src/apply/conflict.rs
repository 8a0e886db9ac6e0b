//! Apply conflicts: fields of other managers that an apply would change, and the 409 that reports them
//! (docs/api/apply.md#apply-conflicts).

use std::fmt::Write;

use super::managed::{Manager, ManagerOperation};
use values::field::{FieldSet, display, go_quote};
use values::status::{Cause, Status};

/// Fields of one other manager that an apply would change.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// Manager that owns the fields.
    pub manager: Manager<'static>,
    /// Fields of this manager that the apply would change.
    pub fields: FieldSet<'static>,
}

/// Conflicts, sorted by the identity of the manager.
#[derive(Clone, Debug)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    /// Creates the set of conflicts; `None` if the list is empty.
    pub fn from_list(mut conflicts: Vec<Conflict>) -> Option<Self> {
        conflicts.retain(|conflict| !conflict.fields.is_empty());
        conflicts.sort_by_cached_key(|conflict| conflict.manager.identity());
        (!conflicts.is_empty()).then_some(Conflicts(conflicts))
    }

    /// Returns all fields in conflict.
    pub fn fields(&self) -> FieldSet<'static> {
        self.0.iter().fold(FieldSet::new(), |all, conflict| all.union(conflict.fields.clone()))
    }

    /// Returns the conflicts without the fields in `allowed`.
    pub fn without(self, allowed: &FieldSet<'_>) -> Option<Self> {
        let left = |conflict: Conflict| Conflict { fields: conflict.fields.difference(allowed), ..conflict };
        Self::from_list(self.0.into_iter().map(left).collect())
    }

    /// Returns the 409 that names every field with its owner.
    pub fn to_status(&self) -> Status {
        let mut causes = Vec::new();
        let mut lines = String::new();
        for Conflict { manager, fields } in &self.0 {
            let owner = format_manager(manager);
            let _ = write!(lines, "\nconflicts with {owner}:");
            fields.for_each(&mut |path| {
                let field = display(path);
                let _ = write!(lines, "\n- {field}");
                let message = format!("conflict with {owner}");
                causes.push(Cause { reason: "FieldManagerConflict".to_owned(), message, field });
            });
        }
        let message = match causes.as_slice() {
            [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
            causes => format!("Apply failed with {} conflicts: {}", causes.len(), lines.trim_start()),
        };
        Status::apply_conflict(message, causes)
    }
}

/// Formats a manager for messages: `"name" with subresource "status" using apps/v1`.
fn format_manager(manager: &Manager<'_>) -> String {
    let mut text = go_quote(&manager.name);
    if !manager.subresource.is_empty() {
        let _ = write!(text, " with subresource {}", go_quote(&manager.subresource));
    }
    if manager.operation == ManagerOperation::Update {
        let _ = write!(text, " using {}", manager.api_version);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_messages_have_the_documented_texts() {
        let conflict =
            |name: &'static str, operation, subresource: &'static str, fields: &'static str| Conflict {
                manager: Manager {
                    name: name.into(),
                    operation,
                    api_version: "apps/v1".into(),
                    subresource: subresource.into(),
                },
                fields: FieldSet::parse(fields).unwrap(),
            };
        let one = conflict("hpa", ManagerOperation::Update, "", r#"{"f:spec":{"f:replicas":{}}}"#);
        let two = conflict(
            "a",
            ManagerOperation::Apply,
            "status",
            r#"{"f:spec":{"f:c":{"k:{\"name\":\"x\"}":{"f:image":{}}},"f:paused":{}}}"#,
        );
        let status = Conflicts::from_list(vec![one.clone()]).unwrap().to_status();
        assert_eq!(
            status.message,
            r#"Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas"#
        );
        assert_eq!((status.code.as_u16(), status.reason.as_str()), (409, "Conflict"));
        let both = Conflicts::from_list(vec![one, two]).unwrap();
        let status = both.to_status();
        assert_eq!(
            status.message,
            "Apply failed with 3 conflicts: conflicts with \"a\" with subresource \"status\":\n- .spec.paused\n\
             - .spec.c[name=\"x\"].image\nconflicts with \"hpa\" using apps/v1:\n- .spec.replicas"
        );
        let causes = status.details.clone().unwrap().causes;
        assert_eq!(causes[2].message, r#"conflict with "hpa" using apps/v1"#);
        assert_eq!(
            (causes[2].reason.as_str(), causes[2].field.as_str()),
            ("FieldManagerConflict", ".spec.replicas")
        );
        let allowed = FieldSet::of_fields(&["spec.replicas"]);
        assert_eq!(both.without(&allowed).unwrap().fields().len(), 2);
    }
}
