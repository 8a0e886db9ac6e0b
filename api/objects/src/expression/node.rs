//! JSON trees as nodes that the expression language reads in place.
//!
//! The traits of the language belong to the crate `cel` and the trees to the crate `values`, so the traits are implemented
//! for these wrappers. A reference to a tree is used as a reference to its wrapper, without a copy.

use ref_cast::RefCast;
use values::json;

/// A JSON value: a list, or a map whose type the schema gives.
#[derive(RefCast)]
#[repr(transparent)]
pub struct ValueNode(pub json::Value);

/// A JSON object: a map, or an object whose fields the schema gives.
#[derive(RefCast)]
#[repr(transparent)]
pub struct ObjectNode(pub json::Object);
