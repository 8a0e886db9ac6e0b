//! Field numbers of `openapi_v2.proto` that our documents use.

use super::{Form, Message, Section};
use crate::json::Value;

/// The document without paths (8), definitions (9), parameters (10) and security definitions (13).
pub(in super::super) static DOCUMENT: Message = Message {
    members: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::Message(&INFO)),
        ("security", 12, Form::Each(&Form::Message(&REQUIREMENT))),
    ],
    extensions: 16,
    rest: None,
};

static INFO: Message =
    Message { members: &[("title", 1, Form::Text), ("version", 2, Form::Text)], extensions: 7, rest: None };

static REQUIREMENT: Message =
    Message { members: &[], extensions: 0, rest: Some((1, Form::Message(&STRINGS))) };

/// The scopes of a requirement, of which a bearer token has none.
static STRINGS: Message = Message { members: &[], extensions: 0, rest: None };

pub(in super::super) static PATHS: Section = Section { number: 2, form: Form::Message(&PATH_ITEM) };
pub(in super::super) static DEFINITIONS: Section = Section { number: 1, form: Form::Message(&SCHEMA) };
pub(in super::super) static PARAMETERS: Section = Section { number: 1, form: Form::Choice(parameter) };
/// Each is an API key (2).
pub(in super::super) static SECURITY_DEFINITIONS: Section =
    Section { number: 1, form: Form::Wrap(2, &Form::Message(&API_KEY)) };

static API_KEY: Message = Message {
    members: &[
        ("type", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("description", 4, Form::Text),
    ],
    extensions: 5,
    rest: None,
};

static PATH_ITEM: Message = Message {
    members: &[
        ("get", 2, Form::Message(&OPERATION)),
        ("put", 3, Form::Message(&OPERATION)),
        ("post", 4, Form::Message(&OPERATION)),
        ("delete", 5, Form::Message(&OPERATION)),
        ("options", 6, Form::Message(&OPERATION)),
        ("head", 7, Form::Message(&OPERATION)),
        ("patch", 8, Form::Message(&OPERATION)),
        ("parameters", 9, Form::Each(&PARAMETER_ITEM)),
    ],
    extensions: 10,
    rest: None,
};

static OPERATION: Message = Message {
    members: &[
        ("tags", 1, Form::Each(&Form::Text)),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::Each(&Form::Text)),
        ("consumes", 7, Form::Each(&Form::Text)),
        ("parameters", 8, Form::Each(&PARAMETER_ITEM)),
        ("responses", 9, Form::Message(&RESPONSES)),
        ("schemes", 10, Form::Each(&Form::Text)),
        ("deprecated", 11, Form::Flag),
    ],
    extensions: 13,
    rest: None,
};

/// A parameter (1) or a reference to one (2).
static PARAMETER_ITEM: Form = Form::Choice(|value| {
    static REFERRED: Form = Form::Wrap(2, &Form::Message(&REFERENCE));
    static WRITTEN: Form = Form::Wrap(1, &Form::Choice(parameter));
    Some(if value.get("$ref").is_some() { &REFERRED } else { &WRITTEN })
});

static REFERENCE: Message = Message { members: &[("$ref", 1, Form::Text)], extensions: 0, rest: None };

/// A body (1), or one of the other places (2).
fn parameter(value: &Value) -> Option<&'static Form> {
    static IN_BODY: Form = Form::Wrap(1, &Form::Message(&BODY));
    static IN_QUERY: Form = Form::Wrap(2, &Form::Wrap(3, &Form::Message(&QUERY)));
    static IN_PATH: Form = Form::Wrap(2, &Form::Wrap(4, &Form::Message(&IN_PATH_FIELDS)));
    match value.str_at(&["in"]) {
        "body" => Some(&IN_BODY),
        "query" => Some(&IN_QUERY),
        "path" => Some(&IN_PATH),
        _ => None,
    }
}

static BODY: Message = Message {
    members: &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::Message(&SCHEMA)),
    ],
    extensions: 6,
    rest: None,
};

static QUERY: Message = Message {
    members: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
    ],
    extensions: 23,
    rest: None,
};

static IN_PATH_FIELDS: Message = Message {
    members: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
    ],
    extensions: 22,
    rest: None,
};

/// By code; each is a response (1).
static RESPONSES: Message =
    Message { members: &[], extensions: 2, rest: Some((1, Form::Wrap(1, &Form::Message(&RESPONSE)))) };

static RESPONSE: Message = Message {
    members: &[("description", 1, Form::Text), ("schema", 2, Form::Wrap(1, &Form::Message(&SCHEMA)))],
    extensions: 5,
    rest: None,
};

static SCHEMA: Message = Message {
    members: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("title", 3, Form::Text),
        ("description", 4, Form::Text),
        ("multipleOf", 6, Form::Number),
        ("maximum", 7, Form::Number),
        ("exclusiveMaximum", 8, Form::Flag),
        ("minimum", 9, Form::Number),
        ("exclusiveMinimum", 10, Form::Flag),
        ("maxLength", 11, Form::Integer),
        ("minLength", 12, Form::Integer),
        ("pattern", 13, Form::Text),
        ("maxItems", 14, Form::Integer),
        ("minItems", 15, Form::Integer),
        ("uniqueItems", 16, Form::Flag),
        ("maxProperties", 17, Form::Integer),
        ("minProperties", 18, Form::Integer),
        ("required", 19, Form::Each(&Form::Text)),
        ("enum", 20, Form::Each(&Form::Any)),
        ("additionalProperties", 21, Form::Choice(additional_properties)),
        ("type", 22, Form::Wrap(1, &Form::Each(&Form::Text))),
        ("items", 23, Form::Wrap(1, &Form::Each(&Form::Message(&SCHEMA)))),
        ("properties", 25, Form::Wrap(1, &Form::Named(&Form::Message(&SCHEMA)))),
    ],
    extensions: 31,
    rest: None,
};

/// A schema (1) or a boolean (2).
fn additional_properties(value: &Value) -> Option<&'static Form> {
    static SCHEMA_FORM: Form = Form::Wrap(1, &Form::Message(&SCHEMA));
    static FLAG_FORM: Form = Form::Wrap(2, &Form::Flag);
    Some(if value.as_bool().is_some() { &FLAG_FORM } else { &SCHEMA_FORM })
}
