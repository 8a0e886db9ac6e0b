//! The messages of `openapi_v2.proto` and `openapi_v3.proto` in one table, as far as this server's documents
//! use them.
//!
//! Two numbers in brackets are those of 2.0 and 3.0, in this order; 0 means that the version has no such
//! field.

use super::{Form, Message, NONE, Numbers, Section};
use crate::openapi::definition::Dialect;
use values::json::Value;

/// The document without its sections, which are encoded separately.
pub(in super::super) static DOCUMENT: Message = Message {
    members: &[
        ("swagger", [1, 0], Form::Text),
        ("openapi", [0, 1], Form::Text),
        ("info", [2, 2], Form::Message(&INFO)),
        ("security", [12, 6], Form::Each(&Form::Message(&REQUIREMENT))),
    ],
    extensions: [16, 9],
    rest: None,
};

/// Field of the document with the paths.
pub(in super::super) const DOCUMENT_PATHS: Numbers = [8, 4];
/// Field of a 2.0 document with the definitions.
pub(in super::super) const DOCUMENT_DEFINITIONS: u32 = 9;
/// Field of a 2.0 document with the shared parameters.
pub(in super::super) const DOCUMENT_PARAMETERS: u32 = 10;
/// Field of a 2.0 document with the security definitions.
pub(in super::super) const DOCUMENT_SECURITY: u32 = 13;
/// Field of a 3.0 document with the components.
pub(in super::super) const DOCUMENT_COMPONENTS: u32 = 5;
/// Field of the components with the schemas.
pub(in super::super) const COMPONENTS_SCHEMAS: u32 = 1;
/// Field of the components with the security schemes.
pub(in super::super) const COMPONENTS_SECURITY: u32 = 7;

/// Layout of the paths by name.
pub(in super::super) static PATHS: Section = Section { number: [2, 1], form: Form::Message(&PATH_ITEM) };
/// Layout of the definitions of 2.0, or schemas of 3.0, by name.
pub(in super::super) static SCHEMAS: Section = Section { number: [1, 1], form: SCHEMA_FORM };
/// Layout of the shared parameters of 2.0 by name.
pub(in super::super) static PARAMETERS: Section =
    Section { number: [1, 0], form: Form::Choice(written_parameter) };
/// Layout of the security definitions of 2.0, each an API key (2), or security schemes of 3.0, each a scheme
/// (1).
pub(in super::super) static SECURITY: Section =
    Section { number: [1, 1], form: Form::Wrap([2, 1], &Form::Message(&SECURITY_SCHEME)) };

static INFO: Message = Message {
    members: &[("title", [1, 1], Form::Text), ("version", [2, 6], Form::Text)],
    extensions: [7, 7],
    rest: None,
};

static REQUIREMENT: Message =
    Message { members: &[], extensions: NONE, rest: Some(([1, 1], Form::Message(&STRINGS))) };

/// Scopes of a requirement, which are empty for a bearer token.
static STRINGS: Message = Message { members: &[], extensions: NONE, rest: None };

static SECURITY_SCHEME: Message = Message {
    members: &[
        ("type", [1, 1], Form::Text),
        ("name", [2, 3], Form::Text),
        ("in", [3, 4], Form::Text),
        ("description", [4, 2], Form::Text),
    ],
    extensions: [5, 9],
    rest: None,
};

static PATH_ITEM: Message = Message {
    members: &[
        ("get", [2, 4], Form::Message(&OPERATION)),
        ("put", [3, 5], Form::Message(&OPERATION)),
        ("post", [4, 6], Form::Message(&OPERATION)),
        ("delete", [5, 7], Form::Message(&OPERATION)),
        ("options", [6, 8], Form::Message(&OPERATION)),
        ("head", [7, 9], Form::Message(&OPERATION)),
        ("patch", [8, 10], Form::Message(&OPERATION)),
        ("parameters", [9, 13], Form::Each(&PARAMETER_FORM)),
    ],
    extensions: [10, 14],
    rest: None,
};

static OPERATION: Message = Message {
    members: &[
        ("tags", [1, 1], Form::Each(&Form::Text)),
        ("description", [3, 3], Form::Text),
        ("operationId", [5, 5], Form::Text),
        ("produces", [6, 0], Form::Each(&Form::Text)),
        ("consumes", [7, 0], Form::Each(&Form::Text)),
        ("parameters", [8, 6], Form::Each(&PARAMETER_FORM)),
        ("requestBody", [0, 7], Form::Wrap([0, 1], &Form::Message(&REQUEST_BODY))),
        ("responses", [9, 8], Form::Message(&RESPONSES)),
        ("schemes", [10, 0], Form::Each(&Form::Text)),
        ("deprecated", [11, 10], Form::Flag),
    ],
    extensions: [13, 13],
    rest: None,
};

/// A parameter (1), or in 2.0 a reference to a parameter (2); the documents of 3.0 contain every parameter in
/// full.
static PARAMETER_FORM: Form = Form::Choice(|dialect, value| {
    static REFERRED: Form = Form::Wrap([2, 0], &Form::Message(&REFERENCE));
    static WRITTEN: Form = Form::Wrap([1, 1], &Form::Choice(written_parameter));
    Some(if dialect == Dialect::V2 && value.get("$ref").is_some() { &REFERRED } else { &WRITTEN })
});

/// In 2.0 a body (1), or one of the other locations (2), which have a message each.
fn written_parameter(dialect: Dialect, value: &Value) -> Option<&'static Form> {
    static ANYWHERE: Form = Form::Message(&PARAMETER);
    static IN_BODY: Form = Form::Wrap([1, 0], &Form::Message(&BODY_PARAMETER));
    static IN_QUERY: Form = Form::Wrap([2, 0], &Form::Wrap([3, 0], &Form::Message(&QUERY_PARAMETER)));
    static IN_PATH: Form = Form::Wrap([2, 0], &Form::Wrap([4, 0], &Form::Message(&PATH_PARAMETER)));
    match (dialect, value.str_at(&["in"])) {
        (Dialect::V3, _) => Some(&ANYWHERE),
        (Dialect::V2, "body") => Some(&IN_BODY),
        (Dialect::V2, "query") => Some(&IN_QUERY),
        (Dialect::V2, "path") => Some(&IN_PATH),
        (Dialect::V2, _) => None,
    }
}

static PARAMETER: Message = Message {
    members: &[
        ("name", [0, 1], Form::Text),
        ("in", [0, 2], Form::Text),
        ("description", [0, 3], Form::Text),
        ("required", [0, 4], Form::Flag),
        ("schema", [0, 10], SCHEMA_FORM),
    ],
    extensions: [0, 14],
    rest: None,
};

static BODY_PARAMETER: Message = Message {
    members: &[
        ("description", [1, 0], Form::Text),
        ("name", [2, 0], Form::Text),
        ("in", [3, 0], Form::Text),
        ("required", [4, 0], Form::Flag),
        ("schema", [5, 0], SCHEMA_FORM),
    ],
    extensions: [6, 0],
    rest: None,
};

static QUERY_PARAMETER: Message = Message {
    members: &[
        ("required", [1, 0], Form::Flag),
        ("in", [2, 0], Form::Text),
        ("description", [3, 0], Form::Text),
        ("name", [4, 0], Form::Text),
        ("type", [6, 0], Form::Text),
    ],
    extensions: [23, 0],
    rest: None,
};

static PATH_PARAMETER: Message = Message {
    members: &[
        ("required", [1, 0], Form::Flag),
        ("in", [2, 0], Form::Text),
        ("description", [3, 0], Form::Text),
        ("name", [4, 0], Form::Text),
        ("type", [5, 0], Form::Text),
    ],
    extensions: [22, 0],
    rest: None,
};

static REQUEST_BODY: Message = Message {
    members: &[("content", [0, 2], Form::Message(&MEDIA_TYPES)), ("required", [0, 3], Form::Flag)],
    extensions: [0, 4],
    rest: None,
};

/// Content by media type.
static MEDIA_TYPES: Message =
    Message { members: &[], extensions: NONE, rest: Some(([0, 1], Form::Message(&MEDIA_TYPE))) };

static MEDIA_TYPE: Message =
    Message { members: &[("schema", [0, 1], SCHEMA_FORM)], extensions: [0, 5], rest: None };

/// Responses (1) by status code.
static RESPONSES: Message = Message {
    members: &[],
    extensions: [2, 3],
    rest: Some(([1, 2], Form::Wrap([1, 1], &Form::Message(&RESPONSE)))),
};

static RESPONSE: Message = Message {
    members: &[
        ("description", [1, 1], Form::Text),
        ("schema", [2, 0], Form::Wrap([1, 0], &SCHEMA_FORM)),
        ("content", [0, 3], Form::Message(&MEDIA_TYPES)),
    ],
    extensions: [5, 5],
    rest: None,
};

/// In 2.0 a schema, which can be a reference; in 3.0 a schema (1) or a reference (2).
const SCHEMA_FORM: Form = Form::Choice(|dialect, value| {
    static PLAIN: Form = Form::Message(&SCHEMA);
    static WRITTEN: Form = Form::Wrap([0, 1], &Form::Message(&SCHEMA));
    static REFERRED: Form = Form::Wrap([0, 2], &Form::Message(&REFERENCE));
    Some(match dialect {
        Dialect::V2 => &PLAIN,
        Dialect::V3 if value.get("$ref").is_some() => &REFERRED,
        Dialect::V3 => &WRITTEN,
    })
});

static REFERENCE: Message =
    Message { members: &[("$ref", [1, 1], Form::Text)], extensions: NONE, rest: None };

static SCHEMA: Message = Message {
    members: &[
        ("$ref", [1, 0], Form::Text),
        ("nullable", [0, 1], Form::Flag),
        ("example", [0, 7], Form::Any),
        ("format", [2, 35], Form::Text),
        ("title", [3, 9], Form::Text),
        ("description", [4, 34], Form::Text),
        ("default", [0, 33], Form::Choice(default_value)),
        ("multipleOf", [6, 10], Form::Number),
        ("maximum", [7, 11], Form::Number),
        ("exclusiveMaximum", [8, 12], Form::Flag),
        ("minimum", [9, 13], Form::Number),
        ("exclusiveMinimum", [10, 14], Form::Flag),
        ("maxLength", [11, 15], Form::Integer),
        ("minLength", [12, 16], Form::Integer),
        ("pattern", [13, 17], Form::Text),
        ("maxItems", [14, 18], Form::Integer),
        ("minItems", [15, 19], Form::Integer),
        ("uniqueItems", [16, 20], Form::Flag),
        ("maxProperties", [17, 21], Form::Integer),
        ("minProperties", [18, 22], Form::Integer),
        ("required", [19, 23], Form::Each(&Form::Text)),
        ("enum", [20, 24], Form::Each(&Form::Any)),
        ("additionalProperties", [21, 32], Form::Choice(additional_properties)),
        ("type", [22, 25], Form::Choice(type_names)),
        ("allOf", [0, 26], Form::Each(&SCHEMA_FORM)),
        ("oneOf", [0, 27], Form::Each(&SCHEMA_FORM)),
        ("anyOf", [0, 28], Form::Each(&SCHEMA_FORM)),
        ("not", [0, 29], Form::Message(&SCHEMA)),
        ("items", [23, 30], Form::Wrap([1, 1], &Form::Each(&SCHEMA_FORM))),
        ("properties", [25, 31], Form::Wrap([1, 1], &Form::Named(&SCHEMA_FORM))),
    ],
    extensions: [31, 36],
    rest: None,
};

/// A list (1) in 2.0, a single name in 3.0.
fn type_names(dialect: Dialect, _: &Value) -> Option<&'static Form> {
    static LIST: Form = Form::Wrap([1, 0], &Form::Each(&Form::Text));
    Some(match dialect {
        Dialect::V2 => &LIST,
        Dialect::V3 => &Form::Text,
    })
}

/// A schema (1) or a boolean (2).
fn additional_properties(_: Dialect, value: &Value) -> Option<&'static Form> {
    static WITH_SCHEMA: Form = Form::Wrap([1, 1], &SCHEMA_FORM);
    static FLAG: Form = Form::Wrap([2, 2], &Form::Flag);
    Some(if value.as_bool().is_some() { &FLAG } else { &WITH_SCHEMA })
}

/// The layout supports only scalar defaults; other defaults occur only in JSON.
fn default_value(_: Dialect, value: &Value) -> Option<&'static Form> {
    static NUMBER: Form = Form::Wrap([0, 1], &Form::Number);
    static FLAG: Form = Form::Wrap([0, 2], &Form::Flag);
    static TEXT: Form = Form::Wrap([0, 3], &Form::Text);
    match value {
        Value::Int(_) | Value::Float(_) | Value::Number(_) => Some(&NUMBER),
        Value::Bool(_) => Some(&FLAG),
        Value::String(_) => Some(&TEXT),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
