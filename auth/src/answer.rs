//! Answers of webhooks: reviews that come back, read in the words of kube-apiserver's decoder. Members that are not known
//! are ignored, and null is as good as absent.

use serde_json::Value;

use crate::document::{self, Tree};
use crate::json_error;
use crate::strict::Object;

/// The review that a webhook was asked with.
pub(crate) struct Review<'r> {
    /// Group of its version.
    pub(crate) group: &'r str,
    /// `v1` or `v1beta1`.
    pub(crate) version: &'r str,
    /// Its kind and the members that are read.
    pub(crate) form: &'static Object,
}

impl Review<'_> {
    /// The review that `answer` is, a text in JSON. One that does not say what it is, is taken for the review.
    ///
    /// # Errors
    /// It is of another kind or version, or a member that is read has another type.
    pub(crate) fn read(&self, answer: &[u8]) -> Result<Value, String> {
        let tree: Tree =
            serde_json::from_slice(answer).map_err(|error| json_error::undecided(&error.to_string()))?;
        let members = tree.typed_members()?;
        let review = Value::from(document::object(members));
        let Review { group, version, form } = self;
        let text = |name: &str| review[name].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let is_version = api_version.is_empty() || api_version.rsplit_once('/') == Some((*group, *version));
        if !is_version || !(kind.is_empty() || kind == form.name) {
            let given = match api_version.rsplit('/').next() {
                None | Some("") => version,
                Some(given) => given,
            };
            let kind = if kind.is_empty() { form.name } else { kind };
            return Err(format!(
                "converting ({given}.{kind}) to ({version}.{}): unknown conversion",
                form.name
            ));
        }
        form.check(members, version, &mut Vec::new())?;
        Ok(review)
    }
}
