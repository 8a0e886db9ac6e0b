//! Rule for the requests that a webhook or an admission policy matches.

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use super::common::SeenStrings;
use values::json::Value;

/// Checks the requests that a webhook or policy matches.
pub(super) fn rule(validator: &mut Validator, path: &FieldPath, rule: StructView) {
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
            if item.is_empty() && list == "apiVersions" && !validator.has_enough() {
                validator.required(place.index(at), "");
            }
        }
    }
    let names_path = path.child("resourceNames");
    let mut seen = SeenStrings::new();
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
    if resources.len() > 1 && resources.clone().any(|one| one == "*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        validator.invalid(place, resources_value(rule), detail);
    }
    // Only the last resource without a subresource is considered.
    let last = resources.clone().filter(|one| !one.is_empty() && !one.contains('/')).last();
    if last.is_some_and(|last| last != "*") && resources.clone().any(|one| one == "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        validator.invalid(place, resources_value(rule), detail);
    }
    self::resources(validator, &path.child("resources"), rule);
}

fn resources_value(rule: StructView) -> Value {
    rule.get("resources").cloned().unwrap_or_default()
}

/// Checks each resource alone, and in relation to the wildcards before it.
fn resources(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    let (mut with_all_subresources, mut of_all_resources) = (HashSet::new(), HashSet::new());
    for (at, resource) in rule.texts("resources").enumerate() {
        if validator.has_enough() {
            return;
        }
        if resource.is_empty() {
            validator.required(path.index(at), "");
        }
        let Some((main, sub)) = resource.split_once('/') else { continue };
        for (wide, is_covered) in [
            (format!("{main}/*"), with_all_subresources.contains(main)),
            (format!("*/{sub}"), of_all_resources.contains(sub)),
        ] {
            if is_covered {
                let detail = format!("if '{wide}' is present, must not specify {resource}");
                validator.invalid(path.index(at), resource, detail);
            }
        }
        if sub == "*" {
            with_all_subresources.insert(main);
        }
        if main == "*" {
            of_all_resources.insert(sub);
        }
    }
}
