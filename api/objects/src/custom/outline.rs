//! The text of a definition without its schemas, which are the largest part of the definition.
//!
//! Discovery and routing do not need the schemas of a definition. The outline contains an empty schema
//! instead of each schema, so it still shows which versions have a schema. The input is canonical JSON whose
//! checksum was verified.

use values::json::scan::Scan;

/// Path of the schemas: names of members, and [`EACH`] for the elements of an array.
const SCHEMAS: [&str; 5] = ["spec", "versions", EACH, "schema", "openAPIV3Schema"];
const EACH: &str = "[]";

/// Returns the outline of a definition's text; `None` if the text is not canonical JSON.
pub fn outline(text: &[u8]) -> Option<Vec<u8>> {
    let (mut scan, mut out) = (Scan::new(text), Vec::new());
    copy(&mut scan, &SCHEMAS, &mut out)?;
    scan.is_at_end().then_some(out)
}

/// Copies a value except for the parts at `path`. The recursion is as deep as the path.
fn copy(scan: &mut Scan, path: &[&str], out: &mut Vec<u8>) -> Option<()> {
    match (path, scan.peek()) {
        ([EACH, below @ ..], b'[') => {
            scan.skip(1);
            out.push(b'[');
            let mut is_more = scan.peek() != b']';
            while is_more {
                copy(scan, below, out)?;
                is_more = more(scan, b']', out)?;
            }
            scan.take(b']').then(|| out.push(b']'))
        }
        ([next, below @ ..], b'{') if *next != EACH => {
            scan.skip(1);
            out.push(b'{');
            let mut is_more = scan.peek() != b'}';
            while is_more {
                let begin = scan.rest();
                let name = scan.name()?;
                out.extend_from_slice(begin.get(..begin.len() - scan.rest().len())?);
                if name.raw == next.as_bytes() {
                    copy(scan, below, out)?
                } else {
                    out.extend_from_slice(scan.value()?)
                }
                is_more = more(scan, b'}', out)?;
            }
            scan.take(b'}').then(|| out.push(b'}'))
        }
        ([], b'{') => {
            scan.value()?;
            out.extend_from_slice(b"{}");
            Some(())
        }
        _ => {
            out.extend_from_slice(scan.value()?);
            Some(())
        }
    }
}

fn more(scan: &mut Scan, end: u8, out: &mut Vec<u8>) -> Option<bool> {
    let is_more = scan.more(end)?;
    if is_more {
        out.push(b',');
    }
    Some(is_more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outline_of_a_definition_omits_its_schemas() {
        for (text, want) in [
            (
                r#"{"a":[{"x":1}],"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}},"served":true},{}],"z":"}"},"status":{}}"#,
                Some(
                    r#"{"a":[{"x":1}],"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{}},"served":true},{}],"z":"}"},"status":{}}"#,
                ),
            ),
            (r#"{"spec":{"versions":[]}}"#, Some(r#"{"spec":{"versions":[]}}"#)),
            (
                r#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":null}}]}}"#,
                Some(r#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":null}}]}}"#),
            ),
            // Other members of the same name are not schemas.
            (
                r#"{"openAPIV3Schema":{"a":1},"spec":{"openAPIV3Schema":{"a":1},"versions":{"schema":{"a":1}}}}"#,
                Some(
                    r#"{"openAPIV3Schema":{"a":1},"spec":{"openAPIV3Schema":{"a":1},"versions":{"schema":{"a":1}}}}"#,
                ),
            ),
            ("{}", Some("{}")),
            (r#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"a":"#, None),
            (r#"{"spec":{} }"#, None),
            (r#"{"spec":{}}x"#, None),
            ("", None),
        ] {
            let got = outline(text.as_bytes()).map(|got| String::from_utf8(got).unwrap());
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }
}
