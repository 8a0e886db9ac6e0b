//! Admission: plugins that may change or refuse a write that authorization allowed.
//!
//! ```text
//! flags, file ─► Settings ─► Chain ◄─ Lookup (store, authorizer)
//!
//! write path ─► mutating point ─► … ─► validation ─► validating point ─► … ─► commit ─► charges are kept
//! connects, reviews, subresources that store nothing ─► both points, one after the other
//! ```
//!
//! A [`Chain`] has the plugins in the order of `order`, which no flag changes, each with both points. A
//! plugin gets the whole write as a [`AdmissionRecord`], in the version of the request. The chain converts objects of
//! the stored version and reads old objects only if a plugin that handles the write reads objects. Anything
//! else that a plugin needs, it looks up at the newest revision of the store ([`Lookup`]).
//!
//! To add a plugin, add a file here with a type that implements [`Plugin`], and a line in `order`.

mod always;
mod always_pull_images;
mod anti_affinity;
mod attributes;
mod certificate_subject;
mod chain;
mod claim_resize;
mod config_type;
mod default_class;
mod default_toleration_seconds;
pub mod device_access;
pub mod device_status;
mod event_rate;
mod extended_resource_toleration;
mod external_ips;
mod image_policy;
mod kinds;
mod limit_ranger;
mod lookup;
mod namespace_exists;
pub mod namespace_lifecycle;
mod node_restriction;
mod node_taint;
mod options;
mod order;
mod owner_permissions;
mod parsed;
mod patched;
mod plugin;
mod pod;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_toleration_restriction;
pub mod policy;
mod priority;
pub mod quota;
mod record;
pub mod rules;
mod runtime_class;
mod service_account;
mod settings;
mod signers;
pub mod storage_protection;
mod target;
mod toleration;
mod topology_labels;
pub mod webhook;

pub use attributes::WriteAttributes;
pub use chain::{Asked, Chain};
pub use lookup::Lookup;
pub use options::Options;
pub use parsed::{Collection, Listed, Parsed};
pub use plugin::{Files, Make, Plugin, Step};
pub use record::{AdmissionRecord, Charge, Pending, Review, Writer};
pub use settings::{Settings, Unusable, Wishes};
pub use target::{Operation, Target};

#[cfg(test)]
#[path = "admission_test.rs"]
mod tests;

#[cfg(test)]
mod plugins_test;

#[cfg(test)]
mod restrictions_test;
