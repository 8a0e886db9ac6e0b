//! The document of a kubeconfig: access to its entries, and the merge of two documents.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value, json};
use values::yaml;

use crate::host::files;

/// The lists of a kubeconfig. The second text is the member that has the contents of an entry.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];

/// Members of clusters and users whose value is the path of a file.
const PATHS: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// The contents of a kubeconfig.
#[derive(Clone, Debug, PartialEq)]
pub struct Document(Value);

/// The names of the entries that a merge added or replaced.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Merged {
    /// Entries that the document did not have.
    pub added: Vec<String>,
    /// Entries that the document had with other contents.
    pub replaced: Vec<String>,
}

impl Document {
    /// Returns a document without entries.
    pub fn empty() -> Document {
        Document(json!({"apiVersion": "v1", "kind": "Config"}))
    }

    /// Returns a document with one cluster, one user, and a context of both. This context is the current
    /// context.
    pub fn with_context(
        context: &str,
        cluster_name: &str,
        cluster: &Value,
        user_name: &str,
        user: Value,
    ) -> Document {
        Document(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster_name, "cluster": cluster}],
            "users": [{"name": user_name, "user": user}],
            "contexts": [{"name": context, "context": {"cluster": cluster_name, "user": user_name}}],
            "current-context": context,
        }))
    }

    /// Reads a file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or is not a kubeconfig.
    pub fn read(path: &Path) -> anyhow::Result<Option<Document>> {
        let Some(bytes) = files::read_if_there(path)? else { return Ok(None) };
        Document::parse(&bytes).map(Some).with_context(|| format!("{} is not a kubeconfig", path.display()))
    }

    fn parse(bytes: &[u8]) -> anyhow::Result<Document> {
        let tree = yaml::parse(bytes)?.value;
        let mut text = Vec::new();
        values::json::write(&tree, &mut text);
        match serde_json::from_slice(&text)? {
            Value::Null => Ok(Document::empty()),
            Value::Object(members) => {
                for (list, _) in LISTS {
                    if members.get(list).is_some_and(|list| !list.is_null() && !list.is_array()) {
                        bail!("{list} is not a list");
                    }
                }
                Ok(Document(members.into()))
            }
            _ => Err(anyhow!("the document is not a mapping")),
        }
    }

    /// Makes the paths in the document absolute. A relative path is relative to `dir`.
    pub fn resolve_paths(&mut self, dir: &Path) {
        for (list, member) in LISTS {
            let entries = self.0.get_mut(list).and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten() {
                for name in PATHS {
                    if let Some(path) = entry.get_mut(member).and_then(|contents| contents.get_mut(name))
                        && let Some(text) = path.as_str().filter(|text| !text.is_empty())
                        && let Ok(absolute) = std::path::absolute(dir.join(text))
                    {
                        *path = absolute.to_string_lossy().into();
                    }
                }
            }
        }
    }

    /// Returns the contents for serialization.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Returns the name of the current context; empty if it is not set.
    pub fn current_context(&self) -> &str {
        self.0["current-context"].as_str().unwrap_or_default()
    }

    /// Returns the name and the contents of the cluster of the current context.
    ///
    /// # Errors
    /// The current context or its cluster does not exist.
    pub fn current_cluster(&self) -> anyhow::Result<(&str, &Value)> {
        let name = self.current_context();
        let context =
            self.entry("contexts", name).with_context(|| format!("there is no context {name:?}"))?;
        let name = context["context"]["cluster"].as_str().unwrap_or_default();
        let cluster =
            self.entry("clusters", name).with_context(|| format!("there is no cluster {name:?}"))?;
        Ok((cluster["name"].as_str().unwrap_or_default(), &cluster["cluster"]))
    }

    /// Returns a document with the current context, whose server URL reads the state at an earlier point. The
    /// names of the cluster and the context contain the point, so that the document can be merged into a file
    /// that also has the original context.
    ///
    /// # Errors
    /// The current context or its cluster does not exist.
    pub fn at_point(&self, point: &str) -> anyhow::Result<Document> {
        let (cluster_name, cluster) = self.current_cluster()?;
        let context = self.entry("contexts", self.current_context()).cloned().unwrap_or_default();
        let user_name = context["context"]["user"].as_str().unwrap_or_default();
        let user = self.entry("users", user_name).map(|entry| entry["user"].clone()).unwrap_or_default();
        let mut cluster = cluster.clone();
        let server = cluster["server"].as_str().unwrap_or_default().trim_end_matches('/');
        cluster["server"] = format!("{server}/as-of/{point}").into();
        let named = |name: &str| format!("{name} as of {point}");
        let cluster_name = named(cluster_name);
        let mut at_point =
            Document::with_context(&named(self.current_context()), &cluster_name, &cluster, user_name, user);
        if let Some(namespace) = context["context"]["namespace"].as_str() {
            at_point.0["contexts"][0]["context"]["namespace"] = namespace.into();
        }
        Ok(at_point)
    }

    fn entry(&self, list: &str, name: &str) -> Option<&Value> {
        self.0[list].as_array()?.iter().find(|entry| entry["name"] == name)
    }

    /// Adds the entries of another document. Replaces entries that have the same name and other contents, if
    /// `replaces` is true. If `switches` is true, or if this document has no current context, the current
    /// context of the other document becomes the current context.
    ///
    /// # Errors
    /// `replaces` is false, and an entry with the same name has other contents.
    pub fn merge(&mut self, other: &Document, replaces: bool, switches: bool) -> anyhow::Result<Merged> {
        let mut merged = Merged::default();
        let Value::Object(members) = &mut self.0 else { return Ok(merged) };
        for (list, member) in LISTS {
            let entries = other.0[list].as_array().map(Vec::as_slice).unwrap_or_default();
            merge_list(members, list, entries, &mut merged).filter(|_| !replaces).map_or(Ok(()), |name| {
                Err(anyhow!("the {member} {name:?} exists with other contents: replace it with --replace"))
            })?;
        }
        if switches || members.get("current-context").and_then(Value::as_str).is_none_or(str::is_empty) {
            members.insert("current-context".to_owned(), other.current_context().into());
        }
        Ok(merged)
    }
}

/// Merges the entries of one list. Returns the name of the first entry that was replaced.
fn merge_list(
    members: &mut Map<String, Value>,
    list: &str,
    entries: &[Value],
    merged: &mut Merged,
) -> Option<String> {
    let known = members.entry(list).or_insert_with(|| json!([]));
    if known.is_null() {
        *known = json!([]);
    }
    let known = known.as_array_mut()?;
    let mut first = None;
    for entry in entries {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        match known.iter_mut().find(|known| known["name"] == name) {
            None => {
                known.push(entry.clone());
                merged.added.push(format!("{list}/{name}"));
            }
            Some(same) if same == entry => {}
            Some(other) => {
                *other = entry.clone();
                merged.replaced.push(format!("{list}/{name}"));
                first.get_or_insert(name);
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(context: &str, server: &str) -> Document {
        let cluster = json!({"server": server});
        Document::with_context(context, "c", &cluster, context, json!({"token": "t"}))
    }

    #[test]
    fn a_kubeconfig_merge_adds_entries_and_replaces_only_on_request() {
        let mut file = Document::parse(b"users:\nclusters: []\npreferences: {a: b}\n").unwrap();
        let merged = file.merge(&document("one", "https://a"), false, false).unwrap();
        assert_eq!(merged.added, ["clusters/c", "users/one", "contexts/one"]);
        assert_eq!((file.current_context(), &file.value()["preferences"]["a"]), ("one", &json!("b")));
        assert_eq!(file.current_cluster().unwrap(), ("c", &json!({"server": "https://a"})));

        let again = file.merge(&document("one", "https://a"), false, false).unwrap();
        assert_eq!(again, Merged::default());
        let error = file.clone().merge(&document("two", "https://b"), false, true).unwrap_err().to_string();
        assert_eq!(error, "the cluster \"c\" exists with other contents: replace it with --replace");
        let merged = file.merge(&document("two", "https://b"), true, false).unwrap();
        assert_eq!((merged.replaced, merged.added.len()), (vec!["clusters/c".to_owned()], 2));
        assert_eq!(file.current_context(), "one");
        file.merge(&document("two", "https://b"), false, true).unwrap();
        assert_eq!(file.current_context(), "two");
    }

    #[test]
    fn a_kubeconfig_of_an_earlier_point_can_be_merged_with_the_current_one() {
        let now = document("one", "https://a/");
        let then = now.at_point("-10m").unwrap();
        assert_eq!(then.current_context(), "one as of -10m");
        let cluster = json!({"server": "https://a/as-of/-10m"});
        assert_eq!(then.current_cluster().unwrap(), ("c as of -10m", &cluster));
        let mut file = now.clone();
        let merged = file.merge(&then, false, true).unwrap();
        assert_eq!(merged.added, ["clusters/c as of -10m", "contexts/one as of -10m"]);
        assert_eq!(file.current_context(), "one as of -10m");
        assert!(Document::empty().at_point("5").is_err());
    }

    #[test]
    fn relative_paths_are_made_absolute_for_another_directory() {
        let mut file = Document::parse(b"users: [{name: u, user: {tokenFile: t, client-key: /k}}]").unwrap();
        file.resolve_paths(Path::new("/a/b"));
        assert_eq!(file.value()["users"][0]["user"], json!({"tokenFile": "/a/b/t", "client-key": "/k"}));
    }

    #[test]
    fn files_that_are_not_a_kubeconfig_are_refused() {
        for text in ["[]", "text", "clusters: {a: b}"] {
            assert!(Document::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(Document::parse(b"").unwrap(), Document::empty());
        assert!(Document::empty().current_cluster().is_err());
    }
}
