//! The types of configuration files: the kind and version that a file must state, and its members.
//!
//! ```text
//! text ─► document ─► kind and version ─► members ─► the caller, which checks their values
//! ```
//!
//! Error messages have the wording of the reference server.

use auth::strict::Object;

use crate::typed::Typed;
use values::field::go_quote;
use values::json::Value;
use values::naming::Naming;
use values::type_meta::type_of;

/// The type of a configuration file.
pub struct ConfigType {
    /// Accepted types: stem of the group, versions, and kind.
    pub names: &'static [(&'static str, &'static [&'static str], &'static str)],
    /// Source location of the scheme in the "no kind is registered" error of the reference server. A name
    /// that begins with `pkg/` is used unchanged; any other name gets the prefix of the naming profile.
    pub scheme: &'static str,
    /// Schema of the file's members.
    pub form: &'static Object,
    /// Whether kind and version may be absent from a file.
    pub is_implied: bool,
}

impl ConfigType {
    /// Parses a text as a document of this type.
    ///
    /// # Errors
    /// The text cannot be parsed, or the document has another type.
    pub fn read(&self, text: &[u8], naming: &'static Naming) -> Result<Value, String> {
        let typed = Typed::read(text)?;
        if !self.is_implied {
            typed.check_named()?;
        }
        typed.check(self.form, self.version(typed.document(), naming)?)?;
        Ok(typed.into_document())
    }

    /// Returns the version of the document, such as `v1`.
    ///
    /// # Errors
    /// The document has another type.
    pub fn version<'d>(&self, document: &'d Value, naming: &'static Naming) -> Result<&'d str, String> {
        let (kind, api_version) = type_of(document);
        if !self.is(kind, api_version, naming) {
            let scheme = match self.scheme {
                scheme if scheme.starts_with("pkg/") => scheme.to_owned(),
                scheme => naming.own(scheme),
            };
            return Err(format!(
                "no kind {} is registered for version {} in scheme {}",
                go_quote(kind),
                go_quote(api_version),
                go_quote(&scheme)
            ));
        }
        Ok(api_version.rsplit('/').next().unwrap_or_default())
    }

    /// Returns whether this kind and version belong to the type.
    fn is(&self, kind: &str, api_version: &str, naming: &'static Naming) -> bool {
        let is_absent = |value: &str| self.is_implied && value.is_empty();
        self.names.iter().any(|(stem, versions, own)| {
            let named = |version: &&str| {
                naming.understood().any(|naming| naming.api_version(stem, true, version) == api_version)
            };
            (kind == *own || is_absent(kind)) && (is_absent(api_version) || versions.iter().any(named))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::strict::MemberType;
    use values::naming::KUBERNETES;

    #[test]
    fn a_configuration_file_must_name_its_type_unless_it_is_implied() {
        const FORM: Object = Object {
            name: "A",
            members: &[
                ("apiVersion", MemberType::Text),
                ("kind", MemberType::Text),
                ("a", MemberType::Int32),
            ],
        };
        let file = |is_implied| ConfigType {
            names: &[("g", &["v1", "v2"], "A")],
            scheme: "s",
            form: &FORM,
            is_implied,
        };
        let (named, implied) = (file(false), file(true));
        for (file, text, want) in [
            (&named, "apiVersion: g.k8s.io/v2\nkind: A\na: 1", ""),
            (&named, "a: 1", "Object 'Kind' is missing in 'a: 1'"),
            (
                &named,
                "apiVersion: g.k8s.io/v3\nkind: A",
                "no kind \"A\" is registered for version \"g.k8s.io/v3\" in ",
            ),
            (
                &named,
                "apiVersion: g.k8s.io/v1\nkind: B",
                "no kind \"B\" is registered for version \"g.k8s.io/v1\" in ",
            ),
            (
                &named,
                "APIVersion: g.k8s.io/v1\nkind: A",
                "strict decoding error: unknown field \"APIVersion\"",
            ),
            (&named, "apiVersion: g.k8s.io/v1\nkind: A\nb: 1", "strict decoding error: unknown field \"b\""),
            (&implied, "a: 1", ""),
            (&implied, "", ""),
            (&implied, "kind: A", ""),
            (&implied, "apiVersion: g.k8s.io/v1", ""),
            (&implied, "kind: B", "no kind \"B\" is registered for version \"\" in scheme "),
            (&implied, "apiVersion: v1", "no kind \"\" is registered for version \"v1\" in scheme "),
        ] {
            let got = file.read(text.as_bytes(), &KUBERNETES).err().unwrap_or_default();
            assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{text}: {got}");
        }
    }
}
