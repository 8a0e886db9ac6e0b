//! Types as values: schemas, the registry, what is served of them and the documents about them.

pub mod attributes;
pub mod bloom;
pub mod convert;
pub mod discovery;
pub mod enablement;
pub mod features;
pub mod openapi;
pub mod options;
pub mod schema;
pub mod selector;
pub mod served;
pub mod table;
pub mod version;
