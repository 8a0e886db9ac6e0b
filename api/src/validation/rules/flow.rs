//! Rules for flow schemas and priority level configurations.

use super::super::path::Path;
use super::super::{Validator, names};
use super::View;

const QUEUES_MAX: i64 = 10_000_000;

/// One rule of a flow schema reaches something.
pub(super) fn rule(validator: &mut Validator, path: &Path, rule: View) {
    if rule.items("resourceRules").is_empty() && rule.items("nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        validator.required(path, detail);
    }
}

/// A subject whose requests match, named by its kind.
pub(super) fn subject(validator: &mut Validator, path: &Path, subject: View) {
    let members = [("User", "user"), ("Group", "group"), ("ServiceAccount", "serviceAccount")];
    let kind = subject.text("kind");
    let Some((_, own)) = members.into_iter().find(|(name, _)| *name == kind) else {
        if !kind.is_empty() {
            validator.not_supported(path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
        }
        return;
    };
    if !subject.has(own) {
        let detail = format!("{own} is required when subject kind is '{kind}'");
        validator.required(path.child(own), &detail);
    }
    for (name, other) in members.into_iter().filter(|(_, member)| *member != own && subject.has(member)) {
        let detail = format!("{other} is forbidden when subject kind is not '{name}'");
        validator.forbidden(path.child(other), detail);
    }
    let account = subject.child("serviceAccount");
    let place = path.child("serviceAccount");
    if own == "serviceAccount" && account.is_there() {
        let (name, namespace) = (account.text("name"), account.text("namespace"));
        if !matches!(name, "" | "*") {
            validator.refuse(&place.child("name"), name, names::subdomain(name));
        }
        if !namespace.is_empty() {
            validator.refuse(&place.child("namespace"), namespace, names::label(namespace));
        }
    }
}

/// The resource part of a rule.
pub(super) fn resources(validator: &mut Validator, path: &Path, rule: View) {
    for (list, what) in [("verbs", "verbs"), ("apiGroups", "api groups"), ("resources", "resources")] {
        wildcard_alone(validator, &path.child(list), rule, list, what);
    }
    if rule.items("namespaces").is_empty() && !rule.is_true("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        validator.required(path.child("namespaces"), detail);
    }
    let place = path.child("namespaces");
    wildcard_alone(validator, &place, rule, "namespaces", "namespaces");
    for (at, name) in rule.texts("namespaces").enumerate() {
        if name != "*" && !validator.has_enough() {
            validator.refuse(&place.index(at), name, names::label(name));
        }
    }
}

/// The non-resource part of a rule.
pub(super) fn paths(validator: &mut Validator, path: &Path, rule: View) {
    wildcard_alone(validator, &path.child("verbs"), rule, "verbs", "verbs");
    let place = path.child("nonResourceURLs");
    wildcard_alone(validator, &place, rule, "nonResourceURLs", "non-resource urls");
    for (at, url) in rule.texts("nonResourceURLs").enumerate() {
        if validator.has_enough() {
            return;
        }
        let detail = match url {
            "*" | "/" | "/*" => continue,
            "" => "must not be empty",
            _ if !url.starts_with('/') => "must start with slash",
            _ if url.contains(' ') => "must not contain white-space",
            _ if url.contains("//") => "must not contain double slash",
            _ => {
                let bare = url.strip_suffix("/*").unwrap_or(url);
                if !bare.contains('*') {
                    continue;
                }
                "wildcard can only do suffix matching"
            }
        };
        validator.invalid(place.index(at), url, detail);
    }
}

fn wildcard_alone(validator: &mut Validator, path: &Path, rule: View, list: &str, what: &str) {
    let items = rule.texts(list);
    if items.len() > 1 && items.clone().any(|item| item == "*") {
        let value = rule.get(list).cloned().unwrap_or_default();
        let detail = format!("if '*' is present, must not specify other {what}");
        validator.invalid(path, value, detail);
    }
}

pub(super) fn level(validator: &mut Validator, path: &Path, spec: View) {
    let (limited, exempt) = (path.child("limited"), path.child("exempt"));
    match spec.text("type") {
        "Exempt" => {
            if spec.has("limited") {
                validator.forbidden(limited, "must be nil if the type is not Limited");
            }
        }
        "Limited" => {
            if spec.has("exempt") {
                validator.forbidden(exempt, "must be nil if the type is Limited");
            }
            if !spec.has("limited") {
                validator.required(limited, "must not be empty when type is Limited");
            }
        }
        "" => {}
        other => validator.not_supported(path.child("type"), other, &["Exempt", "Limited"]),
    }
}

/// The response to requests above the limit.
pub(super) fn response(validator: &mut Validator, path: &Path, response: View) {
    let place = path.child("queuing");
    match response.text("type") {
        "Reject" if response.has("queuing") => {
            validator.forbidden(place, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Queue" if !response.has("queuing") => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            validator.required(place, detail);
        }
        "Reject" | "Queue" | "" => {}
        other => validator.not_supported(path.child("type"), other, &["Queue", "Reject"]),
    }
}

/// Queues, and how many of them a flow is dealt.
pub(super) fn queues(validator: &mut Validator, path: &Path, queuing: View) {
    for name in ["queueLengthLimit", "queues"] {
        let number = queuing.int(name).unwrap_or(0);
        if number <= 0 {
            validator.invalid(path.child(name), number, "must be positive");
        }
    }
    let (queues, hand) = (queuing.int("queues").unwrap_or(0), queuing.int("handSize").unwrap_or(0));
    if queues > QUEUES_MAX {
        let detail = format!("must not be greater than {QUEUES_MAX}");
        validator.invalid(path.child("queues"), queues, detail);
    }
    let place = path.child("handSize");
    if hand <= 0 {
        validator.invalid(place, hand, "must be positive");
    } else if hand > queues {
        validator.invalid(place, hand, format!("should not be greater than queues ({queues})"));
    }
}

pub(super) fn distinguisher(validator: &mut Validator, path: &Path, method: View) {
    let kind = method.text("type");
    if !matches!(kind, "" | "ByNamespace" | "ByUser") {
        validator.not_supported(path.child("type"), kind, &["ByNamespace", "ByUser"]);
    }
}
