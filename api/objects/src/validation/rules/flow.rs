//! Rules for flow schemas and priority level configurations.

use std::sync::LazyLock;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use values::json::{Object, Value, parse};

const QUEUES_MAX: i64 = 10_000_000;

/// Maximum number of random bits that the assignment of queues to a flow may use.
const ENTROPY_BITS_MAX: f64 = 60.0;

const PRECEDENCE_MAX: i64 = 10_000;

/// Name of the priority level and of the flow schema for requests that are exempt from limits.
const EXEMPT: &str = "exempt";

/// Annotation of an older version for an explicit 0 as the number of shares. The annotation is refused.
const PRESERVES_ZERO: &str = "v1beta3-preserve-zero-concurrency-shares";

/// Specs of the mandatory objects, which clients cannot change. The constants are parsed at the first use.
static SCHEMAS: LazyLock<Vec<Value>> =
    LazyLock::new(|| mandatory(include_str!("../../../../bootstrap/flow_schemas.json")));
static LEVELS: LazyLock<Vec<Value>> =
    LazyLock::new(|| mandatory(include_str!("../../../../bootstrap/priority_levels.json")));

fn mandatory(file: &str) -> Vec<Value> {
    let Ok(Value::Array(mut entries)) = parse(file.as_bytes()) else {
        unreachable!("a bundled file is not a JSON array, although the tests of bootstrap parse it");
    };
    entries.retain(|entry| entry.get("mandatory").and_then(Value::as_bool) == Some(true));
    entries
}

/// Returns the spec of the mandatory object with this name.
fn fixed<'e>(entries: &'e [Value], name: &str) -> Option<StructView<'e>> {
    let entry = entries.iter().find(|entry| entry.str_at(&["name"]) == name)?;
    Some(StructView::from(entry.get("spec")))
}

/// Returns whether two values are equal. Ignores the order of members.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b,
    }
}

/// Checks the spec of a flow schema.
pub(super) fn schema(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let name = validator.object.child("metadata").text("name");
    let precedence = spec.int("matchingPrecedence").unwrap_or_default();
    let place = path.child("matchingPrecedence");
    if precedence <= 0 {
        validator.invalid(place, precedence, "must be a positive value");
    } else if precedence > PRECEDENCE_MAX {
        let detail = format!("must not be greater than {PRECEDENCE_MAX}");
        validator.invalid(place, precedence, detail);
    } else if precedence == 1 && name != EXEMPT {
        let detail = format!("only the schema named '{EXEMPT}' may have matchingPrecedence 1");
        validator.invalid(place, precedence, detail);
    }
    let Some(fixed) = fixed(&SCHEMAS, name) else { return };
    if !same(&spec.to_value(), &fixed.to_value()) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        validator.invalid(path, internal_schema(spec), detail);
    }
}

/// Checks a rule of a flow schema. The rule must match at least one kind of request.
pub(super) fn rule(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    if rule.items("resourceRules").is_empty() && rule.items("nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        validator.required(path, detail);
    }
}

/// Checks a subject of a rule. Members for other kinds of subjects are forbidden, and their content is not
/// checked.
pub(super) fn subject(validator: &mut Validator, path: &FieldPath, subject: StructView) {
    let members = [("User", "user"), ("Group", "group"), ("ServiceAccount", "serviceAccount")];
    let kind = subject.text("kind");
    let Some((_, own)) = members.into_iter().find(|(name, _)| *name == kind) else {
        return validator.not_supported(path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let place = path.child(own);
    if subject.has(own) {
        named(validator, &place, subject.child(own), own == "serviceAccount");
    } else {
        let detail = format!("{own} is required when subject kind is '{kind}'");
        validator.required(place, &detail);
    }
    for (name, other) in members.into_iter().filter(|(_, member)| *member != own && subject.has(member)) {
        let detail = format!("{other} is forbidden when subject kind is not '{name}'");
        validator.forbidden(path.child(other), detail);
    }
}

/// Checks the member that contains the name of a subject.
fn named(validator: &mut Validator, path: &FieldPath, member: StructView, is_account: bool) {
    let (name, namespace) = (member.text("name"), member.text("namespace"));
    if name.is_empty() {
        validator.required(path.child("name"), "");
    }
    if !is_account {
        return;
    }
    if !matches!(name, "" | "*") {
        validator.refuse(&path.child("name"), name, names::subdomain(name));
    }
    if namespace.is_empty() {
        validator.required(path.child("namespace"), "must specify namespace for service account");
    } else {
        validator.refuse(&path.child("namespace"), namespace, names::label(namespace));
    }
}

/// Checks the resource part of a rule.
pub(super) fn resources(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    verbs(validator, path, rule);
    for (list, what) in [("apiGroups", "api groups"), ("resources", "resources")] {
        wildcard_alone(validator, &path.child(list), rule, list, what);
    }
    if rule.items("namespaces").is_empty() && !rule.is_true("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        validator.required(path.child("namespaces"), detail);
    }
    let place = path.child("namespaces");
    if wildcard_alone(validator, &place, rule, "namespaces", "namespaces") {
        return;
    }
    for (at, name) in rule.texts("namespaces").enumerate() {
        for fault in names::label(name) {
            if validator.has_enough() {
                return;
            }
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
            validator.invalid(place.index(at), name, detail);
        }
    }
}

/// Checks the non-resource part of a rule.
pub(super) fn paths(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    verbs(validator, path, rule);
    let place = path.child("nonResourceURLs");
    if wildcard_alone(validator, &place, rule, "nonResourceURLs", "non-resource URLs") {
        return;
    }
    for (at, url) in rule.texts("nonResourceURLs").enumerate() {
        if validator.has_enough() {
            return;
        }
        let detail = match url {
            "/" => continue,
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

/// Checks that the verbs are known verbs or a single wildcard.
fn verbs(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    const VERBS: [&str; 9] =
        ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
    let place = path.child("verbs");
    if !wildcard_alone(validator, &place, rule, "verbs", "verbs")
        && !rule.texts("verbs").all(|verb| VERBS.contains(&verb))
    {
        validator.not_supported(place, rule.get("verbs").cloned().unwrap_or_default(), &VERBS);
    }
}

/// Returns whether a list contains the wildcard. The wildcard must be the only element of its list.
fn wildcard_alone(
    validator: &mut Validator,
    path: &FieldPath,
    rule: StructView,
    list: &str,
    what: &str,
) -> bool {
    let items = rule.texts(list);
    let is_all = items.clone().any(|item| item == "*");
    if is_all && items.len() > 1 {
        let value = rule.get(list).cloned().unwrap_or_default();
        let detail = format!("if '*' is present, must not specify other {what}");
        validator.invalid(path, value, detail);
    }
    is_all
}

/// Checks the spec of a priority level.
pub(super) fn level(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let metadata = validator.object.child("metadata");
    let annotation = format!("{}/{PRESERVES_ZERO}", validator.naming.group("flowcontrol", true));
    if metadata.child("annotations").has(&annotation) {
        validator.forbidden("metadata.annotations", format!("annotation '{annotation}' is forbidden"));
    }
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
            } else if spec.child("limited").child("limitResponse").text("type").is_empty() {
                response_type(validator, &limited.child("limitResponse"), "");
            }
        }
        other => validator.not_supported(path.child("type"), other, &["Exempt", "Limited"]),
    }
    let name = validator.object.child("metadata").text("name");
    let kind = spec.text("type");
    if (name == EXEMPT) != (kind == "Exempt") {
        let detail = format!("must be 'Exempt' if and only if `name` is '{EXEMPT}'");
        validator.invalid(path.child("type"), kind, detail);
    }
    let Some(fixed) = fixed(&LEVELS, name) else { return };
    // The seats of the exempt level may be changed.
    let compared = |spec: StructView| {
        let mut spec = spec.object().cloned().unwrap_or_default();
        if name == EXEMPT {
            spec.remove("exempt");
        }
        Value::Object(spec)
    };
    if !same(&compared(spec), &compared(fixed)) {
        let but = if name == EXEMPT { " except the 'spec.exempt' field" } else { "" };
        let detail = format!("spec of '{name}'{but} must equal the fixed value");
        validator.invalid(path, internal_level(spec), detail);
    }
}

/// Returns a struct in the internal form of the reference server: all members, with their internal names.
fn internal_struct<const N: usize>(members: [(&str, Value); N]) -> Value {
    Object::from_iter(members.map(|(name, value)| (name.to_owned().into(), value))).into()
}

fn internal_level(spec: StructView) -> Value {
    let value = |view: StructView, name| view.get(name).cloned().unwrap_or_default();
    let limited = |limited: StructView| {
        let response = limited.child("limitResponse");
        let queuing = |queuing: StructView| {
            internal_struct([
                ("Queues", value(queuing, "queues")),
                ("HandSize", value(queuing, "handSize")),
                ("QueueLengthLimit", value(queuing, "queueLengthLimit")),
            ])
        };
        internal_struct([
            ("NominalConcurrencyShares", value(limited, "nominalConcurrencyShares")),
            (
                "LimitResponse",
                internal_struct([
                    ("Type", response.text("type").into()),
                    ("Queuing", there(response.child("queuing"), queuing)),
                ]),
            ),
            ("LendablePercent", value(limited, "lendablePercent")),
            ("BorrowingLimitPercent", value(limited, "borrowingLimitPercent")),
        ])
    };
    let exempt = |exempt: StructView| {
        internal_struct([
            ("NominalConcurrencyShares", value(exempt, "nominalConcurrencyShares")),
            ("LendablePercent", value(exempt, "lendablePercent")),
        ])
    };
    internal_struct([
        ("Type", spec.text("type").into()),
        ("Limited", there(spec.child("limited"), limited)),
        ("Exempt", there(spec.child("exempt"), exempt)),
    ])
}

fn internal_schema(spec: StructView) -> Value {
    let name = |view: StructView| internal_struct([("Name", view.text("name").into())]);
    let list = |view: StructView, name| view.get(name).cloned().unwrap_or_default();
    let subject = |subject: StructView| {
        let account = |account: StructView| {
            internal_struct([
                ("Namespace", account.text("namespace").into()),
                ("Name", account.text("name").into()),
            ])
        };
        internal_struct([
            ("Kind", subject.text("kind").into()),
            ("User", there(subject.child("user"), name)),
            ("Group", there(subject.child("group"), name)),
            ("ServiceAccount", there(subject.child("serviceAccount"), account)),
        ])
    };
    let resources = |rule: StructView| {
        internal_struct([
            ("Verbs", list(rule, "verbs")),
            ("APIGroups", list(rule, "apiGroups")),
            ("Resources", list(rule, "resources")),
            ("ClusterScope", rule.is_true("clusterScope").into()),
            ("Namespaces", list(rule, "namespaces")),
        ])
    };
    let paths = |rule: StructView| {
        internal_struct([("Verbs", list(rule, "verbs")), ("NonResourceURLs", list(rule, "nonResourceURLs"))])
    };
    let rule = |rule: StructView| {
        internal_struct([
            ("Subjects", each(rule, "subjects", subject)),
            ("ResourceRules", each(rule, "resourceRules", resources)),
            ("NonResourceRules", each(rule, "nonResourceRules", paths)),
        ])
    };
    let method = |method: StructView| internal_struct([("Type", method.text("type").into())]);
    internal_struct([
        ("PriorityLevelConfiguration", name(spec.child("priorityLevelConfiguration"))),
        ("MatchingPrecedence", spec.int("matchingPrecedence").map_or(Value::Int(0), Value::Int)),
        ("DistinguisherMethod", there(spec.child("distinguisherMethod"), method)),
        ("Rules", each(spec, "rules", rule)),
    ])
}

fn there<'v>(view: StructView<'v>, convert: impl Fn(StructView<'v>) -> Value) -> Value {
    if view.is_there() { convert(view) } else { Value::Null }
}

fn each<'v>(view: StructView<'v>, list: &str, convert: impl Fn(StructView<'v>) -> Value) -> Value {
    if view.has(list) { Value::Array(view.structs(list).map(convert).collect()) } else { Value::Null }
}

/// Checks the response to requests that exceed the limit.
pub(super) fn response(validator: &mut Validator, path: &FieldPath, response: StructView) {
    let place = path.child("queuing");
    match response.text("type") {
        "Reject" if response.has("queuing") => {
            validator.forbidden(place, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Queue" if !response.has("queuing") => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            validator.required(place, detail);
        }
        // The type of the level determines whether queuing is required.
        "Reject" | "Queue" | "" => {}
        other => response_type(validator, path, other),
    }
}

fn response_type(validator: &mut Validator, path: &FieldPath, given: &str) {
    validator.not_supported(path.child("type"), given, &["Queue", "Reject"]);
}

/// Checks the number of queues and the number of queues per flow.
pub(super) fn queues(validator: &mut Validator, path: &FieldPath, queuing: StructView) {
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
    } else if ((queues as f64).log2() * hand as f64).ceil() > ENTROPY_BITS_MAX {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {ENTROPY_BITS_MAX}"
        );
        validator.invalid(place, hand, detail);
    }
}

pub(super) fn distinguisher(validator: &mut Validator, path: &FieldPath, method: StructView) {
    let kind = method.text("type");
    if !matches!(kind, "ByNamespace" | "ByUser") {
        // As in the reference server, the error contains the whole method.
        let value = internal_struct([("Type", kind.into())]);
        validator.not_supported(path.child("type"), value, &["ByNamespace", "ByUser"]);
    }
}
