//! Admission: plugins that may change or refuse a write that authorization allowed.
//!
//! ```text
//! flags, file ─► Settings ─► plugins in their order ─► Server (writes/server.rs) ─► Chain (writes/plugin)
//! ```
//!
//! The module `order` lists the plugins in the order in which they run. No flag changes this order. Each plugin
//! is created for one server, and keeps references to the parts of the server that it reads: objects at the
//! newest revision of the store, the served types, the authorizers.
//!
//! To add a plugin, add a file with a type that implements `Plugin` to this directory, and a line to `order`.

mod always;
mod always_pull_images;
mod anti_affinity;
mod certificate_subject;
mod claim_resize;
mod config_type;
mod default_class;
mod default_toleration_seconds;
pub mod device_access;
pub mod device_status;
mod event_rate;
mod extended_resource_toleration;
mod external_ips;
mod files;
mod image_policy;
mod limit_ranger;
mod namespace_exists;
pub mod namespace_lifecycle;
mod node_restriction;
mod node_taint;
mod order;
mod owner_permissions;
mod parsed;
mod patched;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
pub mod policy;
mod priority;
pub mod quota;
pub mod rules;
mod runtime_class;
mod service_account;
mod settings;
mod signers;
pub mod storage_protection;
mod toleration;
mod topology_labels;
pub mod webhook;

pub use files::Files;
pub use parsed::{Collection, Listed, Parsed};
pub use settings::{Settings, Unusable, Wishes};

#[cfg(test)]
#[path = "admission_test.rs"]
mod tests;

#[cfg(test)]
mod plugins_test;

#[cfg(test)]
mod restrictions_test;
