//! What the server does for one kind and not for others, as far as the schema says it: code is named by a number, a
//! property that generic code asks for is a member.
//!
//! Generic code asks a resource for a property here and never for its kind. Types made at run time are
//! [`Behavior::PLAIN`].

/// What sets a kind apart from others, beyond the data in the rest of its table.
#[derive(Debug)]
pub struct Behavior {
    /// Number of its strategy, from 1; 0 without one. Only `strategy` knows what is behind it.
    pub strategy: u16,
    /// Number of what brings objects into the form that validation and the store know, from 1; 0 without. Only
    /// validation knows what is behind it.
    pub normalization: u16,
    /// Number of the check in code of updates, from 1; 0 without. Only validation knows what is behind it.
    pub update_rule: u16,
    /// Number of the conversion between the version and the stored one, from 1; 0 where they differ in nothing or in
    /// their names only. Only `convert` knows what is behind it.
    pub conversion: u16,
    /// Paths among `immutable` that are refused in other words: path, and the detail of a forbidden change, or nothing
    /// where the update rule refuses the change.
    pub refusals: &'static [(&'static str, &'static str)],
    /// Objects are kept until `spec.finalizers` is empty, beside `metadata.finalizers`.
    pub spec_finalizers: bool,
    /// Names of objects that cannot be deleted.
    pub undeletable: &'static [&'static str],
    /// Why they cannot be deleted one by one, while with a collection they go; empty where admission refuses it.
    pub undeletable_detail: &'static str,
    /// Objects are given addresses and ports.
    pub allocated: bool,
    /// Objects may be created in a namespace that does not exist.
    pub namespace_may_be_missing: bool,
    /// Objects expire after the time that is configured for events. Said of the stored version.
    pub expires: bool,
    /// The garbage collector does not look at the objects. Said of the stored version.
    pub uncollected: bool,
    /// When a namespace is emptied, these objects go before all others.
    pub deleted_first: bool,
    /// Rows of tables carry a condition once the object has finished.
    pub marks_finished: bool,
    /// Writes are taken on a full disk as long as some room is kept back. Said of the stored version.
    pub essential: bool,
    /// On update, the rules of the kind check the metadata once more as if the object were new.
    pub metadata_again: bool,
    /// Finalizers may be names without a domain.
    pub plain_finalizers: bool,
    /// On update, everything but the metadata and the status is checked twice, each failure said twice.
    pub checked_twice: bool,
    /// What a delete that leaves the propagation open warns of; empty without.
    pub delete_warning: &'static str,
    /// What to use in place of a deprecated version; empty where nothing is said.
    pub replacement: &'static str,
    /// Release that no longer has a deprecated version; empty where nothing is said.
    pub removed: &'static str,
    /// The version that discovery's hash of the stored form names, where it is not the stored one; otherwise empty.
    pub hashed_version: &'static str,
    /// Path of a number by which the rows of a list as a table are sorted; empty: by name.
    pub rows_sorted_by: &'static str,
}

impl Behavior {
    /// That of a kind with nothing special about it.
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

    /// By path below `src`: handlers that some kinds have to themselves, and code that types name in the schema.
    const OF_KINDS: [&str; 7] = [
        "objects/validation/internal.rs",
        "writes/admission/",
        "types/schema/defaults_rules.rs",
        "types/schema/defaults_aliases.rs",
        "types/convert/ingress.rs",
        "requests/verbs/reviews.rs",
        "objects/validation/rules/",
    ];

    /// Comparisons that a name of a kind could follow.
    const COMPARISONS: [&str; 6] =
        ["kind == \"", "kind != \"", "name == \"", "name != \"", "plural == \"", "plural != \""];

    #[test]
    fn generic_code_knows_no_kind_by_its_name() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = Vec::new();
        look_through(&root, &root, &mut found);
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
    fn comparisons_with_kinds_are_seen() {
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
