//! The rule for the requests that a webhook or an admission policy matches.

use hashbrown::HashSet;

use super::super::path::Path;
use super::super::{Validator, names};
use super::View;
use super::common::Seen;

/// The requests that a webhook or policy matches.
pub(super) fn rule(validator: &mut Validator, path: &Path, rule: View) {
    for (list, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let place = path.child(list);
        let items = rule.texts(list);
        if items.len() == 0 {
            validator.required(place, "");
        }
        if items.len() > 1 && items.clone().any(|item| item == "*") {
            let value = rule.get(list).cloned().unwrap_or_default();
            let detail = format!("if '*' is present, must not specify other {what}");
            validator.invalid(place, value, detail);
        }
        for (at, item) in items.enumerate() {
            if item.is_empty() && list != "apiGroups" && !validator.has_enough() {
                validator.required(place.index(at), "");
            }
        }
    }
    let names_path = path.child("resourceNames");
    let mut seen = Seen::new();
    for (at, name) in rule.texts("resourceNames").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = names_path.index(at);
        validator.refuse(&place, name, names::path_segment(name));
        if !seen.insert(name) {
            validator.duplicate(place, name);
        }
    }
    let place = path.child("resources");
    let resources = rule.texts("resources");
    if resources.len() == 0 {
        validator.required(place, "");
    }
    let all: HashSet<&str> = resources.clone().collect();
    let shown = || rule.get("resources").cloned().unwrap_or_default();
    if all.len() > 1 && all.contains("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        validator.invalid(place, shown(), detail);
    }
    if all.contains("*") && all.iter().any(|one| *one != "*" && !one.contains('/')) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        validator.invalid(place, shown(), detail);
    }
    for (at, resource) in resources.enumerate() {
        if validator.has_enough() {
            return;
        }
        if resource.is_empty() {
            validator.required(place.index(at), "");
        } else if let Some((main, sub)) = resource.split_once('/') {
            for (wide, is_covered) in [(format!("*/{sub}"), main != "*"), (format!("{main}/*"), sub != "*")] {
                if is_covered && all.contains(wide.as_str()) {
                    let detail = format!("if '{wide}' is present, must not specify {resource}");
                    validator.invalid(place.index(at), resource, detail);
                }
            }
        }
    }
}
