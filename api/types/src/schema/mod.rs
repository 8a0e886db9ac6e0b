//! Built-in types as data: one description per type, and the code that uses these descriptions.

#[cfg(test)]
mod agreement_test;
pub mod behavior;
pub mod builtin;
pub mod compiled;
pub mod conform;
pub mod declared;
pub mod decode;
pub mod decode_form;
mod decode_inner;
mod decode_members;
mod decode_merge;
pub mod decode_raw;
mod decode_report;
mod decode_straight;
pub mod decoded;
pub mod defaults;
mod defaults_aliases;
mod defaults_rules;
pub mod encode;
pub mod etcd_path;
#[cfg(any(test, feature = "testing"))]
pub mod generate;
pub mod handle;
pub mod kind;
pub mod limits;
pub mod make;
pub mod make_error;
pub mod pattern;
pub mod published;
pub mod raw_tree;
pub mod registry;
pub mod scalars;
pub mod share;
pub mod table;
pub mod text_types;
mod typed_object;
pub mod versioned;
pub mod versions;

pub use defaults_aliases::{ROLLBACK_REVISION, TEMPLATE_GENERATION, complete_empty, unreadable_annotation};
