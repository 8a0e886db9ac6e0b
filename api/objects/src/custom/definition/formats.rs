//! Formats in a schema that the server does not support for the type of the schema. The server does not
//! enforce such a format, and the writer of the definition gets a warning
//! (docs/api/validation.md#custom-resource-definitions).

use hashbrown::HashSet;

use super::{Definition, walk};
use crate::custom::format;

/// Returns the warnings for a definition. An update reports only formats that the stored definition lacks.
pub fn warnings(new: &Definition, old: Option<&Definition>) -> Vec<String> {
    let known: HashSet<String> = old.into_iter().flat_map(unrecognized).collect();
    let mut seen = HashSet::new();
    let fresh = unrecognized(new).into_iter().filter(|format| !known.contains(format));
    fresh
        .filter(|format| seen.insert(format.clone()))
        .map(|format| format!("unrecognized format {}", values::field::go_quote(&format)))
        .collect()
}

/// Returns the unknown formats of a definition in the order of its schemas.
fn unrecognized(definition: &Definition) -> Vec<String> {
    let mut found = Vec::new();
    let shared = definition.shared().validation;
    for schema in definition.schemas().take(if shared { 1 } else { usize::MAX }) {
        walk::each(schema, |node| {
            if !node.format.is_empty() && !format::is_known(&node.kind, &node.format) {
                found.push(node.format.clone());
            }
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    /// Returns a definition of fields with these types and formats.
    fn definition(fields: &[(&str, &str)]) -> Definition {
        let property = |(at, (kind, format)): (usize, &(&str, &str))| {
            let kind = if kind.is_empty() { String::new() } else { format!(r#""type":"{kind}","#) };
            format!(r#""{at}":{{{kind}"format":"{format}"}}"#)
        };
        let properties: Vec<String> = fields.iter().enumerate().map(property).collect();
        let schema = format!(r#"{{"properties":{{{}}}}}"#, properties.join(","));
        let version = format!(r#"{{"schema":{{"openAPIV3Schema":{schema}}}}}"#);
        Definition::read(&object(&format!(r#"{{"spec":{{"versions":[{version},{version}]}}}}"#)))
    }

    #[test]
    fn unrecognized_formats_are_reported_once_in_a_warning() {
        let texts = [("string", "date-time"), ("", "int32"), ("string", "odd"), ("string", "uuid")];
        for (new, old, want) in [
            (&texts[..], None, vec![r#"unrecognized format "int32""#, r#"unrecognized format "odd""#]),
            (&texts, Some(&[("", "odd")][..]), vec![r#"unrecognized format "int32""#]),
            (&[("string", "date-time")], Some(&[]), vec![]),
            (
                &[("integer", "int32"), ("integer", "int64"), ("number", "float"), ("number", "double")],
                None,
                vec![],
            ),
            (
                &[("array", "cidr"), ("integer", "date"), ("boolean", "byte"), ("object", "cidr")],
                None,
                vec![
                    r#"unrecognized format "cidr""#,
                    r#"unrecognized format "date""#,
                    r#"unrecognized format "byte""#,
                ],
            ),
        ] {
            let old = old.map(definition);
            assert_eq!(warnings(&definition(new), old.as_ref()), want, "{new:?}");
        }
    }
}
