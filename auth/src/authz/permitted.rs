//! Permissions to act as another user, kept for some seconds (docs/api/authentication.md#impersonation).
//!
//! Each constrained mode keeps two sorts: of a whole request, and of the wanted identity alone, which holds for other
//! requests of the same caller. Refusals are not kept.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use parking_lot::Mutex;

use crate::attributes::{Attributes, Selectors};
use crate::identity::User;

/// How long a permission counts, whatever becomes of the rules that it follows from.
const LIFETIME: Duration = Duration::from_secs(10);

/// Most permissions kept; each costs about 100 bytes.
const KEPT_MAX: usize = 8192;

/// Permissions by what they are about.
#[derive(Default)]
pub(super) struct Permitted(Mutex<HashMap<Subject, Instant>>);

/// Digest of everything that a permission depends on.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub(super) struct Subject([u8; 32]);

impl Permitted {
    /// Whether there is a recent permission.
    pub(super) fn has(&self, subject: Subject) -> bool {
        self.0.lock().get(&subject).is_some_and(|end| Instant::now() < *end)
    }

    /// Keeps a permission.
    pub(super) fn keep(&self, subject: Subject) {
        let now = Instant::now();
        let mut kept = self.0.lock();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, end| now < *end);
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
        }
        kept.insert(subject, now + LIFETIME);
    }
}

impl Subject {
    /// A caller that acts as `wanted` by a mode, whatever it requests.
    pub(super) fn identity(mode: &str, caller: &User, wanted: &User) -> Subject {
        let mut parts = Parts::new();
        parts.texts(["identity", mode]);
        parts.user(caller);
        parts.user(wanted);
        parts.end()
    }

    /// A request that its caller makes as `wanted` by a mode.
    pub(super) fn request(mode: &str, request: &Attributes<'_>, wanted: &User) -> Subject {
        let Attributes { user, verb, resource_request, group, version, resource, .. } = *request;
        let Attributes { subresource, namespace, name, path, selectors, .. } = *request;
        let sort = if resource_request { "resource" } else { "path" };
        let mut parts = Parts::new();
        parts.texts(["request", mode, sort]);
        parts.user(user);
        parts.user(wanted);
        parts.texts([verb, group, version, resource, subresource, namespace, name, path]);
        parts.selectors(selectors);
        parts.end()
    }
}

/// Texts, each with its length before it, and lists, each with its number of parts before it.
struct Parts(digest::Context);

impl Parts {
    fn new() -> Parts {
        Parts(digest::Context::new(&digest::SHA256))
    }

    fn number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_be_bytes());
    }

    fn texts<'t>(&mut self, texts: impl IntoIterator<Item = &'t str, IntoIter: ExactSizeIterator>) {
        let texts = texts.into_iter();
        self.number(texts.len());
        for text in texts {
            self.number(text.len());
            self.0.update(text.as_bytes());
        }
    }

    fn user(&mut self, user: &User) {
        self.texts([user.name.as_str(), &user.uid]);
        self.texts(user.groups.iter().map(String::as_str));
        self.number(user.extra.len());
        for (key, values) in &user.extra {
            self.texts([key.as_str()]);
            self.texts(values.iter().map(String::as_str));
        }
    }

    fn selectors(&mut self, selectors: Selectors<'_>) {
        self.number(selectors.fields.len());
        for field in selectors.fields {
            self.texts([field.field.as_str(), if field.is_equal { "=" } else { "!=" }, &field.value]);
        }
        self.number(selectors.labels.len());
        for label in selectors.labels {
            self.texts([label.key.as_str(), label.operator]);
            self.texts(label.values.iter().map(String::as_str));
        }
    }

    fn end(self) -> Subject {
        let mut id = [0; 32];
        id.copy_from_slice(self.0.finish().as_ref());
        Subject(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::LabelRequirement;

    #[test]
    fn what_a_permission_depends_on_tells_it_from_others() {
        let (jane, joe) = (User::new("jane", ["dev"]), User::new("joe", [""; 0]));
        let pods = Attributes {
            resource_request: true,
            version: "v1",
            resource: "pods",
            namespace: "ns",
            ..Attributes::path(&jane, "list", "/api/v1/namespaces/ns/pods")
        };
        let labels = [LabelRequirement { key: "a".into(), operator: "Exists", values: Vec::new() }];
        let selected = Selectors { labels: &labels, ..Selectors::default() };
        let of = |request: &Attributes<'_>| Subject::request("impersonate:user-info", request, &joe);
        let subjects = [
            Subject::identity("impersonate:user-info", &jane, &joe),
            Subject::identity("impersonate:user-info", &jane, &User::new("joe", ["dev"])),
            Subject::identity("impersonate:user-info", &joe, &joe),
            Subject::identity("impersonate:serviceaccount", &jane, &joe),
            of(&pods),
            of(&Attributes { verb: "watch", ..pods }),
            of(&Attributes { namespace: "", name: "ns", ..pods }),
            of(&Attributes { selectors: selected, ..pods }),
            of(&Attributes { user: &joe, ..pods }),
        ];
        let permitted = Permitted::default();
        for subject in subjects {
            assert!(!permitted.has(subject));
            permitted.keep(subject);
            assert!(permitted.has(subject));
        }
    }
}
