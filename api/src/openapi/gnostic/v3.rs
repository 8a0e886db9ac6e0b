//! Field numbers of `openapi_v3.proto` that our documents use.

use super::{Form, Message, Section};
use crate::json::Value;

/// The document without paths (4) and components (5: schemas 1, security schemes 7).
pub(in super::super) static DOCUMENT: Message = Message {
    members: &[
        ("openapi", 1, Form::Text),
        ("info", 2, Form::Message(&INFO)),
        ("security", 6, Form::Each(&Form::Message(&REQUIREMENT))),
    ],
    extensions: 9,
    rest: None,
};

static INFO: Message =
    Message { members: &[("title", 1, Form::Text), ("version", 6, Form::Text)], extensions: 7, rest: None };

static REQUIREMENT: Message =
    Message { members: &[], extensions: 0, rest: Some((1, Form::Message(&STRINGS))) };

/// The scopes of a requirement, of which a bearer token has none.
static STRINGS: Message = Message { members: &[], extensions: 0, rest: None };

pub(in super::super) static PATHS: Section = Section { number: 1, form: Form::Message(&PATH_ITEM) };
pub(in super::super) static SCHEMAS: Section = Section { number: 1, form: Form::Choice(schema_or_reference) };
/// Each is a scheme (1).
pub(in super::super) static SECURITY_SCHEMES: Section =
    Section { number: 1, form: Form::Wrap(1, &Form::Message(&SCHEME)) };

static SCHEME: Message = Message {
    members: &[
        ("type", 1, Form::Text),
        ("description", 2, Form::Text),
        ("name", 3, Form::Text),
        ("in", 4, Form::Text),
    ],
    extensions: 9,
    rest: None,
};

static PATH_ITEM: Message = Message {
    members: &[
        ("get", 4, Form::Message(&OPERATION)),
        ("put", 5, Form::Message(&OPERATION)),
        ("post", 6, Form::Message(&OPERATION)),
        ("delete", 7, Form::Message(&OPERATION)),
        ("options", 8, Form::Message(&OPERATION)),
        ("head", 9, Form::Message(&OPERATION)),
        ("patch", 10, Form::Message(&OPERATION)),
        ("parameters", 13, Form::Each(&PARAMETER_OR_REFERENCE)),
    ],
    extensions: 14,
    rest: None,
};

static OPERATION: Message = Message {
    members: &[
        ("tags", 1, Form::Each(&Form::Text)),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("parameters", 6, Form::Each(&PARAMETER_OR_REFERENCE)),
        ("requestBody", 7, Form::Wrap(1, &Form::Message(&REQUEST_BODY))),
        ("responses", 8, Form::Message(&RESPONSES)),
        ("deprecated", 10, Form::Flag),
    ],
    extensions: 13,
    rest: None,
};

/// Our documents write every parameter out (1).
static PARAMETER_OR_REFERENCE: Form = Form::Wrap(1, &Form::Message(&PARAMETER));

static PARAMETER: Message = Message {
    members: &[
        ("name", 1, Form::Text),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 10, Form::Choice(schema_or_reference)),
    ],
    extensions: 14,
    rest: None,
};

static REQUEST_BODY: Message = Message {
    members: &[("content", 2, Form::Message(&MEDIA_TYPES)), ("required", 3, Form::Flag)],
    extensions: 4,
    rest: None,
};

/// By media type.
static MEDIA_TYPES: Message =
    Message { members: &[], extensions: 0, rest: Some((1, Form::Message(&MEDIA_TYPE))) };

static MEDIA_TYPE: Message =
    Message { members: &[("schema", 1, Form::Choice(schema_or_reference))], extensions: 5, rest: None };

/// By code; each is a response (1).
static RESPONSES: Message =
    Message { members: &[], extensions: 3, rest: Some((2, Form::Wrap(1, &Form::Message(&RESPONSE)))) };

static RESPONSE: Message = Message {
    members: &[("description", 1, Form::Text), ("content", 3, Form::Message(&MEDIA_TYPES))],
    extensions: 5,
    rest: None,
};

/// A schema (1) or a reference (2).
fn schema_or_reference(value: &Value) -> Option<&'static Form> {
    static WRITTEN: Form = Form::Wrap(1, &Form::Message(&SCHEMA));
    static REFERRED: Form = Form::Wrap(2, &Form::Message(&REFERENCE));
    Some(if value.get("$ref").is_some() { &REFERRED } else { &WRITTEN })
}

static SCHEMA_OR_REFERENCE: Form = Form::Choice(schema_or_reference);

static REFERENCE: Message = Message { members: &[("$ref", 1, Form::Text)], extensions: 0, rest: None };

static SCHEMA: Message = Message {
    members: &[
        ("nullable", 1, Form::Flag),
        ("example", 7, Form::Any),
        ("title", 9, Form::Text),
        ("multipleOf", 10, Form::Number),
        ("maximum", 11, Form::Number),
        ("exclusiveMaximum", 12, Form::Flag),
        ("minimum", 13, Form::Number),
        ("exclusiveMinimum", 14, Form::Flag),
        ("maxLength", 15, Form::Integer),
        ("minLength", 16, Form::Integer),
        ("pattern", 17, Form::Text),
        ("maxItems", 18, Form::Integer),
        ("minItems", 19, Form::Integer),
        ("uniqueItems", 20, Form::Flag),
        ("maxProperties", 21, Form::Integer),
        ("minProperties", 22, Form::Integer),
        ("required", 23, Form::Each(&Form::Text)),
        ("enum", 24, Form::Each(&Form::Any)),
        ("type", 25, Form::Text),
        ("allOf", 26, Form::Each(&SCHEMA_OR_REFERENCE)),
        ("oneOf", 27, Form::Each(&SCHEMA_OR_REFERENCE)),
        ("anyOf", 28, Form::Each(&SCHEMA_OR_REFERENCE)),
        ("not", 29, Form::Message(&SCHEMA)),
        ("items", 30, Form::Wrap(1, &Form::Each(&SCHEMA_OR_REFERENCE))),
        ("properties", 31, Form::Wrap(1, &Form::Named(&SCHEMA_OR_REFERENCE))),
        ("additionalProperties", 32, Form::Choice(additional_properties)),
        ("default", 33, Form::Choice(default_value)),
        ("description", 34, Form::Text),
        ("format", 35, Form::Text),
    ],
    extensions: 36,
    rest: None,
};

/// A schema or reference (1), or a boolean (2).
fn additional_properties(value: &Value) -> Option<&'static Form> {
    static SCHEMA_FORM: Form = Form::Wrap(1, &SCHEMA_OR_REFERENCE);
    static FLAG_FORM: Form = Form::Wrap(2, &Form::Flag);
    Some(if value.as_bool().is_some() { &FLAG_FORM } else { &SCHEMA_FORM })
}

/// The layout has room for scalar defaults only; others travel in the JSON form alone.
fn default_value(value: &Value) -> Option<&'static Form> {
    static NUMBER: Form = Form::Wrap(1, &Form::Number);
    static FLAG: Form = Form::Wrap(2, &Form::Flag);
    static TEXT: Form = Form::Wrap(3, &Form::Text);
    match value {
        Value::Int(_) | Value::Float(_) => Some(&NUMBER),
        Value::Bool(_) => Some(&FLAG),
        Value::String(_) => Some(&TEXT),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
