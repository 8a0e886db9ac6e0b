//! Properties by which the server treats a kind differently from other kinds. The schema sets these
//! properties. A number refers to code that belongs to a kind; the other properties are fields that generic
//! code reads.
//!
//! Generic code reads these properties of a resource and never compares the name of its kind. Types made at
//! run time have [`Behavior::PLAIN`].

/// The special properties of a kind, in addition to the rest of its table.
#[derive(Debug)]
pub struct Behavior {
    /// Number of the kind's strategy, from 1; 0 means no strategy. Only `strategy` can resolve the number.
    pub strategy: u16,
    /// Number of the normalization that brings objects into the form that validation and the store expect,
    /// from 1; 0 means no normalization. Only validation can resolve the number.
    pub normalization: u16,
    /// Number of the check in code for updates, from 1; 0 means no check. Only validation can resolve the
    /// number.
    pub update_rule: u16,
    /// Number of the conversion between this version and the stored version, from 1; 0 if the versions are
    /// equal or differ only in their names. Only `convert` can resolve the number.
    pub conversion: u16,
    /// Paths of `immutable` that have a special error message. Each path has the detail of its "forbidden"
    /// error; the detail is empty if the update rule reports the change.
    pub refusals: &'static [(&'static str, &'static str)],
    /// Whether a deleted object stays until both `metadata.finalizers` and `spec.finalizers` are empty.
    pub spec_finalizers: bool,
    /// Names of objects that cannot be deleted.
    pub undeletable: &'static [&'static str],
    /// Error detail for the deletion of a single undeletable object; deletecollection still deletes these
    /// objects. Empty if admission refuses the deletion.
    pub undeletable_detail: &'static str,
    /// Whether the server allocates cluster IPs and node ports for objects.
    pub allocated: bool,
    /// Whether objects may be created in a namespace that does not exist.
    pub namespace_may_be_missing: bool,
    /// Whether objects expire after the time that is configured for events. Only the stored version sets this property.
    pub expires: bool,
    /// Whether the garbage collector ignores the objects. Only the stored version sets this property.
    pub uncollected: bool,
    /// Whether the objects are deleted before all other objects when a namespace is emptied.
    pub deleted_first: bool,
    /// Whether the table row of a finished object contains a condition.
    pub marks_finished: bool,
    /// Whether writes are still accepted on a full disk, as long as reserved space remains. Only the stored version
    /// sets this property.
    pub essential: bool,
    /// Whether an update also checks the metadata by the rules that the kind has for new objects.
    pub metadata_again: bool,
    /// Whether finalizers may be names without a domain.
    pub plain_finalizers: bool,
    /// Whether an update checks everything except metadata and status twice, and reports each failure twice.
    pub checked_twice: bool,
    /// Warning for a delete request without a propagation policy; empty for no warning.
    pub delete_warning: &'static str,
    /// Replacement for a deprecated version; empty if unknown.
    pub replacement: &'static str,
    /// Release in which a deprecated version is removed; empty if unknown.
    pub removed: &'static str,
    /// Version whose name discovery hashes as the storage version; empty if discovery hashes the stored
    /// version.
    pub hashed_version: &'static str,
    /// Path of the number by which the table rows of a list are sorted; empty means by name.
    pub rows_sorted_by: &'static str,
}

impl Behavior {
    /// The behavior of a kind without special properties.
    pub const PLAIN: Behavior = Behavior {
        strategy: 0,
        normalization: 0,
        update_rule: 0,
        conversion: 0,
        refusals: &[],
        spec_finalizers: false,
        undeletable: &[],
        undeletable_detail: "",
        allocated: false,
        namespace_may_be_missing: false,
        expires: false,
        uncollected: false,
        deleted_first: false,
        marks_finished: false,
        essential: false,
        metadata_again: false,
        plain_finalizers: false,
        checked_twice: false,
        delete_warning: "",
        replacement: "",
        removed: "",
        hashed_version: "",
        rows_sorted_by: "",
    };
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Paths whose code may name kinds: handlers of a single kind, and code that the schema references.
    const OF_KINDS: [&str; 8] = [
        "objects/src/validation/internal.rs",
        "objects/src/validation/rules/",
        "src/requests/verbs/reviews.rs",
        "src/writes/admission/",
        "src/writes/quotas/",
        "types/src/convert/ingress.rs",
        "types/src/schema/defaults_aliases.rs",
        "types/src/schema/defaults_rules.rs",
    ];

    /// Source text that compares a name with the literal name of a kind or resource.
    const COMPARISONS: [&str; 6] =
        ["kind == \"", "kind != \"", "name == \"", "name != \"", "plural == \"", "plural != \""];

    #[test]
    fn generic_code_compares_no_kind_by_name() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = Vec::new();
        for room in ["objects/src", "replica/src", "src", "types/src", "values/src", "wire/src"] {
            look_through(&root, &root.join(room), &mut found);
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    fn look_through(root: &Path, directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                look_through(root, &path, found);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if !name.ends_with(".rs")
                || name.ends_with("_test.rs")
                || OF_KINDS.iter().any(|of| name.starts_with(of))
            {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let lines = code.lines().enumerate().filter(|(_, line)| names_a_kind(line));
            found.extend(lines.map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
        }
    }

    fn names_a_kind(line: &str) -> bool {
        let is_name = |text: &str| text.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_compared = COMPARISONS.iter().any(|comparison| {
            let of_table = comparison.starts_with("plural");
            line.match_indices(comparison).any(|(at, _)| {
                let name = &line[at + comparison.len()..];
                if of_table {
                    is_name(name)
                } else {
                    name.starts_with(|first: char| first.is_ascii_uppercase())
                }
            })
        });
        let is_matched = line.contains("match ")
            && ["table.kind", "message.name", "message.package"]
                .iter()
                .any(|scrutinee| line.contains(scrutinee));
        let has_package = line.contains("message.package ==");
        is_compared || is_matched || has_package
    }

    #[test]
    fn names_a_kind_recognizes_comparisons_with_kinds() {
        for line in [
            r#"resource.table.kind == "Pod""#,
            r#"(group.as_str(), &*table.kind) == ("apps", "DaemonSet") || kind != "Event""#,
            r#"resource.table.plural == "pods""#,
            "match (&*message.package, &*message.name) {",
            "match (stem, &*table.kind) {",
        ] {
            assert!(names_a_kind(line), "{line}");
        }
        for line in [r#"clause.kind == "*""#, "resource.table.kind == kind", r#"name == "default""#] {
            assert!(!names_a_kind(line), "{line}");
        }
    }
}
