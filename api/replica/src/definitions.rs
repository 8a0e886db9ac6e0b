//! Converts definitions of custom types between our form and the form that kube-apiserver stores, which is
//! the form of an older version (docs/api/etcd.md#values).
//!
//! If all versions have the same schema, subresources or columns, the older form contains them once. The
//! older form has the client configuration of a conversion webhook next to the conversion strategy. Input
//! and output are trees.

use values::json::{Object, Value};

/// The members that the older form contains once for all versions, and their names within a version.
const SHARED: [(&str, &str); 3] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
];

/// Order of the members in the older form.
const ORDER: [&str; 10] = [
    "group",
    "version",
    "names",
    "scope",
    "validation",
    "subresources",
    "versions",
    "additionalPrinterColumns",
    "selectableFields",
    "conversion",
];

/// Order of the members of a version.
const VERSION_ORDER: [&str; 9] = [
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "schema",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
];

/// Converts from the older form. `api_version` is the `apiVersion` of the newer form.
pub fn from_stored(mut definition: Object, api_version: &str) -> Object {
    definition.insert("apiVersion", api_version.into());
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return definition };
    let single = spec.remove("version");
    let shared = SHARED.map(|(outside, inside)| (inside, spec.remove(outside)));
    let selectable = spec.remove("selectableFields");
    if spec.get("versions").and_then(Value::as_array).is_none_or(<[Value]>::is_empty)
        && let Some(name) = single
    {
        let mut version = Object::new();
        version.push("name", name);
        version.push("served", Value::Bool(true));
        version.push("storage", Value::Bool(true));
        spec.insert("versions", Value::Array(vec![Value::Object(version)]));
    }
    if let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) {
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            for (inside, value) in &shared {
                if let Some(value) = value
                    && !version.contains(inside)
                {
                    version.insert(*inside, value.clone());
                }
            }
            if let Some(fields) = &selectable
                && !version.contains("selectableFields")
            {
                version.insert("selectableFields", fields.clone());
            }
            rename_columns(version, "JSONPath", "jsonPath");
        }
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let (client, reviews) =
            (conversion.remove("webhookClientConfig"), conversion.remove("conversionReviewVersions"));
        if client.is_some() || conversion.get("strategy").and_then(Value::as_str) == Some("Webhook") {
            let mut webhook = Object::new();
            client.into_iter().for_each(|client| webhook.push("clientConfig", client));
            reviews.into_iter().for_each(|reviews| webhook.push("conversionReviewVersions", reviews));
            conversion.insert("webhook", Value::Object(webhook));
        }
    }
    if spec.get("preserveUnknownFields").and_then(Value::as_bool) == Some(false) {
        spec.remove("preserveUnknownFields");
    }
    definition
}

/// Converts to the older form, whose `apiVersion` is `api_version`.
pub fn to_stored(mut definition: Object, api_version: &str) -> Object {
    definition.insert("apiVersion", api_version.into());
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return definition };
    let mut shared: Vec<(&str, Value)> = Vec::new();
    let mut first = None;
    if let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) {
        let name = versions.first().and_then(|version| version.get("name")).cloned();
        first = name;
        for (outside, inside) in SHARED.into_iter().chain([("selectableFields", "selectableFields")]) {
            let mut values = versions.iter().map(|version| version.get(inside));
            let Some(one) = values.next().map(|value| value.cloned()) else { continue };
            if !values.all(|other| other == one.as_ref()) {
                continue;
            }
            for version in versions.iter_mut().filter_map(Value::as_object_mut) {
                version.remove(inside);
            }
            shared.extend(one.map(|value| (outside, value)));
        }
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            rename_columns(version, "jsonPath", "JSONPath");
            in_order(version, &VERSION_ORDER);
        }
    }
    for (name, value) in shared {
        spec.insert(name, value);
    }
    rename_columns(spec, "jsonPath", "JSONPath");
    if let Some(first) = first {
        spec.insert("version", first);
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        for (outside, inside) in [
            ("webhookClientConfig", "clientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            webhook.remove(inside).into_iter().for_each(|value| drop(conversion.insert(outside, value)));
        }
    }
    let preserves = spec.remove("preserveUnknownFields").unwrap_or(Value::Bool(false));
    in_order(spec, &ORDER);
    spec.push("preserveUnknownFields", preserves);
    definition
}

fn rename_columns(owner: &mut Object, from: &str, to: &'static str) {
    let columns = owner.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.push(to, path);
        }
    }
}

fn in_order(object: &mut Object, order: &[&str]) {
    let place = |name: &str| order.iter().position(|known| *known == name).unwrap_or(order.len());
    object.members_mut().sort_by_key(|(name, _)| place(name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    fn object(text: &str) -> Object {
        let Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("{text}") };
        object
    }

    fn text(object: Object) -> String {
        let mut out = Vec::new();
        json::write(&Value::Object(object), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn settings_common_to_all_versions_are_stored_once() {
        for (ours, theirs) in [
            (
                r#"{"apiVersion":"new","spec":{"group":"g","names":{},"scope":"Cluster","versions":[{"name":"v1","served":true,"storage":true,"schema":{"a":1},"subresources":{"status":{}},"additionalPrinterColumns":[{"name":"A","jsonPath":".a"}]}],"conversion":{"strategy":"None"}}}"#,
                r#"{"apiVersion":"old","spec":{"group":"g","version":"v1","names":{},"scope":"Cluster","validation":{"a":1},"subresources":{"status":{}},"versions":[{"name":"v1","served":true,"storage":true}],"additionalPrinterColumns":[{"name":"A","JSONPath":".a"}],"conversion":{"strategy":"None"},"preserveUnknownFields":false}}"#,
            ),
            (
                r#"{"apiVersion":"new","spec":{"group":"g","names":{},"scope":"Cluster","versions":[{"name":"v1","schema":{"a":1}},{"name":"v2","schema":{"b":1},"additionalPrinterColumns":[{"name":"A","jsonPath":".a"}]}],"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"u"},"conversionReviewVersions":["v1"]}},"preserveUnknownFields":true}}"#,
                r#"{"apiVersion":"old","spec":{"group":"g","version":"v1","names":{},"scope":"Cluster","versions":[{"name":"v1","schema":{"a":1}},{"name":"v2","schema":{"b":1},"additionalPrinterColumns":[{"name":"A","JSONPath":".a"}]}],"conversion":{"strategy":"Webhook","webhookClientConfig":{"url":"u"},"conversionReviewVersions":["v1"]},"preserveUnknownFields":true}}"#,
            ),
        ] {
            assert_eq!(text(to_stored(object(ours), "old")), theirs);
            let back = from_stored(object(theirs), "new");
            assert_eq!(to_stored(back, "old"), object(theirs), "{ours}");
        }
        let single = object(r#"{"apiVersion":"old","spec":{"version":"v1","validation":{"a":1}}}"#);
        let want = r#"{"apiVersion":"new","spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"a":1}}]}}"#;
        assert_eq!(text(from_stored(single, "new")), want);
    }
}
