//! Assembly of a document from its parts, with one part in memory at a time, as JSON or as protobuf.
//!
//! ```text
//! path items ─► (name every definition they need) ─► definitions ─► head, paths, definitions in one buffer
//! ```
//!
//! Parts are built as trees and only their encoded form is kept, so peak memory is little more than the
//! document.

use std::sync::Arc;

use super::definition::Definitions;
use super::dialect::Dialect;
use super::gnostic::{self, Section, layout};
use super::operation::PathItem;
use super::parameter;
use super::render::Renderer;
use crate::discovery::{Merge, Swagger};
use values::json::{self, Object, Value};
use values::naming::Naming;

/// The encoding of a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OpenApiEncoding {
    Json,
    Protobuf,
}

/// Returns the document of `paths` (sorted by path), all `definitions` that the paths need, and the content of other
/// servers. `git_version` is the version that the server reports.
pub(super) fn assemble(
    naming: &'static Naming,
    git_version: &str,
    dialect: Dialect,
    encoding: OpenApiEncoding,
    paths: &[PathItem],
    definitions: Definitions,
    swaggers: &[Arc<Swagger>],
) -> Vec<u8> {
    let renderer = Renderer { naming, dialect };
    let mut writer = Writer::new(encoding, dialect);
    for item in paths {
        writer.path(&item.path, &renderer.path_item(item));
    }
    let mut merge = Merge::new(swaggers);
    definitions.for_each(|name, schema| {
        merge.own(name, schema);
        writer.definition(name, schema);
    });
    let (paths, definitions) = merge.finish();
    paths.iter().for_each(|(path, item)| writer.path(path, item));
    definitions.iter().for_each(|(name, schema)| writer.definition(name, schema));
    if dialect == Dialect::V2 {
        for shared in parameter::shared() {
            writer.parameter(&shared.name, &renderer.parameter(shared));
        }
    }
    writer.finish(&head(naming, git_version, dialect))
}

struct Writer {
    encoding: OpenApiEncoding,
    dialect: Dialect,
    paths: Vec<u8>,
    definitions: Vec<u8>,
    parameters: Vec<u8>,
}

impl Writer {
    fn new(encoding: OpenApiEncoding, dialect: Dialect) -> Self {
        Writer { encoding, dialect, paths: Vec::new(), definitions: Vec::new(), parameters: Vec::new() }
    }

    fn path(&mut self, path: &str, item: &Value) {
        add(self.encoding, self.dialect, &mut self.paths, path, item, &layout::PATHS);
    }

    fn definition(&mut self, name: &str, schema: &Value) {
        add(self.encoding, self.dialect, &mut self.definitions, name, schema, &layout::SCHEMAS);
    }

    fn parameter(&mut self, name: &str, parameter: &Value) {
        add(self.encoding, self.dialect, &mut self.parameters, name, parameter, &layout::PARAMETERS);
    }

    fn finish(self, head: &Value) -> Vec<u8> {
        let size = self.paths.len() + self.definitions.len() + self.parameters.len() + 1024;
        let mut out = Vec::with_capacity(size);
        match self.encoding {
            OpenApiEncoding::Json => self.finish_json(head, &mut out),
            OpenApiEncoding::Protobuf => self.finish_protobuf(head, &mut out),
        }
        out
    }

    fn finish_json(self, head: &Value, out: &mut Vec<u8>) {
        // The head is an object. The large members replace the closing brace of the head.
        json::write(head, out);
        out.pop();
        let member = |out: &mut Vec<u8>, before: &[u8], members: &[u8]| {
            out.extend_from_slice(before);
            out.extend_from_slice(members);
            out.push(b'}');
        };
        member(out, b",\"paths\":{", &self.paths);
        match self.dialect {
            Dialect::V2 => {
                member(out, b",\"definitions\":{", &self.definitions);
                member(out, b",\"parameters\":{", &self.parameters);
                out.extend_from_slice(b",\"securityDefinitions\":{\"BearerToken\":");
                json::write(&bearer_token(), out);
                out.push(b'}');
            }
            Dialect::V3 => {
                member(out, b",\"components\":{\"schemas\":{", &self.definitions);
                out.extend_from_slice(b",\"securitySchemes\":{\"BearerToken\":");
                json::write(&bearer_token(), out);
                out.extend_from_slice(b"}}");
            }
        }
        out.push(b'}');
    }

    fn finish_protobuf(self, head: &Value, out: &mut Vec<u8>) {
        let dialect = self.dialect;
        let mut security = Vec::new();
        layout::SECURITY.add(dialect, "BearerToken", &bearer_token(), &mut security);
        gnostic::message(dialect, &layout::DOCUMENT, head, out);
        gnostic::bytes(gnostic::number_in(dialect, layout::DOCUMENT_PATHS), &self.paths, out);
        match dialect {
            Dialect::V2 => {
                gnostic::bytes(layout::DOCUMENT_DEFINITIONS, &self.definitions, out);
                gnostic::bytes(layout::DOCUMENT_PARAMETERS, &self.parameters, out);
                gnostic::bytes(layout::DOCUMENT_SECURITY, &security, out);
            }
            Dialect::V3 => {
                let mut components = Vec::with_capacity(self.definitions.len() + 256);
                gnostic::bytes(layout::COMPONENTS_SCHEMAS, &self.definitions, &mut components);
                gnostic::bytes(layout::COMPONENTS_SECURITY, &security, &mut components);
                gnostic::bytes(layout::DOCUMENT_COMPONENTS, &components, out);
            }
        }
    }
}

fn add(
    encoding: OpenApiEncoding,
    dialect: Dialect,
    to: &mut Vec<u8>,
    name: &str,
    value: &Value,
    section: &Section,
) {
    match encoding {
        OpenApiEncoding::Json => {
            if !to.is_empty() {
                to.push(b',');
            }
            json::write_string(name, to);
            to.push(b':');
            json::write(value, to);
        }
        OpenApiEncoding::Protobuf => section.add(dialect, name, value, to),
    }
}

/// Returns the small members of a document.
fn head(naming: &Naming, git_version: &str, dialect: Dialect) -> Value {
    let (member, number, version) = match dialect {
        Dialect::V2 => ("swagger", "2.0", git_version),
        Dialect::V3 => ("openapi", "3.0.0", "unversioned"),
    };
    let info = Object::from_iter([("title".into(), naming.title.into()), ("version".into(), version.into())]);
    let requirement = Object::from_iter([("BearerToken".into(), Value::Array(Vec::new()))]);
    let mut head = Object::from_iter([(member.into(), number.into()), ("info".into(), info.into())]);
    // Upstream's documents of version 3 define the scheme, but do not require it.
    if dialect == Dialect::V2 {
        head.push("security", Value::Array(vec![requirement.into()]));
    }
    head.into()
}

fn bearer_token() -> Value {
    let members = [
        ("description", "A bearer token in the Authorization header."),
        ("in", "header"),
        ("name", "authorization"),
        ("type", "apiKey"),
    ];
    members.into_iter().map(|(name, value)| (name.into(), value.into())).collect::<Object>().into()
}
