//! Role aggregation: a pure function from all cluster roles to the aggregated roles whose rules changed.

use std::collections::BTreeMap;

use auth::authz::Rule;
use auth::authz::aggregation::{Candidate, LabelSelector, Requirement, settle};

use super::rules::{read_rules, write_rule};
use values::json::{Object, Value};

/// Returns the cluster roles that have an aggregation rule and stale `rules`: the position of each role, and
/// the `rules` to write. After these roles are written, another call returns no roles.
pub fn aggregated(cluster_roles: &[Value]) -> Vec<(usize, Value)> {
    let mut candidates: Vec<Candidate<'_, Rule>> = cluster_roles
        .iter()
        .map(|role| Candidate {
            name: role.str_at(&["metadata", "name"]),
            labels: labels_of(role),
            selectors: selectors_of(role),
            rules: read_rules(role.get("rules")),
        })
        .collect();
    let changed = settle(&mut candidates);
    let rules = |at: usize| Value::Array(candidates[at].rules.iter().map(write_rule).collect());
    changed.into_iter().map(|at| (at, rules(at))).collect()
}

/// Returns the aggregation rule of a cluster role, if it has one.
pub fn selectors_of(role: &Value) -> Option<Vec<LabelSelector>> {
    let selectors = role.at(&["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array)?;
    Some(selectors.iter().map(read_selector).collect())
}

/// Returns the labels of an object.
pub fn labels_of(role: &Value) -> BTreeMap<&str, &str> {
    let labels = role.at(&["metadata", "labels"]).and_then(Value::as_object);
    let members = labels.into_iter().flat_map(Object::iter);
    members.filter_map(|(name, value)| Some((name, value.as_str()?))).collect()
}

fn read_selector(selector: &Value) -> LabelSelector {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    let match_labels = labels.into_iter().flat_map(Object::iter);
    LabelSelector {
        match_labels: match_labels
            .filter_map(|(name, value)| Some((name.to_owned(), value.as_str()?.to_owned())))
            .collect(),
        match_expressions: expressions.iter().map(read_requirement).collect(),
    }
}

fn read_requirement(expression: &Value) -> Requirement {
    let values = expression.get("values").and_then(Value::as_array).unwrap_or_default();
    Requirement {
        key: expression.str_at(&["key"]).to_owned(),
        operator: expression.str_at(&["operator"]).to_owned(),
        values: values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}
