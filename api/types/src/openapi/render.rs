//! Rendering of operations as path items, in either dialect. Members are in alphabetical order.

use super::dialect::{Dialect, gvk_value};
use super::operation::{Media, Operation, PathItem, ResponseContent};
use super::parameter::Parameter;
use values::json::{self, Object, Value};
use values::naming::Naming;

/// Renderer for one dialect and naming profile.
#[derive(Clone, Copy)]
pub(super) struct Renderer {
    pub naming: &'static Naming,
    pub dialect: Dialect,
}

impl Renderer {
    /// Renders a path item.
    pub(super) fn path_item(&self, item: &PathItem) -> Value {
        let mut members = Object::with_capacity(item.operations.len() + 1);
        for (method, operation) in &item.operations {
            members.push(method.name(), self.operation(operation));
        }
        if !item.parameters.is_empty() {
            members.push("parameters", self.parameters(&item.parameters));
        }
        sorted(members)
    }

    fn operation(&self, operation: &Operation) -> Value {
        let mut members = Object::with_capacity(11);
        if operation.deprecated {
            members.push("deprecated", true.into());
        }
        members.push("description", operation.description.as_str().into());
        members.push("operationId", operation.id.as_str().into());
        match self.dialect {
            Dialect::V3 => self.bodies_v3(operation, &mut members),
            Dialect::V2 => self.bodies_v2(operation, &mut members),
        }
        members.push("tags", Value::Array(vec![operation.tag.as_str().into()]));
        if !operation.action.is_empty() {
            members.push(self.naming.extension("action"), operation.action.into());
        }
        if let Some(gvk) = &operation.gvk {
            members.push(self.naming.extension("group-version-kind"), gvk_value(gvk));
        }
        sorted(members)
    }

    fn bodies_v3(&self, operation: &Operation, members: &mut Object) {
        if !operation.parameters.is_empty() {
            members.push("parameters", self.parameters(&operation.parameters));
        }
        if let Some(body) = &operation.body {
            // The server detects the encoding of a request body that names no media type, so the
            // document allows any media type.
            let media = if body.media == Media::Object { Media::Any } else { body.media };
            let content = self.content(media, &self.reference(&body.schema));
            let mut request = Object::from_iter([("content".into(), content)]);
            if body.required {
                request.push("required", true.into());
            }
            members.push("requestBody", request.into());
        }
        let responses = operation.responses.iter().map(|(code, content)| {
            let mut response = Object::with_capacity(2);
            match content {
                ResponseContent::None => {}
                ResponseContent::Text(media) => response.push("content", self.content(*media, &string())),
                ResponseContent::Schema(name, media) => {
                    response.push("content", self.content(*media, &self.reference(name)));
                }
            }
            response.push("description", phrase(*code).into());
            (code.to_string().into(), response.into())
        });
        members.push("responses", responses.collect::<Object>().into());
    }

    fn bodies_v2(&self, operation: &Operation, members: &mut Object) {
        let mut parameters = match self.parameters(&operation.parameters) {
            Value::Array(parameters) => parameters,
            _ => Vec::new(),
        };
        if let Some(body) = &operation.body {
            members.push("consumes", self.media_types(body.media).as_slice().into());
            let mut parameter = Object::with_capacity(4);
            parameter.push("in", "body".into());
            parameter.push("name", "body".into());
            if body.required {
                parameter.push("required", true.into());
            }
            parameter.push("schema", self.reference(&body.schema));
            parameters.insert(0, parameter.into());
        }
        if !parameters.is_empty() {
            members.push("parameters", Value::Array(parameters));
        }
        let mut produces = Vec::new();
        let responses = operation.responses.iter().map(|(code, content)| {
            let (schema, media) = match content {
                ResponseContent::None => (None, None),
                ResponseContent::Text(media) => (Some(string()), Some(*media)),
                ResponseContent::Schema(name, media) => (Some(self.reference(name)), Some(*media)),
            };
            if let (Some(media), true) = (media, produces.is_empty()) {
                produces = self.media_types(media);
            }
            let mut response = Object::from_iter([("description".into(), phrase(*code).into())]);
            if let Some(schema) = schema {
                response.push("schema", schema);
            }
            (code.to_string().into(), response.into())
        });
        let responses: Object = responses.collect();
        members.push("produces", produces.as_slice().into());
        members.push("responses", responses.into());
        members.push("schemes", Value::Array(vec!["https".into()]));
    }

    fn parameters(&self, parameters: &[Parameter]) -> Value {
        let render = |parameter: &Parameter| match self.dialect {
            Dialect::V2 if parameter.shared => reference(format!("#/parameters/{}", parameter.name)),
            _ => self.parameter(parameter),
        };
        Value::Array(parameters.iter().map(render).collect())
    }

    /// Renders a parameter in full.
    pub(super) fn parameter(&self, parameter: &Parameter) -> Value {
        let mut members = Object::with_capacity(5);
        if !parameter.description.is_empty() {
            members.push("description", parameter.description.as_ref().into());
        }
        members.push("in", parameter.location.into());
        members.push("name", parameter.name.as_ref().into());
        if parameter.location == "path" {
            members.push("required", true.into());
        }
        match self.dialect {
            Dialect::V2 => members.push("type", parameter.kind.into()),
            Dialect::V3 => {
                members.push("schema", Object::from_iter([("type".into(), parameter.kind.into())]).into());
            }
        }
        members.into()
    }

    /// Renders the same schema for each media type.
    fn content(&self, media: Media, schema: &Value) -> Value {
        let media_type = |media_type: String| {
            let schema = Object::from_iter([("schema".into(), schema.clone())]);
            (media_type.into(), schema.into())
        };
        self.media_types(media).into_iter().map(media_type).collect::<Object>().into()
    }

    /// Returns the media types in alphabetical order.
    fn media_types(&self, media: Media) -> Vec<String> {
        let protobuf = self.naming.protobuf_media_type;
        let owned = |types: &[&str]| types.iter().map(|each| (*each).to_owned()).collect();
        match media {
            Media::Json => owned(&["application/json"]),
            Media::KeySet => owned(&["application/jwk-set+json"]),
            Media::Object => owned(&["application/json", protobuf, "application/yaml"]),
            Media::Custom => owned(&["application/json", "application/yaml"]),
            Media::List => {
                let stream = format!("{protobuf};stream=watch");
                let json = "application/json";
                owned(&[json, "application/json;stream=watch", protobuf, &stream, "application/yaml"])
            }
            Media::Patch { strategic } => {
                let mut types = vec![
                    "application/apply-patch+yaml",
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ];
                if strategic {
                    types.push("application/strategic-merge-patch+json");
                }
                owned(&types)
            }
            Media::Any => owned(&["*/*"]),
            Media::Log => owned(&["application/json", protobuf, "application/yaml", "text/plain"]),
        }
    }

    fn reference(&self, name: &str) -> Value {
        reference(format!("{}{name}", self.dialect.reference_prefix()))
    }
}

fn reference(target: String) -> Value {
    Object::from_iter([("$ref".into(), target.into())]).into()
}

fn string() -> Value {
    Object::from_iter([("type".into(), "string".into())]).into()
}

fn phrase(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        401 => "Unauthorized",
        _ => "OK",
    }
}

fn sorted(mut members: Object) -> Value {
    json::sort_members(members.members_mut());
    members.into()
}
