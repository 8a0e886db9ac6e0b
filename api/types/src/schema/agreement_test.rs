//! Comparison of the built-in tables with the reference data from which they were made. The tests compare
//! names, numbers, types and rules of every type and resource that release 1.35 serves by default.
//!
//! The reference data is not part of the repository. Without the reference data, the tests print a note and check
//! nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::builtin;
use super::registry::{Registry, Resource};
use super::table::{Field, Kind, ListType, Message, NameRule, Scope, Shape, Text};
use crate::enablement::Enablement;
use values::naming::KUBERNETES;

const RELEASE: &str = "1.35";

/// The following release, and the resources that this server already takes from that release.
const NEXT_RELEASE: &str = "1.36";
const AHEAD: [&str; 2] = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
const ROOT: &str = "io.k8s.";

/// Reads a reference file, or prints that the file is missing.
fn facts(name: &str) -> Option<Value> {
    let path = testkit::reference(&format!("facts/{name}"))?;
    Some(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value[key].as_bool().unwrap_or(false)
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn texts<'v>(value: &'v Value, key: &str) -> Vec<&'v str> {
    list(value, key).iter().filter_map(Value::as_str).collect()
}

/// Returns the result of [`texts`] as owned texts, for the comparison with the texts of a type.
fn owned(value: &Value, key: &str) -> Vec<Text> {
    texts(value, key).into_iter().map(|text| Text::Owned(text.to_owned())).collect()
}

/// Collector of all differences, so that the test reports them together.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    compared: usize,
}

impl Report {
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, place: &str, what: &str, ours: T, theirs: T) {
        self.compared += 1;
        if ours != theirs {
            self.lines.push(format!("{place}: {what} is {ours:?}, reference {theirs:?}"));
        }
    }

    fn finish(self, at_least: usize) {
        assert!(self.lines.is_empty(), "{} differences:\n{}", self.lines.len(), self.lines.join("\n"));
        assert!(self.compared >= at_least, "only {} comparisons were made", self.compared);
    }
}

/// Returns the resources that the release serves by default.
fn enabled(resources: &Value) -> impl Iterator<Item = &Value> {
    list(resources, "resources").iter().filter(|resource| {
        let release = if AHEAD.contains(&text(resource, "resource")) { NEXT_RELEASE } else { RELEASE };
        flag(&resource["default_enabled"], release)
    })
}

#[test]
fn types_agree_with_the_reference_data() {
    let (Some(types), Some(resources)) = (facts("types.json"), facts("resources.json")) else { return };
    let by_name: HashMap<_, _> = list(&types, "types").iter().map(|ty| (text(ty, "name"), ty)).collect();
    let mut report = Report::default();
    for name in reachable(&by_name, &resources) {
        let theirs = by_name[name.as_str()];
        if flag(theirs, "scalar") || theirs.get("pbwrap").is_some() {
            continue;
        }
        let ours = builtin::message(&KUBERNETES, &name[ROOT.len()..]);
        report.same(&name, "there", ours.map(|ours| ours.full_name(&KUBERNETES)).as_ref(), Some(&name));
    }
    for ours in builtin::messages(&KUBERNETES) {
        let name = ours.full_name(&KUBERNETES);
        match by_name.get(name.as_str()) {
            Some(_) => compare_message(&mut report, ours, by_name[aliased(&name, &by_name)], &by_name),
            // Types of alpha and beta versions follow the rules of the stable versions.
            None if [".v1alpha", ".v1beta"].iter().any(|stage| name.contains(stage)) => {}
            None => report.lines.push(format!("{name} is not in the reference")),
        }
    }
    report.finish(30_000);
}

/// Returns the types that are reachable from enabled resources, their lists and subresources, and from the
/// bodies of operations.
fn reachable(by_name: &HashMap<&str, &Value>, resources: &Value) -> BTreeSet<String> {
    // Packages of request bodies that this process only sends, with its own encoder, and of one body that no
    // release serves any more.
    const OTHERS: [&str; 3] = ["imagepolicy.v1alpha1", "pkg.apis.audit.v1", "apidiscovery.v2beta1"];
    let mut pending: Vec<String> = Vec::new();
    for resource in enabled(resources) {
        let ty = text(resource, "type");
        pending.push(ty.to_owned());
        if !text(resource, "listKind").is_empty() {
            pending.push(format!("{}.{}", ty.rsplit_once('.').unwrap().0, text(resource, "listKind")));
        }
        pending.extend(list(resource, "subresources").iter().map(|sub| text(sub, "type").to_owned()));
    }
    let bodies = list(resources, "virtual_types").iter().map(|ty| text(ty, "type"));
    pending.extend(bodies.filter(|ty| !OTHERS.iter().any(|other| ty.contains(other))).map(str::to_owned));
    let mut seen = BTreeSet::new();
    while let Some(name) = pending.pop() {
        let Some(ty) = by_name.get(name.as_str()) else { panic!("the reference lacks {name}") };
        if name.ends_with(".TypeMeta") || !seen.insert(name) {
            continue;
        }
        pending.extend(list(ty, "embeds").iter().map(|embed| text(embed, "type").to_owned()));
        for field in list(ty, "fields") {
            for place in [field, &field["items"], &field["additionalProperties"]] {
                pending.extend(place["ref"].as_str().map(str::to_owned));
            }
        }
    }
    seen
}

/// Returns the name of the type for which `name` is an alias. Some versions contain the types of another
/// version under different names.
fn aliased<'n>(name: &'n str, by_name: &HashMap<&str, &'n Value>) -> &'n str {
    by_name.get(name).and_then(|ty| ty["same_as"].as_str()).unwrap_or(name)
}

fn compare_message(report: &mut Report, ours: &Message, theirs: &Value, by_name: &HashMap<&str, &Value>) {
    let name = text(theirs, "name");
    let is_alias = ours.full_name(&KUBERNETES) != name;
    let fields = list(theirs, "fields");
    report.same(
        name,
        "fields",
        ours.fields.iter().map(|field| &*field.name).collect::<Vec<_>>(),
        fields.iter().map(|field| text(field, "json")).collect(),
    );
    report.same(name, "atomic", ours.atomic, text(theirs, &KUBERNETES.extension("map-type")) == "atomic");
    let union = &theirs[KUBERNETES.extension("unions")][0];
    let discriminated = union["fields-to-discriminateBy"].as_object();
    report.same(
        name,
        "union",
        ours.published_union.map(|union| (union.discriminator, union.members.to_vec())),
        discriminated.map(|discriminated| {
            (text(union, "discriminator"), discriminated.keys().map(String::as_str).collect())
        }),
    );
    let embeds: BTreeMap<_, _> = list(theirs, "embeds")
        .iter()
        .filter(|embed| embed.get("pb").is_some())
        .map(|embed| (aliased(text(embed, "type"), by_name), embed["pb"][0].as_u64()))
        .collect();
    let inlined = |inlined: u16| {
        (&ours.inlined[usize::from(inlined)].message, ours.inlined[usize::from(inlined)].number)
    };
    for (ours, theirs) in ours.fields.iter().zip(fields) {
        let place = format!("{name}.{}", ours.name);
        let via = text(theirs, "via");
        match ours.inlined.map(inlined) {
            Some((message, number)) => {
                // The inlined types of an alias have alias names too, so their names are not compared.
                if !is_alias {
                    report.same(&place, "inlined", aliased(&message.full_name(&KUBERNETES), by_name), via);
                }
                let embedded = embeds.get(via).copied().flatten();
                report.same(&place, "inlined number", Some(u64::from(number)), embedded);
                let own = message.field(&ours.name).expect("the struct has the field that was taken from it");
                report.same(&place, "number in the inlined struct", ours.number, own.number);
            }
            None => {
                report.same(&place, "number", u64::from(ours.number), theirs["pb"][0].as_u64().unwrap_or(0));
            }
        }
        compare_field(report, &place, ours, theirs, by_name);
    }
}

fn compare_field(
    report: &mut Report,
    place: &str,
    ours: &Field,
    theirs: &Value,
    by_name: &HashMap<&str, &Value>,
) {
    report.same(place, "required", ours.required, flag(theirs, "required"));
    report.same(place, "omit_empty", ours.omit_empty, flag(theirs, "omitempty"));
    report.same(place, "pointer", ours.pointer, flag(theirs, "pointer") && ours.shape() == Shape::Single);
    if text(theirs, "from") != "go" {
        let default = ours.default.as_ref().map(|default| serde_json::from_str(default).unwrap());
        report.same(place, "default", default.as_ref(), theirs.get("default"));
    }
    let values =
        [theirs, &theirs["items"], &theirs["additionalProperties"]].map(|place| texts(place, "enum"));
    report.same(
        place,
        "enumeration",
        ours.enumeration.iter().map(|value| &**value).collect::<Vec<_>>(),
        values.into_iter().flatten().collect(),
    );
    let keys = texts(theirs, &KUBERNETES.extension("list-map-keys"));
    let list_type = match text(theirs, &KUBERNETES.extension("list-type")) {
        "map" => format!("map {keys:?}"),
        "set" => "set".to_owned(),
        _ => "atomic".to_owned(),
    };
    let our_list_type = match ours.list_type() {
        ListType::Map(keys) => format!("map {keys:?}"),
        ListType::Set => "set".to_owned(),
        ListType::Atomic => "atomic".to_owned(),
    };
    report.same(place, "list type", our_list_type, list_type);
    let strategy: BTreeSet<_> =
        text(theirs, &KUBERNETES.extension("patch-strategy")).split(',').filter(|s| !s.is_empty()).collect();
    let patch = ours.patch;
    let our_strategy =
        [("merge", patch.merge), ("retainKeys", patch.retain_keys), ("replace", patch.replace)];
    let our_strategy = our_strategy.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
    report.same(place, "patch strategy", our_strategy, strategy);
    report.same(
        place,
        "merge key",
        patch.merge_key,
        theirs[KUBERNETES.extension("patch-merge-key")].as_str(),
    );
    let (shape, kind, target) = reference_type(theirs, by_name);
    report.same(place, "shape", ours.shape(), shape);
    report.same(place, "kind", our_kind(ours.element()), kind);
    for name in ["map-type", "list-type"] {
        let published = ours.published.filter(|published| published.name == name);
        if let Some(published) = published {
            report.same(place, name, published.value, text(theirs, &KUBERNETES.extension(name)));
        }
    }
    let map_type = text(theirs, &KUBERNETES.extension("map-type"));
    let struct_atomic = shape == Shape::Single
        && target.is_some_and(|target| text(target, &KUBERNETES.extension("map-type")) == "atomic");
    report.same(
        place,
        "atomic",
        match &ours.kind {
            Kind::Map(map) => map.atomic,
            _ => ours.atomic,
        },
        map_type == "atomic" || (struct_atomic && map_type != "granular"),
    );
}

/// Returns shape, kind and referenced type of a field in the reference.
fn reference_type<'v>(
    field: &Value,
    by_name: &HashMap<&str, &'v Value>,
) -> (Shape, String, Option<&'v Value>) {
    let values = &field["additionalProperties"];
    let wrapped = |name: Option<&str>| {
        name.and_then(|name| by_name.get(name)).is_some_and(|ty| ty.get("pbwrap").is_some())
    };
    let (shape, value) = match text(field, "type") {
        "array" if wrapped(field["pb"][2].as_str()) => (Shape::WrappedList, &field["items"]),
        "array" => (Shape::List, &field["items"]),
        "object" if text(values, "type") == "array" => (Shape::MapOfLists, &values["items"]),
        "object" if values.is_object() => (Shape::Map, values),
        _ => (Shape::Single, field),
    };
    let format = text(value, "format");
    let kind = match text(value, "type") {
        "" => {
            let name = text(value, "ref");
            let ty = by_name[name];
            let short = name.rsplit('.').next().unwrap();
            let kind = match short {
                "JSON" => "Json".to_owned(),
                "JSONSchemaPropsOrArray" => "SchemaOrArray".to_owned(),
                "JSONSchemaPropsOrBool" => "SchemaOrBool".to_owned(),
                "JSONSchemaPropsOrStringArray" => "SchemaOrStrings".to_owned(),
                short if flag(ty, "scalar") => short.to_owned(),
                _ => name.to_owned(),
            };
            return (shape, kind, Some(ty));
        }
        "integer" if format == "int32" => "Int32",
        "integer" => "Int64",
        "number" => "Double",
        "boolean" => "Bool",
        "string" if format == "byte" => "Bytes",
        "string" => "String",
        "object" => "Json",
        other => other,
    };
    (shape, kind.to_owned(), None)
}

fn our_kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name(&KUBERNETES),
        Kind::SchemaOrArray(_) => "SchemaOrArray".to_owned(),
        Kind::SchemaOrBool(_) => "SchemaOrBool".to_owned(),
        Kind::SchemaOrStrings(_) => "SchemaOrStrings".to_owned(),
        plain => format!("{plain:?}"),
    }
}

#[test]
fn resources_agree_with_the_reference_data() {
    let Some(reference) = facts("resources.json") else { return };
    let registry = Registry::new(&KUBERNETES);
    let mut report = Report::default();
    let mut names = BTreeSet::new();
    for theirs in enabled(&reference) {
        let (group, version, plural) =
            (text(theirs, "group"), text(theirs, "version"), text(theirs, "resource"));
        let place = format!("{group}/{version}/{plural}");
        let Some(ours) = registry.resource(group, version, plural) else {
            report.lines.push(format!("{place} is missing"));
            continue;
        };
        compare_resource(&mut report, &place, ours, theirs);
        names.insert(place);
    }
    let none = Enablement::parse("", &registry).unwrap();
    let served = none.gated(registry.naming(), |_| false).enabled_types(&registry);
    for ours in registry.resources() {
        let place = format!("{}/{}/{}", ours.group, ours.version, ours.table.plural);
        let is_served = served.resource(&ours.group, &ours.version, &ours.table.plural).is_some();
        report.same(&place, "enabled in the reference", is_served, names.contains(&place));
    }
    for theirs in list(&reference, "groups") {
        let Some(ours) = registry.group(text(theirs, "group")) else { continue };
        // The reference data has no priority for the group of the aggregator, because this group always comes
        // first.
        if let Some(priority) = theirs["group_priority"].as_u64() {
            report.same(&ours.name, "priority", u64::from(ours.priority), priority);
            for version in &ours.versions {
                let theirs = theirs["version_priority"][&*version.version].as_u64();
                report.same(&version.api_version, "priority", Some(u64::from(version.priority)), theirs);
            }
        }
    }
    report.finish(600);
}

fn compare_resource(report: &mut Report, place: &str, ours: &Resource, theirs: &Value) {
    let table = &ours.table;
    report.same(place, "singular", &*table.singular, text(theirs, "singular"));
    report.same(place, "kind", &*table.kind, text(theirs, "kind"));
    if theirs.get("listKind").is_some() {
        report.same(place, "list kind", &*table.list_kind, text(theirs, "listKind"));
    }
    report.same(place, "namespaced", table.scope == Scope::Namespaced, flag(theirs, "namespaced"));
    report.same(place, "short names", &*table.short_names, &owned(theirs, "shortNames"));
    report.same(place, "categories", &*table.categories, &owned(theirs, "categories"));
    report.same(place, "verbs", table.verbs, &texts(theirs, "verbs"));
    report.same(place, "type", table.message.full_name(&KUBERNETES).as_str(), text(theirs, "type"));
    // The reference data has the release in which a kind was deprecated, except for endpoints; this server
    // warns about endpoints too (docs/api/validation.md).
    let deprecated = if table.kind == "Endpoints" { "1.33" } else { text(theirs, "deprecated") };
    report.same(place, "deprecated", &*table.deprecated, deprecated);
    report.same(place, "virtual", ours.storage.is_none(), flag(theirs, "virtual"));
    if let Some(storage) = &ours.storage {
        let theirs = &theirs["storage"];
        report.same(place, "storage group", storage.group.as_str(), text(theirs, "group"));
        report.same(place, "storage kind", &*storage.kind, text(theirs, "kind"));
        // The reference server stores custom resource definitions in a version that it no longer serves.
        if table.plural != "customresourcedefinitions" {
            // The reference server stores mutating policies in a version that is not served here; discovery
            // contains the hash of that version.
            let version = match table.behavior.hashed_version {
                "" => storage.api_version.rsplit('/').next().unwrap(),
                hashed => hashed,
            };
            report.same(place, "storage version", version, text(theirs, "version"));
        }
    }
    let mut subresources: Vec<_> = list(theirs, "subresources").iter().collect();
    subresources.sort_by_key(|sub| text(sub, "name"));
    report.same(
        place,
        "subresources",
        ours.subresources.iter().map(|sub| sub.table.name).collect::<Vec<_>>(),
        subresources.iter().map(|sub| text(sub, "name")).collect(),
    );
    for (ours, theirs) in ours.subresources.iter().zip(subresources) {
        let place = format!("{place}/{}", ours.table.name);
        report.same(&place, "group", ours.group.as_str(), text(theirs, "group"));
        report.same(&place, "version", &*ours.table.version, text(theirs, "version"));
        report.same(&place, "kind", &*ours.table.kind, text(theirs, "kind"));
        report.same(&place, "verbs", ours.table.verbs, &texts(theirs, "verbs"));
        report.same(&place, "connect", ours.table.connect, flag(theirs, "connect"));
        report.same(&place, "type", ours.table.message.full_name(&KUBERNETES).as_str(), text(theirs, "type"));
    }
}

#[test]
fn table_columns_agree_with_the_reference_data() {
    let Some(reference) = facts("columns.json") else { return };
    let registry = Registry::new(&KUBERNETES);
    let mut report = Report::default();
    for theirs in list(&reference, "kinds") {
        for served in list(theirs, "served_as") {
            let [group, version, plural] = [0, 1, 2].map(|at| served[at].as_str().unwrap());
            let Some(ours) = registry.resource(group, version, plural) else { continue };
            let place = format!("{group}/{version}/{plural}");
            // The reference server defines columns for storage capacities, but does not use them.
            if text(theirs, "source") == "default" || plural == "csistoragecapacities" {
                report.same(&place, "columns", ours.table.columns.len(), 0);
                continue;
            }
            let columns = list(theirs, "columns");
            let defined = ours.table.columns.iter().filter(|column| !column.name.is_empty());
            report.same(&place, "columns", defined.clone().count(), columns.len());
            for (ours, theirs) in defined.zip(columns) {
                let place = format!("{place} {}", ours.name);
                report.same(&place, "name", &*ours.name, text(theirs, "name"));
                report.same(&place, "type", &*ours.kind, text(theirs, "type"));
                report.same(&place, "format", &*ours.format, text(theirs, "format"));
                report.same(&place, "priority", Some(i64::from(ours.priority)), theirs["priority"].as_i64());
                report.same(&place, "cell", &*ours.cell, text(theirs, "cell"));
            }
        }
    }
    for name in ["autoscaling.v1.Scale", "meta.v1.Status"] {
        let message =
            builtin::messages(&KUBERNETES).iter().find(|m| m.full_name(&KUBERNETES).ends_with(name)).unwrap();
        let theirs =
            list(&reference, "kinds").iter().find(|kind| text(kind, "kind") == message.name).unwrap();
        let ours =
            builtin::columns(message).iter().map(|column| (&*column.name, &*column.cell, &*column.kind));
        let theirs = list(theirs, "columns").iter();
        let theirs = theirs.map(|column| (text(column, "name"), text(column, "cell"), text(column, "type")));
        report.same(name, "columns", ours.collect::<Vec<_>>(), theirs.collect());
    }
    report.finish(1000);
}

#[test]
fn selectable_fields_agree_with_the_reference_data() {
    let Some(reference) = facts("selectable_fields.json") else { return };
    let registry = Registry::new(&KUBERNETES);
    let mut report = Report::default();
    let rows = reference.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_array).flatten();
    for theirs in rows.filter(|row| row.get("fields").is_some()) {
        let (group, version, plural) =
            (text(theirs, "group"), text(theirs, "version"), text(theirs, "resource"));
        let Some(ours) = registry.resource(group, version, plural) else { continue };
        let place = format!("{group}/{version}/{plural}");
        report.same(&place, "own list", ours.table.selectable_refusal.is_some(), flag(theirs, "explicit"));
        let general = ["metadata.name", "metadata.namespace"];
        let theirs = list(theirs, "fields").iter().filter(|field| !general.contains(&text(field, "label")));
        let theirs: Vec<_> = theirs.collect();
        report.same(
            &place,
            "labels",
            ours.table.selectable.iter().map(|field| &*field.label).collect::<Vec<_>>(),
            theirs.iter().map(|field| text(field, "label")).collect(),
        );
        for (ours, theirs) in ours.table.selectable.iter().zip(theirs) {
            let value = text(theirs, "value").trim_end_matches("|\"\"");
            // If the description in the reference is a single path, the path in this server must be the same;
            // the other descriptions are prose.
            if !value.contains([' ', '"', '[']) && value != "decimal" {
                report.same(&format!("{place} {}", ours.label), "path", &*ours.path, value);
            }
        }
    }
    report.finish(150);
}

#[test]
fn validation_rules_agree_with_the_reference_data() {
    let Some(reference) = facts("validation.json") else { return };
    let registry = Registry::new(&KUBERNETES);
    let mut report = Report::default();
    let kinds = list(&reference, "kinds");
    for theirs in kinds.iter().filter(|kind| kind.get("name_rule").is_some()) {
        for version in texts(theirs, "versions") {
            let (group, plural) = (text(theirs, "group"), text(theirs, "resource"));
            let Some(ours) = registry.resource(group, version, plural) else { continue };
            let place = format!("{group}/{version}/{plural}");
            let same_as = theirs.get("same_as").map(|same| {
                kinds.iter().find(|kind| kind["group"] == same[0] && kind["resource"] == same[1]).unwrap()
            });
            compare_rules(&mut report, &place, ours, theirs, same_as.unwrap_or(theirs));
        }
    }
    report.finish(500);
}

fn compare_rules(report: &mut Report, place: &str, ours: &Resource, theirs: &Value, rest: &Value) {
    let table = &ours.table;
    let name_rule = match text(theirs, "name_rule") {
        rule if rule.starts_with("dns1123_label") => NameRule::Label,
        rule if rule.starts_with("dns1123_subdomain") => NameRule::Subdomain,
        "\"{spec.names.plural}.{spec.group}\"" => NameRule::Subdomain,
        // Each other rule applies to one kind only, and is stricter than the rule for path segments.
        _ => NameRule::PathSegment,
    };
    report.same(place, "name rule", table.name_rule, name_rule);
    report.same(place, "put_creates", table.put_creates, flag(rest, "put_creates"));
    report.same(
        place,
        "unconditional_update",
        table.unconditional_update,
        flag(rest, "unconditional_update"),
    );
    report.same(place, "orphans_by_default", table.orphans_by_default, text(rest, "default_gc") == "orphan");
    report.same(place, "graceful_delete", table.graceful_delete, flag(&rest["graceful_delete"], "supported"));
    report.same(
        place,
        "delete_returns",
        table.delete_returns_object,
        text(rest, "delete_returns") == "object",
    );
    let generation =
        rest.get("generation_on_create").is_some() || rest.get("generation_bumps_on_change_of").is_some();
    report.same(place, "has a generation", !table.generation_on.is_empty(), generation);
    let immutable: Vec<_> = texts(rest, "immutable").into_iter().filter(|path| !path.contains('[')).collect();
    report.same(place, "immutable", table.immutable, &immutable);
    let reset = &rest["reset_fields"];
    report.same(place, "status rules", table.status.is_some(), reset.is_object());
    if let Some(status) = &table.status {
        report.same(place, "reset by main", &*status.reset_by_main, &owned(reset, "main"));
        report.same(place, "reset by status", &*status.reset_by_status, &owned(reset, "status"));
    }
}
