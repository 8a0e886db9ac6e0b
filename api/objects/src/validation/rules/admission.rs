//! Rules for admission webhooks, admission policies and their bindings.

use go::url::Url;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use super::common::SeenStrings;
use crate::expression::policy::declared::Expressions;
use crate::expression::policy::mutation_values::PatchType;
use values::field::FieldError;
use values::json::Value;

const CONDITIONS_MAX: usize = 64;
const URL_FORM: &str = "desired format: https://host[/path]";

/// Checks that the webhooks of a configuration have different names.
pub(super) fn configuration(validator: &mut Validator, path: &FieldPath, configuration: StructView) {
    let list = path.child("webhooks");
    let mut seen = SeenStrings::new();
    for (at, webhook) in configuration.structs("webhooks").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        let name = webhook.text("name");
        let faults = names::subdomain(name);
        if name.is_empty() {
            continue; // the schema refuses it
        }
        if !faults.is_empty() {
            validator.invalid(place.child("name"), name, faults.join(","));
        } else if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            validator.invalid(place.child("name"), name, detail);
        }
        if !seen.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
    }
}

pub(super) fn webhook(validator: &mut Validator, path: &FieldPath, webhook: StructView) {
    let place = path.child("sideEffects");
    match webhook.get("sideEffects").and_then(Value::as_str) {
        Some("None" | "NoneOnDryRun") => {}
        None => validator.required(place, "must specify one of None, NoneOnDryRun"),
        Some(other) => validator.not_supported(place, other, &["None", "NoneOnDryRun"]),
    }
    review_versions(validator, &path.child("admissionReviewVersions"), webhook, "admissionReviewVersions");
    conditions(validator, &path.child("matchConditions"), webhook, &Expressions::new(false));
}

/// Checks the review versions of a webhook. This server must support at least one of the versions.
pub(super) fn review_versions(validator: &mut Validator, path: &FieldPath, owner: StructView, list: &str) {
    let versions = owner.texts(list);
    if versions.len() == 0 {
        return validator.required(path, "must specify one of v1, v1beta1");
    }
    let mut seen = SeenStrings::new();
    for (at, version) in versions.clone().enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        if !seen.insert(version) {
            validator.invalid(place, version, "duplicate version");
        } else {
            validator.refuse(&place, version, names::label_1035(version));
        }
    }
    if !versions.clone().any(|version| matches!(version, "v1" | "v1beta1")) {
        let value = owner.get(list).cloned().unwrap_or_default();
        validator.invalid(path, value, "must include at least one of v1, v1beta1");
    }
}

fn conditions(validator: &mut Validator, path: &FieldPath, owner: StructView, expressions: &Expressions) {
    let conditions = owner.structs("matchConditions");
    if conditions.len() > CONDITIONS_MAX {
        validator.errors.push(FieldError::too_many(path, conditions.len(), CONDITIONS_MAX));
    }
    let mut seen = SeenStrings::new();
    for (at, condition) in conditions.enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        let name = condition.text("name");
        if !name.is_empty() {
            validator.refuse(&place.child("name"), name, names::qualified(name));
            if !seen.insert(name) {
                validator.duplicate(place.child("name"), name);
            }
        }
        let text = condition.text("expression");
        blank(validator, &place.child("expression"), text, "");
        expression(validator, &place.child("expression"), text.trim(), |text| expressions.condition(text));
    }
}

/// Refuses a blank expression. The schema refuses an absent expression.
fn blank(validator: &mut Validator, path: &FieldPath, text: &str, detail: &str) {
    if !text.is_empty() && text.trim().is_empty() {
        validator.required(path, detail);
    }
}

/// Checks an expression. Other checks refuse an absent expression.
fn expression(
    validator: &mut Validator,
    path: &FieldPath,
    text: &str,
    check: impl FnOnce(&str) -> Option<String>,
) {
    if !text.trim().is_empty()
        && let Some(fault) = check(text)
    {
        validator.invalid(path, text, fault);
    }
}

/// Checks the location of a webhook, which is a URL or a service.
pub(super) fn client(validator: &mut Validator, path: &FieldPath, client: StructView) {
    match (client.get("url").and_then(Value::as_str), client.has("service")) {
        (Some(_), true) | (None, false) => {
            validator.required(path, "exactly one of url or service is required");
        }
        (Some(url), false) => self::url(validator, &path.child("url"), url),
        (None, true) => service(validator, &path.child("service"), client.child("service")),
    }
}

/// Checks the URL of a webhook.
pub(super) fn url(validator: &mut Validator, path: &FieldPath, url: &str) {
    let url = match Url::parse(url) {
        Ok(url) => url,
        Err(why) => {
            return validator.required(path, &format!("url must be a valid URL: {why}; {URL_FORM}"));
        }
    };
    if url.scheme() != "https" {
        let detail = format!("'https' is the only allowed URL scheme; {URL_FORM}");
        validator.invalid(path, url.scheme(), detail);
    }
    if url.host().is_empty() {
        validator.invalid(path, "", format!("host must be specified; {URL_FORM}"));
    }
    if let Some(user) = url.user() {
        validator.invalid(path, user, "user information is not permitted in the URL");
    }
    for (part, what) in [
        (&*url.fragment(), "fragments are not permitted in the URL"),
        (url.raw_query(), "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            validator.invalid(path, part, what);
        }
    }
}

/// Checks the reference to a service. If the name is missing, the reference server reports the namespace, and
/// vice versa. Clients rely on this bug of the reference server.
pub(super) fn service(validator: &mut Validator, path: &FieldPath, service: StructView) {
    for (missing, reported) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(missing).is_empty() {
            validator.required(path.child(reported), "");
        }
    }
    if let Some(port) = service.int("port").filter(|port| !(1..=65535).contains(port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        validator.invalid(path.child("port"), port, detail);
    }
    if let Some(target) = service.get("path").and_then(Value::as_str) {
        let place = path.child("path");
        if target == "/" || target.is_empty() {
            return;
        }
        if target == "//" {
            return validator.invalid(place, target, "segment[0] may not be empty");
        }
        if !target.starts_with('/') {
            validator.invalid(place, target, "must start with a '/'");
        }
        // Skip the first character, even if it is not the slash.
        let mut rest = target.chars();
        rest.next();
        let rest = rest.as_str();
        for (at, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
            if validator.has_enough() {
                return;
            }
            if segment.is_empty() {
                validator.invalid(place, target, format!("segment[{at}] may not be empty"));
                continue;
            }
            for fault in names::subdomain(segment) {
                validator.invalid(place, target, format!("segment[{at}]: {fault}"));
            }
        }
    }
}

/// Checks a validating admission policy.
pub(super) fn policy(validator: &mut Validator, path: &FieldPath, policy: StructView) {
    let spec = policy.child("spec");
    let path = path.child("spec");
    let expressions = matched(validator, &path, spec);
    if spec.items("validations").is_empty() && spec.items("auditAnnotations").is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        validator.required(path.child("validations"), detail);
        validator.required(path.child("auditAnnotations"), detail);
    }
    let list = path.child("validations");
    for (at, rule) in spec.structs("validations").enumerate() {
        if validator.has_enough() {
            return;
        }
        validation(validator, &list.index(at), rule, &expressions);
    }
    let list = path.child("auditAnnotations");
    let annotations = spec.structs("auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let value = spec.get("auditAnnotations").cloned().unwrap_or_default();
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        validator.invalid(path.child("auditAnnotations"), value, detail);
    }
    let owner = policy.child("metadata").text("name");
    let mut keys = SeenStrings::new();
    for (at, annotation) in annotations.enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        let key = annotation.text("key");
        if owner.is_empty() {
            validator.invalid(place.child("key"), key, "requires metadata.name be non-empty");
        } else {
            let full = format!("{owner}/{key}");
            validator.refuse(&place.child("key"), &full, names::qualified(&full));
        }
        if !keys.insert(key) {
            validator.duplicate(place.child("key"), key);
        }
        let text = annotation.text("valueExpression");
        let place = place.child("valueExpression");
        if text.trim().len() > ANNOTATION_BYTES_MAX {
            let detail = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
            validator.required(place, &detail);
        } else if text.trim().is_empty() && !text.is_empty() {
            validator.required(place, "valueExpression is not specified");
        } else {
            expression(validator, &place, text, |text| expressions.annotation(text.trim()));
        }
    }
}

/// Maximum number of audit annotations of a policy.
const ANNOTATIONS_MAX: usize = 20;

/// Maximum length in bytes of the expression of an audit annotation.
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;

/// Checks the parts that both kinds of policies have: matched requests, match conditions and variables. Match
/// conditions cannot read variables, but all later expressions can.
fn matched(validator: &mut Validator, path: &FieldPath, spec: StructView) -> Expressions {
    if !spec.has("matchConstraints") {
        validator.required(path.child("matchConstraints"), "");
    } else if spec.child("matchConstraints").items("resourceRules").is_empty() {
        let place = path.child("matchConstraints");
        validator.required(place.child("resourceRules"), "");
    }
    let mut expressions = Expressions::new(spec.has("paramKind"));
    conditions(validator, &path.child("matchConditions"), spec, &expressions);
    let list = path.child("variables");
    let variables = spec.structs("variables");
    if variables.len() > 0 {
        let pairs = variables.clone().map(|variable| (variable.text("name"), variable.text("expression")));
        let faults = expressions.variables(pairs);
        for (at, (variable, fault)) in variables.zip(faults).enumerate() {
            if validator.has_enough() {
                break;
            }
            let place = list.index(at);
            let name = variable.text("name");
            if !name.is_empty() && name.trim().is_empty() {
                validator.required(place.child("name"), "name is not specified");
            } else if !name.is_empty() && !is_identifier(name) {
                validator.invalid(place.child("name"), name, "must be a valid CEL identifier");
            }
            let text = variable.text("expression");
            blank(validator, &place.child("expression"), text, "expression is not specified");
            expression(validator, &place.child("expression"), text, |_| fault);
        }
    }
    expressions
}

/// Returns whether a name is a valid identifier in expressions.
fn is_identifier(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit()) && !RESERVED.contains(&name)
}

/// Reserved words of the expression language.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Checks a validation. The result of the expression must be a boolean.
fn validation(
    validator: &mut Validator,
    path: &FieldPath,
    validation: StructView,
    expressions: &Expressions,
) {
    let text = validation.text("expression");
    blank(validator, &path.child("expression"), text, "expression is not specified");
    expression(validator, &path.child("expression"), text, |text| expressions.condition(text));
    let made = validation.text("messageExpression");
    if !made.is_empty() && made.trim().is_empty() {
        validator.invalid(path.child("messageExpression"), made, "must be non-empty if specified");
    }
    expression(validator, &path.child("messageExpression"), made, |text| expressions.message(text));
    let message = validation.text("message");
    if !message.is_empty() && message.trim().is_empty() {
        validator.invalid(path.child("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        validator.invalid(path.child("message"), message, "must not contain line breaks");
    }
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    if let Some(reason) = validation.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        validator.not_supported(path.child("reason"), reason, &REASONS);
    }
}

/// Checks that the matched requests include no deletion, because a deletion has no object to change.
fn mutable_requests(validator: &mut Validator, path: &FieldPath, requests: StructView) {
    const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    // The path of this error has no indexes for the rules and the list of operations.
    let place = path.child("resourceRules");
    let place = place.child("operations");
    for rule in requests.structs("resourceRules") {
        for operation in rule.texts("operations").filter(|operation| !OPERATIONS.contains(operation)) {
            if validator.has_enough() {
                return;
            }
            validator.not_supported(place, operation, &OPERATIONS);
        }
    }
}

/// Checks the spec of a binding of a mutating admission policy.
pub(super) fn mutating_binding(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    mutable_requests(validator, &path.child("matchResources"), spec.child("matchResources"));
}

/// Checks the spec of a mutating admission policy.
pub(super) fn mutating_policy(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    mutable_requests(validator, &path.child("matchConstraints"), spec.child("matchConstraints"));
    let expressions = matched(validator, path, spec);
    let list = path.child("mutations");
    let mutations = spec.structs("mutations");
    if mutations.len() == 0 {
        validator.required(path.child("mutations"), "mutations must contain at least one item");
    }
    for (at, mutation) in mutations.enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        let patch_type = mutation.text("patchType");
        const FORMS: [(PatchType, &str); 2] =
            [(PatchType::ApplyConfiguration, "ApplyConfiguration"), (PatchType::JsonPatch, "JSONPatch")];
        if !FORMS.iter().any(|(_, name)| *name == patch_type) {
            // The patch type is unknown, so it has no member to check.
            continue;
        }
        for (form, name) in FORMS {
            let place = place.child(form.member());
            match (patch_type == name, mutation.has(form.member())) {
                (true, false) => {
                    validator.required(place, &format!("must be specified when patchType is {name}"));
                }
                (false, true) => {
                    let value = format!("{{{}}}", form.member());
                    let detail = format!("must not be specified when patchType is {patch_type}");
                    validator.invalid(place, value, detail);
                }
                (true, true) => {
                    let text = mutation.child(form.member()).text("expression").trim();
                    if text.is_empty() {
                        validator.required(place.child("expression"), "");
                    }
                    let place = place.child("expression");
                    expression(validator, &place, text, |text| expressions.mutation(form, text));
                }
                (false, false) => {}
            }
        }
    }
}

/// Checks the kind of a policy's parameters.
pub(super) fn parameters(validator: &mut Validator, path: &FieldPath, kind: StructView) {
    let whole = kind.text("apiVersion");
    let place = path.child("apiVersion");
    if whole.is_empty() {
        validator.required(place, "");
    } else if let Some(fault) = names::group_version_fault(whole) {
        validator.invalid(place, whole, fault);
    } else {
        let (group, version) = whole.split_once('/').unwrap_or(("", whole));
        let faults = names::subdomain(group);
        if !group.is_empty() && !faults.is_empty() {
            validator.invalid(place, group, faults.join(","));
        }
        let faults = names::label_1035(version);
        if version.is_empty() {
            validator.invalid(place, whole, "version must be specified");
        } else if !faults.is_empty() {
            validator.invalid(place, version, faults.join(","));
        }
    }
    let name = kind.text("kind");
    if name.is_empty() {
        validator.required(path.child("kind"), "");
    } else {
        let faults = names::label_1035(&name.to_lowercase());
        if !faults.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            validator.invalid(path.child("kind"), name, detail);
        }
    }
}

/// Checks the actions that a binding requests for a failed validation.
pub(super) fn binding(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let place = path.child("validationActions");
    let mut seen = SeenStrings::new();
    for (at, action) in spec.texts("validationActions").enumerate() {
        if !seen.insert(action) && !validator.has_enough() {
            validator.duplicate(place.index(at), action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let value = spec.get("validationActions").cloned().unwrap_or_default();
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
        validator.invalid(place, value, detail);
    }
}

/// Checks the reference to the parameters of a policy: one object by name, or several objects by selector.
pub(super) fn parameter_reference(validator: &mut Validator, path: &FieldPath, reference: StructView) {
    let name = reference.text("name");
    match (name.is_empty(), reference.has("selector")) {
        (true, false) => validator.required(path, "one of name or selector must be specified"),
        (true, true) => {}
        (false, has_both) => {
            validator.refuse(&path.child("name"), name, names::path_segment(name));
            for member in ["name", "selector"].iter().filter(|_| has_both) {
                validator.forbidden(path.child(member), "name and selector are mutually exclusive");
            }
        }
    }
    match reference.get("parameterNotFoundAction").and_then(Value::as_str) {
        None | Some("") => validator.required(path.child("parameterNotFoundAction"), ""),
        Some("Allow" | "Deny") => {}
        Some(other) => {
            validator.not_supported(path.child("parameterNotFoundAction"), other, &["Deny", "Allow"]);
        }
    }
}
