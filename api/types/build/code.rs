//! The code that schema files name: functions and constants of the server, numbered so that a table can hold a `u16`
//! for each.
//!
//! A list has every name of one [`Use`] once, in the order of the names; the numbers count from 1, and 0 stands for
//! none. Each list is included by the one module that knows what is behind its names.

use std::fmt::Write;

use crate::model::Schema;

/// What a piece of code is for.
#[derive(Clone, Copy)]
pub enum Use {
    /// Checks of structs, below `../objects/src/validation/rules`.
    Rule,
    /// Checks of updates, below `../objects/src/validation/rules`.
    UpdateRule,
    /// What is brought into another form before validation, below `../objects/src/validation/rules`.
    Normalization,
    /// What creations and updates of a kind do, below `../objects/src/strategy`.
    Strategy,
    /// What is between a served version and the stored one, below `src/convert`.
    Conversion,
    /// Defaults that depend on several fields, in `src/schema/defaults_rules.rs` and `defaults_aliases.rs`.
    DefaultRule,
}

/// The number of a name; 0 for the empty one.
pub fn number(schema: &Schema, used: Use, name: &str) -> usize {
    names(schema, used).iter().position(|other| *other == name).map_or(0, |at| at + 1)
}

/// Rust source: a static with everything that is named for one use.
pub fn list(schema: &Schema, used: Use) -> String {
    let (list, element) = match used {
        Use::Rule => ("RULES", "Rule"),
        Use::UpdateRule => ("UPDATE_RULES", "UpdateRule"),
        Use::Normalization => ("NORMALIZATIONS", "Normalization"),
        Use::Strategy => ("STRATEGIES", "Strategy"),
        Use::Conversion => ("CONVERSIONS", "Conversion"),
        Use::DefaultRule => ("DEFAULT_RULES", "Rule"),
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
