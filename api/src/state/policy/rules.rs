//! Converts RBAC objects between their JSON form and the types of auth.
//!
//! Members of a wrong type count as absent, because stored objects were validated when they were written.

use auth::authz::{RoleRef, Rule, Subject};

use values::json::{Object, Value};

/// Reads the rules in the `rules` member of a role.
pub fn read_rules(rules: Option<&Value>) -> Vec<Rule> {
    rules.and_then(Value::as_array).unwrap_or_default().iter().map(read_rule).collect()
}

fn read_rule(rule: &Value) -> Rule {
    let list = |member: &str| -> Vec<String> {
        let items = rule.get(member).and_then(Value::as_array).unwrap_or_default();
        items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    Rule {
        api_groups: list("apiGroups"),
        resources: list("resources"),
        verbs: list("verbs"),
        resource_names: list("resourceNames"),
        non_resource_urls: list("nonResourceURLs"),
    }
}

/// Returns the JSON form of a rule. Empty lists are left out, except for the verbs.
pub fn write_rule(rule: &Rule) -> Value {
    let mut members = Object::with_capacity(4);
    members.push("verbs", rule.verbs.as_slice().into());
    for (name, items) in [
        ("apiGroups", &rule.api_groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.resource_names),
        ("nonResourceURLs", &rule.non_resource_urls),
    ] {
        if !items.is_empty() {
            members.push(name, items.as_slice().into());
        }
    }
    members.into()
}

/// Reads the role in the `roleRef` member of a binding.
pub fn read_role_ref(role_ref: Option<&Value>) -> RoleRef {
    let text = |member: &str| role_ref.map_or("", |role| role.str_at(&[member])).to_owned();
    RoleRef { api_group: text("apiGroup"), kind: text("kind"), name: text("name") }
}

/// Reads the subjects of a binding.
pub fn read_subjects(binding: &Value) -> Vec<Subject> {
    let subjects = binding.get("subjects").and_then(Value::as_array).unwrap_or_default();
    let read = |subject: &Value| {
        let text = |member: &str| subject.str_at(&[member]).to_owned();
        Subject {
            kind: text("kind"),
            api_group: text("apiGroup"),
            name: text("name"),
            namespace: text("namespace"),
        }
    };
    subjects.iter().map(read).collect()
}
