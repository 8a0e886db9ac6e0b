//! Declarations of a version that determine how clients see its objects.
//!
//! ```text
//! Version ─► columns, selectable fields, subresources, warning ─► ResourceMaker
//! ```
//!
//! This module does not handle the structure of the objects, which the schema determines.

use super::{Definition, DefinitionVersion, Names};
use types::schema::make::ResourceMaker;
use types::schema::table::{Column, Scope};
use types::schema::versions::compare_versions;

impl Definition {
    /// Returns the scope of the objects.
    pub fn scope(&self) -> Scope {
        if self.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced }
    }

    /// Returns the warning for requests of a deprecated version. The warning is the text of the version, or a
    /// sentence that recommends `preferred` if that is a better version.
    fn deprecation(&self, version: &DefinitionVersion, preferred: Option<&str>) -> Option<String> {
        if !version.deprecated {
            return None;
        }
        if let Some(own) = &version.deprecation_warning {
            return Some(own.clone());
        }
        let name = |version: &str| format!("{}/{version} {}", self.group, self.names.kind);
        let mut text = format!("{} is deprecated", name(&version.name));
        if let Some(best) = preferred.filter(|best| compare_versions(best, &version.name).is_lt()) {
            text.push_str("; use ");
            text.push_str(&name(best));
        }
        Some(text)
    }

    /// Returns the best version that is served and not deprecated.
    pub fn preferred_version(&self) -> Option<&str> {
        let served = self.versions.iter().filter(|version| version.served && !version.deprecated);
        served.map(|version| version.name.as_str()).min_by(|a, b| compare_versions(a, b))
    }

    /// Sets the properties of a version, except its schema, in the builder of the version. The properties
    /// come from the version and from the accepted names. `preferred` is the [preferred
    /// version](Definition::preferred_version).
    pub fn present(
        &self,
        version: &DefinitionVersion,
        preferred: Option<&str>,
        maker: ResourceMaker,
    ) -> ResourceMaker {
        let Names { singular, list_kind, short_names, categories, .. } = &self.accepted;
        let (short_names, categories) = (texts(short_names), texts(categories));
        let mut maker = maker.names(singular.clone(), list_kind.clone(), &short_names, &categories);
        for column in version.table_columns() {
            maker = maker.column(column);
        }
        for path in &version.selectable {
            maker = maker.selectable(path.trim_start_matches('.').to_owned());
        }
        if version.has_status() {
            maker = maker.status();
        }
        if let Some(warning) = self.deprecation(version, preferred) {
            maker = maker.deprecated(warning);
        }
        maker
    }
}

fn texts(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

impl DefinitionVersion {
    /// Returns the declared columns of tables. The result lacks the column of the name, which every table
    /// has, and the column of the age, which a table has if no columns are declared.
    pub fn table_columns(&self) -> impl Iterator<Item = Column> {
        self.columns.iter().map(|column| Column {
            name: column.name.clone().into(),
            kind: column.kind.clone().into(),
            format: column.format.clone().into(),
            priority: i32::try_from(column.priority).unwrap_or(i32::MAX),
            description: column.description.clone().into(),
            cell: column.json_path.clone().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn the_warning_of_a_deprecated_version_names_the_preferred_version() {
        let text = r#"{"spec":{"group":"g.example","names":{"kind":"A"},"versions":[
            {"name":"v1beta1","served":true,"deprecated":true},
            {"name":"v1","served":true},
            {"name":"v2","served":true},
            {"name":"v3","served":false},
            {"name":"v4","served":true,"deprecated":true},
            {"name":"v1alpha1","served":true,"deprecated":true,"deprecationWarning":"gone soon"}]}}"#;
        let definition = Definition::read(&object(text));
        for (version, want) in definition.versions.iter().zip([
            Some("g.example/v1beta1 A is deprecated; use g.example/v2 A"),
            None,
            None,
            None,
            Some("g.example/v4 A is deprecated"),
            Some("gone soon"),
        ]) {
            let preferred = definition.preferred_version();
            assert_eq!(definition.deprecation(version, preferred).as_deref(), want, "{}", version.name);
        }
    }
}
