//! The selection of controllers in the flag `--controllers`: `*` selects the controllers that run by default,
//! `name` enables a controller, and `-name` disables a controller. The first entry for a controller takes
//! precedence, as in kube-controller-manager.

use std::fmt;

/// Names of the controllers of this server: the current name in Kubernetes, and the older, shorter name.
pub const KNOWN: [(&str, &str); 15] = [
    ("bootstrap-signer-controller", "bootstrapsigner"),
    ("certificatesigningrequest-approving-controller", "csrapproving"),
    ("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    ("certificatesigningrequest-signing-controller", "csrsigning"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    ("garbage-collector-controller", "garbagecollector"),
    ("namespace-controller", "namespace"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection"),
    ("resourcequota-controller", "resourcequota"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("serviceaccount-controller", "serviceaccount"),
    ("storage-version-migrator-controller", "storage-version-migrator"),
    ("token-cleaner-controller", "tokencleaner"),
    ("ttl-after-finished-controller", "ttl-after-finished"),
    ("validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status"),
];

/// Controllers that run only if they are named.
const BY_NAME: [&str; 3] =
    ["bootstrap-signer-controller", "storage-version-migrator-controller", "token-cleaner-controller"];

/// A selection of controllers. An empty selection selects the controllers that run by default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selection(Vec<String>);

impl Default for Selection {
    fn default() -> Self {
        Selection(vec!["*".to_owned()])
    }
}

impl Selection {
    /// Parses the value of the flag.
    ///
    /// # Errors
    /// The text contains a name that no controller has.
    pub fn parse(text: &str) -> Result<Selection, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut selected = Vec::new();
        for word in words {
            let (sign, name) = word.strip_prefix('-').map_or(("", word), |name| ("-", name));
            if word == "*" {
                selected.push(word.to_owned());
                continue;
            }
            let known = KNOWN.iter().find(|(known, former)| [*known, *former].contains(&name));
            let (known, _) =
                known.ok_or_else(|| format!("{name:?} is not in the list of known controllers"))?;
            selected.push(format!("{sign}{known}"));
        }
        Ok(Selection(selected))
    }

    /// Returns whether a controller is selected.
    pub fn has(&self, name: &str) -> bool {
        let word = self.0.iter().find(|word| word.strip_prefix('-').unwrap_or(word) == name);
        match word {
            Some(word) => !word.starts_with('-'),
            None => !BY_NAME.contains(&name) && self.0.iter().any(|word| word == "*"),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the documentation must list every controller with both names and its default.
    #[test]
    fn the_documentation_lists_every_controller_with_its_default() {
        let page = include_str!("../../../../docs/api/controllers.md");
        let (_, table) =
            page.split_once("| controller | short name | default |").expect("the page has the table");
        let documented: Vec<String> =
            table.lines().skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect();
        let known: Vec<String> = KNOWN
            .iter()
            .map(|(name, short)| {
                let default = if BY_NAME.contains(name) { "off" } else { "on" };
                format!("| `{name}` | `{short}` | {default} |")
            })
            .collect();
        assert_eq!(documented, known);
    }

    #[test]
    fn controllers_are_selected_by_a_list_as_in_kube_controller_manager() {
        for (text, running) in [
            ("*", Ok(12)),
            ("", Ok(0)),
            ("-namespace-controller", Ok(0)),
            ("*,-namespace-controller", Ok(11)),
            ("-namespace,*", Ok(11)),
            ("namespace", Ok(1)),
            ("namespace,-namespace", Ok(1)),
            ("*,garbagecollector", Ok(12)),
            ("*,tokencleaner", Ok(13)),
            ("bootstrapsigner,tokencleaner", Ok(2)),
            ("*,nobody", Err("\"nobody\" is not in the list of known controllers")),
            ("-*", Err("\"*\" is not in the list of known controllers")),
        ] {
            let got = Selection::parse(text)
                .map(|selection| KNOWN.iter().filter(|(name, _)| selection.has(name)).count());
            assert_eq!(got, running.map_err(str::to_owned), "{text}");
        }
    }
}
