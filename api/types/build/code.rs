//! Functions and constants of the server to which schema files refer by name. Each function or constant has a
//! number, so that a table stores only a `u16`.
//!
//! A list contains every name of one [`Use`] once, sorted by name. The numbers start at 1, and 0 means that
//! there is no code. Only one module includes each list: the module that imports the named functions and
//! constants.

use std::fmt::Write;

use crate::model::Schema;

/// The purpose of a piece of code.
#[derive(Clone, Copy)]
pub enum Use {
    /// Checks of structs, below `../objects/src/validation/rules`.
    Rule,
    /// Checks of updates, below `../objects/src/validation/rules`.
    UpdateRule,
    /// Normalizations of objects before validation, below `../objects/src/validation/rules`.
    Normalization,
    /// Strategies for creations and updates of a kind, below `../objects/src/strategy`.
    Strategy,
    /// Conversions between a served version and the stored version, below `src/convert`.
    Conversion,
    /// Defaults that depend on several fields, in `src/schema/defaults_rules.rs` and
    /// `defaults_aliases.rs`.
    DefaultRule,
}

/// Returns the number of a name; 0 for the empty name.
pub fn number(schema: &Schema, used: Use, name: &str) -> usize {
    names(schema, used).iter().position(|other| *other == name).map_or(0, |at| at + 1)
}

/// Returns the Rust source of a static list with all names of one use.
pub fn list(schema: &Schema, used: Use) -> String {
    let (list, element) = match used {
        Use::Rule => ("RULES", "StructCheck"),
        Use::UpdateRule => ("UPDATE_RULES", "UpdateRule"),
        Use::Normalization => ("NORMALIZATIONS", "Normalization"),
        Use::Strategy => ("STRATEGIES", "Strategy"),
        Use::Conversion => ("CONVERSIONS", "Conversion"),
        Use::DefaultRule => ("DEFAULT_RULES", "DefaultRule"),
    };
    let mut out = format!("static {list}:&[{element}]=&[");
    for name in names(schema, used) {
        write!(out, "{name},").expect("strings can be written to");
    }
    out.push_str("];\n");
    out
}

fn names(schema: &Schema, used: Use) -> Vec<&str> {
    let versions = || schema.groups.iter().flat_map(|group| &group.versions);
    let resources = || versions().flat_map(|version| &version.resources);
    let mut names: Vec<&str> = match used {
        Use::Rule => schema.messages.iter().map(|message| &*message.rule).collect(),
        Use::DefaultRule => schema.messages.iter().map(|message| &*message.default_rule).collect(),
        Use::UpdateRule => resources()
            .flat_map(|resource| {
                let below = resource.subresources.iter().map(|subresource| &*subresource.update_rule);
                below.chain([&*resource.behavior.update_rule])
            })
            .collect(),
        Use::Normalization => resources().map(|resource| &*resource.behavior.normalization).collect(),
        Use::Strategy => resources().map(|resource| &*resource.behavior.strategy).collect(),
        Use::Conversion => resources().map(|resource| &*resource.behavior.conversion).collect(),
    };
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !name.is_empty());
    names
}
