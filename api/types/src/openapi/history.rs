//! The paths of the history of objects, which belong to no resource (docs/api/history.md).

use super::definition::Definitions;
use super::operation::{Media, Method, PathItem, ResponseContent, plain_path};
use super::parameter::{self, Parameter};

/// Name of the document below `/openapi/v3/`.
pub(super) const NAME: &str = "history";

/// Package of the definitions.
const PACKAGE: &str = "api.history.v1alpha1";

/// The schemas of the answers. A reference is the name of another schema of this list.
const SCHEMAS: [(&str, &str); 4] = [
    (
        "ObjectHistory",
        r##"{
  "description": "ObjectHistory is a page of the retained versions of one object, the newest version first.",
  "properties": {
    "apiVersion": {"description": "APIVersion defines the group and the version of this answer.", "type": "string"},
    "items": {
      "description": "Items are the versions of this page.",
      "items": {"$ref": "ObjectVersion"},
      "type": "array"
    },
    "kind": {"description": "Kind is a string value: ObjectHistory.", "type": "string"},
    "metadata": {
      "description": "Metadata contains the newest revision of the store and, if older versions follow, the token of the next page.",
      "properties": {
        "continue": {
          "description": "Continue is the value of the parameter `continue` of the next page. The last page has no token.",
          "type": "string"
        },
        "resourceVersion": {
          "description": "ResourceVersion is the revision of the store at which the page was read.",
          "type": "string"
        }
      },
      "type": "object"
    }
  },
  "required": ["items"],
  "type": "object"
}"##,
    ),
    (
        "ObjectVersion",
        r##"{
  "description": "ObjectVersion describes one retained version of an object, or its deletion.",
  "properties": {
    "author": {"$ref": "WriteAuthor"},
    "cut": {
      "description": "Cut lists the incomplete members of this version: `fields`, `patch`.",
      "items": {"type": "string"},
      "type": "array"
    },
    "fields": {
      "description": "Fields are the paths of at most 100 fields that an update changed. The paths never contain values.",
      "items": {"type": "string"},
      "type": "array"
    },
    "object": {"$ref": "ObjectState"},
    "operation": {
      "description": "Operation is the kind of the write. Expire means that the store deleted an event at the end of its time to live.",
      "enum": ["Create", "Update", "Delete", "Expire"],
      "type": "string"
    },
    "patch": {
      "description": "Patch is a JSON Patch from the previous version to this one, of at most 1 000 operations. The parameter `include=patch` requests it.",
      "items": {"type": "object"},
      "type": "array"
    },
    "revision": {"description": "Revision is the revision of the store that this write created.", "type": "string"},
    "subresource": {
      "description": "Subresource is the name of the subresource through which the object was written.",
      "type": "string"
    },
    "time": {
      "description": "Time is the time of the commit, with millisecond precision.",
      "format": "date-time",
      "type": "string"
    }
  },
  "required": ["revision", "time", "operation"],
  "type": "object"
}"##,
    ),
    (
        "WriteAuthor",
        r##"{
  "description": "WriteAuthor describes the author of a write. Writes of earlier releases and of the store itself have no author.",
  "properties": {
    "manager": {"description": "Manager is the field manager of the write.", "type": "string"},
    "requestID": {"description": "RequestID is the audit ID of the request.", "type": "string"},
    "source": {"description": "Source is the IP address of the client.", "type": "string"},
    "user": {"description": "User is the name of the user.", "type": "string"},
    "userAgent": {"description": "UserAgent is the value of the header User-Agent.", "type": "string"}
  },
  "type": "object"
}"##,
    ),
    (
        "ObjectState",
        r##"{
  "description": "ObjectState is an object of any type, in the API version of the path.",
  "type": "object"
}"##,
    ),
];

/// Returns the paths, sorted, and adds the definitions of their answers.
pub(super) fn paths(definitions: &mut Definitions) -> Vec<PathItem> {
    for (name, schema) in SCHEMAS {
        definitions.add_text(PACKAGE, name, schema);
    }
    let history = definitions.full_name(PACKAGE, "ObjectHistory");
    let mut read = path(
        "/history/{path}",
        "readObjectHistory",
        "read the retained versions of an object, the newest first",
        ResponseContent::Schema(history, Media::Custom),
    );
    read.operations[0].1.parameters = vec![
        query("continue", "string", "Token in the metadata of the previous page."),
        query(
            "include",
            "string",
            "Optional members of each version, with commas between them: `object`, `patch`.",
        ),
        query("limit", "integer", "Maximum number of versions of the page: 100 by default, at most 500."),
    ];
    let state = definitions.full_name(PACKAGE, "ObjectState");
    let content = ResponseContent::Schema(state, Media::Object);
    let mut restore = path(
        "/history/{path}/restore",
        "restoreObjectState",
        "write the state that an object had at a revision, as an update, or as a create if the object is gone",
        content.clone(),
    );
    let (method, operation) = &mut restore.operations[0];
    *method = Method::Post;
    operation.responses.insert(1, (201, content));
    operation.parameters = vec![
        query("dryRun", "string", "`All` runs every step of the request, and stores nothing."),
        query("fieldManager", "string", "Name of the manager that owns the restored fields."),
        query(
            "fieldValidation",
            "string",
            "Treatment of unknown and duplicate fields: `Ignore`, `Warn` or `Strict`.",
        ),
        query("resourceVersion", "string", "Precondition: the current resource version of the object."),
        query("revision", "integer", "Revision whose state is restored. Required."),
    ];
    vec![read, restore]
}

/// Returns a path with one operation and the parameter `path`, which is the path of an object.
fn path(path: &str, id: &str, description: &str, content: ResponseContent) -> PathItem {
    let mut item = plain_path(path, id, NAME, description, content);
    item.parameters.push(parameter::path(
        "path",
        "Path of the object in the API, for example `api/v1/namespaces/default/configmaps/settings`.",
    ));
    item
}

fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name: name.into(), location: "query", kind, description: description.into(), shared: false }
}
