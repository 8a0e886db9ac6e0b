//! OpenAPI v2 documents of extension servers, merged into the document of this server
//! (docs/api/extension-servers.md#groups-of-extension-servers).
//!
//! From the document of an extension server, only the paths of the versions that it serves here are used, and
//! the definitions that these paths need. Equal definitions of two servers become one definition. If two
//! definitions with the same name differ, the definition of the later server is renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::sha512_hex;
use values::json::{self, Object, Value};

/// Prefix of a reference to a definition.
const REFERENCE: &str = "#/definitions/";

/// Extension that names the types of a definition. The extension may differ between servers that share the
/// definition.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Parts of a document by their names.
pub type NamedParts = Vec<(String, Value)>;

/// The part of an extension server's document that is about one version.
#[derive(Debug)]
pub struct Swagger {
    /// Hash of the content, to compare two values.
    digest: String,
    paths: NamedParts,
    definitions: BTreeMap<String, Value>,
}

impl PartialEq for Swagger {
    fn eq(&self, other: &Swagger) -> bool {
        self.digest == other.digest
    }
}

impl Swagger {
    /// Returns the part of a document about the paths below `prefix`; `None` if there are no such paths.
    pub fn read(document: &Value, prefix: &str) -> Option<Swagger> {
        let below = |path: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
        let paths: NamedParts = document
            .get("paths")?
            .as_object()?
            .iter()
            .filter(|(path, _)| below(path))
            .map(|(path, item)| (path.to_owned(), item.clone()))
            .collect();
        if paths.is_empty() {
            return None;
        }
        let all = document.get("definitions");
        let mut definitions = BTreeMap::new();
        let mut pending: Vec<String> = Vec::new();
        paths.iter().for_each(|(_, item)| references(item, &mut |name| pending.push(name.to_owned())));
        while let Some(name) = pending.pop() {
            if definitions.contains_key(&name) {
                continue;
            }
            let Some(definition) = all.and_then(|all| all.get(&name)) else { continue };
            references(definition, &mut |name| pending.push(name.to_owned()));
            definitions.insert(name, definition.clone());
        }
        let mut text = Vec::new();
        for (name, value) in paths.iter().map(|(name, value)| (name, value)).chain(&definitions) {
            json::write_string(name, &mut text);
            json::write(value, &mut text);
        }
        Some(Swagger { digest: sha512_hex(&text), paths, definitions })
    }
}

/// A merge of documents: the definitions of this server come first, then the definitions of other servers.
pub struct Merge<'m> {
    foreign: &'m [Arc<Swagger>],
    foreign_names: BTreeSet<&'m str>,
    /// Definitions of this server whose names another server also uses.
    shared: BTreeMap<String, Value>,
}

impl<'m> Merge<'m> {
    /// Creates a merge with the content of other servers.
    pub fn new(foreign: &'m [Arc<Swagger>]) -> Merge<'m> {
        let names = foreign.iter().flat_map(|one| one.definitions.keys().map(String::as_str));
        Merge { foreign, foreign_names: names.collect(), shared: BTreeMap::new() }
    }

    /// Records a definition of this server.
    pub fn own(&mut self, name: &str, definition: &Value) {
        if self.foreign_names.contains(name) {
            self.shared.insert(name.to_owned(), definition.clone());
        }
    }

    /// Returns the paths and definitions of the other servers, with renamed definitions.
    pub fn finish(mut self) -> (NamedParts, NamedParts) {
        let (mut paths, mut definitions) = (Vec::new(), Vec::new());
        for one in self.foreign {
            let mut names: BTreeMap<&str, String> = BTreeMap::new();
            let mut added = Vec::new();
            for (name, definition) in &one.definitions {
                let mut unique_name = name.clone();
                let mut number = 1;
                let is_known = loop {
                    match self.shared.get(&unique_name) {
                        None => break false,
                        Some(known) if is_alike(known, definition) => break true,
                        Some(_) => {
                            number += 1;
                            unique_name = format!("{name}_v{number}");
                        }
                    }
                };
                if !is_known {
                    self.shared.insert(unique_name.clone(), definition.clone());
                    added.push((unique_name.clone(), definition));
                }
                if unique_name != *name {
                    names.insert(name, unique_name);
                }
            }
            let renamed =
                |value: &Value| if names.is_empty() { value.clone() } else { rename(value, &names) };
            definitions.extend(added.into_iter().map(|(name, definition)| (name, renamed(definition))));
            paths.extend(one.paths.iter().map(|(path, item)| (path.clone(), renamed(item))));
        }
        (paths, definitions)
    }
}

/// Returns whether two definitions are equal, if the types that use them are ignored.
fn is_alike(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let members = |object: &Object| -> BTreeMap<String, Value> {
        let compared = object.iter().filter(|(name, _)| *name != KINDS);
        compared.map(|(name, value)| (name.to_owned(), sorted(value))).collect()
    };
    members(one) == members(other)
}

/// Returns the value with sorted members.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut members: Vec<(&str, &Value)> = object.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let members = members.into_iter().map(|(name, value)| (name.to_owned().into(), sorted(value)));
            Value::from(Object::from_iter(members))
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Calls `tell` with the name of each definition to which `value` refers.
fn references(value: &Value, tell: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(object) => {
            for (name, value) in object.iter() {
                match value.as_str().and_then(|text| text.strip_prefix(REFERENCE)) {
                    Some(definition) if name == "$ref" => tell(definition),
                    _ => references(value, tell),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, tell)),
        _ => {}
    }
}

/// Returns the value with renamed references to definitions.
fn rename(value: &Value, names: &BTreeMap<&str, String>) -> Value {
    match value {
        Value::Object(object) => {
            let members = object.iter().map(|(name, value)| {
                let target = value.as_str().and_then(|text| text.strip_prefix(REFERENCE));
                let given = target.filter(|_| name == "$ref").and_then(|target| names.get(target));
                let value = match given {
                    Some(given) => format!("{REFERENCE}{given}").into(),
                    None => rename(value, names),
                };
                (name.to_owned().into(), value)
            });
            Value::from(Object::from_iter(members))
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| rename(item, names)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn swagger(meta: &str) -> Swagger {
        let text = format!(
            r##"{{"swagger":"2.0","paths":{{
                "/apis/a.example/v1/things":{{"get":{{"responses":{{"200":{{"schema":{{"$ref":"#/definitions/Thing"}}}}}}}}}},
                "/apis/a.example/v1beta1/things":{{"get":{{}}}},"/version/":{{}}}},
              "definitions":{{
                "Thing":{{"properties":{{"metadata":{{"$ref":"#/definitions/Meta"}}}}}},
                "Meta":{meta},"Unused":{{}}}}}}"##
        );
        Swagger::read(&value(&text), "/apis/a.example/v1").unwrap()
    }

    const META: &str =
        r#"{"type":"object","description":"m","x-kubernetes-group-version-kind":[{"kind":"A"}]}"#;

    #[test]
    fn a_swagger_document_is_reduced_to_the_paths_of_a_version_and_their_definitions() {
        let swagger = swagger(META);
        assert_eq!(swagger.paths.len(), 1);
        assert_eq!(swagger.definitions.keys().collect::<Vec<_>>(), ["Meta", "Thing"]);
        assert!(Swagger::read(&value(r#"{"paths":{"/version/":{}}}"#), "/apis/a.example/v1").is_none());
        assert!(Swagger::read(&value("[]"), "/apis/a.example/v1").is_none());
    }

    #[test]
    fn different_definitions_with_the_same_name_are_renamed() {
        let own = value(r#"{"description":"m","type":"object","x-kubernetes-group-version-kind":[]}"#);
        let differs = r#"{"type":"string"}"#;
        for (meta, own, want) in [
            (META, Some(&own), &["Thing"][..]),
            (META, None, &["Meta", "Thing"]),
            (differs, Some(&own), &["Meta_v2", "Thing"]),
        ] {
            let foreign = [Arc::new(swagger(meta))];
            let mut merge = Merge::new(&foreign);
            merge.own("Other", &Value::Null);
            own.into_iter().for_each(|own| merge.own("Meta", own));
            let (paths, definitions) = merge.finish();
            assert_eq!(paths[0].0, "/apis/a.example/v1/things");
            assert_eq!(definitions.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), want, "{meta}");
            let thing = &definitions.iter().find(|(name, _)| name == "Thing").unwrap().1;
            let given =
                if want.contains(&"Meta_v2") { "#/definitions/Meta_v2" } else { "#/definitions/Meta" };
            assert_eq!(thing.str_at(&["properties", "metadata", "$ref"]), given);
        }
    }
}
