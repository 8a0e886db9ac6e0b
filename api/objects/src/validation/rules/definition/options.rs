//! Options of the checks of a definition. A new definition must pass all checks. An update must pass the
//! checks that the stored definition passes.

use hashbrown::{HashMap, HashSet};

use super::conversion::{self, Tolerated};
use super::extension_names::ExtensionNames;
use super::{defaults, list_keys, structural, version};
use crate::custom::definition::rules::{RuleCompiler, StoredExpressions};
use crate::custom::definition::{Definition, DefinitionVersion, naming, walk};
use crate::custom::schema::Schema;
use crate::validation::path::FieldPath;

/// Options of the checks of a definition. A check is skipped if the stored definition does not pass the check.
pub(super) struct Options {
    pub(super) compiler: Option<&'static dyn RuleCompiler>,
    /// Expressions of the stored definition.
    pub(super) stored: StoredExpressions,
    /// Whether only known types are permitted.
    pub(super) checks_types: bool,
    /// Whether every version needs a schema. Otherwise only served versions need a schema.
    pub(super) needs_schemas: bool,
    /// Whether schemas must be structural.
    pub(super) needs_structure: bool,
    /// Whether defaults must not have unknown fields.
    pub(super) needs_pruned_defaults: bool,
    /// Whether elements of sets must be atomic.
    pub(super) checks_sets: bool,
    /// Whether keys of keyed lists must be required or have a default.
    pub(super) checks_keys: bool,
    /// Whether the limit of a single expression is skipped because the schema is unchanged.
    pub(super) keeps_costs: bool,
    pub(super) tolerated: Tolerated,
    /// Names of the versions whose schema is unchanged.
    pub(super) unchanged: HashSet<String>,
    /// Names of the versions that may keep more selectable fields than a new version may have.
    pub(super) keeps_selectable: HashSet<String>,
}

impl Options {
    /// Returns the options for a new definition, with all checks.
    pub(super) fn of_new(compiler: Option<&'static dyn RuleCompiler>) -> Options {
        Options {
            compiler,
            stored: StoredExpressions::default(),
            checks_types: true,
            needs_schemas: true,
            needs_structure: true,
            needs_pruned_defaults: true,
            checks_sets: true,
            checks_keys: true,
            keeps_costs: false,
            // There are no objects to convert yet, so the CA bundle may be added later.
            tolerated: Tolerated { unknown_reviews: false, bad_bundle: true },
            unchanged: HashSet::new(),
            keeps_selectable: HashSet::new(),
        }
    }

    /// Returns the options for an update, with all checks that the stored definition passes.
    pub(super) fn of_update(
        compiler: Option<&'static dyn RuleCompiler>,
        new: &Definition,
        old: &Definition,
        words: &ExtensionNames,
    ) -> Options {
        let no_schema =
            |holds: &dyn Fn(&Schema) -> bool| !old.schemas().any(|schema| walk::any(schema, holds));
        let is_structural = |schema: &Schema| {
            structural::obstacle(schema, words).is_none()
                && structural::errors(schema, &FieldPath::ROOT, words).is_empty()
        };
        // If several versions have the same name, the first version is used.
        let stored: HashMap<&str, &DefinitionVersion> =
            old.versions.iter().rev().map(|version| (version.name.as_str(), version)).collect();
        let before = |version: &DefinitionVersion| stored.get(version.name.as_str()).copied();
        let names = |holds: &dyn Fn(&DefinitionVersion, &DefinitionVersion) -> bool| {
            let kept =
                new.versions.iter().filter(|version| before(version).is_some_and(|old| holds(version, old)));
            kept.map(|version| version.name.clone()).collect()
        };
        Options {
            stored: StoredExpressions::from_definition(old),
            checks_types: no_schema(&|node| {
                !node.kind.is_empty() && !list_keys::TYPES.contains(&node.kind.as_str())
            }),
            needs_schemas: old.versions.iter().all(|version| version.schema().is_some()),
            needs_structure: old.schemas().all(is_structural),
            needs_pruned_defaults: !old
                .schemas()
                .any(|schema| is_structural(schema) && !defaults::are_pruned(schema)),
            checks_sets: no_schema(&|node| list_keys::has_open_sets(node, words)),
            checks_keys: no_schema(&|node| !list_keys::key_errors(node, &FieldPath::ROOT, words).is_empty()),
            tolerated: Tolerated {
                unknown_reviews: old.conversion.as_ref().is_some_and(|conversion| {
                    let versions = &conversion.review_versions;
                    !versions.is_empty() && !conversion::knows_reviews(versions)
                }),
                bad_bundle: !old.is(naming::ESTABLISHED) || has_bad_bundle(old),
            },
            unchanged: names(&|new, old| new.validation == old.validation),
            keeps_selectable: names(&|new, old| {
                old.selectable.len() > version::SELECTABLE_MAX && new.selectable == old.selectable
            }),
            ..Options::of_new(compiler)
        }
    }
}

/// Returns whether the CA bundle of the conversion webhook is invalid.
pub(super) fn has_bad_bundle(definition: &Definition) -> bool {
    let client = definition.conversion.as_ref().and_then(|conversion| conversion.client.as_ref());
    client.is_some_and(|client| conversion::read_bundle(&client.ca_bundle).is_err())
}
