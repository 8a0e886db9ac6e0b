//! Rules for limit ranges and resource quotas.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use quantity::Quantity;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use super::resources;
use values::json::Value;

/// Checks the limits in a limit range. Each type may occur once.
pub(super) fn limit_range(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let limits = path.child("limits");
    let mut seen = HashSet::new();
    for (at, limit) in spec.structs("limits").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = limits.index(at);
        let kind = limit.text("type");
        let faults = names::qualified(kind);
        if !faults.is_empty() {
            validator.refuse(&place.child("type"), kind, faults);
        } else if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            let detail = "must be a standard limit type or fully qualified";
            validator.invalid(place.child("type"), kind, detail);
        }
        if !seen.insert(kind) {
            validator.duplicate(place.child("type"), kind);
        }
        limit_item(validator, &place, limit);
    }
}

fn limit_item(validator: &mut Validator, path: &FieldPath, limit: StructView) {
    let kind = limit.text("type");
    let mut keys = BTreeSet::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let place = path.child(list);
        if kind == "Pod" && list.starts_with("default") {
            if limit.map(list).next().is_some() {
                validator.forbidden(place, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, _) in limit.map(list) {
            if validator.has_enough() {
                return;
            }
            keys.insert(name);
            if matches!(kind, "Pod" | "Container") {
                resources::container_name(validator, &place.key(name), name);
            } else {
                resources::name(validator, &place.key(name), name);
            }
        }
    }
    let bounds_storage = ["min", "max"].iter().any(|list| limit.child(list).has("storage"));
    if kind == "PersistentVolumeClaim" && !bounds_storage {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        validator.required(path.child("limits"), detail);
    }
    for name in keys {
        if validator.has_enough() {
            return;
        }
        in_order(validator, path, limit, name);
    }
}

/// Checks that the minimum, the default and the maximum of a resource are in ascending order.
fn in_order(validator: &mut Validator, path: &FieldPath, limit: StructView, name: &str) {
    let of = |list: &str| limit.child(list).quantity(name);
    let pod = limit.text("type") == "Pod";
    let (min, max) = (of("min"), of("max"));
    let default = of("default").filter(|_| !pod);
    let request = of("defaultRequest").filter(|_| !pod);
    let ratio = of("maxLimitRequestRatio");
    // The columns are: lower amount, name of the lower amount, upper amount, name of the upper amount, list in the
    // error, value in the error.
    let pairs = [
        (min, "min", max, "max", "min", min),
        (min, "min", request, "default request", "defaultRequest", request),
        (request, "default request", max, "max", "defaultRequest", request),
        (request, "default request", default, "default limit", "defaultRequest", request),
        (min, "min", default, "default", "default", min),
        (default, "default", max, "max", "default", max),
    ];
    for (lower, lower_name, upper, upper_name, list, shown) in pairs {
        let (Some(lower), Some(upper), Some(shown)) = (lower, upper, shown) else { continue };
        if lower > upper {
            let detail = format!(
                "{lower_name} value {} is greater than {upper_name} value {}",
                lower.to_text(),
                upper.to_text()
            );
            let list = path.child(list);
            validator.invalid(list.key(name), shown.to_text(), detail);
        }
    }
    if let Some(ratio) = ratio {
        let list = path.child("maxLimitRequestRatio");
        let one = Quantity::parse("1").unwrap_or(Quantity::ZERO);
        if ratio < one {
            let detail = format!("ratio {} is less than 1", ratio.to_text());
            validator.invalid(list.key(name), ratio.to_text(), detail);
        }
        if let (Some(min), Some(max)) = (min, max)
            && ratio.to_f64() > max.to_f64() / min.to_f64()
        {
            let detail = format!(
                "ratio {} is greater than max/min = {:.6}",
                ratio.to_text(),
                max.to_f64() / min.to_f64()
            );
            validator.invalid(list.key(name), ratio.to_text(), detail);
        }
    }
    if let (Some(default), Some(request)) = (default, request)
        && !resources::allows_overcommit(validator.naming, name)
        && default != request
    {
        let detail = format!(
            "default value {} must equal to defaultRequest value {} in {name}",
            default.to_text(),
            request.to_text()
        );
        let list = path.child("defaultRequest");
        validator.invalid(list.key(name), request.to_text(), detail);
    }
}

const CONFLICTS: [(&str, &str); 2] = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];

/// Checks a resource quota.
pub(super) fn resource_quota(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let hard = path.child("hard");
    for (name, amount) in spec.map("hard") {
        if validator.has_enough() {
            return;
        }
        resources::quota_name(validator, &hard.key(name), name);
        resources::amount(validator, &hard.key(name), name, amount);
    }
    let place = path.child("scopes");
    let all = || spec.get("scopes").cloned().unwrap_or(Value::Array(Vec::new()));
    let (mut scopes, mut unfit) = (HashSet::new(), Unfit::new(spec));
    for scope in spec.texts("scopes") {
        if validator.has_enough() {
            return;
        }
        if !is_scope(scope) {
            validator.invalid(place, all(), "unsupported scope");
        }
        for _ in 0..unfit.count(scope) {
            if validator.has_enough() {
                return;
            }
            validator.invalid(place, all(), "unsupported scope applied to resource");
        }
        scopes.insert(scope);
    }
    refuse_conflicts(validator, &place, &scopes, all);
    scope_selector(validator, path, spec, unfit);
}

fn refuse_conflicts(
    validator: &mut Validator,
    path: &FieldPath,
    scopes: &HashSet<&str>,
    all: impl Fn() -> Value,
) {
    for (one, other) in CONFLICTS {
        if scopes.contains(one) && scopes.contains(other) {
            validator.invalid(path, all(), "conflicting scopes");
        }
    }
}

fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity"
            | "VolumeAttributesClass"
    )
}

/// Counted resources to which a scope does not apply, by scope. Lists may repeat a scope, so the result for
/// each scope is computed once and cached.
struct Unfit<'v> {
    spec: StructView<'v>,
    by_scope: HashMap<&'v str, usize>,
}

impl<'v> Unfit<'v> {
    fn new(spec: StructView<'v>) -> Self {
        Unfit { spec, by_scope: HashMap::new() }
    }

    fn count(&mut self, scope: &'v str) -> usize {
        if !is_scope(scope) {
            return 0;
        }
        *self.by_scope.entry(scope).or_insert_with(|| unfit(self.spec, scope).count())
    }
}

/// Returns the counted resources to which a scope does not apply.
fn unfit<'v>(spec: StructView<'v>, scope: &str) -> impl Iterator<Item = &'v str> + use<'v> {
    let fits: fn(&str) -> bool = match scope {
        "BestEffort" => |name| name == "pods",
        "VolumeAttributesClass" => |name| matches!(name, "persistentvolumeclaims" | "requests.storage"),
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => is_of_pods,
        _ => |_| true,
    };
    spec.map("hard").map(|(name, _)| name).filter(move |name| resources::is_quota(name) && !fits(name))
}

/// Returns whether this resource of a quota is consumed by pods.
fn is_of_pods(name: &str) -> bool {
    let bare = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    name == "pods" || matches!(bare, "cpu" | "memory")
}

fn scope_selector<'v>(
    validator: &mut Validator,
    path: &FieldPath,
    spec: StructView<'v>,
    mut unfit: Unfit<'v>,
) {
    let selector = spec.child("scopeSelector");
    let selector_path = path.child("scopeSelector");
    let list = selector_path.child("matchExpressions");
    let mut scopes = HashSet::new();
    for expression in selector.structs("matchExpressions") {
        if validator.has_enough() {
            return;
        }
        let (scope, operator) = (expression.text("scopeName"), expression.text("operator"));
        if !is_scope(scope) {
            validator.invalid(list.child("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..unfit.count(scope) {
            if validator.has_enough() {
                return;
            }
            let detail = "unsupported scope applied to resource";
            validator.invalid_from(list, "spec.scopeSelector", selector.to_value(), detail);
        }
        let has_no_values = !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if is_scope(scope) && has_no_values && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            validator.invalid(list.child("operator"), operator, detail);
        }
        let values = expression.items("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                validator.required(list.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                validator.invalid(list.child("values"), Value::Array(values.to_vec()), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => validator.invalid(list.child("operator"), other, "not a valid selector operator"),
        }
        scopes.insert(scope);
    }
    // As in the reference server, the error contains the other list of scopes.
    refuse_conflicts(validator, &list, &scopes, || spec.get("scopes").cloned().unwrap_or_default());
}
