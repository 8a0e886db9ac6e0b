//! Published schemas of custom types (docs/api/openapi.md#published-custom-types).
//!
//! The members that every object has (`apiVersion`, `kind`, `metadata`) are added to the author's schema and to the
//! embedded objects in the schema. OpenAPI v2 is less expressive than v3, and v2 clients reject fields that a schema
//! does not list. A type that v2 cannot describe completely is therefore published without a list of fields.

use super::dialect::{Dialect, Gvk};
use super::dialect::{META, gvk_value};
use crate::schema::make::{API_VERSION_DESCRIPTION, KIND_DESCRIPTION};
use crate::schema::registry::Resource;
use values::json::{self, Object, Value};
use values::naming::Naming;

/// Returns the name of a custom definition: the group's labels reversed, version, kind
/// (`com.example.v1.Widget`).
pub(super) fn definition_name(gvk: &Gvk) -> String {
    let mut name = String::with_capacity(gvk.group.len() + gvk.version.len() + gvk.kind.len() + 2);
    for label in gvk.group.rsplit('.').filter(|label| !label.is_empty()) {
        name.push_str(label);
        name.push('.');
    }
    name.push_str(&gvk.version);
    name.push('.');
    name.push_str(&gvk.kind);
    name
}

/// Returns the published schema of a custom type's objects, derived from the schema of the author.
pub(super) fn object(resource: &Resource, written: Value, naming: &Naming, dialect: Dialect) -> Value {
    let preserve = naming.extension("preserve-unknown-fields");
    let mut schema = match written {
        Value::Object(schema) if dialect == Dialect::V3 || !is_true(&schema, &preserve) => schema,
        _ => plain_object(),
    };
    // An object schema without fields gets no metadata either, because v2 clients would regard the list of
    // properties as complete.
    if schema.contains("properties") || dialect == Dialect::V3 {
        match dialect {
            Dialect::V2 => lower(&mut schema, naming, &preserve),
            Dialect::V3 => unfold(&mut schema, &naming.extension("int-or-string")),
        }
        embed(&mut schema, naming, dialect);
        add_type_members(&mut schema, naming, dialect, true);
    }
    schema.insert(
        naming.extension("group-version-kind"),
        Value::Array(vec![gvk_value(&Gvk::of_objects(resource))]),
    );
    schema.into()
}

/// Returns the schema of a custom type's lists.
pub(super) fn list(resource: &Resource, naming: &Naming, dialect: Dialect) -> Value {
    let prefix = dialect.reference_prefix();
    let item = reference(format!("{prefix}{}", definition_name(&Gvk::of_objects(resource))));
    let items = Object::from_iter([
        ("description".into(), format!("Objects of kind {}.", resource.table.kind).into()),
        ("items".into(), item),
        ("type".into(), "array".into()),
    ]);
    let mut schema = plain_object();
    schema.push("description", format!("A list of {}.", resource.table.kind).into());
    schema.object_entry("properties").push("items", items.into());
    add_type_members(&mut schema, naming, dialect, false);
    schema.push("required", Value::Array(vec!["items".into()]));
    schema
        .push(naming.extension("group-version-kind"), Value::Array(vec![gvk_value(&Gvk::of_list(resource))]));
    schema.into()
}

fn plain_object() -> Object {
    Object::from_iter([("type".into(), "object".into())])
}

fn reference(target: String) -> Value {
    Object::from_iter([("$ref".into(), target.into())]).into()
}

fn is_true(schema: &Object, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool) == Some(true)
}

/// Adds `apiVersion`, `kind` and `metadata`. The schema of `metadata` is a reference to the shared type.
fn add_type_members(schema: &mut Object, naming: &Naming, dialect: Dialect, object: bool) {
    let text = |description: &str| {
        Object::from_iter([("description".into(), description.into()), ("type".into(), "string".into())])
    };
    let prefix = dialect.reference_prefix();
    let meta = if object { "ObjectMeta" } else { "ListMeta" };
    let target = reference(format!("{prefix}{}.{META}.{meta}", naming.openapi_root));
    let metadata = match dialect {
        Dialect::V2 => target,
        Dialect::V3 => Object::from_iter([
            ("allOf".into(), Value::Array(vec![target])),
            ("description".into(), "Metadata that every object or list has.".into()),
        ])
        .into(),
    };
    let properties = schema.object_entry("properties");
    properties.insert("apiVersion", text(API_VERSION_DESCRIPTION).into());
    properties.insert("kind", text(KIND_DESCRIPTION).into());
    properties.insert("metadata", metadata);
    json::sort_members(properties.members_mut());
}

/// Adds the type members to every embedded object in `schema`. The recursion is as deep as the parsed schema.
fn embed(schema: &mut Object, naming: &Naming, dialect: Dialect) {
    for_each_child(schema, &mut |child| {
        embed(child, naming, dialect);
        let open = dialect == Dialect::V2 && !child.contains("properties");
        if !open && is_true(child, &naming.extension("embedded-resource")) {
            add_type_members(child, naming, dialect, true);
            require(child, ["kind", "apiVersion"]);
        }
    });
}

/// Adds `names` to the required members, after the existing members.
fn require(schema: &mut Object, names: [&str; 2]) {
    if !schema.contains("required") {
        schema.insert("required", Value::Array(Vec::new()));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        let missing = |name: &&str| !required.iter().any(|other| other.as_str() == Some(*name));
        let missing: Vec<Value> = names.into_iter().filter(missing).map(Value::from).collect();
        required.extend(missing);
    }
}

/// Replaces the extension `int_or_string` by standard members of v3, and removes members that are not
/// published.
fn unfold(schema: &mut Object, int_or_string: &str) {
    for name in ["example", "externalDocs"] {
        schema.remove(name);
    }
    if is_true(schema, int_or_string) {
        let kind = |kind: &str| Value::Object(Object::from_iter([("type".into(), kind.into())]));
        let either = Value::Array(vec![kind("integer"), kind("string")]);
        let all = schema.get("allOf").and_then(Value::as_array).unwrap_or_default();
        let says_so = |inner: &Object| inner.get("anyOf") == Some(&either);
        if !says_so(schema) && !all.first().and_then(Value::as_object).is_some_and(says_so) {
            if schema.contains("anyOf") {
                let first = Object::from_iter([("anyOf".into(), either)]).into();
                let all = std::iter::once(first).chain(all.iter().cloned()).collect();
                schema.insert("allOf", Value::Array(all));
            } else {
                schema.insert("anyOf", either);
            }
        }
    }
    for_each_child(schema, &mut |child| unfold(child, int_or_string));
}

/// Removes the members that v2 cannot express.
fn lower(schema: &mut Object, naming: &Naming, preserve: &str) {
    for name in ["default", "oneOf", "anyOf", "allOf", "not", "example", "externalDocs"] {
        schema.remove(name);
    }
    let nullable = is_true(schema, "nullable");
    schema.remove("nullable");
    // v2 has no type for null, for a number or a string, or for any value, so the type is omitted.
    if nullable || is_true(schema, preserve) || is_true(schema, &naming.extension("int-or-string")) {
        for name in ["type", "items", "properties", "additionalProperties", "required"] {
            schema.remove(name);
        }
    }
    if schema.get("type").and_then(Value::as_str) == Some("array") && !schema.contains("items") {
        schema.remove("type");
    }
    for_each_child(schema, &mut |child| lower(child, naming, preserve));
}

/// Calls `each` for the schemas directly inside `schema`: properties, items, additional properties.
fn for_each_child(schema: &mut Object, each: &mut dyn FnMut(&mut Object)) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (_, property) in properties.iter_mut() {
            if let Value::Object(property) = property {
                each(property);
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(child)) = schema.get_mut(name) {
            each(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::schema::make::{ResourceMaker, Struct};
    use crate::schema::table::Scope;
    use values::naming::CLUSTER;

    fn widgets() -> Arc<Resource> {
        let widget = Struct::new("Widget");
        ResourceMaker::new("stable.example.com", "v1", "widgets", Scope::Namespaced, widget)
            .unwrap()
            .make(&CLUSTER)
    }

    /// Parses a schema after replacing `{x}` by the prefix of extensions.
    fn schema(text: &str) -> Value {
        json::parse(text.replace("{x}", CLUSTER.extension_prefix).as_bytes()).unwrap()
    }

    #[test]
    fn openapi_schemas_of_custom_types_get_type_and_metadata_fields() {
        let resource = widgets();
        let written = schema(
            r#"{"type":"object","properties":{"spec":{"type":"object","properties":{
            "size":{"type":"integer","default":1,"nullable":true},
            "port":{"{x}int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]},
            "name":{"type":"string","default":"a","oneOf":[{"pattern":"a"}]},
            "inner":{"type":"object","{x}embedded-resource":true,"{x}preserve-unknown-fields":true}}}}}"#,
        );
        assert_eq!(definition_name(&Gvk::of_objects(&resource)), "com.example.stable.v1.Widget");
        let v3 = object(&resource, written.clone(), &CLUSTER, Dialect::V3);
        assert_eq!(v3.at(&["properties", "spec", "properties", "size", "default"]), Some(&Value::Int(1)));
        let inner = v3.at(&["properties", "spec", "properties", "inner"]).unwrap();
        assert!(inner.at(&["properties", "kind"]).is_some());
        let required = inner.get("required").and_then(Value::as_array).unwrap();
        assert_eq!(required, &[Value::from("kind"), Value::from("apiVersion")]);
        assert!(v3.at(&["properties", "metadata", "allOf"]).is_some());
        let v2 = object(&resource, written.clone(), &CLUSTER, Dialect::V2);
        let properties = v2.at(&["properties", "spec", "properties"]).unwrap();
        for (name, want) in
            [("size", "{}"), ("port", r#"{"{x}int-or-string":true}"#), ("name", r#"{"type":"string"}"#)]
        {
            let mut out = Vec::new();
            json::write(properties.get(name).unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want.replace("{x}", CLUSTER.extension_prefix));
        }
        assert_eq!(
            v2.str_at(&["properties", "metadata", "$ref"]),
            "#/definitions/io.cluster.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        );
    }

    #[test]
    fn an_int_or_string_schema_gets_an_any_of_in_openapi_v3() {
        let either = r#"[{"type":"integer"},{"type":"string"}]"#;
        for (written, want) in [
            (
                r#""{x}int-or-string":true"#.to_owned(),
                format!(r#""{{x}}int-or-string":true,"anyOf":{either}"#),
            ),
            (
                format!(r#""{{x}}int-or-string":true,"anyOf":{either}"#),
                format!(r#""{{x}}int-or-string":true,"anyOf":{either}"#),
            ),
            (
                format!(r#""{{x}}int-or-string":true,"allOf":[{{"anyOf":{either}}},{{"pattern":"a"}}]"#),
                format!(r#""{{x}}int-or-string":true,"allOf":[{{"anyOf":{either}}},{{"pattern":"a"}}]"#),
            ),
            (
                r#""{x}int-or-string":true,"anyOf":[{"pattern":"a"}],"allOf":[{"maxLength":3}]"#.to_owned(),
                format!(
                    r#""{{x}}int-or-string":true,"anyOf":[{{"pattern":"a"}}],"allOf":[{{"anyOf":{either}}},{{"maxLength":3}}]"#
                ),
            ),
            (
                r#""type":"string","example":"a","externalDocs":{"url":"b"}"#.to_owned(),
                r#""type":"string""#.to_owned(),
            ),
        ] {
            let around = |text: &str| schema(&format!(r#"{{"items":{{"properties":{{"a":{{{text}}}}}}}}}"#));
            let Value::Object(mut got) = around(&written) else { panic!("{written}") };
            unfold(&mut got, &CLUSTER.extension("int-or-string"));
            assert_eq!(Value::Object(got), around(&want), "{written}");
        }
    }

    #[test]
    fn a_type_that_preserves_unknown_fields_is_an_open_object_in_openapi_v2() {
        let resource = widgets();
        let written = schema(
            r#"{"type":"object","{x}preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}}"#,
        );
        let v2 = object(&resource, written.clone(), &CLUSTER, Dialect::V2);
        assert!(v2.get("properties").is_none());
        assert_eq!(object(&resource, Value::Null, &CLUSTER, Dialect::V2).str_at(&["type"]), "object");
        let gvks = list(&resource, &CLUSTER, Dialect::V3);
        assert_eq!(
            gvks.get(&CLUSTER.extension("group-version-kind")).unwrap().as_array().unwrap()[0]
                .str_at(&["kind"]),
            "WidgetList"
        );
    }
}
