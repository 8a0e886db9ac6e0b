//! Types as values: schemas, the registry, the served types, and the documents about them.

pub mod attributes;
pub mod author;
pub mod bloom;
pub mod convert;
pub mod discovery;
pub mod enablement;
pub mod features;
pub mod openapi;
pub mod options;
pub mod past_types;
pub mod schema;
pub mod selector;
pub mod served;
pub mod table;
pub mod version;
