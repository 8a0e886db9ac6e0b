//! Rules for definitions of custom types (docs/api/validation.md#custom-resource-definitions).
//!
//! ```text
//! spec ─► names, scope, conversion
//!      ├► each version:  deprecation, subresources, columns, selectable fields
//!      └► each schema:   structural ─► defaults ─► keywords, list types, rules
//! ```
//!
//! Parts that all versions have in common are checked once, and reported at `spec.validation`,
//! `spec.subresources` and so on instead of below each version. Error paths contain the reference server's
//! internal names, so some paths differ from the paths in the object (`spec.validation`, `JSONPath`). An
//! update may keep parts of the stored definition that a new definition may not have ([`Options`]).

mod conversion;
mod cost;
mod defaults;
mod extension_names;
mod internal;
mod list_keys;
mod names;
mod options;
mod schema;
mod structural;
mod version;

use hashbrown::HashSet;

use extension_names::ExtensionNames;
use options::{Options, has_bad_bundle};

use super::StructView;
use crate::custom;
use crate::custom::definition::approval::{self, Approval};
use crate::custom::definition::conditions::Findings;
use crate::custom::definition::rules::RuleCompiler;
use crate::custom::definition::{Definition, DefinitionVersion, Shared, naming, walk};
use crate::custom::schema::Schema;
use crate::validation::Validator;
use crate::validation::path::FieldPath;
use values::field::FieldError;
use values::json::Object;
use values::naming::Naming;

/// Compiler for the rules of schemas. Without a compiler, only the syntax of rules is checked.
static COMPILER: Option<&'static dyn RuleCompiler> = Some(&custom::rules::Compiler);

/// Checks a definition on create, or on an update of its spec.
pub(in super::super) fn definition(validator: &mut Validator, path: &FieldPath, object: StructView) {
    let Some(given) = object.object() else { return };
    let new = Definition::read(given);
    let old = validator.old.and_then(StructView::object).map(Definition::read);
    let words = ExtensionNames::new(validator.naming);
    let spec = path.child("spec");
    if old.is_none() {
        name(validator, path, &new, object);
    }
    let options = match &old {
        None => Options::of_new(COMPILER),
        Some(old) => Options::of_update(COMPILER, &new, old, &words),
    };
    Spec { definition: &new, shared: new.shared(), given: object.child("spec"), words: &words }
        .check(validator, &spec, options);
    if let Some(old) = &old {
        immutable(validator, &spec, &new, old);
    }
    let status = path.child("status");
    names::check(validator, &status.child("acceptedNames"), &new.accepted);
    stored_versions(validator, &status.child("storedVersions"), &new);
    approved(validator, &path.child("metadata"), &new, object);
    let was_kept = old.is_some_and(|old| old.preserve_unknown_fields);
    if new.preserve_unknown_fields && !was_kept {
        let detail = format!(
            "cannot set to true, set {} to true in spec.versions[*].schema instead",
            words.preserve_unknown_fields
        );
        validator.invalid(spec.child("preserveUnknownFields"), true, detail);
    }
}

/// Checks the status of a definition, which is written through `/status`.
pub(in super::super) fn status(validator: &mut Validator, path: &FieldPath, _: StructView) {
    if let Some(object) = validator.object.object() {
        let accepted = Definition::read(object).accepted;
        names::check(validator, &path.child("acceptedNames"), &accepted);
    }
}

/// Checks that the name of a definition, or the base of a generated name, matches its group and plural name.
fn name(validator: &mut Validator, path: &FieldPath, definition: &Definition, object: StructView) {
    let (place, metadata) = (path.child("metadata"), object.child("metadata"));
    let is_of_type = |name: &str| {
        let rest = name.strip_prefix(definition.names.plural.as_str());
        rest.and_then(|rest| rest.strip_prefix('.')) == Some(definition.group.as_str())
    };
    for member in ["generateName", "name"] {
        let name = metadata.text(member);
        if !name.is_empty() && !is_of_type(name) {
            validator.invalid(place.child(member), name, "must be spec.names.plural+\".\"+spec.group");
        }
    }
}

/// Checks that the identity of stored objects does not change. The group and the plural name never change.
/// Scope and kind do not change after the type is established.
fn immutable(validator: &mut Validator, path: &FieldPath, new: &Definition, old: &Definition) {
    let names = path.child("names");
    let is_established = old.is(naming::ESTABLISHED);
    for (place, now, before, is_fixed) in [
        (path.child("scope"), &new.scope, &old.scope, is_established),
        (names.child("kind"), &new.names.kind, &old.names.kind, is_established),
        (path.child("group"), &new.group, &old.group, true),
        (names.child("plural"), &new.names.plural, &old.names.plural, true),
    ] {
        if is_fixed && now != before {
            validator.invalid(place, now.as_str(), "field is immutable");
        }
    }
}

/// Checks that `storedVersions` contains the storage version, and that all versions in the list exist. Only
/// the operator removes a version from the list, when no object is stored in that version.
fn stored_versions(validator: &mut Validator, path: &FieldPath, definition: &Definition) {
    let stored = &definition.stored_versions;
    let all = || internal::texts(stored);
    if stored.is_empty() {
        return validator.invalid(path, all(), "must have at least one stored version");
    }
    let known: HashSet<&str> = stored.iter().map(String::as_str).collect();
    for version in definition.versions.iter().filter(|version| version.storage) {
        if !known.contains(version.name.as_str()) && !validator.has_enough() {
            validator.invalid(path, all(), format!("must have the storage version {}", version.name));
        }
    }
    let there: HashSet<&str> = definition.versions.iter().map(|version| version.name.as_str()).collect();
    for (at, name) in stored.iter().enumerate() {
        if !there.contains(name.as_str()) && !validator.has_enough() {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            validator.invalid(path.index(at), name.as_str(), detail);
        }
    }
}

/// Checks that a type in a protected group has the approval annotation.
fn approved(validator: &mut Validator, metadata: &FieldPath, definition: &Definition, object: StructView) {
    if !approval::is_protected(validator.naming, &definition.group) {
        return;
    }
    let annotation = approval::annotation(validator.naming);
    let approval = Approval::parse(annotation_of(object, &annotation));
    let before = validator.old.map(|old| Approval::parse(annotation_of(old, &annotation)));
    if before.is_some_and(|before| before.is_like(&approval)) {
        return;
    }
    let annotations = metadata.child("annotations");
    let place = annotations.key(&annotation);
    let detail = approval.reason(&annotation);
    match approval {
        Approval::Invalid(text) => validator.invalid(place, text, detail),
        Approval::Missing => validator.required(place, &detail),
        Approval::Approved(_) | Approval::Bypassed(_) => {}
    }
}

fn annotation_of<'o>(object: StructView<'o>, name: &str) -> &'o str {
    object.child("metadata").child("annotations").text(name)
}

/// The spec of a definition.
struct Spec<'s> {
    definition: &'s Definition,
    shared: Shared,
    /// The spec as the client sent it.
    given: StructView<'s>,
    words: &'s ExtensionNames,
}

impl Spec<'_> {
    fn check(&self, validator: &mut Validator, path: &FieldPath, mut options: Options) {
        let definition = self.definition;
        self.group_and_scope(validator, path);
        self.schemas_are_there(validator, path, &options);
        if definition.schemas().any(has_defaults) {
            options.needs_structure = true;
            if definition.preserve_unknown_fields {
                let detail = "must be false in order to use defaults in the schema";
                validator.invalid(path.child("preserveUnknownFields"), true, detail);
            }
        }
        options.needs_structure |=
            !definition.preserve_unknown_fields || definition.schemas().any(has_extensions);
        self.versions(validator, path, &mut options);
        names::required(validator, &path.child("names"), &definition.names);
        names::check(validator, &path.child("names"), &definition.names);
        self.shared_parts(validator, path, &mut options);
        let client = self.given.child("conversion").child("webhook").child("clientConfig");
        conversion::conversion(validator, &path.child("conversion"), definition, client, options.tolerated);
    }

    fn group_and_scope(&self, validator: &mut Validator, path: &FieldPath) {
        let group = self.definition.group.as_str();
        let place = path.child("group");
        let faults = crate::validation::names::subdomain(group);
        if group.is_empty() {
            validator.required(place, "");
        } else if !faults.is_empty() {
            validator.invalid(place, group, faults.join(","));
        } else if !group.contains('.') {
            validator.invalid(place, group, "should be a domain with at least one dot");
        }
        let place = path.child("scope");
        match self.definition.scope.as_str() {
            "" => validator.required(place, ""),
            "Cluster" | "Namespaced" => {}
            other => validator.not_supported(place, other, &["Cluster", "Namespaced"]),
        }
    }

    fn schemas_are_there(&self, validator: &mut Validator, path: &FieldPath, options: &Options) {
        let definition = self.definition;
        let detail = if options.needs_schemas {
            ""
        } else if definition.preserve_unknown_fields {
            return;
        } else {
            "because otherwise all fields are pruned"
        };
        let versions = path.child("versions");
        for (at, version) in definition.versions.iter().enumerate() {
            if version.schema().is_none()
                && (version.served || options.needs_schemas)
                && !validator.has_enough()
            {
                let element = versions.index(at);
                validator.required(element.child("schema").child("openAPIV3Schema"), detail);
            }
        }
    }

    fn versions(&self, validator: &mut Validator, path: &FieldPath, options: &mut Options) {
        let definition = self.definition;
        let list = path.child("versions");
        let mut seen = HashSet::new();
        let mut is_unique = true;
        for (at, version) in definition.versions.iter().enumerate() {
            if validator.has_enough() {
                return;
            }
            let place = list.index(at);
            is_unique &= seen.insert(version.name.as_str());
            names::full_label(validator, &place.child("name"), &version.name);
            self.version(validator, &place, version, options);
        }
        let all = || internal::versions(&definition.versions, self.shared);
        if !is_unique {
            validator.invalid(list, all(), "must contain unique version names");
        }
        if definition.versions.iter().filter(|version| version.storage).count() != 1 {
            validator.invalid(list, all(), "must have exactly one version marked as storage version");
        }
        if let Some(first) = definition.versions.first().filter(|first| !first.name.is_empty()) {
            names::full_label(validator, &path.child("version"), &first.name);
        }
    }

    /// Checks the parts of a version that the versions do not have in common.
    fn version(
        &self,
        validator: &mut Validator,
        path: &FieldPath,
        version: &DefinitionVersion,
        options: &mut Options,
    ) {
        version::deprecation(validator, path, version.deprecated, version.deprecation_warning.as_deref());
        if !self.shared.validation
            && let Some(schema) = version.schema()
        {
            options.keeps_costs = options.unchanged.contains(&version.name);
            let place = path.child("schema");
            self.schema(validator, &place, schema, version.has_status(), options);
        }
        if !self.shared.subresources {
            let place = path.child("subresources");
            version::subresources(validator, &place, version.subresources.as_ref());
        }
        if !self.shared.columns {
            version::columns(validator, &path.child("additionalPrinterColumns"), &version.columns);
        }
        if self.shared.selectable || version.selectable.is_empty() {
            return;
        }
        let place = path.child("selectableFields");
        match version.schema().filter(|_| !self.shared.validation) {
            Some(schema) => {
                let keeps = options.keeps_selectable.contains(&version.name);
                version::selectable_fields(validator, &place, &version.selectable, schema, keeps);
            }
            None => {
                let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
                version::no_schema(validator, &place, detail);
            }
        }
    }

    /// Checks the parts that all versions have in common, in the first version.
    fn shared_parts(&self, validator: &mut Validator, path: &FieldPath, options: &mut Options) {
        let Some(first) = self.definition.versions.first() else { return };
        if self.shared.validation
            && let Some(schema) = first.schema()
        {
            options.keeps_costs = options.unchanged.contains(&first.name);
            let has_status = self.definition.versions.iter().any(DefinitionVersion::has_status);
            self.schema(validator, &path.child("validation"), schema, has_status, options);
        }
        if self.shared.subresources {
            version::subresources(validator, &path.child("subresources"), first.subresources.as_ref());
        }
        if self.shared.columns {
            version::columns(validator, &path.child("additionalPrinterColumns"), &first.columns);
        }
        if !self.shared.selectable || first.selectable.is_empty() {
            return;
        }
        let place = path.child("selectableFields");
        match first.schema() {
            Some(schema) => {
                let keeps = options.keeps_selectable.contains(&first.name);
                version::selectable_fields(validator, &place, &first.selectable, schema, keeps);
            }
            None => {
                version::no_schema(validator, &place, "may only be set when validations.schema is included");
            }
        }
    }

    /// Checks the schema at `path` + `openAPIV3Schema`.
    fn schema(
        &self,
        validator: &mut Validator,
        path: &FieldPath,
        schema: &Schema,
        has_status: bool,
        options: &Options,
    ) {
        let words = self.words;
        let root = path.child("openAPIV3Schema");
        let before = validator.errors.len();
        if has_status {
            validator.errors.extend(root_error(schema, &root));
        }
        if schema.nullable {
            validator.forbidden(root.child("nullable"), "nullable cannot be true at the root");
        }
        let obstacle = structural::obstacle(schema, words);
        let mut compiles = false;
        if options.needs_structure && obstacle.is_none() {
            let mut errors = structural::errors(schema, &root, words);
            if errors.is_empty() {
                errors = defaults::errors(schema, &root, !options.needs_pruned_defaults);
            }
            compiles = errors.is_empty();
            validator.errors.extend(errors);
        }
        validator.errors.extend(schema::errors(schema, &root, words, options, compiles));
        if let Some(obstacle) = obstacle.filter(|_| options.needs_structure)
            && validator.errors.len() == before
        {
            validator.invalid(root, "", obstacle);
        }
    }
}

/// Returns facts about a stored definition, without the names of the definition.
pub(in super::super) fn findings<'f>(
    naming: &Naming,
    definition: &Definition,
    object: &'f Object,
) -> Findings<'f> {
    let annotation = || annotation_of(StructView::from_object(object), &approval::annotation(naming));
    let is_protected = approval::is_protected(naming, &definition.group);
    Findings {
        approval: is_protected.then(|| Approval::parse(annotation())),
        violations: violations(naming, definition),
        bad_bundle: has_bad_bundle(definition),
    }
}

/// Returns the reasons why schemas of a definition are not structural, as one text. Returns `None` if all
/// schemas are structural.
fn violations(naming: &Naming, definition: &Definition) -> Option<String> {
    let words = ExtensionNames::new(naming);
    let spec = FieldPath::ROOT.child("spec");
    let versions = spec.child("versions");
    let mut texts: Vec<String> = Vec::new();
    for (at, version) in definition.versions.iter().enumerate() {
        let Some(schema) = version.schema() else { continue };
        if let Some(obstacle) = structural::obstacle(schema, &words) {
            return Some(format!(
                "failed to check validation schema for version {}: {obstacle}",
                version.name
            ));
        }
        let version = versions.index(at);
        let place = version.child("schema");
        let errors = structural::errors(schema, &place.child("openAPIV3Schema"), &words);
        texts.extend(errors.iter().map(ToString::to_string));
    }
    go::join_errors(texts)
}

/// Returns the error of the root of a schema. If there is a subresource `/status`, the root may only have
/// keywords that do not conflict with the subresource.
fn root_error(schema: &Schema, path: &FieldPath) -> Option<FieldError> {
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                           MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
                           ExternalDocs Example XPreserveUnknownFields XValidations]";
    let first = !schema.id.is_empty() || !schema.dialect.is_empty() || schema.reference.is_some();
    if !first && !matches!(schema.kind.as_str(), "" | "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(path.child("type"), &schema.kind.as_str().into(), detail));
    }
    let allowed = Schema {
        description: String::new(),
        kind: String::new(),
        format: String::new(),
        title: String::new(),
        maximum: None,
        exclusive_maximum: false,
        minimum: None,
        exclusive_minimum: false,
        max_length: None,
        min_length: None,
        pattern: String::new(),
        max_items: None,
        min_items: None,
        unique_items: false,
        multiple_of: None,
        required: Vec::new(),
        items: None,
        properties: [].into(),
        external_docs: None,
        example: None,
        preserve_unknown_fields: None,
        validations: Vec::new(),
        ..schema.clone()
    };
    (allowed != Schema::default()).then(|| {
        let detail = format!(
            "only {ALLOWED} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        FieldError::invalid(path, &internal::schema(schema), detail)
    })
}

fn has_defaults(schema: &Schema) -> bool {
    walk::any(schema, |node| node.default.is_some())
}

fn has_extensions(schema: &Schema) -> bool {
    walk::any(schema, |node| {
        node.embedded_resource
            || node.preserve_unknown_fields.is_some()
            || node.int_or_string
            || !node.list_map_keys.is_empty()
            || node.list_type.is_some()
            || !node.validations.is_empty()
    })
}
