//! JSON trees as nodes that the expression language reads without copying.
//!
//! The traits of the language belong to the crate `cel`, and the trees belong to the crate `values`. Rust
//! therefore requires wrapper types for the implementations. A reference to a tree is cast to a reference to
//! its wrapper.

use ref_cast::RefCast;
use values::json;

/// A JSON value as a list, or as a map whose type the schema determines.
#[derive(RefCast)]
#[repr(transparent)]
pub struct ValueNode(pub json::Value);

/// A JSON object as a map, or as an object whose fields the schema declares.
#[derive(RefCast)]
#[repr(transparent)]
pub struct ObjectNode(pub json::Object);
