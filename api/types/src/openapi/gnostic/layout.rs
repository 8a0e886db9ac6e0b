//! The messages of `openapi_v2.proto` and `openapi_v3.proto` that this server's documents use, in one table.
//!
//! The two numbers in brackets are the field numbers in 2.0 and in 3.0, in this order. 0 means that the
//! version has no such field. In comments, a number in parentheses is the field number of an alternative.

use super::{FieldMapping, MessageMapping, NONE, Numbers, Section};
use crate::openapi::dialect::Dialect;
use values::json::Value;

/// The document without its sections, which are encoded separately.
pub(in super::super) static DOCUMENT: MessageMapping = MessageMapping {
    members: &[
        ("swagger", [1, 0], FieldMapping::Text),
        ("openapi", [0, 1], FieldMapping::Text),
        ("info", [2, 2], FieldMapping::Message(&INFO)),
        ("security", [12, 6], FieldMapping::Each(&FieldMapping::Message(&REQUIREMENT))),
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
pub(in super::super) static PATHS: Section =
    Section { number: [2, 1], form: FieldMapping::Message(&PATH_ITEM) };
/// Layout of the definitions of 2.0, or schemas of 3.0, by name.
pub(in super::super) static SCHEMAS: Section = Section { number: [1, 1], form: SCHEMA_FORM };
/// Layout of the shared parameters of 2.0 by name.
pub(in super::super) static PARAMETERS: Section =
    Section { number: [1, 0], form: FieldMapping::Choice(written_parameter) };
/// Layout of the security definitions of 2.0 or the security schemes of 3.0. Each definition is an API key
/// (2), and each scheme is a scheme (1).
pub(in super::super) static SECURITY: Section =
    Section { number: [1, 1], form: FieldMapping::Wrap([2, 1], &FieldMapping::Message(&SECURITY_SCHEME)) };

static INFO: MessageMapping = MessageMapping {
    members: &[("title", [1, 1], FieldMapping::Text), ("version", [2, 6], FieldMapping::Text)],
    extensions: [7, 7],
    rest: None,
};

static REQUIREMENT: MessageMapping =
    MessageMapping { members: &[], extensions: NONE, rest: Some(([1, 1], FieldMapping::Message(&STRINGS))) };

/// Scopes of a security requirement. The scopes are empty for a bearer token.
static STRINGS: MessageMapping = MessageMapping { members: &[], extensions: NONE, rest: None };

static SECURITY_SCHEME: MessageMapping = MessageMapping {
    members: &[
        ("type", [1, 1], FieldMapping::Text),
        ("name", [2, 3], FieldMapping::Text),
        ("in", [3, 4], FieldMapping::Text),
        ("description", [4, 2], FieldMapping::Text),
    ],
    extensions: [5, 9],
    rest: None,
};

static PATH_ITEM: MessageMapping = MessageMapping {
    members: &[
        ("get", [2, 4], FieldMapping::Message(&OPERATION)),
        ("put", [3, 5], FieldMapping::Message(&OPERATION)),
        ("post", [4, 6], FieldMapping::Message(&OPERATION)),
        ("delete", [5, 7], FieldMapping::Message(&OPERATION)),
        ("options", [6, 8], FieldMapping::Message(&OPERATION)),
        ("head", [7, 9], FieldMapping::Message(&OPERATION)),
        ("patch", [8, 10], FieldMapping::Message(&OPERATION)),
        ("parameters", [9, 13], FieldMapping::Each(&PARAMETER_FORM)),
    ],
    extensions: [10, 14],
    rest: None,
};

static OPERATION: MessageMapping = MessageMapping {
    members: &[
        ("tags", [1, 1], FieldMapping::Each(&FieldMapping::Text)),
        ("description", [3, 3], FieldMapping::Text),
        ("operationId", [5, 5], FieldMapping::Text),
        ("produces", [6, 0], FieldMapping::Each(&FieldMapping::Text)),
        ("consumes", [7, 0], FieldMapping::Each(&FieldMapping::Text)),
        ("parameters", [8, 6], FieldMapping::Each(&PARAMETER_FORM)),
        ("requestBody", [0, 7], FieldMapping::Wrap([0, 1], &FieldMapping::Message(&REQUEST_BODY))),
        ("responses", [9, 8], FieldMapping::Message(&RESPONSES)),
        ("schemes", [10, 0], FieldMapping::Each(&FieldMapping::Text)),
        ("deprecated", [11, 10], FieldMapping::Flag),
    ],
    extensions: [13, 13],
    rest: None,
};

/// A parameter (1), or in 2.0 a reference to a parameter (2). The documents of 3.0 contain every parameter in
/// full.
static PARAMETER_FORM: FieldMapping = FieldMapping::Choice(|dialect, value| {
    static REFERRED: FieldMapping = FieldMapping::Wrap([2, 0], &FieldMapping::Message(&REFERENCE));
    static WRITTEN: FieldMapping = FieldMapping::Wrap([1, 1], &FieldMapping::Choice(written_parameter));
    Some(if dialect == Dialect::V2 && value.get("$ref").is_some() { &REFERRED } else { &WRITTEN })
});

/// Returns the layout of a parameter. In 2.0, the parameter is a body (1) or has another location (2), and
/// each location has its own message.
fn written_parameter(dialect: Dialect, value: &Value) -> Option<&'static FieldMapping> {
    static ANYWHERE: FieldMapping = FieldMapping::Message(&PARAMETER);
    static IN_BODY: FieldMapping = FieldMapping::Wrap([1, 0], &FieldMapping::Message(&BODY_PARAMETER));
    static IN_QUERY: FieldMapping =
        FieldMapping::Wrap([2, 0], &FieldMapping::Wrap([3, 0], &FieldMapping::Message(&QUERY_PARAMETER)));
    static IN_PATH: FieldMapping =
        FieldMapping::Wrap([2, 0], &FieldMapping::Wrap([4, 0], &FieldMapping::Message(&PATH_PARAMETER)));
    match (dialect, value.str_at(&["in"])) {
        (Dialect::V3, _) => Some(&ANYWHERE),
        (Dialect::V2, "body") => Some(&IN_BODY),
        (Dialect::V2, "query") => Some(&IN_QUERY),
        (Dialect::V2, "path") => Some(&IN_PATH),
        (Dialect::V2, _) => None,
    }
}

static PARAMETER: MessageMapping = MessageMapping {
    members: &[
        ("name", [0, 1], FieldMapping::Text),
        ("in", [0, 2], FieldMapping::Text),
        ("description", [0, 3], FieldMapping::Text),
        ("required", [0, 4], FieldMapping::Flag),
        ("schema", [0, 10], SCHEMA_FORM),
    ],
    extensions: [0, 14],
    rest: None,
};

static BODY_PARAMETER: MessageMapping = MessageMapping {
    members: &[
        ("description", [1, 0], FieldMapping::Text),
        ("name", [2, 0], FieldMapping::Text),
        ("in", [3, 0], FieldMapping::Text),
        ("required", [4, 0], FieldMapping::Flag),
        ("schema", [5, 0], SCHEMA_FORM),
    ],
    extensions: [6, 0],
    rest: None,
};

static QUERY_PARAMETER: MessageMapping = MessageMapping {
    members: &[
        ("required", [1, 0], FieldMapping::Flag),
        ("in", [2, 0], FieldMapping::Text),
        ("description", [3, 0], FieldMapping::Text),
        ("name", [4, 0], FieldMapping::Text),
        ("type", [6, 0], FieldMapping::Text),
    ],
    extensions: [23, 0],
    rest: None,
};

static PATH_PARAMETER: MessageMapping = MessageMapping {
    members: &[
        ("required", [1, 0], FieldMapping::Flag),
        ("in", [2, 0], FieldMapping::Text),
        ("description", [3, 0], FieldMapping::Text),
        ("name", [4, 0], FieldMapping::Text),
        ("type", [5, 0], FieldMapping::Text),
    ],
    extensions: [22, 0],
    rest: None,
};

static REQUEST_BODY: MessageMapping = MessageMapping {
    members: &[
        ("content", [0, 2], FieldMapping::Message(&MEDIA_TYPES)),
        ("required", [0, 3], FieldMapping::Flag),
    ],
    extensions: [0, 4],
    rest: None,
};

/// Content by media type.
static MEDIA_TYPES: MessageMapping = MessageMapping {
    members: &[],
    extensions: NONE,
    rest: Some(([0, 1], FieldMapping::Message(&MEDIA_TYPE))),
};

static MEDIA_TYPE: MessageMapping =
    MessageMapping { members: &[("schema", [0, 1], SCHEMA_FORM)], extensions: [0, 5], rest: None };

/// Responses (1) by status code.
static RESPONSES: MessageMapping = MessageMapping {
    members: &[],
    extensions: [2, 3],
    rest: Some(([1, 2], FieldMapping::Wrap([1, 1], &FieldMapping::Message(&RESPONSE)))),
};

static RESPONSE: MessageMapping = MessageMapping {
    members: &[
        ("description", [1, 1], FieldMapping::Text),
        ("schema", [2, 0], FieldMapping::Wrap([1, 0], &SCHEMA_FORM)),
        ("content", [0, 3], FieldMapping::Message(&MEDIA_TYPES)),
    ],
    extensions: [5, 5],
    rest: None,
};

/// In 2.0 a schema, which can be a reference; in 3.0 a schema (1) or a reference (2).
const SCHEMA_FORM: FieldMapping = FieldMapping::Choice(|dialect, value| {
    static PLAIN: FieldMapping = FieldMapping::Message(&SCHEMA);
    static WRITTEN: FieldMapping = FieldMapping::Wrap([0, 1], &FieldMapping::Message(&SCHEMA));
    static REFERRED: FieldMapping = FieldMapping::Wrap([0, 2], &FieldMapping::Message(&REFERENCE));
    Some(match dialect {
        Dialect::V2 => &PLAIN,
        Dialect::V3 if value.get("$ref").is_some() => &REFERRED,
        Dialect::V3 => &WRITTEN,
    })
});

static REFERENCE: MessageMapping =
    MessageMapping { members: &[("$ref", [1, 1], FieldMapping::Text)], extensions: NONE, rest: None };

static SCHEMA: MessageMapping = MessageMapping {
    members: &[
        ("$ref", [1, 0], FieldMapping::Text),
        ("nullable", [0, 1], FieldMapping::Flag),
        ("example", [0, 7], FieldMapping::Any),
        ("format", [2, 35], FieldMapping::Text),
        ("title", [3, 9], FieldMapping::Text),
        ("description", [4, 34], FieldMapping::Text),
        ("default", [0, 33], FieldMapping::Choice(default_value)),
        ("multipleOf", [6, 10], FieldMapping::Number),
        ("maximum", [7, 11], FieldMapping::Number),
        ("exclusiveMaximum", [8, 12], FieldMapping::Flag),
        ("minimum", [9, 13], FieldMapping::Number),
        ("exclusiveMinimum", [10, 14], FieldMapping::Flag),
        ("maxLength", [11, 15], FieldMapping::Integer),
        ("minLength", [12, 16], FieldMapping::Integer),
        ("pattern", [13, 17], FieldMapping::Text),
        ("maxItems", [14, 18], FieldMapping::Integer),
        ("minItems", [15, 19], FieldMapping::Integer),
        ("uniqueItems", [16, 20], FieldMapping::Flag),
        ("maxProperties", [17, 21], FieldMapping::Integer),
        ("minProperties", [18, 22], FieldMapping::Integer),
        ("required", [19, 23], FieldMapping::Each(&FieldMapping::Text)),
        ("enum", [20, 24], FieldMapping::Each(&FieldMapping::Any)),
        ("additionalProperties", [21, 32], FieldMapping::Choice(additional_properties)),
        ("type", [22, 25], FieldMapping::Choice(type_names)),
        ("allOf", [0, 26], FieldMapping::Each(&SCHEMA_FORM)),
        ("oneOf", [0, 27], FieldMapping::Each(&SCHEMA_FORM)),
        ("anyOf", [0, 28], FieldMapping::Each(&SCHEMA_FORM)),
        ("not", [0, 29], FieldMapping::Message(&SCHEMA)),
        ("items", [23, 30], FieldMapping::Wrap([1, 1], &FieldMapping::Each(&SCHEMA_FORM))),
        ("properties", [25, 31], FieldMapping::Wrap([1, 1], &FieldMapping::Named(&SCHEMA_FORM))),
    ],
    extensions: [31, 36],
    rest: None,
};

/// Returns the layout of the type of a schema: a list (1) in 2.0, and a single name in 3.0.
fn type_names(dialect: Dialect, _: &Value) -> Option<&'static FieldMapping> {
    static LIST: FieldMapping = FieldMapping::Wrap([1, 0], &FieldMapping::Each(&FieldMapping::Text));
    Some(match dialect {
        Dialect::V2 => &LIST,
        Dialect::V3 => &FieldMapping::Text,
    })
}

/// Returns the layout of `additionalProperties`: a schema (1) or a boolean (2).
fn additional_properties(_: Dialect, value: &Value) -> Option<&'static FieldMapping> {
    static WITH_SCHEMA: FieldMapping = FieldMapping::Wrap([1, 1], &SCHEMA_FORM);
    static FLAG: FieldMapping = FieldMapping::Wrap([2, 2], &FieldMapping::Flag);
    Some(if value.as_bool().is_some() { &FLAG } else { &WITH_SCHEMA })
}

/// Returns the layout of a default. Only scalar defaults have a layout; the protobuf form omits other
/// defaults.
fn default_value(_: Dialect, value: &Value) -> Option<&'static FieldMapping> {
    static NUMBER: FieldMapping = FieldMapping::Wrap([0, 1], &FieldMapping::Number);
    static FLAG: FieldMapping = FieldMapping::Wrap([0, 2], &FieldMapping::Flag);
    static TEXT: FieldMapping = FieldMapping::Wrap([0, 3], &FieldMapping::Text);
    match value {
        Value::Int(_) | Value::Float(_) | Value::Number(_) => Some(&NUMBER),
        Value::Bool(_) => Some(&FLAG),
        Value::String(_) => Some(&TEXT),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
