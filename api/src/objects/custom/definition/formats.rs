//! Formats that a schema names but the server does not know. Such a format is not enforced; the writer of the
//! definition is warned of it (docs/api/validation.md#custom-resource-definitions).

use hashbrown::HashSet;

use super::{Definition, walk};

/// The formats of texts, without dashes.
const KNOWN: [&str; 27] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "quantity",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// The warnings for a definition; on update only those for formats that the stored one does not have.
///
/// The type beside a format does not count: `int32` is not the format of a text, and the reference server warns of it
/// on integers, too.
pub fn warnings(new: &Definition, old: Option<&Definition>) -> Vec<String> {
    let known: HashSet<String> = old.into_iter().flat_map(unrecognized).collect();
    let mut seen = HashSet::new();
    let fresh = unrecognized(new).into_iter().filter(|format| !known.contains(format));
    fresh
        .filter(|format| seen.insert(format.clone()))
        .map(|format| format!("unrecognized format {}", crate::values::field::go_quote(&format)))
        .collect()
}

/// The formats of a definition that are not known, in the order of its schemas.
fn unrecognized(definition: &Definition) -> Vec<String> {
    let mut found = Vec::new();
    let shared = definition.shared().validation;
    for schema in definition.schemas().take(if shared { 1 } else { usize::MAX }) {
        walk::each(schema, |node| {
            let is_known = || KNOWN.contains(&node.format.replace('-', "").as_str());
            if !node.format.is_empty() && !is_known() {
                found.push(node.format.clone());
            }
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::object;

    fn definition(formats: &[&str]) -> Definition {
        let properties: Vec<String> =
            formats.iter().map(|format| format!(r#""{format}":{{"format":"{format}"}}"#)).collect();
        let schema = format!(r#"{{"properties":{{{}}}}}"#, properties.join(","));
        let version = format!(r#"{{"schema":{{"openAPIV3Schema":{schema}}}}}"#);
        Definition::read(&object(&format!(r#"{{"spec":{{"versions":[{version},{version}]}}}}"#)))
    }

    #[test]
    fn unknown_formats_are_warned_of_once() {
        let all = ["date-time", "int32", "ipv4", "k8s-short-name", "odd", "uuid"];
        for (new, old, want) in [
            (&all[..], None, vec![r#"unrecognized format "int32""#, r#"unrecognized format "odd""#]),
            (&all, Some(&["odd"][..]), vec![r#"unrecognized format "int32""#]),
            (&["date-time"], Some(&[]), vec![]),
        ] {
            let old = old.map(definition);
            assert_eq!(warnings(&definition(new), old.as_ref()), want, "{new:?}");
        }
    }
}
